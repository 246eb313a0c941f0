"""The keys of the rows a model has learned, each with a fingerprint: entered by the batch, looked up by the deletion.

A row of mempair.learned_keys holds the keys of one batch that fall into the same bucket, so 100,000 learned rows cost
1,024 rows and index entries, and a deletion reads a 1,024th of all keys. No index says that a key is there once: the
source has it once, and capture sees it come and go. If a deletion escaped capture and the key came again, `find` tells.
The keys of a certified model have ticks as well, the order in which they were learned; an exact model has no order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg

from mempair_db.database import arrays
from mempair_db.database.packed import Texts
from mempair_db.database.queries import query
from mempair_db.pair.compiled import compiled

Integers = npt.NDArray[np.int64]

BUCKETS: Final = 1024
MANY: Final = 5_000  # keys, for which Postgres plans anew: a prepared plan expects a few, and compares each with all
BEGIN, END = b"PGCOPY\n\xff\r\n\x00" + bytes(8), b"\xff\xff"
TEXT, INT8 = 25, 20
ELEMENT = np.dtype([("length", ">i4"), ("value", ">i8")])
# Five fields, each after its length in bytes: model, bucket, keys, prints, ticks; an array begins with five numbers.
FRONT = struct.Struct(">h 2i 2i 6i")
ARRAY = struct.Struct(">6i")
NULL = struct.pack(">i", -1)
CRC = np.array([zlib.crc32(bytes([i])) ^ zlib.crc32(b"\0") for i in range(256)], np.uint32)  # a byte's own part


def buckets(keys: Sequence[str]) -> npt.NDArray[np.int32]:
    """Where keys are kept: the lowest bits of the CRC-32 of their UTF-8 bytes, as `mempair.bucket` has it in SQL.

    >>> buckets(["42", "é"]).tolist(), buckets(Texts.of(["42", "é"])).tolist()
    ([136, 318], [136, 318])
    """
    if not isinstance(keys, Texts):
        numbers = np.fromiter(map(zlib.crc32, map(str.encode, keys)), np.int64, len(keys))
        return numbers.astype(np.int32) & (BUCKETS - 1)
    places = np.empty(len(keys), np.int32)
    _places(keys.data, keys.starts, keys.lengths, CRC, places)
    return places


@compiled
def _places(data: npt.NDArray[np.uint8], starts: Integers, lengths: Integers, table: Any, out: Any) -> None:
    for i in range(len(starts)):
        crc = np.uint32(0xFFFFFFFF)
        for at in range(starts[i], starts[i] + lengths[i]):
            crc = table[(crc ^ data[at]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        out[i] = (crc ^ np.uint32(0xFFFFFFFF)) & np.uint32(BUCKETS - 1)


def find(connection: psycopg.Connection[Any], model_id: int, keys: Sequence[str]) -> dict[str, tuple[int | None, ...]]:
    """Return the fingerprints learned under these keys: one each, if capture was never bypassed.

    (Tuples of numbers: of many, Python's garbage collector soon forgets each, where it would look at a list forever.)
    """
    if not keys:
        return {}
    wanted = arrays.Keys(set(keys))
    if len(wanted) < MANY:
        values = {"model": model_id, "keys": wanted, "buckets": buckets(wanted).tolist()}
        rows = connection.execute(query("find_learned"), values).fetchall()
        some, marks = ([row[i] for row in rows] for i in (0, 1))
    else:
        values = {"model": model_id, "keys": wanted}
        cursor = connection.cursor(binary=True)
        ((some, marks),) = cursor.execute(query("find_many_learned"), values, prepare=False).fetchall()
    found: dict[str, tuple[int | None, ...]] = dict(zip(some or (), zip(marks or (), strict=True), strict=True))
    if len(found) < len(some or ()):
        found = dict.fromkeys(found, ())
        for key, mark in zip(some, marks, strict=True):
            found[key] += (mark,)
    return found


def forget(connection: psycopg.Connection[Any], model_id: int, keys: Sequence[str]) -> None:
    """Remove these keys."""
    wanted = arrays.Keys(keys)
    if len(wanted) >= MANY:
        connection.execute(query("forget_many_learned"), {"model": model_id, "keys": wanted}, prepare=False)
    elif wanted:
        values = {"model": model_id, "keys": wanted, "buckets": buckets(wanted).tolist()}
        connection.execute(query("forget_learned"), values)


def forget_all(connection: psycopg.Connection[Any], model_id: int) -> int:
    """Remove all keys of a model; return how many there were."""
    row = connection.execute(query("forget_all_learned"), {"model": model_id}).fetchone()
    return int(row[0]) if row else 0


def pack(
    model_id: int, keys: Sequence[str], prints: Integers, first_tick: int | None = None, encoding: str = "utf-8"
) -> bytes:
    """Return keys in COPY's binary format, one tuple per bucket; needs no server, so the server can be busy.

    Of the keys "7", "8", "9" in buckets 3, 1, 3 become the tuples (model, 1, {8}, {print of 8}, {its tick}) and
    (model, 3, {7, 9}, {their prints}, {their ticks}). Ticks count up from `first_tick` in the order of the keys.
    """
    places = buckets(keys)
    order = np.argsort(places.astype(np.uint16), kind="stable")  # (of 16 bits: by radix)
    whole = Texts.of(keys, encoding)
    texts, starts = arrays.packed_texts(whole.data, whole.starts[order], whole.lengths[order])
    marks = _elements(prints[order])
    ticks = None if first_tick is None else _elements(first_tick + order)
    inside = places[order]
    first = np.flatnonzero(np.diff(inside, prepend=-1))  # of every bucket
    bounds = np.append(first, len(order))
    parts = [BEGIN]
    for bucket, (a, b), (i, j) in zip(
        inside[first].tolist(), pairwise(starts[bounds].tolist()), pairwise(bounds.tolist()), strict=True
    ):
        parts += (
            FRONT.pack(5, 4, model_id, 4, bucket, arrays.HEADER + b - a, 1, 0, TEXT, j - i, 1),
            texts[a:b],
            *_array(marks[i:j]),
            *(_array(ticks[i:j]) if ticks is not None else (NULL,)),
        )
    return b"".join([*parts, END])


def _elements(values: Integers) -> npt.NDArray[Any]:
    elements = np.empty(len(values), ELEMENT)
    elements["length"], elements["value"] = 8, values
    return elements


def _array(elements: npt.NDArray[Any]) -> tuple[bytes, bytes]:
    """Return the two parts of a bigint[] field."""
    data = elements.tobytes()
    return ARRAY.pack(arrays.HEADER + len(data), 1, 0, INT8, len(elements), 1), data


def enter(connection: psycopg.Connection[Any], packed: bytes) -> None:
    """Write what `pack` made."""
    if len(packed) > len(BEGIN) + len(END):
        with connection.cursor().copy(query("copy_learned")) as copy:
            copy.write(packed)
