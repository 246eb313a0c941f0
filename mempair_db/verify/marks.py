"""Compare which rows were learned with which are there, without holding either in memory.

Every (key, fingerprint) becomes a 64-bit number by a mixer that only this run knows; the numbers are added up. Two
collections with the same sums are the same, but for a chance of 2^−64.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.types.string import ByteaBinaryLoader

from mempair_db.database import arrays, learned
from mempair_db.database.queries import query

Prints = npt.NDArray[np.int64]

BIGINTS: Final = 1016  # the type bigint[]
_SALT: Final = np.uint64(secrets.randbits(64))
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


def mark(keys: Sequence[str], prints: Prints | None, salt: bytes | None = None) -> Marks:
    """Return the marks of some rows; with a `salt`, processes that know it get the same ones.

    >>> some, rest = mark(["1", "2"], np.array([10, 20])), mark(["3"], np.array([30]))
    >>> some + rest == mark(["3", "1", "2"], np.array([30, 10, 20]))
    True
    >>> some + rest == mark(["3", "1", "2"], np.array([10, 30, 20]))
    False
    """
    if salt is None:
        numbers = _mix(np.fromiter(map(hash, keys), np.int64, len(keys)).view(np.uint64) ^ _SALT)
    else:
        hashed = b"".join(blake2b(key.encode(), key=salt, digest_size=8).digest() for key in keys)
        numbers = np.frombuffer(hashed, np.uint64)
    pairs = numbers if prints is None else _mix(numbers ^ np.ascontiguousarray(prints).view(np.uint64))
    return Marks(len(keys), int(numbers.sum()), int(pairs.sum()), len(keys) if prints is None else 0)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scatter 64 bits (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> _SHIFTS[0])) * _FACTORS[0]
        x = (x ^ (x >> _SHIFTS[1])) * _FACTORS[1]
        return x ^ (x >> _SHIFTS[2])


def each_learned(connection: psycopg.Connection[Any], model_id: int) -> Iterator[tuple[list[str], Prints | None]]:
    """Yield the learned keys and their fingerprints, some at a time."""
    with connection.cursor(binary=True) as cursor:
        cursor.adapters.register_loader(BIGINTS, ByteaBinaryLoader)
        for keys, prints in cursor.stream(query("each_learned"), {"model": model_id}, binary=True):
            yield keys, None if prints is None else _bigints(prints)


def _bigints(data: bytes) -> Prints:
    return np.frombuffer(data[arrays.HEADER :], learned.ELEMENT)["value"].astype(np.int64)
