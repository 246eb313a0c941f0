"""The receipts that are kept until somebody asks for them, in the binary form that COPY takes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from mempair_db.ledger.entry import microseconds

BEGIN, END = b"PGCOPY\n\xff\r\n\x00" + bytes(8), b"\xff\xff"
NULL: Final = struct.pack(">i", -1)
YEAR_2000: Final = 946_684_800_000_000  # microseconds: where Postgres counts from
SALT: Final = struct.pack(">i", 32)
_LENGTH, _INT4, _INT8 = struct.Struct(">i"), struct.Struct(">2i"), struct.Struct(">iq")
_FRONT = struct.Struct(">h 2i")  # how many fields, and the first of them
FIELDS: Final = 14


class Terms(NamedTuple):
    """What the receipts of one transaction have in common."""

    model_id: int
    executed: datetime
    unlearner: str
    epsilon: float | None
    delta: float | None
    version: str


class Kept(NamedTuple):
    """The receipts of one entry; `entry` is its place among those that are written with them."""

    entry: int
    kind: str
    keys: Sequence[str]
    subjects: Sequence[str | None]
    salts: Sequence[bytes]
    requested: Sequence[datetime | None]
    paths: Sequence[bytes] | None  # None: the entry is about one row


def pack(terms: Terms, receipts: Sequence[Kept], first: int) -> Iterator[bytes]:
    """Yield the receipts of every entry as tuples of `copy_receipts`; `first` is the number of the first entry."""
    front = _FRONT.pack(FIELDS, 4, terms.model_id)
    promise = b"".join((_text(terms.unlearner), _float(terms.epsilon), _float(terms.delta), _text(terms.version)))
    executed = _time(terms.executed)
    yield BEGIN
    for entry, kind, keys, subjects, salts, requested, paths in receipts:
        number, done = _INT8.pack(8, first + entry), executed + _text(kind) + promise
        times = {at: number + _time(at) + done for at in set(requested)}
        ends = [NULL + NULL] if paths is None else [_INT4.pack(4, i) + _bytes(path) for i, path in enumerate(paths)]
        parts: list[bytes] = []
        for key, subject, salt, at, end in zip(keys, subjects, salts, requested, ends, strict=True):
            parts += (front, _text(key), _text(subject), SALT, salt, times[at], end)
        yield b"".join(parts)
    yield END


def _text(value: str | None) -> bytes:
    return NULL if value is None else _bytes(value.encode())


def _bytes(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _float(value: float | None) -> bytes:
    return NULL if value is None else struct.pack(">id", 8, value)


def _time(at: datetime | None) -> bytes:
    return NULL if at is None else _INT8.pack(8, microseconds(at) - YEAR_2000)
