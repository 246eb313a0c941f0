"""Whether the schema of a database and this code fit together."""

from __future__ import annotations

from typing import Any

import psycopg

from mempair_db.database.queries import query
from mempair_db.database.resources import Stamp, stamp
from mempair_db.errors import NotInstalled, SchemaMismatch

# The comment that carries the stamp came after release 0.1.0.
UNSTAMPED = Stamp("mempair_0000", "0.1.0", "")
INSTALL = "Run `mempair install` as the owner of the schema."
UPGRADE = "Upgrade this mempair_db: pip install --upgrade mempair_db"


def installed(connection: psycopg.Connection[Any]) -> Stamp | None:
    """Return which schema the database has, None if it has none. Every role may ask."""
    is_there, comment = connection.execute(query("installed_stamp")).fetchone() or (False, None)
    if not is_there:
        return None
    parts = (comment or "").split(" ")
    return Stamp(*parts) if len(parts) == 3 else UNSTAMPED


def require(connection: psycopg.Connection[Any]) -> None:
    """Refuse a schema that this code does not know, and one that does not know this code."""
    found = installed(connection)
    if found is None:
        raise NotInstalled(remedy="Run `mempair install`.")
    difference = compare(found, stamp())
    if difference:
        facts = f"The database has {_named(found)}; this mempair_db is {_named(stamp())}."
        raise SchemaMismatch(facts, remedy=INSTALL if difference < 0 else UPGRADE)


def compare(found: Stamp, wanted: Stamp) -> int:
    """Return -1 for a schema that is older than the code, 1 for a newer one, 0 if they fit.

    Newer functions of the same revision fit: that is what a revision means, and workers are upgraded one by one.

    >>> here = Stamp("mempair_0004", "0.2.0", "abc")
    >>> compare(Stamp("mempair_0003", "0.1.9", "abc"), here), compare(Stamp("mempair_0004", "0.1.9", "old"), here)
    (-1, -1)
    >>> compare(here, here), compare(Stamp("mempair_0004", "0.10.0", "new"), here)
    (0, 0)
    >>> compare(Stamp("mempair_0005", "0.3.0", "new"), here)
    1
    """
    if found.revision != wanted.revision:
        return -1 if found.revision < wanted.revision else 1
    newer = _numbers(found.release) > _numbers(wanted.release)
    return 0 if found.functions == wanted.functions or newer else -1


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def _named(which: Stamp) -> str:
    if which is UNSTAMPED:
        return "one of release 0.1.0 or earlier"
    return f"{which.revision} of release {which.release}, functions {which.functions[:8]}"
