"""Alembic's entry: run the migrations on the connection install() hands over, or print them for script()."""

from __future__ import annotations

from alembic import context

SCHEMA = "mempair"

if context.is_offline_mode():
    # The caller wraps the whole script in one transaction.
    context.configure(
        dialect_name="postgresql",
        output_buffer=context.config.attributes["output"],
        transactional_ddl=False,
        version_table_schema=SCHEMA,
    )
else:
    context.configure(connection=context.config.attributes["connection"], version_table_schema=SCHEMA)
context.run_migrations()
