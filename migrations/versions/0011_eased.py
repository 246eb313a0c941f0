"""The ridge may be eased, and targets beyond the clamp are counted: exact models are read anew."""

from __future__ import annotations

import runpy
from pathlib import Path

revision = "mempair_0011"
down_revision = "mempair_0010"


def upgrade() -> None:
    runpy.run_path(str(Path(__file__).parents[1] / "steps.py"))["upgrade"](Path(__file__))


def downgrade() -> None:
    # Older tables cannot hold what the newer ones have learned.
    raise NotImplementedError("mempair_db has no downgrades: uninstall, or restore a backup")
