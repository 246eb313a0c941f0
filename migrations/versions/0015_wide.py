"""Numbers of a regression may be clamped farther out: exact regressions are read anew."""

from __future__ import annotations

import runpy
from pathlib import Path

revision = "mempair_0015"
down_revision = "mempair_0014"


def upgrade() -> None:
    runpy.run_path(str(Path(__file__).parents[1] / "steps.py"))["upgrade"](Path(__file__))


def downgrade() -> None:
    # Older tables cannot hold what the newer ones have learned.
    raise NotImplementedError("mempair_db has no downgrades: uninstall, or restore a backup")
