"""Install, upgrade and remove schema mempair: migrations make the tables, `sql/` the functions and views."""

from __future__ import annotations

import io
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from alembic import command
from alembic.config import Config
from psycopg.errors import DeadlockDetected
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from mempair_db.database import revision
from mempair_db.database.connect import connect, translated
from mempair_db.database.resources import directory, stamp
from mempair_db.errors import SchemaMismatch

TRIES: Final = 5


def install(dsn: str) -> None:
    """Install schema mempair or bring it up to date, in one transaction."""
    for left in reversed(range(TRIES)):
        try:
            _install(dsn)
            break
        except DeadlockDetected:  # a worker, or somebody's query, held views in another order; all of it is undone
            if not left:
                raise


def _install(dsn: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: _opened(dsn), poolclass=NullPool)
    steps = runpy.run_path(str(directory("migrations") / "steps.py"))
    with translated(), _unwrapped(), engine.begin() as connection:
        steps["execute"](connection, steps["before"]())  # waits for other installers: Alembic knows one at a time
        if not _migrate(connection):  # no revision brought the functions along
            steps["execute"](connection, steps["functions"]())


def uninstall(dsn: str) -> None:
    """Remove everything: triggers on users' tables, overloads in public, the schema and what it learned."""
    with connect(dsn, checked=False) as connection:
        connection.execute((directory("sql") / "install/uninstall.sql").read_text(encoding="utf-8"))


def script() -> str:
    """Return what install() does to an empty database, as one script for psql."""
    output = io.StringIO()
    command.upgrade(_alembic(output=output), stamp().revision, sql=True)
    return output.getvalue()


def _opened(dsn: str) -> psycopg.Connection:
    return psycopg.connect(dsn, client_encoding="UTF8")


def _migrate(connection: Connection) -> bool:
    """Run the revisions that are missing; False if none was."""
    driver = connection.connection.driver_connection
    found = revision.installed(driver) if driver else None
    if found and revision.compare(found, stamp()) > 0:
        facts = f"The database is at {found.revision} of release {found.release}."
        raise SchemaMismatch(facts, remedy=revision.UPGRADE)
    ran: list[object] = []
    config = _alembic(connection=connection, on_version_apply=lambda **step: ran.append(step))
    command.upgrade(config, stamp().revision)  # not "head": a user's history may have left a revision in our folder
    return bool(ran)


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
