"""Physical erasure of what the queue held, and of old versions of everything else.

DELETE leaves the bytes in the table's pages; TRUNCATE removes them. So capture alternates between two tables: once the
idle one is empty it is truncated, and they swap, so that the other one empties too. The other tables never hold a row's
values, but old versions of the model and the keys of deleted rows stay in their pages until they are rewritten.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from mempair_db.database import models
from mempair_db.database.queries import query
from mempair_db.ledger.record import Record


def purge(connection: psycopg.Connection[Any], model_id: int) -> bool:
    """Truncate both queue tables if they are drained; False if events or a lock were in the way: try again later."""
    erased = 0
    for _ in range(2):
        try:  # each in its own transaction, outside the worker's REPEATABLE READ: emptiness is checked under the lock
            done = connection.execute(query("erase_queue"), {"model": model_id}).fetchone()
            connection.execute(query("rotate_queue"), {"model": model_id})
        except LockNotAvailable:
            return False
        erased += bool(done and done[0])
    if erased == 2:
        _enter(connection, model_id)
    return erased == 2


def rewrite(connection: psycopg.Connection[Any]) -> None:
    """Rewrite the small tables and the learned keys: nothing of an old version stays. Locks each of them meanwhile."""
    for table in ("state", "curvature", "published", "receipt", "rejected", "learned_keys"):
        connection.execute(sql.SQL("vacuum (full) mempair.{}").format(sql.Identifier(table)))


def _enter(connection: psycopg.Connection[Any], model_id: int) -> None:
    """Say so in the ledger: receipts name the time. While another worker has the model, its own purge will."""
    with connection.transaction():
        model = models.lease(connection, model_id)
        if model is not None:
            record = Record(model)
            record.enter("purged", detail="queue tables truncated")
            record.write(connection)
