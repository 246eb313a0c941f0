"""More kinds of models, versions, fleets: what 0.2.0 adds to the tables last."""

from __future__ import annotations

import runpy
from pathlib import Path

revision = "mempair_0007"
down_revision = "mempair_0006"


def upgrade() -> None:
    runpy.run_path(str(Path(__file__).parents[1] / "steps.py"))["upgrade"](Path(__file__))


def downgrade() -> None:
    # Older tables cannot hold what the newer ones have learned.
    raise NotImplementedError("mempair_db has no downgrades: uninstall, or restore a backup")
