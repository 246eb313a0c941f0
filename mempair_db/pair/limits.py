"""Which numbers a user may choose: what the arithmetic was tried at.

`mempair.check_parameters` (sql/25_checks.sql) has the same, and tests/integration/test_parameters.py compares the two.
Only `calibration_rows` differs: in a database it lies from 10 to 100,000.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import InvalidParameter

LIMITS: Final[dict[str, tuple[float, float]]] = {
    "epsilon": (5e-324, 20.0),  # beyond e^20 nothing is hidden
    "delta": (1.0000000000000002e-300, 1.0 - 2**-53),
    "gamma": (1e-9, 1e9),
    "lam": (1e-8, 1e4),
    "kappa": (1e-6, 1e9),
    "clip": (1e-6, 1e6),
    "ridge": (1e-6, 1e9),
}
WHOLE: Final[dict[str, tuple[int, int]]] = {
    "m": (1, 2**31 - 1),
    "tau": (1, 100),
    "curves": (0, 16),
    "calibration_rows": (1, 2**31 - 1),
}
LARGEST_CLIP: Final = 8.0  # of an exact pair, in deviations: so that no sum of huber's terms can overflow


def check(chosen: Any) -> None:
    """Refuse numbers outside their limits; None is chosen later, and what the object does not have is not its own."""
    for name, (least, most) in {**LIMITS, **WHOLE}.items():
        value = getattr(chosen, name, None)
        if value is None:
            continue
        is_number = isinstance(value, int) or name in LIMITS
        if not is_number or not least <= value <= most:
            what = "whole number" if name in WHOLE else "number"
            raise InvalidParameter(f"{name} is {value}.", remedy=f"Give a {what} from {least:g} to {most:g}.")
