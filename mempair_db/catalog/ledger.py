"""The odometer's ledger: canonical bytes, a chain of hashes, and the salted tags that receipts open.

body = every field in the order of `Entry`, each as a 4-byte big-endian length and its bytes; NULL is length −1.
       Integers are 8 bytes big-endian, times are microseconds since 1970-01-01 UTC, texts are UTF-8.
hash = SHA-256(0x00 ‖ prev ‖ body), prev = the entry before, 32 zero bytes for the first
tag  = HMAC-SHA-256(salt, row key): who has the receipt has the salt; without it the tag is noise
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import astuple, dataclass
from datetime import datetime, timezone
from typing import Any, Final

import psycopg

from mempair_db.catalog.queries import query

GENESIS: Final = bytes(32)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Entry:
    """One line of the ledger, without its hashes."""

    model_id: int
    seq: int
    at: datetime
    kind: str
    epoch: int
    clock: int
    rows: int
    rho: int
    rho_spent: int
    rho_cap: int | None
    tag: bytes | None
    detail: str | None

    def body(self) -> bytes:
        """Return the canonical bytes."""
        return b"".join(_field(value) for value in astuple(self))


def _field(value: int | str | bytes | datetime | None) -> bytes:
    if value is None:
        return struct.pack(">i", -1)
    if isinstance(value, datetime):
        gap = value - EPOCH
        value = (gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds
    if isinstance(value, int):
        value = struct.pack(">q", value)
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">i", len(data)) + data


def chain(prev: bytes, body: bytes) -> bytes:
    """Return the hash of the next entry."""
    return hashlib.sha256(b"\x00" + prev + body).digest()


def new_tag(row_key: str) -> tuple[bytes, bytes]:
    """Return (tag, salt) for a deleted row."""
    salt = secrets.token_bytes(32)
    return hmac.digest(salt, row_key.encode(), "sha256"), salt


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
        self._rows.append((*astuple(entry), body, prev, self.head))
        return self.seq

    def write(self, connection: psycopg.Connection[Any]) -> None:
        """Store the collected entries."""
        with connection.cursor().copy(query("copy_ledger")) as copy:
            for row in self._rows:
                copy.write_row(row)
        self._rows.clear()
