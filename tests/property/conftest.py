"""Every run tries the same examples, however long compilation takes, and remembers none.

`MEMPAIR_HYPOTHESIS=deep` looks further, and elsewhere each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

patient = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200)
settings.register_profile("same", patient, derandomize=True)
settings.register_profile("deep", patient, max_examples=10_000)
settings.load_profile(os.environ.get("MEMPAIR_HYPOTHESIS", "same"))
