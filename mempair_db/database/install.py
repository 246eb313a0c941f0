"""Install, upgrade and remove schema mempair: migrations make the tables, `sql/` the functions and views."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from alembic import command
from alembic.config import Config
from psycopg import sql
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from mempair_db.database.connect import connect, translated
from mempair_db.database.resources import directory, sql_files


def install(dsn: str) -> None:
    """Install schema mempair or bring it up to date, in one transaction."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)
    with translated(), _unwrapped(), engine.begin() as connection:
        _execute(connection, _read("install/before.sql"))
        command.upgrade(_alembic(connection=connection), "head")
        for file in sql_files():
            _execute(connection, file.read_text(encoding="utf-8"))
        _execute(connection, _versions())
        _execute(connection, _read("install/after.sql"))


def uninstall(dsn: str) -> None:
    """Remove everything: triggers on users' tables, overloads in public, the schema and what it learned."""
    with connect(dsn) as connection:
        connection.execute(_read("install/uninstall.sql"))


def script() -> str:
    """Return what install() does to an empty database, as one script for psql."""
    output = io.StringIO()
    command.upgrade(_alembic(output=output), "head", sql=True)
    parts = [
        "\\set ON_ERROR_STOP on",
        "begin;",
        _read("install/before.sql"),
        output.getvalue(),
        *(file.read_text(encoding="utf-8") for file in sql_files()),
        _versions(),
        _read("install/after.sql"),
        "commit;",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise the driver's own error instead of SQLAlchemy's around it."""
    try:
        yield
    except DBAPIError as error:
        raise error.orig or error from None


def _alembic(**attributes: object) -> Config:
    config = Config(attributes=attributes)
    config.set_main_option("script_location", str(directory("migrations")).replace("%", "%%"))
    return config


def _execute(connection: Connection, text: str) -> None:
    # Without parameters neither ':name' nor '%' in the SQL is taken for a placeholder.
    connection.execution_options(no_parameters=True).exec_driver_sql(text)


def _read(name: str) -> str:
    return (directory("sql") / name).read_text(encoding="utf-8")


def _versions() -> str:
    """Return the statement that records which version of each file is installed."""
    rows = [
        sql.SQL("({}, {})").format(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in sql_files()
    ]
    statement = sql.SQL("delete from mempair.installed; insert into mempair.installed (file, hash) values {};")
    return statement.format(sql.SQL(", ").join(rows)).as_string(None)
