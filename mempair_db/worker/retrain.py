"""Exact retrain: replay the surviving rows in the order they were learned, without noise, and start a new epoch.

Of use when the budget is spent, and when so much waits that the table is read sooner than the queue.

One REPEATABLE READ transaction. Triggers commit their events together with the rows, so every event that this
snapshot of the queue shows is already reflected in this snapshot of the source: those events are simply removed, and
pending deletions among them are served by the rows not being there. Whatever commits later stays in the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg
from psycopg import Rollback

from mempair_db.database import arrays, learned, models
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger.record import Outcome, Record
from mempair_db.worker import batch
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes


def retrain(
    connection: psycopg.Connection[Any], model_id: int, why: str, give_up: Callable[[], bool] = lambda: False
) -> Outcome:
    """Retrain a model now. Killed half-way, or told to give up, it leaves the old epoch as it was."""
    with connection.transaction():
        model = models.lease(connection, model_id)
        if model is None:
            return Outcome()
        connection.execute("set local row_security = off")  # a policy that hides rows is an error, not half a model
        connection.execute(query("join_by_hashing"))
        connection.execute(query("sort_in_memory"))
        record = Record(model)
        before = model.pair.odometer.deletions if model.pair.epoch else 0
        pending = connection.execute(model.statement("pending_deletions")).fetchall()
        known = learned.find(connection, model.id, [key for key, _, _ in pending])
        for key, requested, subject in pending:
            if key in known:
                record.deletion("unlearned", "retrained", key, requested, subject, detail="by exact retrain")
            else:
                record.deletion("cancelled", "never learned", key, requested, subject, detail="never learned")
        point("retrain began")
        rows = _replay(connection, model, record, give_up)
        if rows is None:
            raise Rollback
        point("replayed")
        for half in ("a", "b"):
            connection.execute(model.statement(f"empty_{half}"))
        if model.pair.epoch is None:
            connection.execute(query("enqueue_source"), {"model": model.id})
        record.enter(
            "retrained",
            rows=rows,
            rho_cap=model.pair.epoch.cap if model.pair.epoch else None,
            detail=f"{why}; {before} deletions by noise, {record.outcome.unlearned} by this retrain",
        )
        record.outcome.retrained = True
        record.outcome.learned = rows
        record.note(f"retrained on {rows} rows: {why}")
        record.write(connection)
    if not record.outcome.retrained:
        return Outcome()
    point("committed")
    return record.outcome


def _replay(
    connection: psycopg.Connection[Any], model: Model, record: Record, give_up: Callable[[], bool]
) -> int | None:
    """Learn every surviving row again; return how many, None if told to give up.

    Too few to calibrate: the new epoch begins in the queue.
    """
    pair = model.pair
    pair.reset()
    connection.execute(model.statement("open_source"), {"model": model.id})  # its snapshot still has the old ticks
    learned.forget_all(connection, model.id)
    stepping: Future[bytes] | None = None
    with ThreadPoolExecutor(1) as beside:  # the server sends rows while the kernel learns the ones before
        while rows := arrays.fetch(connection, model.statement("fetch_source")):
            if pair.epoch is None:
                first = _decode(model, rows)
                if len(first) < pair.parameters.calibration_rows:
                    break
                batch.start_epoch(model, first, record)
            if stepping is not None:
                learned.enter(connection, stepping.result())
            stepping = beside.submit(_step, model, rows, connection.info.encoding)
            point("chunk replayed")
            if give_up():
                return None
        if stepping is not None:
            learned.enter(connection, stepping.result())
    connection.execute(query("close_source"))
    if pair.epoch is None:
        model.epoch += 1
        model.status, model.reason = "calibrating", None
        return 0
    model.status = "ready" if pair.ready else "learning"
    if pair.ready:
        record.enter("gate_opened", rows=pair.tally("rows"))
    return int(pair.tally("rows"))


def _step(model: Model, rows: list[tuple[Any, ...]], encoding: str) -> bytes:
    """Learn the rows; return what is to enter the learned keys."""
    chunk, clock = _decode(model, rows), model.pair.tally("clock")
    model.pair.apply(chunk.op, chunk.x, chunk.y, chunk.c)
    return learned.pack(model.id, chunk.keys, chunk.buckets, clock + 1, encoding)


def _decode(model: Model, rows: list[tuple[Any, ...]]) -> Changes:
    """Return the source's usable rows as insert events."""
    keys, buckets, x, c, y = queue.columns(rows, 5)
    chunk = Changes(
        seq=np.zeros(len(keys), np.int64),
        op=np.full(len(keys), queue.INSERT, np.int16),
        keys=keys,
        buckets=np.array(buckets, np.int32),
        x=queue.numbers(x, model.numbers),
        c=queue.texts(c, model.texts),
        y=np.array(y, float),
        captured_at=[None] * len(keys),
    )
    parameters = model.pair.parameters
    impute, regression = parameters.on_null == "impute", parameters.regression
    return chunk.take(queue.plan(chunk, {}, impute=impute, regression=regression).events)
