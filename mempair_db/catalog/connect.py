"""Open a connection, and give the errors of the SQL side their Python classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from mempair_db.errors import MempairError, NotInstalled

# What Postgres says about mempair.<anything> where the schema is missing: no such schema, table or function.
MISSING = {"3F000", "42P01", "42883"}


@contextmanager
def connect(dsn: str, *, autocommit: bool = False, application_name: str = "mempair") -> Iterator[psycopg.Connection]:
    """Connect; commit at the end of the block, roll back if it fails, and translate what it raises."""
    with (
        translated(),
        psycopg.connect(dsn, autocommit=autocommit, application_name=application_name) as connection,
    ):
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
        raise _class_of(error.sqlstate)(
            error.diag.message_primary or "", remedy=error.diag.message_hint or ""
        ) from error


def _class_of(sqlstate: str) -> type[MempairError]:
    classes = {kind.sqlstate: kind for kind in MempairError.__subclasses__() if "sqlstate" in vars(kind)}
    return classes.get(sqlstate, MempairError)


def _installed(connection: psycopg.Connection) -> bool:
    connection.rollback()
    found = connection.execute("select to_regnamespace('mempair') is not null").fetchone()
    return found is not None and bool(found[0])
