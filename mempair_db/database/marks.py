"""Compare which rows were learned with which are there, without holding either in memory.

Every (key, fingerprint) becomes a 64-bit number that only this run knows; the numbers are added up. Two collections
with the same sums are the same, but for a chance of about 2^−64. A key becomes a number as a payload becomes a
fingerprint (`fingerprint`): by two random linear forms of its 32-bit words, of which the upper halves are taken.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg

from mempair_db.database import arrays, learned
from mempair_db.database.packed import Texts
from mempair_db.database.queries import query
from mempair_db.pair.compiled import compiled

Prints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]

BIGINTS: Final = 1016  # the type bigint[]
AT_ONCE: Final = 1_000  # rows of mempair.learned_keys
_SALT: Final = secrets.token_bytes(16)
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass
class Marks:
    """How many rows, and the sums of their numbers: of keys alone, and of keys with fingerprints."""

    rows: int = 0
    keys: int = 0
    pairs: int = 0
    unmarked: int = field(default=0, compare=False)  # learned before there were fingerprints

    def __add__(self, other: Marks) -> Marks:
        """Return the marks of both."""
        return Marks(
            self.rows + other.rows,
            (self.keys + other.keys) % 2**64,
            (self.pairs + other.pairs) % 2**64,
            self.unmarked + other.unmarked,
        )

    def __sub__(self, other: Marks) -> Marks:
        """Return these marks without those."""
        return self + Marks(-other.rows, -other.keys, -other.pairs)


def mark(keys: Sequence[str] | Numbers, prints: Prints | None, salt: bytes | None = None) -> Marks:
    """Return the marks of some rows, of their keys or of the keys' numbers.

    With a `salt`, processes that know it get the same ones.

    >>> some, rest = mark(["1", "2"], np.array([10, 20])), mark(["3"], np.array([30]))
    >>> some + rest == mark(["3", "1", "2"], np.array([30, 10, 20]))
    True
    >>> some + rest == mark(["3", "1", "2"], np.array([10, 30, 20]))
    False
    """
    numbers = keys if isinstance(keys, np.ndarray) else numbers_of(keys, salt)
    pairs = _pairs(numbers, prints)
    return Marks(len(keys), int(numbers.sum()), int(pairs.sum()), len(keys) if prints is None else 0)


def numbers_of(keys: Sequence[str], salt: bytes | None = None) -> Numbers:
    """Return the number of every key.

    >>> one, two, other = numbers_of(["17", "17", "18"]).tolist()
    >>> one == two, one == other
    (True, False)
    """
    texts = Texts.of(keys)
    words = int(texts.lengths.max(initial=0)) // 4 + 2
    numbers = np.empty(len(texts), np.uint64)
    _number(texts.data, texts.starts, texts.lengths, _forms(_SALT if salt is None else salt, -(-words // 64)), numbers)
    return _mix(numbers)


@lru_cache(maxsize=16)
def _forms(salt: bytes, pages: int) -> Numbers:
    """Two linear forms of 64 words a page, which begin with the same numbers however many there are."""
    stream = hashlib.shake_256(b"marks" + salt).digest(1024 * pages)
    return np.frombuffer(stream, "<u8").reshape(-1, 2).astype(np.uint64)


@compiled
def _number(data: Any, starts: Any, lengths: Any, forms: Numbers, out: Numbers) -> None:
    for i in range(len(starts)):
        first = np.uint64(lengths[i]) * forms[0, 0]
        second = np.uint64(lengths[i]) * forms[0, 1]
        for place in range(0, lengths[i], 4):
            word = np.uint64(0)
            for at in range(starts[i] + place, starts[i] + min(place + 4, lengths[i])):
                word = word << np.uint64(8) | np.uint64(data[at])
            first += word * forms[place // 4 + 1, 0]
            second += word * forms[place // 4 + 1, 1]
        out[i] = first >> np.uint64(32) << np.uint64(32) | second >> np.uint64(32)


def _mix(x: Numbers) -> Numbers:
    """Scatter 64 bits (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> _SHIFTS[0])) * _FACTORS[0]
        x = (x ^ (x >> _SHIFTS[1])) * _FACTORS[1]
        return x ^ (x >> _SHIFTS[2])


def each_learned(
    connection: psycopg.Connection[Any], model_id: int
) -> Iterator[tuple[Sequence[str], Prints | None, int]]:
    """Yield the learned keys, their fingerprints, and how many lie where no deletion will find them; some at a time."""
    found = arrays.stream(
        connection, query("each_learned"), {"model": model_id}, raw=(BIGINTS, arrays.TEXT_ARRAY), at_once=AT_ONCE
    )
    while some := list(islice(found, AT_ONCE)):
        for marked in (True, False):  # without: learned before there were fingerprints
            rows = [row for row in some if (row[1] is not None) == marked]
            if rows:
                keys = Texts.of_arrays([row[0] for row in rows])
                places = np.repeat([row[2] for row in rows], [arrays.length(row[0]) for row in rows])
                misplaced = int((learned.buckets(keys) != places).sum())
                yield keys, _bigints([row[1] for row in rows]) if marked else None, misplaced


def learned_rows(connection: psycopg.Connection[Any], model_id: int) -> Numbers:
    """Return the number of every learned row, in order: 8 bytes each, to tell later whether all are still there."""
    parts = [_pairs(numbers_of(keys), prints) for keys, prints, _ in each_learned(connection, model_id)]
    rows = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    rows.sort()
    return rows


def all_there(connection: psycopg.Connection[Any], model_id: int, before: Numbers) -> bool:
    """Whether all rows that were learned `before`, as `learned_rows` has them, are learned now."""
    if not len(before):
        return True
    seen = np.zeros(len(before), bool)
    for keys, prints, _ in each_learned(connection, model_id):
        now = np.sort(_pairs(numbers_of(keys), prints))  # neighbours look in the same places
        at = np.searchsorted(before, now)
        at[at == len(before)] = 0
        seen[at[before[at] == now]] = True
    return bool(seen.all())


def _pairs(numbers: Numbers, prints: Prints | None) -> Numbers:
    return numbers if prints is None else _mix(numbers ^ np.ascontiguousarray(prints).view(np.uint64))


def _bigints(values: Sequence[bytes]) -> Prints:
    data = b"".join([value[arrays.HEADER :] for value in values])
    return np.frombuffer(data, learned.ELEMENT)["value"].astype(np.int64)
