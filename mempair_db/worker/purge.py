"""Physical erasure of what the queue held, and of old versions of everything else.

DELETE leaves the bytes in the table's pages; TRUNCATE removes them. So capture alternates between two tables: they
swap, and once the one that nobody writes to any more is drained, it is truncated; then the same with the other. Under
load that goes on beside the writers: none of them waits, and no erased payload stays longer than `PURGE_AFTER`. The
other tables never hold a row's values, but old versions of the model and the keys of deleted rows stay in their pages
until they are rewritten.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from mempair_db.database import models
from mempair_db.database.queries import query

PURGE_AFTER: Final = 5.0  # seconds that an erased payload may stay in the queue's pages
TRY_AGAIN: Final = 0.1  # seconds; a writer that is idle in its transaction holds a table for as long


@dataclass
class _Cycle:
    """Both queue tables of a model, on their way to be erased."""

    started: datetime
    erased: set[str] = field(default_factory=set)
    tried: float = 0.0


class Purges:
    """The erasures of one worker, a step at a time."""

    def __init__(self, after: float = PURGE_AFTER) -> None:
        """Erase whatever is `after` seconds old, or sooner when there is nothing else to do."""
        self.after = after
        self._cycles: dict[int, _Cycle] = {}

    def step(self, connection: psycopg.Connection[Any], model_id: int, age: float | None, *, idle: bool) -> bool:
        """Do the next step for a model whose oldest erased payload has this age; True if all of it is gone."""
        if age is None:
            self._cycles.pop(model_id, None)
            return True
        cycle = self._cycles.get(model_id)
        if cycle is None and not idle and age < self.after / 2:
            return False
        if cycle is None:
            cycle = self._cycles[model_id] = _Cycle(_rotate(connection, model_id))
        if not idle and time.monotonic() - cycle.tried < TRY_AGAIN:
            return False
        cycle.tried = time.monotonic()
        while len(cycle.erased) < 2:
            half = _erase(connection, model_id)
            if half is None and idle and _refill(connection, model_id):
                half = _erase(connection, model_id)
            if half is None:
                return False
            cycle.erased.add(half)
            _rotate(connection, model_id)
        if not _enter(connection, model_id, cycle.started):
            return False
        del self._cycles[model_id]
        return True


def purge(connection: psycopg.Connection[Any], model_id: int) -> bool:
    """Erase both queue tables now; False if events or a lock were in the way: try again later."""
    return Purges().step(connection, model_id, 0.0, idle=True)


def _rotate(connection: psycopg.Connection[Any], model_id: int) -> datetime:
    """Let capture write to the other table; return when. In a transaction of its own, as everything here."""
    (at,) = connection.execute(query("rotate_queue"), {"model": model_id}).fetchone() or (datetime.now().astimezone(),)
    return at


def _erase(connection: psycopg.Connection[Any], model_id: int) -> str | None:
    """Truncate the table that capture does not write to, if it is drained; return which it was."""
    try:
        with connection.transaction():
            connection.execute("set transaction isolation level read committed")  # whatever the role's default is
            found = connection.execute(query("erase_queue"), {"model": model_id}).fetchone()
    except LockNotAvailable:
        return None
    return found[0] if found else None


def _refill(connection: psycopg.Connection[Any], model_id: int) -> bool:
    """Move rows that wait for calibration to the table that capture writes to, so that the other one is drained."""
    with connection.transaction():
        models.hold(connection, model_id)
        model = models.lease(connection, model_id)
        waiting = connection.execute(query("pending"), {"model": model_id}).fetchone()
        if model is None or model.engine.begun or model.paused or waiting is None or waiting[1]:
            return False
        connection.execute(model.statement("empty_queue"))
        connection.execute(query("enqueue_source"), {"model": model_id})
    return True


def rewrite(connection: psycopg.Connection[Any]) -> None:
    """Rewrite every table but ledger and queue: nothing of an old version stays. Locks each of them meanwhile."""
    for (table,) in connection.execute(query("tables_to_rewrite")).fetchall():
        connection.execute(sql.SQL("vacuum (full) mempair.{}").format(sql.Identifier(table)))


def compact(connection: psycopg.Connection[Any], model_id: int) -> None:
    """Join the learned keys of many small batches, a few buckets at a time."""
    with connection.transaction():
        if models.lease(connection, model_id) is not None:
            connection.execute(query("compact_learned"), {"model": model_id})


def _enter(connection: psycopg.Connection[Any], model_id: int, started: datetime) -> bool:
    """Say so in the ledger: receipts name the time. While another worker has the model, try again."""
    with connection.transaction():
        if models.lease(connection, model_id, load=False) is None:
            return False
        connection.execute(query("append_purged"), {"model": model_id})
        connection.execute(query("purged"), {"model": model_id, "started": started})
    return True
