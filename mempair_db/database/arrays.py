"""Arrays between numpy and Postgres in binary, without a Python object per number.

A one-dimensional array on the wire is five big-endian int32 (dimensions, has-nulls, element type, length, lower
bound), then for each element its length in bytes, 8 or 4 or −1 for NULL, and its big-endian bytes. A float8[] with
no NULLs is therefore a fixed header and n records of 12 bytes: one `frombuffer` reads all rows of a batch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import capabilities, sql
from psycopg.abc import Buffer, Query
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format
from psycopg.types.string import ByteaBinaryLoader

Ints = npt.NDArray[np.int64]

FLOAT8, FLOAT8_ARRAY, TEXT, TEXT_ARRAY, INT4_ARRAY = 701, 1022, 25, 1009, 1007
HEADER = 20
AT_ONCE = 1_000
FEW = 50  # texts that are packed one by one: a batch that forgets one row packs a few of them five times
ELEMENT = np.dtype([("length", ">i4"), ("value", ">f8")])


class FloatArrayDumper(Dumper):
    """Write a float64 array as float8[], of one dimension or of two."""

    format = Format.BINARY
    oid = FLOAT8_ARRAY

    def dump(self, obj: npt.NDArray[np.float64]) -> Buffer:
        """Return the array in Postgres' binary form."""
        if obj.size == 0:
            return struct.pack(">3i", 0, 0, FLOAT8)
        elements = np.empty(obj.size, ELEMENT)
        elements["length"] = 8
        elements["value"] = obj.ravel()
        shape = b"".join(struct.pack(">2i", length, 1) for length in obj.shape)
        return struct.pack(">3i", obj.ndim, 0, FLOAT8) + shape + elements.tobytes()


class Keys(list[str]):
    """Texts that are sent as text[] in binary, all at once; a connection that was not taught it sends a plain list."""


class KeysDumper(Dumper):
    """Write texts as text[]; psycopg looks at each of them for characters to escape."""

    format = Format.BINARY
    oid = TEXT_ARRAY

    def dump(self, obj: Keys) -> Buffer:
        """Return the array in Postgres' binary form."""
        if not obj:
            return struct.pack(">3i", 0, 0, TEXT)
        return struct.pack(">5i", 1, 0, TEXT, len(obj), 1) + packed_texts(*joined(obj))[0]


class FloatArrayLoader(Loader):
    """Read a float8[] without NULLs as a float64 array, of one dimension or of two."""

    format = Format.BINARY

    def load(self, data: Buffer) -> npt.NDArray[np.float64]:
        """Return the numbers."""
        (dimensions,) = struct.unpack_from(">i", data)
        if dimensions == 0:
            return np.empty(0)
        shape = struct.unpack_from(f">{2 * dimensions}i", data, 12)[::2]
        numbers: npt.NDArray[np.float64] = floats([bytes(data)], math.prod(shape), 12 + 8 * dimensions)[0]
        return numbers.reshape(shape)


def length(value: bytes) -> int:
    """Return how many elements an array has that the server sent in binary."""
    return int.from_bytes(value[12:16], "big")


def floats(rows: Sequence[bytes], width: int, header: int = HEADER) -> npt.NDArray[np.float64]:
    """Decode float8[] values that all have `width` numbers into one matrix."""
    if width == 0:
        return np.empty((len(rows), 0))
    row = np.dtype([("header", f"V{header}"), ("elements", ELEMENT, (width,))])
    return np.frombuffer(b"".join(rows), row)["elements"]["value"].astype(np.float64)


def texts(data: bytes, encoding: str = "utf-8") -> tuple[str | None, ...]:
    """Decode one text[]."""
    values: list[str | None] = []
    position = HEADER
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0:
            values.append(None)
        else:
            values.append(data[position : position + length].decode(encoding))
            position += length
    return tuple(values)


def text_rows(rows: Sequence[bytes | None], width: int) -> Sequence[tuple[str | None, ...]]:
    """Decode text[] values; one of another width counts as missing. Categories repeat, so each is decoded once."""
    if width == 0:
        return ()
    missing = (None,) * width
    ready: dict[bytes | None, tuple[str | None, ...]] = {None: missing}
    found = []
    for data in rows:
        values = ready.get(data)
        if values is None:
            values = texts(data or b"")
            ready[data] = values = values if len(values) == width else missing
        found.append(values)
    return found


def joined(values: Sequence[str], encoding: str = "utf-8") -> tuple[bytes, Ints, Ints]:
    r"""Return texts with a zero byte after each, which no text in Postgres has; where they are, and how long.

    >>> data, starts, lengths = joined(["b", "äö"])
    >>> starts.tolist(), lengths.tolist()
    ([0, 2], [1, 4])
    """
    data = ("\0".join(values) + "\0").encode(encoding)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0)[: len(values)]
    starts = np.append(0, ends + 1)[: len(values)]
    return data, starts, ends - starts


def packed_texts(data: Any, starts: Ints, lengths: Ints) -> tuple[bytes, Ints]:
    r"""Return texts of these bytes as elements of a text[], and where each of them begins and the last one ends.

    An element is its length in bytes and its bytes. All bytes are moved at once, by index:

    >>> elements, bounds = packed_texts(b"b\0\xc3\xa4", np.array([2, 0]), np.array([2, 1]))
    >>> elements
    b'\x00\x00\x00\x02\xc3\xa4\x00\x00\x00\x01b'
    >>> bounds.tolist()
    [0, 6, 11]
    """
    text = np.frombuffer(data, np.uint8)
    if len(starts) <= FEW:
        each = [text[a : a + n].tobytes() for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
        few = np.append(0, np.cumsum([4 + len(one) for one in each], dtype=np.int64))
        return b"".join(struct.pack(">i", len(one)) + one for one in each), few
    bounds = np.append(0, np.cumsum(4 + lengths))
    elements = np.empty(bounds[-1], np.uint8)
    elements[stretches(bounds[:-1], np.full(len(starts), 4))] = lengths.astype(">i4").view(np.uint8)
    elements[stretches(bounds[:-1] + 4, lengths)] = text[stretches(starts, lengths)]
    return elements.tobytes(), bounds


def stretches(starts: Ints, lengths: Ints) -> Ints:
    """Return all places of several stretches.

    >>> stretches(np.array([10, 50]), np.array([3, 2])).tolist()
    [10, 11, 12, 50, 51]
    """
    before = np.cumsum(lengths) - lengths
    places: Ints = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return places


def register(connection: psycopg.Connection[Any]) -> None:
    """Teach a connection numpy arrays, both ways."""
    connection.adapters.register_dumper(np.ndarray, FloatArrayDumper)
    connection.adapters.register_dumper(Keys, KeysDumper)
    connection.adapters.register_loader(FLOAT8_ARRAY, FloatArrayLoader)


def fetch(
    connection: psycopg.Connection[Any],
    statement: sql.Composed,
    parameters: dict[str, Any] | None = None,
    raw: Sequence[int] = (FLOAT8_ARRAY, TEXT_ARRAY),
) -> list[tuple[Any, ...]]:
    """Return rows with arrays of these types as they came, for `floats` and `texts`."""
    return list(stream(connection, statement, parameters, raw))


def stream(
    connection: psycopg.Connection[Any],
    statement: Query,
    parameters: dict[str, Any] | None = None,
    raw: Sequence[int] = (),
    at_once: int = AT_ONCE,
) -> Iterator[tuple[Any, ...]]:
    """Yield such rows while the server still sends the next ones, which nearly halves the time.

    For that libpq must be of version 17 or later, as in psycopg's own wheels; an older one sends one row at a time. The
    connection is busy meanwhile.
    """
    with connection.cursor(binary=True) as cursor:
        for oid in raw:
            cursor.adapters.register_loader(oid, ByteaBinaryLoader)  # just that, in C
        size = at_once if capabilities.has_stream_chunked() else 1
        yield from cursor.stream(statement, parameters, binary=True, size=size)
    connection.execute("")  # or libpq would send the first answer of a pipeline in parts as well, and psycopg fail
