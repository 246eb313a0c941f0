"""${message}."""

from __future__ import annotations

from pathlib import Path

from mempair_db.catalog.install import apply, refuse_downgrade

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}

SQL = Path(__file__).with_suffix(".sql")


def upgrade() -> None:
    apply(SQL)


def downgrade() -> None:
    refuse_downgrade()
