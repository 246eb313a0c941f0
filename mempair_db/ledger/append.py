"""Append to a ledger: the entries of one transaction, chained as they come, stored at its end."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg

from mempair_db.database.queries import query
from mempair_db.ledger.entry import GENESIS, Entry, chain


class Ledger:
    """Collects the entries of one transaction, and writes them at its end. The state row must be locked."""

    def __init__(self, model_id: int, seq: int, head: bytes | None, at: datetime) -> None:
        """Continue after entry `seq`, whose hash was `head`."""
        self.model_id = model_id
        self.seq = seq
        self.head = head or GENESIS
        self.at = at
        self._rows: list[tuple[Any, ...]] = []

    def append(
        self,
        kind: str,
        *,
        epoch: int,
        clock: int,
        rows: int = 0,
        rho: int = 0,
        rho_spent: int = 0,
        rho_cap: int | None = None,
        tag: bytes | None = None,
        detail: str | None = None,
    ) -> int:
        """Add an entry and return its number."""
        self.seq += 1
        entry = Entry(self.model_id, self.seq, self.at, kind, epoch, clock, rows, rho, rho_spent, rho_cap, tag, detail)
        body, prev = entry.body(), self.head
        self.head = chain(prev, body)
        self._rows.append((*entry, body, prev, self.head))
        return self.seq

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._rows

    def write(self, connection: psycopg.Connection[Any]) -> None:
        """Store the collected entries."""
        with connection.cursor().copy(query("copy_ledger")) as copy:
            for row in self._rows:
                copy.write_row(row)
        self._rows.clear()
