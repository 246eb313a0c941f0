"""Many rows in one value: how the server packs them, and how they become arrays without an object for each of them.

A row of the source is (row_key, packed, c, y), and `string_agg(record_send(row), '')` puts some hundred blocks of
the table into one value. Of every row it has the number of its columns, then of each column its type, its length in
bytes, −1 for NULL, and its bytes, as a binary COPY has them; of an array's elements length and bytes. All numbers are
big-endian. (A million rows of ten numbers: 0.1 s of the client's processor, where fetching them one by one took 0.7 s.)

What is packed are the numbers, in the same way: a row of line segments, each of which has four of them, or an array
where the model has arrays (`packed_expression` in sql/30_capture.sql).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from mempair_db.database import arrays
from mempair_db.pair.compiled import compiled, small

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

COLUMNS: Final = 4
SEGMENT: Final = 601  # the type of a line segment, in every PostgreSQL
SEGMENTS: Final = 4  # bytes before the first segment: how many there are
NAN: Final = np.float64(np.nan).view(np.uint64)
_FACTOR: Final = np.uint64(secrets.randbits(64) | 1)  # nobody who chooses keys can make them fall together


class Texts(Sequence[str]):
    """Texts as they lie in a value; each becomes one of Python's only if somebody asks for it."""

    def __init__(self, data: bytes, starts: Places, lengths: Places) -> None:
        """Take the bytes (UTF-8), where each text begins, and how long it is."""
        self.data, self.starts, self.lengths = np.frombuffer(data, np.uint8), starts, lengths
        self._bytes = data

    @classmethod
    def of(cls, texts: Sequence[str], encoding: str = "utf-8") -> Texts:
        """Pack texts; those that are packed already stay as they are.

        >>> list(Texts.of(["b", "äö", ""]))
        ['b', 'äö', '']
        """
        return texts if isinstance(texts, Texts) else cls(*arrays.joined(texts, encoding))

    @classmethod
    def of_arrays(cls, values: Sequence[bytes]) -> Texts:
        """Read the elements of text[] values without NULLs, as the server sends them, one value after the other."""
        count = sum(map(arrays.length, values))
        data = b"".join([value[arrays.HEADER :] for value in values])
        starts, lengths = np.empty(count, np.int64), np.empty(count, np.int64)
        _elements(np.frombuffer(data, np.uint8), starts, lengths)
        return cls(data, starts, lengths)

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Texts:
        """Return the texts of all parts.

        >>> list(Texts.joined([Texts.of(["b", "äö"]), Texts.of(["", "c"])]))
        ['b', 'äö', '', 'c']
        """
        data = b"".join([part.data[arrays.stretches(part.starts, part.lengths)].tobytes() for part in parts])
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(data, np.cumsum(lengths) - lengths, lengths)

    def places_of(self, wanted: Texts) -> Places:
        """Return where each of these is among the texts: −1 if it is not, −2 if it is there more than once.

        >>> Texts.of(["b", "äö", "c", "c"]).places_of(Texts.of(["äö", "x", "c", "b"])).tolist()
        [1, -1, -2, 0]
        """
        slots = np.full(1 << int(2 * len(self) + 1).bit_length(), -1, np.int64)
        places = np.empty(len(wanted), np.int64)
        _find(self.data, self.starts, self.lengths, wanted.data, wanted.starts, wanted.lengths, _FACTOR, slots, places)
        return places

    @cached_property
    def _list(self) -> list[str]:
        bounds = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return [self._bytes[a:b].decode() for a, b in bounds]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.starts)

    @overload
    def __getitem__(self, i: int) -> str: ...

    @overload
    def __getitem__(self, i: slice) -> list[str]: ...

    def __getitem__(self, i: int | slice) -> str | list[str]:
        """Return one of them, or some."""
        if isinstance(i, slice):
            return self._list[i]
        start = int(self.starts[i])
        return self._bytes[start : start + int(self.lengths[i])].decode()

    def __iter__(self) -> Iterator[str]:
        """Go through all of them."""
        return iter(self._list)


class Rows(NamedTuple):
    """Rows of a source."""

    keys: Sequence[str]
    x: npt.NDArray[np.float64]
    c: Sequence[tuple[str | None, ...]]  # empty if there are no texts
    y: npt.NDArray[np.float64]


def joined(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several parts as one."""
    if len(parts) == 1:
        return parts[0]
    c = [row for part in parts for row in part.c]
    return Rows(
        Texts.joined([Texts.of(part.keys) for part in parts]),
        np.concatenate([part.x for part in parts]),
        c or (),
        np.concatenate([part.y for part in parts]),
    )


def unpack(data: bytes, count: int, numbers: int, texts: int) -> Rows:
    """Read so many rows with so many numbers and texts; one whose array is missing or of another length has NaN."""
    starts, lengths = np.empty((COLUMNS, count), np.int64), np.empty((COLUMNS, count), np.int64)
    there = np.frombuffer(data, np.uint8)
    if _columns(there, starts, lengths) != len(data):
        raise ValueError(f"{count} rows do not end where their {len(data)} bytes do")
    x, y = np.empty((count, numbers)), np.empty((count, 1))
    if _has_segments(data, starts[1], lengths[1]):
        _floats(there, starts[1] + SEGMENTS, lengths[1] - SEGMENTS, 8, 4, x.view(np.uint64))
    else:
        _floats(there, starts[1] + arrays.HEADER, lengths[1] - arrays.HEADER, 4, 1, x.view(np.uint64))
    _floats(there, starts[3], lengths[3], 0, 1, y.view(np.uint64))
    bounds: list[tuple[int, int]] = list(zip(starts[2].tolist(), lengths[2].tolist(), strict=True)) if texts else []
    c = arrays.text_rows([data[a : a + n] if n >= 0 else None for a, n in bounds], texts)
    return Rows(Texts(data, starts[0], lengths[0]), x, c, y[:, 0])


def _has_segments(data: bytes, starts: Places, lengths: Places) -> bool:
    """Return whether rows have segments, by the type that the first of them begins with; only arrays can be missing."""
    at = int(starts[0]) + SEGMENTS if len(starts) and lengths[0] > SEGMENTS else None
    return at is not None and int.from_bytes(data[at : at + 4], "big") == SEGMENT


@compiled
def _columns(data: Bytes, starts: Places, lengths: Places) -> Any:
    """Find where the columns of every row are; return where the last row ends."""
    at = 0
    for row in range(starts.shape[1]):
        at += 4
        for column in range(starts.shape[0]):
            if at + 8 > len(data):
                return -1
            length = _length(data, at + 4)
            starts[column, row], lengths[column, row] = at + 8, length
            at += 8 + max(length, 0)
    return at


@compiled
def _find(
    data: Bytes,
    starts: Places,
    lengths: Places,
    other: Bytes,
    other_starts: Places,
    other_lengths: Places,
    factor: Any,
    slots: Places,
    out: Places,
) -> None:
    """Put texts into slots by a hash of their bytes, and look for others there; one that is twice there is −2 − i."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(starts)):
        slot = _slot(data, starts[i], lengths[i], factor, mask)
        while slots[slot] != -1:
            there = slots[slot] if slots[slot] >= 0 else -2 - slots[slot]
            if _same(data, starts[there], lengths[there], data, starts[i], lengths[i]):
                slots[slot] = -2 - there
                break
            slot = (slot + 1) & np.int64(mask)
        else:
            slots[slot] = i
    for i in range(len(other_starts)):
        slot = _slot(other, other_starts[i], other_lengths[i], factor, mask)
        out[i] = -1
        while slots[slot] != -1:
            there = slots[slot] if slots[slot] >= 0 else -2 - slots[slot]
            if _same(data, starts[there], lengths[there], other, other_starts[i], other_lengths[i]):
                out[i] = max(slots[slot], -2)
                break
            slot = (slot + 1) & np.int64(mask)


@small
def _slot(data: Bytes, start: int, length: int, factor: Any, mask: Any) -> Any:
    number = np.uint64(length)
    for at in range(start, start + length):
        number = (number + np.uint64(data[at]) + np.uint64(1)) * factor
    return np.int64((number >> np.uint64(20)) & mask)


@small
def _same(data: Bytes, start: int, length: int, other: Bytes, other_start: int, other_length: int) -> Any:
    if length != other_length:
        return False
    for k in range(length):  # noqa: SIM110  (compiled)
        if data[start + k] != other[other_start + k]:
            return False
    return True


@compiled
def _elements(data: Bytes, starts: Places, lengths: Places) -> None:
    """Find where elements are."""
    at = 0
    for i in range(len(starts)):
        lengths[i] = _length(data, at)
        starts[i] = at + 4
        at += 4 + lengths[i]


@small
def _length(data: Bytes, at: int) -> Any:
    high = np.int64(data[at]) << 24 | np.int64(data[at + 1]) << 16
    value = high | np.int64(data[at + 2]) << 8 | np.int64(data[at + 3])
    return value - (np.int64(1) << 32) if value >> 31 else value


@compiled
def _floats(
    data: Bytes, starts: Places, lengths: Places, before: int, together: int, out: npt.NDArray[np.uint64]
) -> None:
    """Turn numbers of eight bytes into those of this machine; some bytes come before each so many of them.

    Places have no sign: numba would ask of each byte whether it is counted from the end, three times as long.
    """
    width = out.shape[1]
    size = before + 8 * together
    groups = (width + together - 1) // together
    for row in range(len(starts)):
        if lengths[row] != groups * size:
            out[row] = NAN
            continue
        for group in range(groups):
            at = np.uint64(starts[row] + group * size + before)
            for j in range(group * together, min(width, (group + 1) * together)):
                number = np.uint64(0)
                for k in range(8):
                    number = number << np.uint64(8) | np.uint64(data[at + np.uint64(k)])
                out[row, j] = number
                at += np.uint64(8)
