"""The refresh of an exact model: choose the constants anew from a sample of the whole table, and add all rows up.

Sums of parts add up, so the table is read in parts, each on a connection of its own that sees this transaction's
snapshot. Whatever number of parts there is, the sums have the same bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg

from mempair_db.database import arrays, learned
from mempair_db.database.exact import refer, targets
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.database.source import Row, each_chunk
from mempair_db.ledger.record import Record
from mempair_db.pair.exact import REFERENCE_ROWS, Reference, Sums, nothing, sums
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.worker import changes as queue
from mempair_db.worker import exact
from mempair_db.worker.changes import Changes
from mempair_db.worker.plan import unusable


def read(
    connection: psycopg.Connection[Any], model: Model, record: Record, dsn: str | None, give_up: Callable[[], bool]
) -> int | None:
    """Learn every row anew under new constants; return how many, None if told to give up."""
    reference = _choose(connection, model)
    learned.forget_all(connection, model.id)
    if reference is None:
        return 0
    total = nothing(reference.classes, reference.d)

    def add(rows: list[Row]) -> tuple[Sums, bytes, list[tuple[str, str]]]:
        chunk, rejected = _usable(model, rows)
        prints = fingerprints(model.secret, chunk.x, chunk.y, chunk.c)
        part = sums(reference, chunk.x, targets(chunk.y, reference.loss), chunk.c)
        return part, learned.pack(model.id, chunk.keys, prints, None, connection.info.encoding), rejected

    for part, packed, rejected in each_chunk(connection, model, dsn, add):
        total += part
        learned.enter(connection, packed)
        for key, reason in rejected:
            record.reject(0, key, queue.INSERT, reason)
        point("chunk replayed")
        if give_up():
            return None
    engine = model.exact
    engine.start(reference, total, engine.reference_rows)
    model.promised()
    detail = f"exact d={reference.d} from {engine.reference_rows} reference rows"
    record.enter("calibrated", rows=engine.reference_rows, detail=detail)
    record.note(f"epoch {model.epoch}: {detail}")
    ready = engine.ready
    model.phase = "ready" if ready else "learning"
    if ready:
        record.enter("gate_opened", rows=total.n)
    return total.n


def _choose(connection: psycopg.Connection[Any], model: Model) -> Reference | None:
    """Choose reference rows by their keys, and the constants from them; None if there are too few rows."""
    engine = model.exact
    connection.execute(query("forget_reference"), {"model": model.id})
    count = connection.execute(model.statement("count_source")).fetchone()
    rows = count[0] if count else 0
    if rows < model.terms["calibration_rows"]:
        return None
    halvings = max(0, int(np.ceil(np.log2(rows / REFERENCE_ROWS))))  # a sample of between 5,000 and 10,000 rows
    values = {
        "salt": secrets.randbits(63),
        "threshold": 2**63 - 1 if halvings == 0 else -(2**63) + 2 ** (64 - halvings),
    }
    sample = _usable(model, arrays.fetch(connection, model.statement("sample_source"), values))[0]
    if len(sample) == 0:
        return None
    prints = fingerprints(model.secret, sample.x, sample.y, sample.c)
    stored = {"model": model.id, "keys": sample.keys, "prints": prints.tolist()}
    connection.execute(query("save_reference"), stored)
    engine.reference_rows = len(sample)
    point("reference chosen")
    return refer(engine.terms, sample.x, targets(sample.y, engine.terms["loss"]), sample.c)


def _usable(model: Model, rows: list[Row]) -> tuple[Changes, list[tuple[str, str]]]:
    """Return the rows that can be learned, and of the others key and reason."""
    keys, x, c, y = exact.decode(model, rows)
    n = len(keys)
    op, seq = np.full(n, queue.INSERT, np.int16), np.zeros(n, np.int64)
    chunk = Changes(seq=seq, op=op, keys=keys, x=x, c=c, y=y, captured_at=[None] * n)
    reasons = unusable(chunk, impute=model.imputes, regression=model.regression, infinite=True)
    rejected = [(keys[i], reason) for i, reason in enumerate(reasons) if reason]
    return (chunk.take([i for i in range(n) if not reasons[i]]) if rejected else chunk), rejected
