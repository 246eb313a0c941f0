"""Keep learned keys in buckets."""

from __future__ import annotations

from pathlib import Path

from mempair_db.catalog.install import apply, refuse_downgrade

revision = "0002"
down_revision = "0001"

SQL = Path(__file__).with_suffix(".sql")


def upgrade() -> None:
    apply(SQL)


def downgrade() -> None:
    refuse_downgrade()
