"""One batch, one transaction: lock, read, step, write, delete what was read. All of it happens, or nothing.

The transaction is REPEATABLE READ, so "delete what was read" is the same rows by construction: an event that commits
meanwhile, even with a smaller number, is not in the snapshot and stays for the next batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg
from psycopg import IsolationLevel

from mempair_db.database import arrays, learned, models
from mempair_db.database.connect import refuse_shadows
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger.record import Outcome, Record
from mempair_db.pair.calibration import calibrate
from mempair_db.pair.model import Applied
from mempair_db.pair.odometer import UNITS
from mempair_db.pair.state import to_checkpoint
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes, Plan, plan


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Set a worker's connection up: one snapshot per transaction, numpy arrays in binary, no prepared statements."""
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.prepare_threshold = None  # a pooler in transaction mode hands every transaction another session
    arrays.register(connection)
    refuse_shadows(connection)


def apply_batch(connection: psycopg.Connection[Any], model_id: int) -> Outcome:
    """Apply the next events of a model. Does nothing while another worker has the model."""
    with connection.transaction():
        model = models.lease(connection, model_id)
        if model is None or model.status not in ("calibrating", "learning", "ready"):
            return Outcome()
        point("leased")
        connection.execute(query("sort_in_memory"))
        changes = queue.read(connection, model)
        point("read")
        record = Record(model)
        if len(changes):
            _apply(connection, model, changes, record)
    point("committed")
    return record.outcome


def _apply(connection: psycopg.Connection[Any], model: Model, changes: Changes, record: Record) -> None:
    truncated = np.flatnonzero(changes.op == queue.TRUNCATE)
    if len(truncated):
        _truncate(connection, model, changes.take(slice(0, int(truncated[-1]) + 1)), record)
        return
    known = learned.find(connection, model.id, changes.keys_of(queue.DELETE) + changes.keys_of(queue.INSERT)[:1])
    reduced = _plan(model, changes, known)
    if reduced.repeated:  # rare: capture sees a row again only if the table was loaded anew beneath the model
        known = learned.find(connection, model.id, changes.keys)
        reduced = _plan(model, changes, known)
    if reduced.poison:
        _fail(connection, model, reduced.poison, record)
        return
    if model.pair.epoch is None:
        if len(reduced.events) < model.pair.parameters.calibration_rows:
            _cancel_waiting(connection, model, changes, reduced, record)
            return
        start_epoch(model, changes.take(reduced.events), record)

    affordable = model.pair.affordable(changes.op[reduced.events])
    exhausted = affordable < len(reduced.events)
    rest = changes.take([])
    if exhausted:
        cut = reduced.events[affordable]
        same_chunk = np.flatnonzero(changes.seq == changes.seq[max(cut - 1, 0)])
        rest = changes.take(same_chunk[same_chunk >= cut].tolist() if cut else [])
        changes = changes.take(slice(0, cut))
        reduced = _plan(model, changes, known)
    _file(changes, reduced, record)
    events = changes.take(reduced.events)
    with ThreadPoolExecutor(1) as beside:  # the server empties the queue while the kernel learns its rows
        stepping = beside.submit(_step, model, events, record, connection.info.encoding)
        _empty_queue(connection, model, changes, events)
        queue.put_back(connection, model, rest)
    point("queue emptied")
    learned.enter(connection, stepping.result())
    point("stepped")
    if exhausted:
        _exhaust(model, record)
    record.write(connection)


def _plan(model: Model, changes: Changes, known: Mapping[str, int]) -> Plan:
    parameters = model.pair.parameters
    return plan(changes, known, impute=parameters.on_null == "impute", regression=parameters.regression)


def start_epoch(model: Model, rows: Changes, record: Record) -> None:
    """Fix the constants of a new epoch from these rows."""
    pair = model.pair
    model.epoch += 1
    declared = pair.categories or [None] * model.texts
    epoch = calibrate(pair.parameters, rows.x, rows.c, rows.y, declared=declared, number=model.epoch)
    pair.start(epoch)
    model.status, model.reason = "learning", None
    model.checkpoint, model.new_checkpoint = None, True
    detail = f"lambda={epoch.constants.lam:.6g} d={epoch.d} rho={epoch.cap / UNITS:.6g}"
    record.enter("calibrated", rows=epoch.calibration_rows, rho_cap=epoch.cap, detail=detail)
    record.note(f"epoch {model.epoch} calibrated on {epoch.calibration_rows} rows: {detail}")


def _cancel_waiting(
    connection: psycopg.Connection[Any], model: Model, changes: Changes, reduced: Plan, record: Record
) -> None:
    """Before calibration rows wait in the queue; only what will never be learned leaves it."""
    gone = sorted([*reduced.cancelled, *reduced.dropped, *(i for i, _ in reduced.rejected)])
    if gone:
        queue.remove(connection, model, changes, gone)
        _file(changes, reduced, record)
        record.write(connection)


def _empty_queue(connection: psycopg.Connection[Any], model: Model, changes: Changes, events: Changes) -> None:
    """Remove this batch from the queue, and what it deletes from the learned keys."""
    if len(changes):
        learned.forget(connection, model.id, events.keys_of(queue.DELETE))
        for half in ("a", "b"):
            connection.execute(model.statement(f"delete_{half}"), {"last": int(changes.seq[-1])})


def _file(changes: Changes, reduced: Plan, record: Record) -> None:
    """Enter the deletions that cost nothing, and the rows that cannot be learned."""
    pairs = {changes.keys[i] for i in reduced.dropped}
    for i in reduced.cancelled:
        kind = "cancelled" if changes.keys[i] in pairs else "never learned"
        record.deletion("cancelled", kind, changes.keys[i], changes.captured_at[i], changes.subject(i), detail=kind)
    for i, reason in reduced.rejected:
        record.reject(int(changes.seq[i]), changes.keys[i], int(changes.op[i]), reason)


def _step(model: Model, events: Changes, record: Record, encoding: str) -> bytes:
    """Run the kernel over the batch and enter what it did; return what is to enter the learned keys."""
    pair = model.pair
    was_ready, clock, spent = pair.ready, pair.tally("clock"), pair.odometer.spent
    applied = _run(model, events)
    clocks = clock + np.cumsum(events.op == queue.INSERT)
    for i, rho in zip(np.flatnonzero(events.op == queue.DELETE).tolist(), applied.spent, strict=True):
        spent += rho
        record.deletion(
            "unlearned",
            "unlearned",
            events.keys[i],
            events.captured_at[i],
            events.subject(i),
            clock=int(clocks[i]),
            rho=rho,
            rho_spent=spent,
            rho_cap=pair.odometer.cap,
        )
    inserted = np.flatnonzero(events.op == queue.INSERT).tolist()
    if inserted:
        record.enter("learned", rows=len(inserted))
        record.outcome.learned += len(inserted)
    if pair.ready and not was_ready:
        record.enter("gate_opened", rows=pair.tally("rows"))
        record.note(f"gate opened after {pair.tally('rows')} rows")
    model.status = "ready" if pair.ready else "learning"
    new = events.take(inserted)
    return learned.pack(model.id, new.keys, new.buckets, clock + 1, encoding)


def _run(model: Model, events: Changes) -> Applied:
    """Run the kernel, and keep the state right after the last deletion: what comes since can be replayed exactly."""
    deleted = np.flatnonzero(events.op == queue.DELETE)
    if not len(deleted):
        return model.pair.apply(events.op, events.x, events.y, events.c)
    before, after = events.take(slice(0, int(deleted[-1]) + 1)), events.take(slice(int(deleted[-1]) + 1, None))
    applied = model.pair.apply(before.op, before.x, before.y, before.c)
    model.checkpoint, model.new_checkpoint = to_checkpoint(model.pair.arrays), True
    model.pair.apply(after.op, after.x, after.y, after.c)
    return applied


def _exhaust(model: Model, record: Record) -> None:
    """Say that the next deletion does not fit; the loop retrains or halts, as the model's policy says."""
    budget = model.pair.odometer
    if model.pair.price(model.pair.tally("clock")) == 0:
        model.reason = "certified noise would cost more than gamma allows at this number of rows"
    else:
        model.reason = f"the deletion budget is spent after {budget.deletions} deletions"
    model.status = "exhausted"
    model.pair.ready = model.on_exhausted == "retrain"  # a model that halts predicts no more, until it is retrained
    record.enter("exhausted", rho_cap=budget.cap, detail=model.reason)
    record.note(f"exhausted: {model.reason}")


def _fail(connection: psycopg.Connection[Any], model: Model, poison: list[tuple[int, str]], record: Record) -> None:
    """Stop the model loudly: a deletion that cannot be unlearned must not be skipped. A retrain serves it."""
    reason = poison[0][1]
    model.status = "failed"
    model.reason = (
        f"{len(poison)} captured deletions cannot be unlearned ({reason}); `mempair retrain` serves them exactly"
    )
    record.enter("config", detail=f"failed: {len(poison)} deletions cannot be unlearned: {reason}")
    record.note(f"failed: {model.reason}")
    record.write(connection)


def _truncate(connection: psycopg.Connection[Any], model: Model, changes: Changes, record: Record) -> None:
    """Forget everything: whatever came before the TRUNCATE is void."""
    rows = learned.forget_all(connection, model.id)
    for half in ("a", "b"):
        connection.execute(model.statement(f"delete_{half}"), {"last": int(changes.seq[-1])})
    model.epoch += 1
    model.pair.reset()
    model.status, model.reason = "calibrating", None
    record.enter("epoch", rows=rows, detail="truncate")
    record.note(f"table truncated: {rows} rows forgotten")
    record.write(connection)
