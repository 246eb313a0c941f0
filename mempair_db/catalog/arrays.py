"""Arrays between numpy and Postgres in binary, without a Python object per number.

A one-dimensional array on the wire is five big-endian int32 (dimensions, has-nulls, element type, length, lower
bound), then for each element its length in bytes, 8 or 4 or −1 for NULL, and its big-endian bytes. A float8[] with
no NULLs is therefore a fixed header and n records of 12 bytes: one `frombuffer` reads all rows of a batch.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format
from psycopg.types.string import ByteaBinaryLoader

FLOAT8, FLOAT8_ARRAY, TEXT_ARRAY = 701, 1022, 1009
HEADER = 20
ELEMENT = np.dtype([("length", ">i4"), ("value", ">f8")])


class FloatArrayDumper(Dumper):
    """Write a one-dimensional float64 array as float8[]."""

    format = Format.BINARY
    oid = FLOAT8_ARRAY

    def dump(self, obj: npt.NDArray[np.float64]) -> Buffer:
        """Return the array in Postgres' binary form."""
        if len(obj) == 0:
            return struct.pack(">3i", 0, 0, FLOAT8)
        elements = np.empty(len(obj), ELEMENT)
        elements["length"] = 8
        elements["value"] = obj
        return struct.pack(">5i", 1, 0, FLOAT8, len(obj), 1) + elements.tobytes()


class FloatArrayLoader(Loader):
    """Read a float8[] without NULLs as a float64 array."""

    format = Format.BINARY

    def load(self, data: Buffer) -> npt.NDArray[np.float64]:
        """Return the numbers."""
        row: npt.NDArray[np.float64] = floats([bytes(data)], max((len(data) - HEADER) // ELEMENT.itemsize, 0))[0]
        return row


def floats(rows: list[bytes], width: int) -> npt.NDArray[np.float64]:
    """Decode float8[] values that all have `width` numbers into one matrix."""
    if width == 0:
        return np.empty((len(rows), 0))
    row = np.dtype([("header", f"V{HEADER}"), ("elements", ELEMENT, (width,))])
    return np.frombuffer(b"".join(rows), row)["elements"]["value"].astype(np.float64)


@lru_cache(maxsize=100_000)
def texts(data: bytes) -> tuple[str | None, ...]:
    """Decode one text[]; categories repeat, so most calls find the answer ready."""
    values: list[str | None] = []
    position = HEADER
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0:
            values.append(None)
        else:
            values.append(data[position : position + length].decode())
            position += length
    return tuple(values)


def register(connection: psycopg.Connection[Any]) -> None:
    """Teach a connection numpy arrays, both ways."""
    connection.adapters.register_dumper(np.ndarray, FloatArrayDumper)
    connection.adapters.register_loader(FLOAT8_ARRAY, FloatArrayLoader)


def register_raw(cursor: psycopg.Cursor[Any]) -> None:
    """Let a cursor hand out float8[] and text[] as they came: psycopg's loader of bytea does just that, in C."""
    cursor.adapters.register_loader(FLOAT8_ARRAY, ByteaBinaryLoader)
    cursor.adapters.register_loader(TEXT_ARRAY, ByteaBinaryLoader)
