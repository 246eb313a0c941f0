"""Exact retrain: replay the surviving rows in the order they were learned, without noise, and start a new epoch.

One REPEATABLE READ transaction. Triggers commit their events together with the rows, so every event that this
snapshot of the queue shows is already reflected in this snapshot of the source: those events are simply removed, and
pending deletions among them are served by the rows not being there. Whatever commits later stays in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg

from mempair_db.catalog import arrays, models
from mempair_db.catalog.ledger import Ledger, new_tag
from mempair_db.catalog.models import Model
from mempair_db.catalog.queries import query
from mempair_db.pair.calibration import MOST_ROWS
from mempair_db.worker import batch
from mempair_db.worker import changes as queue
from mempair_db.worker.batch import Outcome
from mempair_db.worker.changes import Changes

CHUNK = 50_000


def retrain(connection: psycopg.Connection[Any], model_id: int, why: str) -> Outcome:
    """Retrain a model now. Killed half-way, it leaves the old epoch as it was."""
    outcome = Outcome()
    with connection.transaction():
        model = models.lease(connection, model_id)
        if model is None:
            return outcome
        ledger = batch.open_ledger(model)
        before = model.pair.odometer.deletions if model.pair.epoch else 0
        _serve_deletions(connection, model, ledger, outcome)
        rows = _replay(connection, model, ledger, outcome)
        for half in ("a", "b"):
            connection.execute(model.statement(f"empty_{half}"))
        if model.pair.epoch is None:
            connection.execute(model.statement("enqueue_source"))
        ledger.append(
            "retrained",
            epoch=model.epoch,
            clock=rows,
            rows=rows,
            rho_cap=model.pair.epoch.cap if model.pair.epoch else None,
            detail=f"{why}; {before} deletions by noise, {outcome.unlearned} by this retrain",
        )
        batch.close(connection, model, ledger)
        outcome.retrained = True
        outcome.learned = rows
        outcome.notes.append(f"retrained on {rows} rows: {why}")
    return outcome


def _serve_deletions(connection: psycopg.Connection[Any], model: Model, ledger: Ledger, outcome: Outcome) -> None:
    """Enter the pending deletions that the replay serves, at no cost to the budget."""
    receipts = []
    spent = model.pair.odometer.spent if model.pair.epoch else 0
    clock = model.pair.tally("clock") if model.pair.epoch else 0
    for key, requested in connection.execute(model.statement("pending_deletions"), {"model": model.id}).fetchall():
        tag, salt = new_tag(key)
        seq = ledger.append(
            "unlearned",
            epoch=model.epoch,
            clock=clock,
            rows=1,
            rho_spent=spent,
            tag=tag,
            detail="by exact retrain",
        )
        receipts.append((model.id, key, tag, salt, seq, requested, ledger.at, "retrained"))
    batch.write_receipts(connection, receipts)
    outcome.unlearned = len(receipts)


def _replay(connection: psycopg.Connection[Any], model: Model, ledger: Ledger, outcome: Outcome) -> int:
    """Learn every surviving row again; return how many. Too few rows to calibrate: the epoch begins in the queue."""
    pair, rows = model.pair, 0
    opened = pair.ready
    pair.reset()
    first = True
    with connection.cursor(name="mempair_replay", binary=True) as cursor:
        arrays.register_raw(cursor)
        cursor.itersize = max(MOST_ROWS, CHUNK)
        cursor.execute(model.statement("source_rows"), {"model": model.id})
        for chunk in _chunks(cursor, model):
            if first:
                first = False
                connection.execute(query("forget_all_learned"), {"model": model.id})
                if len(chunk) < pair.parameters.calibration_rows:
                    break
                batch.start_epoch(model, chunk, ledger, outcome)
            batch.copy_learned(connection, model.id, chunk.keys, rows + 1)
            pair.apply(chunk.op, chunk.x, chunk.y, chunk.c)
            rows += len(chunk)
    if pair.epoch is None:
        connection.execute(query("forget_all_learned"), {"model": model.id})
        model.epoch += 1
        model.status, model.reason = "calibrating", None
        return 0
    if pair.ready and not opened:
        ledger.append("gate_opened", epoch=model.epoch, clock=rows, rows=rows)
    model.status = "ready" if pair.ready else "learning"
    return rows


def _chunks(cursor: psycopg.ServerCursor[Any], model: Model) -> Iterator[Changes]:
    """Yield the source's usable rows as insert events."""
    impute, regression = model.pair.parameters.on_null == "impute", model.pair.parameters.regression
    while rows := cursor.fetchmany(CHUNK):
        keys, x, c, y = zip(*rows, strict=True)
        n = len(keys)
        chunk = Changes(
            seq=np.zeros(n, np.int64),
            op=np.full(n, queue.INSERT, np.int16),
            keys=list(keys),
            x=queue.numbers(list(x), model.numbers),
            c=[arrays.texts(data) if data is not None else () for data in c],
            y=np.array(y, float),
            captured_at=[None] * n,
        )
        yield chunk.take(queue.plan(chunk, set(), impute=impute, regression=regression).events)
