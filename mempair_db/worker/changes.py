"""Captured events: read into arrays, and reduced to what the model has to do.

A row's events in one batch reduce to at most one deletion followed by at most one insertion: an insert whose delete
is there too was never learned, so both are dropped, and the delete of a row that was never learned costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg

from mempair_db.database import arrays
from mempair_db.database.models import Model
from mempair_db.pair.encoding import Matrix
from mempair_db.pair.state import Vector

INSERT: Final = 1
DELETE: Final = 2
TRUNCATE: Final = 3

BATCH_ROWS: Final = 100_000
BATCH_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Changes:
    """Events in the order of capture."""

    seq: npt.NDArray[np.int64]
    op: npt.NDArray[np.int16]
    keys: list[str]
    buckets: npt.NDArray[np.int32]  # where learned.py keeps the keys
    x: Matrix
    c: Sequence[tuple[str | None, ...]]  # empty if the model has no text features
    y: Vector
    captured_at: list[datetime | None]
    subjects: Sequence[str | None] = ()  # whose row was deleted; empty if the model has no subject

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self.seq)

    def subject(self, i: int) -> str | None:
        """Return whose row an event deleted, if the model has a subject."""
        return self.subjects[i] if len(self.subjects) else None

    def keys_of(self, op: int) -> list[str]:
        """Return the keys of the events of one kind."""
        return [self.keys[i] for i in np.flatnonzero(self.op == op).tolist()]

    def take(self, which: list[int] | range | slice) -> Changes:
        """Return some of the events."""
        if len(self) == (len(which) if not isinstance(which, slice) else -1):
            return self
        index = list(range(len(self))[which] if isinstance(which, slice) else which)
        return Changes(
            self.seq[index],
            self.op[index],
            [self.keys[i] for i in index],
            self.buckets[index],
            self.x[index],
            [self.c[i] for i in index] if len(self.c) else (),
            self.y[index],
            [self.captured_at[i] for i in index],
            [self.subjects[i] for i in index] if len(self.subjects) else (),
        )


def read(connection: psycopg.Connection[Any], model: Model, after: int = 0) -> Changes:
    """Read a batch of the model's queue: the events with the smallest numbers, if asked of those `after` a number."""
    values = {"rows": BATCH_ROWS, "bytes": BATCH_BYTES, "after": after}
    rows = arrays.fetch(connection, model.statement("read_changes"), values)
    rows.sort(key=itemgetter(0))
    seq, op, keys, buckets, x, c, y, at, subjects = columns(rows, 9)
    return Changes(
        seq=np.array(seq, np.int64),
        op=np.array(op, np.int16),
        keys=keys,
        buckets=np.array(buckets, np.int32),
        x=numbers(x, model.numbers),
        c=texts(c, model.texts),
        y=np.array(y, float),  # None becomes NaN
        captured_at=at,
        subjects=subjects if any(subjects) else (),
    )


def columns(rows: list[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Turn rows into columns; four times as fast as ``zip(*rows)`` for 100,000 rows."""
    return [[row[i] for row in rows] for i in range(count)]


def numbers(rows: list[bytes | None], width: int) -> Matrix:
    """Decode the number columns; a row without a payload (TRUNCATE), or of another width, becomes NaN."""
    size = arrays.HEADER + width * arrays.ELEMENT.itemsize if width else None
    whole = [i for i, data in enumerate(rows) if data is not None and (size is None or len(data) == size)]
    if len(whole) == len(rows):
        return arrays.floats(rows, width)  # type: ignore[arg-type]
    x = np.full((len(rows), width), np.nan)
    x[whole] = arrays.floats([rows[i] or b"" for i in whole], width)
    return x


def texts(rows: list[bytes | None], width: int) -> Sequence[tuple[str | None, ...]]:
    """Decode the text columns; a row of another width counts as missing."""
    if width == 0:
        return ()
    missing = (None,) * width
    decoded = (arrays.texts(data) if data is not None else missing for data in rows)
    return [values if len(values) == width else missing for values in decoded]


@dataclass
class Plan:
    """What a batch comes to. Numbers are positions in its `Changes`."""

    events: list[int] | range = field(default_factory=list)  # to be applied, in order
    cancelled: list[int] = field(default_factory=list)  # deletes of rows that were never learned
    dropped: list[int] = field(default_factory=list)  # the inserts that those deletes cancel
    rejected: list[tuple[int, str]] = field(default_factory=list)
    poison: list[tuple[int, str]] = field(default_factory=list)  # deletes of learned rows that cannot be unlearned
    repeated: bool = False  # some of the rejected were learned already


def plan(changes: Changes, learned: Mapping[str, int], *, impute: bool, regression: bool) -> Plan:
    """Reduce the events. `learned` says how often the model has learned keys that were looked up."""
    result = Plan()
    reasons = _unusable(changes, impute=impute, regression=regression)
    known = set(learned)
    usual = not known and not (changes.op == DELETE).any() and not any(reasons)
    if usual and len(set(changes.keys)) == len(changes):
        result.events = range(len(changes))  # the usual batch: new rows only
        return result
    waiting: dict[str, int] = {}  # inserts of this batch that no later event has cancelled
    kept: set[int] = set()
    for i, (op, key) in enumerate(zip(changes.op.tolist(), changes.keys, strict=True)):
        if op == DELETE:
            if key in waiting:
                result.dropped.append(waiting[key])
                kept.discard(waiting.pop(key))
                result.cancelled.append(i)
            elif key in known:
                known.discard(key)
                kept.add(i)
                if learned[key] > 1:
                    result.poison.append((i, "the row was learned twice: an earlier deletion of it escaped capture"))
                elif reasons[i]:
                    result.poison.append((i, reasons[i]))
            else:
                result.cancelled.append(i)
        elif reasons[i]:
            result.rejected.append((i, reasons[i]))
        elif key in waiting or key in known:
            result.rejected.append((i, "already learned"))
            result.repeated = True
        else:
            waiting[key] = i
            kept.add(i)
    result.events = sorted(kept)
    return result


def _unusable(changes: Changes, *, impute: bool, regression: bool) -> list[str]:
    """Return why each row cannot be learned; an empty text if it can."""
    reasons = [""] * len(changes)
    for i in np.flatnonzero(~np.isfinite(changes.x).all(axis=1)).tolist():
        if np.isinf(changes.x[i]).any():
            reasons[i] = "infinite value"
        elif not impute:
            reasons[i] = "missing value"
    if not impute:
        for i, values in enumerate(changes.c):
            if None in values:
                reasons[i] = "missing value"
    good = np.isfinite(changes.y) if regression else np.abs(changes.y) == 1.0
    for i in np.flatnonzero(~good).tolist():
        reasons[i] = "unusable target"
    return reasons
