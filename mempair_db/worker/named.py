"""Rows that came and were only named: they are read from their table, under the snapshot that shows the queue.

What a row was when it came is what its next deletion in the queue shows, or else what the table has:

    all is read          came k                     → the row of k as it is there, or nothing
    more is in the queue came k │ went k (shows a)  → a: it is learned now and unlearned later, as if a had been queued
                         came k, went k │ came k    → nothing yet: it is the later coming that brings what is there
                         went k, came k │           → the row of k as it is there

Rows that one statement brought mostly lie side by side. So where the first and the last of a chunk are near each other,
the blocks between them are read, which takes a fifth of the time to find each row by its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import psycopg

from mempair_db.database import arrays, packed
from mempair_db.database.models import INSERT, Model
from mempair_db.database.packed import Rows, Texts
from mempair_db.pair.sums import Sums
from mempair_db.worker import chunks, meanwhile
from mempair_db.worker.meanwhile import Adding

if TYPE_CHECKING:
    from mempair_db.worker.changes import Changes

Places = npt.NDArray[np.int64]

SHOWN: Final = 0  # the event has the row's values
ABSENT: Final = 1  # it had the key alone, and there is nothing to learn of it now
TWICE: Final = 2  # it had the key alone, and several rows have it
FOUND: Final = 3  # it had the key alone, and these are the values

MANY: Final = 8  # rows that came together, so that the first and the last of them may say where the others lie
FEW: Final = 500  # rows that are found by their keys, wherever they lie
BLOCK: Final = 8192  # bytes
WASTE: Final = 4  # rows that a block has room for are read where one of so many is wanted; to find one takes as long
BLOCKS_AT_ONCE: Final = 8  # in one value
VALUES_AT_ONCE: Final = 10  # that are taken over while the server makes the next
PIECE: Final = 2_000  # rows, whose sums are worth a call


def read(connection: psycopg.Connection[Any], model: Model, changes: Changes, named: npt.NDArray[np.bool_]) -> Changes:
    """Return the events with the rows that were only named."""
    index = np.flatnonzero(named)
    keys = Texts.of(changes.keys if len(index) == len(changes) else [changes.keys[i] for i in index.tolist()])
    rows, at, sums = find(connection, model, keys, changes.seq[index])
    often = np.bincount(at[at >= 0], minlength=len(rows.y))  # how often each row is meant
    usual = len(index) == len(changes) and at.min() >= 0 and often.max() == 1
    if usual and (changes.complete or not _goes_later(connection, model, changes)):
        x, c, y = _take(rows, at)
        sums = meanwhile.without(model, sums, rows, np.flatnonzero(often == 0))
        return replace(changes, x=x, c=c, y=y, named=np.full(len(changes), FOUND, np.int8), distinct=True, sums=sums)
    if not changes.complete:
        rows, at = _as_they_came(connection, model, changes, index, rows, at)
    marks = np.full(len(changes), SHOWN, np.int8)
    marks[index] = np.where(at < 0, -at, FOUND)
    there, at = index[at >= 0], at[at >= 0]
    x, y = np.full((len(changes), model.number_count), np.nan), changes.y.copy()
    if changes.x.shape == x.shape:
        x[:] = changes.x
    x[there], y[there] = rows.x[at], rows.y[at]
    c = list(changes.c) or [(None,) * model.text_count] * (len(changes) if model.text_count else 0)
    if model.text_count:
        for i, place in zip(there.tolist(), at.tolist(), strict=True):
            c[i] = rows.c[place]
    return replace(changes, x=x, y=y, c=c, named=marks)


def _take(rows: Rows, at: Places) -> tuple[Any, Any, Any]:
    """Return numbers, texts and targets of some rows; mostly they are one stretch, which need not be copied."""
    if at[-1] - at[0] + 1 == len(at) and (np.diff(at) == 1).all():
        some = slice(int(at[0]), int(at[-1]) + 1)
        return rows.x[some], rows.c[some], rows.y[some]
    return rows.x[at], [rows.c[i] for i in at.tolist()] if len(rows.c) else (), rows.y[at]


def _as_they_came(
    connection: psycopg.Connection[Any], model: Model, changes: Changes, index: Places, rows: Rows, at: Places
) -> tuple[Rows, Places]:
    """Take back what the rest of the queue will bring, and see there what the rows were that it will take away."""
    last = dict(zip(changes.keys, changes.op.tolist(), strict=True))
    named = [changes.keys[i] for i in index.tolist()]
    gone = _going_later(connection, model, changes, [key for key in set(named) if last[key] == INSERT])
    there = {key for key, place in zip(named, at.tolist(), strict=True) if place >= 0}
    odd = arrays.Keys(key for key in there if last[key] != INSERT)  # gone here, and yet there
    later = {"keys": odd, "last": int(changes.seq[-1])}
    comes = {key for (key,) in connection.execute(model.statement("coming_later"), later)} if odd else set()
    places = dict(zip(gone.keys, range(len(rows.y), len(rows.y) + len(gone.y)), strict=True))
    at = np.array(
        [-1 if key in comes else places.get(key, place) for key, place in zip(named, at.tolist(), strict=True)],
        np.int64,
    )
    return _both(rows, gone), at


def _goes_later(connection: psycopg.Connection[Any], model: Model, changes: Changes) -> bool:
    row = connection.execute(model.statement("goes_later"), {"last": int(changes.seq[-1])}).fetchone()
    return bool(row and row[0])


def _going_later(connection: psycopg.Connection[Any], model: Model, changes: Changes, keys: Sequence[str]) -> Rows:
    """Return what the next deletions of these rows show, of those that have one in the rest of the queue."""
    values = {"keys": arrays.Keys(keys), "last": int(changes.seq[-1])}
    found = arrays.fetch(connection, model.statement("going_later"), values, (arrays.FLOAT8_ARRAY,))
    ones = np.ones(len(found), np.int64)
    x = chunks.matrix([row[1] for row in found], ones, model.number_count)
    c = chunks.texts([row[2] for row in found], ones.tolist(), model.text_count)
    return Rows([row[0] for row in found], x, c, np.array([row[3] for row in found], float))


class Found(NamedTuple):
    """Labelled rows of the table."""

    rows: Rows
    at: Places  # at which place each of the keys has its own: −1 if it has none, −2 if several have it
    sums: Sums | None = None  # of all these rows, if they are known


def find(connection: psycopg.Connection[Any], model: Model, keys: Texts, seq: Places) -> Found:
    """Return the rows that have these keys, and perhaps others."""
    if len(keys) >= FEW and (ranges := _ranges(connection, model, keys, seq)):
        return _in_blocks(connection, model, keys, ranges)
    rows = _find_each(connection, model, arrays.Keys(set(keys)))
    return Found(rows, Texts.of(rows.keys).places_of(keys))


def _both(one: Rows, other: Rows) -> Rows:
    c = [*one.c, *other.c] if len(one.c) or len(other.c) else ()
    return Rows([*one.keys, *other.keys], np.concatenate([one.x, other.x]), c, np.concatenate([one.y, other.y]))


def _find_each(connection: psycopg.Connection[Any], model: Model, keys: arrays.Keys) -> Rows:
    """Find rows by their keys, through the table's index."""
    found = arrays.fetch(connection, model.statement("find_rows"), {"keys": keys})
    return Rows(
        [row[0] for row in found],
        chunks.matrix([row[1] for row in found], np.ones(len(found), np.int64), model.number_count, arrays.HEADER),
        arrays.text_rows([row[2] for row in found], model.text_count),
        np.array([row[3] for row in found], float),
    )


def _ranges(connection: psycopg.Connection[Any], model: Model, keys: Texts, seq: Places) -> list[tuple[int, int]]:
    """Return the blocks in which the rows of whole chunks lie side by side."""
    bounds = np.append(np.flatnonzero(np.diff(seq, prepend=-1)), len(seq)).tolist()
    wanted = min(MANY, BLOCK / (32 + 8 * model.number_count + 16 * model.text_count) / WASTE)  # of a block, on average
    large = [(a, b - 1) for a, b in pairwise(bounds) if b - a >= MANY]
    ends = arrays.Keys({keys[i] for ends in large for i in ends})
    block = dict(connection.execute(model.statement("find_places"), {"keys": ends}).fetchall()) if ends else {}
    ranges: list[tuple[int, int]] = []
    for a, b in large:
        if keys[a] in block and keys[b] in block:
            first, last = sorted((block[keys[a]], block[keys[b]]))
            if (last - first) * wanted <= b - a + 1:
                ranges.append((first, last))
    return _joined(ranges)


def _in_blocks(connection: psycopg.Connection[Any], model: Model, keys: Texts, ranges: list[tuple[int, int]]) -> Found:
    """Return what is in these blocks, and before it the rows that lie elsewhere.

    The first two rows of a statement are a chunk each, and often lie in the block before the others.
    """
    firsts, lasts = zip(*ranges, strict=True)
    values = {"firsts": list(firsts), "lasts": list(lasts), "step": BLOCKS_AT_ONCE}
    with Adding(model) as adding:
        parts = [adding.add(rows) for rows in _pieces(connection, model, values)]
        at = Texts.joined([Texts.of(part.keys) for part in parts]).places_of(keys)
        missing = np.flatnonzero(at == -ABSENT)
        if len(missing):
            names = [keys[i] for i in missing.tolist()]
            parts.insert(0, adding.add(_find_each(connection, model, arrays.Keys(dict.fromkeys(names)))))
            at[at >= 0] += len(parts[0].y)
            at[missing] = Texts.of(parts[0].keys).places_of(Texts.of(names))
        rows = packed.joined(parts)
    return Found(rows, at, adding.sums)


def _pieces(connection: psycopg.Connection[Any], model: Model, values: dict[str, Any]) -> Iterator[Rows]:
    """Yield the rows of some blocks in pieces, while the server reads on."""
    some: list[bytes] = []
    count = 0
    for rows, data in arrays.stream(connection, model.statement("read_blocks"), values, at_once=VALUES_AT_ONCE):
        count += rows
        some += [data] if rows else []
        if count >= PIECE and len(some) >= VALUES_AT_ONCE:
            yield packed.unpack(b"".join(some), count, model.number_count, model.text_count)
            some, count = [], 0
    yield packed.unpack(b"".join(some), count, model.number_count, model.text_count)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch.

    >>> _joined([(7, 9), (1, 3), (3, 5)])
    [(1, 5), (7, 9)]
    """
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
