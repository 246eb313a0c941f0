"""The exact replay of a certified model: the surviving rows in the order they were learned, without noise."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg

from mempair_db.database import arrays, learned
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger.record import Record
from mempair_db.offline.progress import Bars
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.worker import certified, reference
from mempair_db.worker import changes as queue


def read(
    connection: psycopg.Connection[Any],
    model: Model,
    record: Record,
    give_up: Callable[[], bool],
    bars: Bars,
) -> int | None:
    """Learn every surviving row again; return how many, None if told to give up.

    Constants come from a sample of the whole table. Too few rows for that: the new epoch begins in the queue.
    """
    pair = model.certified.pair
    sample, count = reference.choose(connection, model)
    connection.execute(model.statement("open_source"), {"model": model.id})  # its snapshot still has the old ticks
    learned.forget_all(connection, model.id)
    if sample is None:
        connection.execute(query("close_source"))
        return 0
    model.epoch -= 1  # start_epoch counts it
    certified.start_epoch(model, sample, record)
    stepping: Future[bytes] | None = None
    # The server sends rows while the kernel learns the ones before.
    with ThreadPoolExecutor(1) as beside, bars(f"Reading the table of {model.name}", count) as advance:
        while rows := arrays.fetch(connection, model.statement("fetch_source")):
            if stepping is not None:
                learned.enter(connection, stepping.result())
            stepping = beside.submit(_step, model, rows, record, connection.info.encoding)
            point("chunk replayed")
            advance(len(rows))
            if give_up():
                return None
        if stepping is not None:
            learned.enter(connection, stepping.result())
    connection.execute(query("close_source"))
    model.move("ready" if pair.ready else "learning")
    if pair.ready:
        record.enter("gate_opened", rows=pair.tally("rows"))
    return int(pair.tally("rows"))


def _step(model: Model, rows: list[tuple[Any, ...]], record: Record, encoding: str) -> bytes:
    """Learn the rows; return what is to enter the learned keys."""
    pair = model.certified.pair
    (chunk, rejected), clock = reference.usable(model, reference.decode(model, rows)), pair.tally("clock")
    for key, reason in rejected:
        record.reject(0, key, queue.INSERT, reason)
    pair.apply(chunk.op, chunk.x, chunk.y, chunk.c)
    prints = fingerprints(model.secret, chunk.x, chunk.y, chunk.c)
    return learned.pack(model.id, chunk.keys, prints, clock + 1, encoding)
