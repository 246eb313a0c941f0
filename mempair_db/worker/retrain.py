"""Read the table anew and begin an epoch: a refresh of an exact model, an exact replay of a certified one.

One REPEATABLE READ transaction. Triggers commit their events together with the rows, so every event that this
snapshot of the queue shows is already reflected in this snapshot of the source: those events are simply removed, and
pending deletions among them are served by the rows not being there. Whatever commits later stays in the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import psycopg
from psycopg import Rollback

from mempair_db.database import learned, marks, models
from mempair_db.database.exact import Exact
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger.record import Outcome, Record
from mempair_db.ledger.says import BY_RETRAIN
from mempair_db.offline.progress import Bars, silent
from mempair_db.worker import refresh, replay
from mempair_db.worker.batch import KEYS_AT_ONCE
from mempair_db.worker.refresh import Given

# The keys of rows that went without an event of their own, and when the table was truncated.
Unseen = tuple[psycopg.ServerCursor[Any] | None, datetime | None]

Pending = tuple[Any, Any, Any]  # key, when it was asked for, whose row it was


def retrain(
    connection: psycopg.Connection[Any],
    model_id: int,
    why: str | None = None,
    *,
    dsn: str | None = None,
    give_up: Callable[[], bool] = lambda: False,
    bars: Bars = silent,
    given: Given | None = None,
) -> Outcome:
    """Serve the request for a retrain, if it still stands, or the caller's own (`why`).

    Killed half-way, or told to give up, it leaves the old epoch. With a `dsn` the table is read on several connections.
    `bars` shows how many rows were read. A shard of a fleet never chooses constants alone: they are `given`, or
    stay what they are. A change of parameters that would end a serving model's predictions is undone instead.
    """
    too_few: str | None = None
    with connection.transaction():
        models.hold(connection, model_id)
        model = models.lease(connection, model_id, load=False)
        if model is None or model.paused or (model.retrain_requested or why) is None:
            return Outcome()
        keeps = model.fleet is not None and given is None  # the fleet's constants, and what they were chosen for
        if model.fleet is not None and given is None:
            given = refresh.kept(model.fleet)
            if given is None:
                return Outcome()
        connection.execute(query("read_everything"))
        unseen = _unseen_deletions(connection, model)
        connection.execute(query("forget_rejected"), {"model": model.id, "keys": None})
        record = Record(model)
        why, before = model.retrain_requested or why, model.deletions
        altered = model.promise is not None and model.declared != model.promise
        serving = model.phase == "ready" and altered and model.fleet is None  # all shards of a fleet change
        point("retrain began")
        model.begin(again=keeps)
        _enter_unseen(connection, record, unseen)
        oldest = _enter_deletions(connection, model, record)
        loses = bool(record.outcome.unlearned or model.fleet or not model.versions)  # or nobody would ask
        had = None if loses else marks.learned_rows(connection, model.id)
        if isinstance(model.engine, Exact):
            rows = refresh.read(connection, model, record, dsn, give_up, bars, given)
        else:
            rows = replay.read(connection, model, record, give_up, bars)
        if rows is None:
            raise Rollback
        if serving and rows and not model.engine.ready:
            too_few = f"{rows} rows are too few for it to predict; {why}"
            raise Rollback
        point("replayed")
        connection.execute(model.statement("empty_queue"))
        if not model.engine.begun:
            connection.execute(query("enqueue_source"), {"model": model.id})
        model.retrain_requested = None
        model.forgets = had is None or not marks.all_there(connection, model.id, had)
        cap = model.certified.pair.odometer.cap if model.engine.begun and not isinstance(model.engine, Exact) else None
        served = f"{record.outcome.unlearned} by this retrain{_longest_wait(record, oldest)}"
        noisy = before > 0 or not isinstance(model.engine, Exact)  # those of the epoch that ends
        detail = f"{why}; {f'{before} deletions by noise, ' if noisy else 'deletions: '}{served}"
        record.enter("retrained", rows=rows, rho_cap=cap, detail=detail)
        record.outcome.retrained = True
        record.outcome.learned = rows
        few = f"too few rows to begin with: it takes {model.terms['calibration_rows']} that have a target"
        record.note(f"retrained on {rows} rows: {why}" if model.engine.begun else few)
        record.write(connection)
    if not record.outcome.retrained:
        return _undo(connection, model_id, too_few) if too_few is not None else Outcome()
    point("committed")
    return record.outcome


def _undo(connection: psycopg.Connection[Any], model_id: int, why: str) -> Outcome:
    with connection.transaction():
        connection.execute(query("undo_alteration"), {"model": model_id, "why": why})
    return Outcome(notes=[f"a change of parameters was undone: {why}"])


def _unseen_deletions(connection: psycopg.Connection[Any], model: Model) -> Unseen:
    """Look for rows that went without an event of their own; only where something says that there may be some."""
    adopted = connection.execute(query("adopt_schema"), {"model": model.id}).fetchone()
    row = connection.execute(model.statement("truncated")).fetchone()
    truncated: datetime | None = row[0] if row else None
    if truncated is None and not (adopted and adopted[0]):
        return None, None
    keys = connection.cursor(name="mempair_unseen")
    return keys.execute(model.statement("unseen_deletions"), {"model": model.id}), truncated


def _enter_unseen(connection: psycopg.Connection[Any], record: Record, unseen: Unseen) -> None:
    """Give every row that went so its entry and its receipt; when it went is known of a TRUNCATE only."""
    keys, truncated = unseen
    if keys is None:
        return
    with keys:
        while some := keys.fetchmany(KEYS_AT_ONCE):
            _enter(record, "unlearned", "retrained", [(key, truncated, None) for (key,) in some], BY_RETRAIN)
            record.flush(connection)


def _longest_wait(record: Record, oldest: datetime | None) -> str:
    """Say how long the oldest of the deletions that this retrain serves has waited."""
    if not record.outcome.unlearned or oldest is None:
        return ""
    return f", the oldest after {max((record.at - oldest).total_seconds(), 0.0):.1f} s"


def _enter_deletions(connection: psycopg.Connection[Any], model: Model, record: Record) -> datetime | None:
    """Enter the deletions that waited, all of which this retrain serves; return when the first was asked for.

    Some at a time: a million of them need not fit into memory. The learned keys are still those of the old epoch.
    """
    oldest: list[datetime] = []
    with connection.cursor(name="mempair_pending") as pending:
        pending.execute(model.statement("pending_deletions"))
        while some := pending.fetchmany(KEYS_AT_ONCE):
            oldest = sorted({*oldest, *(at for _, at, _ in some if at is not None)})[:1]
            keys = [key for key, _, _ in some]
            known = learned.find(connection, model.id, keys)
            rows = connection.execute(model.statement("still_there"), {"keys": keys}).fetchall()
            there = {key for (key,) in rows}  # an updated row is
            gone = [deletion for deletion in some if deletion[0] not in there]
            _enter(record, "unlearned", "retrained", [one for one in gone if one[0] in known], BY_RETRAIN)
            _enter(record, "cancelled", "never learned", [one for one in gone if one[0] not in known], "never learned")
            record.flush(connection)
    return oldest[0] if oldest else None


def _enter(record: Record, entry: str, kind: str, deletions: list[Pending], detail: str) -> None:
    keys, at, subjects = ([one[i] for one in deletions] for i in range(3))
    record.deletions(entry, kind, keys, at, subjects, detail=detail)
