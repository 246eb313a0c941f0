"""Chunks of the queue, decoded: a chunk holds the rows that one statement changed, at most 2,000.

The wire form of a matrix is seven big-endian int32 (two dimensions, has-nulls, element type, and length and lower bound
of each), then 12 bytes an element. Most chunks of a busy queue have one row: those are decoded all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from mempair_db.database import arrays

MATRIX = 28
INT = np.dtype([("length", ">i4"), ("value", ">i4")])

Texts = Sequence[tuple[str | None, ...]]


def spread(values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """Repeat each chunk's value for each of its rows."""
    return list(chain.from_iterable(map(repeat, values, counts)))


def flat(lists: Sequence[list[Any] | None], counts: Sequence[int], missing: Any) -> list[Any]:
    """Return the entries of all chunks; a chunk without them, or with another number, has `missing` for each row."""
    whole = (
        entries if entries is not None and len(entries) == count else [missing] * count
        for entries, count in zip(lists, counts, strict=True)
    )
    return list(chain.from_iterable(whole))


def matrix(
    chunks: Sequence[bytes | None], counts: npt.NDArray[np.int64], width: int, header: int = MATRIX
) -> npt.NDArray[np.float64]:
    """Decode the numbers of all chunks; one that is missing, or has another shape, becomes NaN. A zero has no sign."""
    ends = np.cumsum(counts)
    found = np.empty((int(ends[-1]) if len(ends) else 0, width))
    if width == 0:
        return found
    single = header + width * arrays.ELEMENT.itemsize
    ones = [i for i, data in enumerate(chunks) if counts[i] == 1 and data is not None and len(data) == single]
    found[ends[counts == 1] - 1] = np.nan
    found[ends[ones] - 1] = arrays.floats([chunks[i] or b"" for i in ones], width, header)
    for i in np.flatnonzero(counts > 1).tolist():
        data, count = chunks[i], int(counts[i])
        rows = found[ends[i] - count : ends[i]]
        if data is not None and len(data) == header + count * width * arrays.ELEMENT.itemsize:
            rows[:] = np.frombuffer(data, arrays.ELEMENT, offset=header)["value"].reshape(count, width)
        else:
            rows[:] = np.nan
    found += 0.0
    return found


def integers(chunks: Sequence[bytes | None], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Decode one integer for each row."""
    parts = [
        data[arrays.HEADER :] if data is not None and len(data) > arrays.HEADER else bytes(count * INT.itemsize)
        for data, count in zip(chunks, counts.tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(parts), INT)["value"].astype(np.int32)


def texts(chunks: Sequence[list[list[str | None]] | None], counts: Sequence[int], width: int) -> Texts:
    """Return the texts of each row; a row of another width counts as missing."""
    if width == 0:
        return ()
    missing = (None,) * width
    return [tuple(row) if row is not None and len(row) == width else missing for row in flat(chunks, counts, None)]
