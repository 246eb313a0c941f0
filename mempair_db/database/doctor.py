"""What can be wrong around a database, one check after the other: each says what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as pg

from mempair_db.database import revision
from mempair_db.database.queries import query
from mempair_db.errors import MempairError

CLOCKS: Final = timedelta(seconds=5)

ANYWHERE: Final = ("server", "encoding")
INSTALLED: Final = (
    "rights",
    "triggers",
    "bypass",
    "subscriptions",
    "tables",
    "statistics",
    "unlogged",
    "row_security",
    "timeouts",
)


class Finding(NamedTuple):
    """One line of the report. Without a remedy there is nothing to do."""

    check: str
    fact: str = "good"
    remedy: str = ""


def examine(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    """Yield at least one finding per check; the connection is in autocommit mode, and its schema may be any."""
    for check in ANYWHERE:
        yield from _ask(connection, check)
    yield _clocks(connection)
    schema = _schema(connection)
    yield schema
    if not schema.remedy:
        for check in INSTALLED:
            yield from _ask(connection, check)


def _ask(connection: psycopg.Connection[Any], check: str) -> list[Finding]:
    try:
        problems = connection.execute(query(f"doctor_{check}"), ()).fetchall()
    except pg.InsufficientPrivilege as error:
        fact = f"not examined: {error.diag.message_primary}"
        return [Finding(check, fact, "Ask again as the owner of the schema.")]
    return [Finding(check, *problem) for problem in problems] or [Finding(check)]


def _schema(connection: psycopg.Connection[Any]) -> Finding:
    try:
        revision.require(connection)
    except MempairError as error:
        return Finding("schema", f"{error.__doc__} {error.facts}".strip(), error.remedy)
    except pg.InsufficientPrivilege as error:
        return Finding("schema", str(error.diag.message_primary), "Ask again as the owner of the schema.")
    return Finding("schema")


def _clocks(connection: psycopg.Connection[Any]) -> Finding:
    """Receipts carry the server's times, logs and signatures the client's."""
    before = datetime.now(timezone.utc)
    row = connection.execute(query("doctor_now")).fetchone()
    after = datetime.now(timezone.utc)
    server: datetime = row[0] if row else before
    apart = max(before - server, server - after, timedelta())
    if apart > CLOCKS:
        return Finding(
            "clocks", f"server and client are {apart.total_seconds():.0f} s apart", "Synchronise both (NTP)."
        )
    return Finding("clocks")
