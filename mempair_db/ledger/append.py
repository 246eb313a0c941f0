"""Append to a ledger: entries are collected, then numbered, chained and stored by `mempair.append_entries`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from mempair_db.database.queries import query


class Ledger:
    """Collects entries of one transaction on one model. Numbers and hashes are the server's to make."""

    def __init__(self, model_id: int, at: datetime) -> None:
        """Begin with no entries; all of them will have this time."""
        self.model_id = model_id
        self.at = at
        self._entries: list[dict[str, Any]] = []

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
        """Add an entry and return its place among those that are not written yet."""
        self._entries.append(
            {
                "at": self.at.isoformat(),
                "kind": kind,
                "epoch": epoch,
                "clock": clock,
                "rows": rows,
                "rho": rho,
                "rho_spent": rho_spent,
                "rho_cap": rho_cap,
                "tag": None if tag is None else f"\\x{tag.hex()}",
                "detail": detail,
            }
        )
        return len(self._entries) - 1

    def __len__(self) -> int:
        """Return how many entries wait to be written."""
        return len(self._entries)

    def write(self, connection: psycopg.Connection[Any]) -> psycopg.Cursor[Any]:
        """Store the collected entries; the answer says the numbers of the first and the last of them."""
        values = {"model": self.model_id, "entries": Jsonb(self._entries), "more": len(self._entries) - 1}
        self._entries = []
        return connection.execute(query("append_entries"), values)
