"""Points in time bend only where that pays: models that have some are read anew."""

from __future__ import annotations

import runpy
from pathlib import Path

revision = "mempair_0012"
down_revision = "mempair_0011"


def upgrade() -> None:
    runpy.run_path(str(Path(__file__).parents[1] / "steps.py"))["upgrade"](Path(__file__))


def downgrade() -> None:
    # Older tables cannot hold what the newer ones have learned.
    raise NotImplementedError("mempair_db has no downgrades: uninstall, or restore a backup")
