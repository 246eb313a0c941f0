"""The reference rows of a model: those its constants were chosen from, while they are there as they were.

At a retrain they are a sample of the whole table by key, so that membership depends on a row's own key alone, and those
that are left are chosen again: another sample would move everybody's score (EXACT.md, 7). The first ones of a certified
model are the rows that waited. When one goes, the constants are chosen again from those that are
left: other bits, and the table must be read anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import psycopg

from mempair_db.database import arrays, learned
from mempair_db.database.exact import Exact
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.packed import Rows
from mempair_db.database.queries import query
from mempair_db.pair.exact import REFERENCE_ROWS
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes
from mempair_db.worker.unusable import unusable


class Left(NamedTuple):
    """What is left of the reference rows, and which keys are no longer among them."""

    dropped: list[str]
    x: Any
    y: Any
    c: Any


def choose(connection: psycopg.Connection[Any], model: Model) -> tuple[Changes | None, int]:
    """Choose 5,000 to 10,000 new reference rows by their keys, and store which; None if the table has too few.

    Also return how many rows it has.
    """
    forget(connection, model)
    count = connection.execute(model.statement("count_source")).fetchone()
    rows = count[0] if count else 0
    if rows < model.terms["calibration_rows"]:
        return None, rows
    sample = read(connection, model, salt(model), threshold(rows))
    if len(sample) == 0:
        return None, rows
    store(connection, model, sample)
    point("reference chosen")
    return sample, rows


def salt(model: Model) -> int:
    """Return what the keys are hashed with; nobody who chooses a key can know it."""
    return int.from_bytes(hashlib.blake2b(b"reference", digest_size=8, key=model.secret).digest(), "little") >> 1


def threshold(rows: int) -> int:
    """Return what the hash of a reference row is at most, so that there are 5,000 to 10,000 among so many rows."""
    halvings = max(0, int(np.ceil(np.log2(max(rows, 1) / REFERENCE_ROWS))))
    return int(2**63 - 1 if halvings == 0 else -(2**63) + 2 ** (64 - halvings))


def read(connection: psycopg.Connection[Any], model: Model, salt: int, most: int) -> Changes:
    """Read the rows of the table whose key's hash is at most so much."""
    values = {"salt": salt, "threshold": most}
    return usable(model, decode(model, arrays.fetch(connection, model.statement("sample_source"), values)))[0]


def forget(connection: psycopg.Connection[Any], model: Model) -> None:
    """No row is a reference row."""
    connection.execute(query("forget_reference"), {"model": model.id})


def store(connection: psycopg.Connection[Any], model: Model, rows: Changes) -> None:
    """Store which rows they are."""
    prints = fingerprints(model.secret, rows.x, rows.y, rows.c)
    connection.execute(query("save_reference"), {"model": model.id, "keys": list(rows.keys), "prints": prints.tolist()})


def ask(connection: psycopg.Connection[Any], model: Model, keys: Sequence[str]) -> Callable[[], list[str]]:
    """Ask which of these keys are reference rows; the answer can be waited for later."""
    if not keys:
        return list
    if len(keys) >= learned.MANY:
        stored = connection.execute(query("load_reference"), {"model": model.id})
        return lambda: sorted({key for key, _ in stored.fetchall()}.intersection(keys))
    found = connection.execute(query("find_reference"), {"model": model.id, "keys": arrays.Keys(keys)})
    return lambda: [key for (key,) in found.fetchall()]


def without(connection: psycopg.Connection[Any], model: Model, gone: Sequence[str]) -> Left:
    """Return the reference rows without these.

    They are read under the batch's own snapshot. One that is not there as it was learned has a change waiting in the
    queue, and is no longer a reference row either.
    """
    stored = dict(connection.execute(query("load_reference"), {"model": model.id}).fetchall())
    left = list(stored.keys() - set(gone))
    rows = arrays.fetch(connection, model.statement("find_rows"), {"keys": left})
    keys, x, c, y = decode(model, rows)
    marks = fingerprints(model.secret, x, y, c)
    kept = [i for i, (key, mark) in enumerate(zip(keys, marks.tolist(), strict=True)) if stored[key] == mark]
    dropped = sorted(set(stored) - {keys[i] for i in kept})
    return Left(dropped, x[kept], y[kept], [c[i] for i in kept] if len(c) else ())


def drop(connection: psycopg.Connection[Any], model: Model, keys: list[str]) -> None:
    """These are no longer reference rows."""
    if keys:
        connection.execute(query("drop_reference"), {"model": model.id, "keys": keys})


def decode(model: Model, rows: list[tuple[Any, ...]]) -> Rows:
    """Read rows that were fetched one by one."""
    keys, x, c, y = queue.columns(rows, 4)
    return Rows(keys, queue.numbers(x, model.number_count), arrays.text_rows(c, model.text_count), np.array(y, float))


def usable(model: Model, rows: Rows) -> tuple[Changes, list[tuple[str, str]]]:
    """Return the rows that can be learned, and of the others key and reason."""
    n = len(rows.y)
    op, seq = np.full(n, queue.INSERT, np.int16), np.zeros(n, np.int64)
    chunk = Changes(seq=seq, op=op, keys=rows.keys, x=rows.x, c=rows.c, y=rows.y, captured_at=[None] * n)
    infinite = isinstance(model.engine, Exact)
    reasons = unusable(chunk, model.imputes, model.regression, infinite, bool(model.terms.get("weighted")))
    if not any(reasons):
        return chunk, []
    rejected = [(rows.keys[i], reason) for i, reason in enumerate(reasons) if reason]
    return chunk.take([i for i in range(n) if not reasons[i]]), rejected
