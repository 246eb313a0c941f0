"""The keys of the rows a model has learned, with their ticks: entered by the batch, looked up by the deletion.

A row of mempair.learned_keys holds the keys of one batch that fall into the same bucket, so 100,000 learned rows cost
1,024 rows and index entries, and a deletion reads a 1,024th of all keys. No index says that a key is there once: the
source has it once, and capture sees it come and go. If a deletion escaped capture and the key came again, `find` tells.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from mempair_db.database import arrays
from mempair_db.database.queries import query

MANY = 5_000
BEGIN, END = b"PGCOPY\n\xff\r\n\x00" + bytes(8), b"\xff\xff"
TEXT, INT8 = 25, 20
TICK = np.dtype([("length", ">i4"), ("value", ">i8")])
# Four fields, each after its length in bytes: model, bucket, keys and ticks; an array begins with five numbers.
KEYS = struct.Struct(">h 2i 2i 6i")
TICKS = struct.Struct(">6i")


def find(connection: psycopg.Connection[Any], model_id: int, keys: Sequence[str]) -> dict[str, int]:
    """Return which of these keys the model has learned, and how often: once, if capture was never bypassed."""
    if not keys:
        return {}
    name = "find_learned" if len(keys) < MANY else "find_many_learned"
    return dict(connection.execute(query(name), {"model": model_id, "keys": list(set(keys))}).fetchall())


def forget(connection: psycopg.Connection[Any], model_id: int, keys: Sequence[str]) -> None:
    """Remove these keys."""
    if keys:
        connection.execute(query("forget_learned"), {"model": model_id, "keys": list(keys)})


def forget_all(connection: psycopg.Connection[Any], model_id: int) -> int:
    """Remove all keys of a model; return how many there were."""
    row = connection.execute(query("forget_all_learned"), {"model": model_id}).fetchone()
    return int(row[0]) if row else 0


def pack(
    model_id: int, keys: Sequence[str], buckets: npt.NDArray[np.int32], first_tick: int, encoding: str = "utf-8"
) -> bytes:
    """Return keys with consecutive ticks in COPY's binary format; needs no server, so the server can be busy.

    Keys a, b, c of buckets 5, 2, 5, learned at ticks 10, 11, 12, become two rows of mempair.learned_keys:

        model_id  bucket  keys    ticks
        7         2       {b}     {11}
        7         5       {a,c}   {10,12}
    """
    order = np.argsort(buckets, kind="stable")
    texts, places = arrays.packed_texts(keys, order, encoding)
    ticks = np.empty(len(order), TICK)
    ticks["length"], ticks["value"] = 8, first_tick + order
    inside = buckets[order]
    first = np.flatnonzero(np.diff(inside, prepend=-1))  # of every bucket
    bounds = np.append(first, len(order))
    counts = np.diff(bounds).tolist()
    parts = [BEGIN]
    for bucket, count, (a, b), (i, j) in zip(
        inside[first].tolist(), counts, pairwise(places[bounds].tolist()), pairwise(bounds.tolist()), strict=True
    ):
        parts += (
            KEYS.pack(4, 4, model_id, 4, bucket, arrays.HEADER + b - a, 1, 0, TEXT, count, 1),
            texts[a:b],
            TICKS.pack(arrays.HEADER + count * TICK.itemsize, 1, 0, INT8, count, 1),
            ticks[i:j].tobytes(),
        )
    return b"".join([*parts, END])


def enter(connection: psycopg.Connection[Any], packed: bytes) -> None:
    """Write what `pack` made."""
    if len(packed) > len(BEGIN) + len(END):
        with connection.cursor().copy(query("copy_learned")) as copy:
            copy.write(packed)
