"""Open a connection, and give the errors of the SQL side their Python classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from mempair_db.database import revision
from mempair_db.errors import MempairError, NotInstalled, UnsafeSearchPath

# What Postgres says about mempair.<anything> where the schema is missing: no such schema, table or function.
MISSING = {"3F000", "42P01", "42883"}


@contextmanager
def connect(
    dsn: str, *, autocommit: bool = False, application_name: str = "mempair", checked: bool = True
) -> Iterator[psycopg.Connection]:
    """Connect; commit at the end of the block, roll back if it fails, and translate what it raises.

    `checked`: only to a database whose schema mempair fits this code.

    Statements are prepared, which saves a small batch a third of its time, unless a pooler is in between: in
    transaction mode it hands every transaction another session. It has a session number of its own, which tells it.
    """
    # UTF8: what the database's own encoding has, it has too, and the binary formats are read as such.
    options: dict[str, Any] = {"application_name": application_name, "client_encoding": "UTF8"}
    with translated(), psycopg.connect(dsn, autocommit=True, **options) as connection:
        # The only one that psycopg reads; a role or a database may have another. Poolers keep it for its client.
        if not (connection.info.parameter_status("DateStyle") or "ISO").startswith("ISO"):
            connection.execute("set datestyle = iso")
        if connection.execute("select pg_catalog.pg_backend_pid()").fetchone() != (connection.info.backend_pid,):
            connection.prepare_threshold = None
        if checked:
            revision.require(connection)
        connection.autocommit = autocommit
        try:
            yield connection
        except psycopg.Error as error:
            if error.sqlstate in MISSING and not connection.closed and not _installed(connection):
                raise NotInstalled(remedy="Run `mempair install`.") from error
            raise


@contextmanager
def translated() -> Iterator[None]:
    """Turn SQLSTATE class MP into the class of errors.py that carries the same code."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is None or not error.sqlstate.startswith("MP"):
            raise
        said, hint = error.diag.message_primary or "", error.diag.message_hint or ""
        facts = f"{said}." if hint and said[-1:] not in ".?!" else said
        raise _class_of(error.sqlstate)(facts, remedy=hint, whole=True) from error


def refuse_shadows(connection: psycopg.Connection[Any]) -> None:
    """Refuse a session in which anybody's function or operator is found before Postgres' own of the same name.

    Checked rather than set: behind a pooler, a setting of ours would stay for the next user of the session.
    """
    fresh = connection.info.transaction_status == TransactionStatus.IDLE
    row = connection.execute("select pg_catalog.current_schemas(true)").fetchone()
    if fresh and not connection.autocommit:
        connection.rollback()
    schemas = [name for name in (row[0] if row else ()) if not name.startswith("pg_temp")]
    if schemas[:1] != ["pg_catalog"]:
        raise UnsafeSearchPath(
            f"It is {', '.join(schemas)} for role {connection.info.user}.",
            remedy=f'alter role "{connection.info.user}" reset search_path;',
        )


def _class_of(sqlstate: str) -> type[MempairError]:
    classes = {kind.sqlstate: kind for kind in MempairError.__subclasses__() if "sqlstate" in vars(kind)}
    return classes.get(sqlstate, MempairError)


def _installed(connection: psycopg.Connection) -> bool:
    connection.rollback()
    found = connection.execute("select to_regnamespace('mempair') is not null").fetchone()
    return found is not None and bool(found[0])
