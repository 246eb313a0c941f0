"""Where a model and its table differ: which rows explain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mempair_db.database.exact import learnable, total
from mempair_db.database.marks import each_learned
from mempair_db.pair.exact import gradients
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums
from mempair_db.verify.snapshot import Snapshot
from mempair_db.worker.changes import Changes

SHOWN: Final = 10


@dataclass
class Escaped:
    """Keys of the rows whose changes the model never heard of."""

    inserted: list[str] = field(default_factory=list)  # in the table, not learned
    updated: list[str] = field(default_factory=list)  # learned with other values
    deleted: list[str] = field(default_factory=list)  # learned, and not in the table

    def __str__(self) -> str:
        """Name the first of each."""
        parts = [
            f"{len(keys)} {what}: {', '.join(sorted(keys)[:SHOWN])}{' …' if len(keys) > SHOWN else ''}"
            for keys, what in (
                (self.updated, "in the table with other values than were learned (an UPDATE that escaped)"),
                (self.inserted, "in the table but not learned (an INSERT that escaped)"),
                (self.deleted, "learned but not in the table (a DELETE that escaped)"),
            )
            if keys
        ]
        return "; ".join(parts)


def escaped(snapshot: Snapshot) -> Escaped:
    """Compare key by key what was learned, and what waits, with what is there."""
    known: Counter[tuple[str, int | None]] = Counter()
    if not snapshot.waiting.truncated:
        for keys, prints, _ in each_learned(snapshot.connection, snapshot.model.id):
            known.update(zip(keys, [None] * len(keys) if prints is None else prints.tolist(), strict=True))
    waiting = snapshot.waiting
    marks = waiting.prints.tolist()
    known.update((waiting.changes.keys[i], marks[i]) for i in waiting.plan.learn)
    for i in waiting.plan.unlearn:
        key = waiting.changes.keys[i]
        known[(key, marks[i]) if known[key, marks[i]] else (key, None)] -= 1
    new: set[str] = set()
    for chunk, prints in snapshot.chunks():
        for key, mark in zip(chunk.keys, prints.tolist(), strict=True):
            if known[key, mark] or known[key, None]:
                known[(key, mark) if known[key, mark] else (key, None)] -= 1
            else:
                new.add(key)
    old = {key for key, _ in +known}
    return Escaped(sorted(new - old), sorted(new & old), sorted(old - new))


def culprits(snapshot: Snapshot, delta: Sums) -> str:
    """Find the row whose own terms are the difference `delta` = stored − computed, up to its sign; "" if there is none.

    Only rows that are there can be found: what of a row that is gone was left in the sums has no other trace.
    """
    reference = snapshot.reference
    if reference is None or abs(delta.n) != 1:
        return ""
    terms = snapshot.model.terms
    found = [key for chunk, _ in snapshot.chunks() for key in _matching(reference, terms, chunk, delta)]
    if found:
        how = "are in the sums once too often" if delta.n > 0 else "are missing from the sums"
        return f"the terms of row {' or '.join(found[:SHOWN])} {how}"
    return "one row that is not in the table is in the sums" if delta.n > 0 else ""


def _matching(reference: Reference, terms: Mapping[str, Any], chunk: Changes, delta: Sums) -> Sequence[str]:
    rows = learnable(terms, chunk.x, chunk.y, chunk.c, reference.labels)
    wanted = delta.g[0, : reference.d] * delta.n
    same = (gradients(reference, rows.x, rows.y, rows.c, rows.weight) == wanted).all(axis=1)
    keys = []
    for i in np.flatnonzero(same).tolist():
        sign = np.array([float(delta.n)])
        one = total(reference, terms, chunk.x[[i]], chunk.y[[i]], chunk.c[i : i + 1], sign)
        if one.to_bytes() == delta.to_bytes():
            keys.append(chunk.keys[i])
    return keys
