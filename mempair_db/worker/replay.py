"""The exact replay of a certified model: the surviving rows in the order they were learned, without noise."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg

from mempair_db.database import arrays, learned
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger.record import Record
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.worker import certified, exact
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes
from mempair_db.worker.plan import unusable


def read(connection: psycopg.Connection[Any], model: Model, record: Record, give_up: Callable[[], bool]) -> int | None:
    """Learn every surviving row again; return how many, None if told to give up.

    Too few to calibrate: the new epoch begins in the queue.
    """
    pair = model.certified.pair
    connection.execute(model.statement("open_source"), {"model": model.id})  # its snapshot still has the old ticks
    learned.forget_all(connection, model.id)
    connection.execute(query("forget_reference"), {"model": model.id})
    stepping: Future[bytes] | None = None
    with ThreadPoolExecutor(1) as beside:  # the server sends rows while the kernel learns the ones before
        while rows := arrays.fetch(connection, model.statement("fetch_source")):
            if pair.epoch is None:
                first = _decode(model, rows)
                if len(first) < pair.parameters.calibration_rows:
                    break
                model.epoch -= 1  # start_epoch counts it
                certified.start_epoch(model, first, record)
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
        return 0
    model.phase = "ready" if pair.ready else "learning"
    if pair.ready:
        record.enter("gate_opened", rows=pair.tally("rows"))
    return int(pair.tally("rows"))


def _step(model: Model, rows: list[tuple[Any, ...]], encoding: str) -> bytes:
    """Learn the rows; return what is to enter the learned keys."""
    pair = model.certified.pair
    chunk, clock = _decode(model, rows), pair.tally("clock")
    pair.apply(chunk.op, chunk.x, chunk.y, chunk.c)
    prints = fingerprints(model.secret, chunk.x, chunk.y, chunk.c)
    return learned.pack(model.id, chunk.keys, prints, clock + 1, encoding)


def _decode(model: Model, rows: list[tuple[Any, ...]]) -> Changes:
    """Return the source's usable rows as insert events."""
    keys, x, c, y = exact.decode(model, rows)
    chunk = Changes(
        seq=np.zeros(len(keys), np.int64),
        op=np.full(len(keys), queue.INSERT, np.int16),
        keys=keys,
        x=x,
        c=c,
        y=y,
        captured_at=[None] * len(keys),
    )
    reasons = unusable(chunk, impute=model.imputes, regression=model.regression, infinite=False)
    return chunk.take([i for i, reason in enumerate(reasons) if not reason])
