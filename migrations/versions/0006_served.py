"""Predictions by one expression per model."""

from __future__ import annotations

from pathlib import Path

from alembic import context, op

revision = "0006"
down_revision = "0005"

SQL = Path(__file__).with_suffix(".sql")


def upgrade() -> None:
    text = SQL.read_text(encoding="utf-8")
    if context.is_offline_mode():
        context.get_context().impl.static_output(text)
    else:
        # Without parameters neither ':name' nor '%' in the SQL is taken for a placeholder.
        op.get_bind().execution_options(no_parameters=True).exec_driver_sql(text)


def downgrade() -> None:
    # Older tables cannot hold what the newer ones have learned.
    raise NotImplementedError("mempair_db has no downgrades: uninstall, or restore a backup")
