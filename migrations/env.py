"""Alembic's entry: on the connection install() hands over, on the database of `-x dsn=…`, or printed (`--sql`)."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import psycopg
from alembic import context
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

SCHEMA = "mempair"

steps = runpy.run_path(str(Path(__file__).with_name("steps.py")))


def migrate(connection: Connection) -> None:
    steps["execute"](connection, steps["before"]())
    context.configure(
        connection=connection,
        version_table_schema=SCHEMA,
        on_version_apply=context.config.attributes.get("on_version_apply"),
    )
    context.run_migrations()


def print_script() -> None:
    buffer = context.config.attributes.get("output")
    context.configure(dialect_name="postgresql", version_table_schema=SCHEMA, output_buffer=buffer)
    context.get_context().impl.static_output("\\set ON_ERROR_STOP on")
    with context.begin_transaction():
        context.get_context().impl.static_output(steps["before"]())
        context.run_migrations()


def address() -> str:
    """`-x dsn=…`, or MEMPAIR_DSN, or what libpq's own variables say."""
    return context.get_x_argument(as_dictionary=True).get("dsn") or os.environ.get("MEMPAIR_DSN", "")


if context.is_offline_mode():
    print_script()
elif (given := context.config.attributes.get("connection")) is not None:
    migrate(given)
else:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(address()), poolclass=NullPool)
    with engine.begin() as connection:
        migrate(connection)
