"""Looking at the database: one read-only connection, and parts of a page that may be out of the role's sight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import psycopg
from psycopg.rows import dict_row

from mempair_db import errors
from mempair_db.database.connect import connect, translated
from mempair_db.database.queries import query

Rows = list[dict[str, Any]]
T = TypeVar("T")

PATIENCE: Final = 20_000  # milliseconds that a statement of a page may take


@dataclass(frozen=True)
class Part(Generic[T]):
    """Something on a page, or why it is not there."""

    value: T | None = None
    missing: str = ""

    def __bool__(self) -> bool:
        """Whether it is there."""
        return not self.missing


class Look:
    """Reads through one connection; every query is a read-only transaction of its own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Read through this connection."""
        self.connection = connection
        self.patience = PATIENCE

    def rows(self, statement: Any, **values: Any) -> Rows:
        """Run a query of web.sql, or a composed one."""
        text = query(f"web_{statement}") if isinstance(statement, str) else statement
        with translated(), self.connection.transaction(), self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute("select pg_catalog.set_config('statement_timeout', %s, true)", [str(self.patience)])
            return cursor.execute(text, values).fetchall()

    def part(self, get: Callable[[], T], remedy: str = "Connect as the schema's owner.") -> Part[T]:
        """Return what `get` finds, or in words why this role cannot see it."""
        try:
            return Part(get())
        except psycopg.errors.InsufficientPrivilege as error:
            who = self.connection.info.user
            return Part(missing=f"Role {who} may not see this: {error.diag.message_primary}. {remedy.format(role=who)}")
        except psycopg.errors.QueryCanceled:
            seconds = self.patience // 1000
            return Part(missing=f"This took longer than {seconds} s, and was stopped: the table is large.")
        except (errors.MempairError, psycopg.Error) as error:
            said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
            return Part(missing=said or str(error))


@contextmanager
def looking(dsn: str) -> Iterator[Look]:
    """Open a connection that cannot write."""
    with connect(dsn, autocommit=True, application_name="mempair web") as connection:
        connection.read_only = True
        yield Look(connection)
