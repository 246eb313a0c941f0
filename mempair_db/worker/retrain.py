"""Exact retrain: replay the surviving rows in the order they were learned, without noise, and start a new epoch.

One REPEATABLE READ transaction. Triggers commit their events together with the rows, so every event that this
snapshot of the queue shows is already reflected in this snapshot of the source: those events are simply removed, and
pending deletions among them are served by the rows not being there. Whatever commits later stays in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import psycopg
from psycopg import Rollback

from mempair_db.catalog import arrays, models
from mempair_db.catalog.models import Model
from mempair_db.catalog.queries import query
from mempair_db.worker import batch
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes
from mempair_db.worker.faults import point
from mempair_db.worker.record import Outcome, Record

CHUNK: Final = 50_000


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
        record = Record(model)
        before = model.pair.odometer.deletions if model.pair.epoch else 0
        pending = connection.execute(model.statement("pending_deletions"), {"model": model.id}).fetchall()
        for key, requested, subject in pending:
            record.deletion("unlearned", "retrained", key, requested, subject, detail="by exact retrain")
        point("retrain began")
        rows = _replay(connection, model, record, give_up)
        if rows is None:
            raise Rollback
        point("replayed")
        for half in ("a", "b"):
            connection.execute(model.statement(f"empty_{half}"))
        if model.pair.epoch is None:
            connection.execute(model.statement("enqueue_source"))
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
    pair, rows = model.pair, 0
    pair.reset()
    with connection.cursor(name="mempair_replay", binary=True) as cursor:
        arrays.register_raw(cursor)
        cursor.execute(model.statement("source_rows"), {"model": model.id})  # its snapshot still has the old ticks
        connection.execute(query("forget_all_learned"), {"model": model.id})
        for chunk in _chunks(cursor, model):
            if pair.epoch is None:
                if len(chunk) < pair.parameters.calibration_rows:
                    break
                batch.start_epoch(model, chunk, record)
            _copy_learned(connection, model.id, chunk.keys, rows + 1)
            pair.apply(chunk.op, chunk.x, chunk.y, chunk.c)
            rows += len(chunk)
            point("chunk replayed")
            if give_up():
                return None
    if pair.epoch is None:
        model.epoch += 1
        model.status, model.reason = "calibrating", None
    else:
        model.status = "ready" if pair.ready else "learning"
        if pair.ready:
            record.enter("gate_opened", rows=rows)
    return rows


def _copy_learned(connection: psycopg.Connection[Any], model_id: int, keys: list[str], first_tick: int) -> None:
    """Enter rows with consecutive ticks."""
    with connection.cursor().copy(query("copy_learned")) as copy:
        copy.set_types(["int4", "text", "int8"])
        for tick, key in enumerate(keys, first_tick):
            copy.write_row((model_id, key, tick))


def _chunks(cursor: psycopg.ServerCursor[Any], model: Model) -> Iterator[Changes]:
    """Yield the source's usable rows as insert events."""
    impute, regression = model.pair.parameters.on_null == "impute", model.pair.parameters.regression
    while rows := cursor.fetchmany(CHUNK):
        keys, x, c, y = queue.columns(rows, 4)
        chunk = Changes(
            seq=np.zeros(len(keys), np.int64),
            op=np.full(len(keys), queue.INSERT, np.int16),
            keys=keys,
            x=queue.numbers(x, model.numbers),
            c=queue.texts(c, model.texts),
            y=np.array(y, float),
            captured_at=[None] * len(keys),
        )
        yield chunk.take(queue.plan(chunk, set(), impute=impute, regression=regression).events)
