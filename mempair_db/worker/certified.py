"""A batch of a certified model: the kernel learns and unlearns in the order of capture, as far as the budget goes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg

from mempair_db.database import learned
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.ledger.record import Record
from mempair_db.pair.calibration import MOST_ROWS, calibrate
from mempair_db.pair.model import Applied
from mempair_db.pair.odometer import UNITS
from mempair_db.pair.state import pack_after_deletion
from mempair_db.worker import batch, reference
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes
from mempair_db.worker.plan import Plan, Prints
from mempair_db.worker.reference import Left


def apply(
    connection: psycopg.Connection[Any], model: Model, changes: Changes, prints: Prints, reduced: Plan, record: Record
) -> None:
    """Apply a netted batch, up to the first deletion that the budget does not allow."""
    if not model.engine.begun:
        waiting = changes.take(reduced.learn[:MOST_ROWS])
        start_epoch(model, waiting, record)
        reference.store(connection, model, waiting)
    pair = model.certified.pair
    affordable = pair.affordable(changes.op[reduced.events])
    exhausted = affordable < len(reduced.events)
    rest = changes.take([])
    if exhausted:
        changes, rest = _cut(changes, reduced.events[affordable])
        prints, reduced = batch.net(connection, model, changes)
    dropped = reference.ask(connection, model, [changes.keys[i] for i in reduced.unlearn])()
    if dropped:
        left = reference.without(connection, model, dropped)
        dropped = left.dropped
        if not same_constants(model, left):
            batch.request_retrain(connection, model, "a calibration row went, and the constants with it", record)
            return
    reference.drop(connection, model, dropped)
    _enter_free(changes, reduced, record)
    model.forgets = bool(reduced.unlearn)
    events = changes.take(reduced.events)
    with ThreadPoolExecutor(1) as beside:  # the server empties the queue while the kernel learns its rows
        stepping = beside.submit(_step, model, events, prints[list(reduced.events)], record, connection.info.encoding)
        if len(changes):
            learned.forget(connection, model.id, events.keys_of(queue.DELETE))
            batch.empty_queue(connection, model, changes)
            queue.put_back(connection, model, rest)
    learned.enter(connection, stepping.result())
    point("stepped")
    if exhausted:
        _exhaust(model, record)
    record.write(connection)


def _cut(changes: Changes, event: int) -> tuple[Changes, Changes]:
    """Return the events before this one, and those of the same chunk of the queue that come after."""
    if event == 0:
        return changes.take([]), changes.take([])
    same_chunk = np.flatnonzero(changes.seq == changes.seq[event - 1])
    return changes.take(slice(0, event)), changes.take(same_chunk[same_chunk >= event].tolist())


def same_constants(model: Model, left: Left) -> bool:
    """Choose the constants again from the calibration rows that are left."""
    pair = model.certified.pair
    declared = pair.categories or [None] * model.text_count
    return pair.epoch is not None and pair.epoch.holds_for(pair.parameters, left.x, left.c, left.y, declared)


def start_epoch(model: Model, rows: Changes, record: Record) -> None:
    """Fix the constants of a new epoch from these rows."""
    pair = model.certified.pair
    model.epoch += 1
    declared = pair.categories or [None] * model.text_count
    epoch = calibrate(pair.parameters, rows.x, rows.c, rows.y, declared=declared, number=model.epoch)
    pair.start(epoch)
    model.promised()
    model.move("learning")
    model.certified.after_deletion, model.certified.new_after_deletion = None, True
    count, rho = epoch.calibration_rows, f"rho={epoch.cap / UNITS:.6g}"
    record.enter("calibrated", rows=count, rho_cap=epoch.cap, detail=rho)  # no constant: a ledger stays
    constants = f"lambda={epoch.constants.lam:.6g} d={epoch.d}"
    record.note(f"epoch {model.epoch} calibrated on {count} rows: {constants} {rho}")


def _enter_free(changes: Changes, reduced: Plan, record: Record) -> None:
    """Enter the deletions that cost nothing, and the rows that cannot be learned."""
    batch.enter_free(record, changes, reduced)
    for i, reason in reduced.rejected:
        record.reject(int(changes.seq[i]), changes.keys[i], int(changes.op[i]), reason)


def _step(model: Model, events: Changes, prints: Prints, record: Record, encoding: str) -> bytes:
    """Run the kernel over the batch and enter what it did; return what is to enter the learned keys."""
    pair = model.certified.pair
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
    model.move("ready" if pair.ready else "learning")
    return learned.pack(model.id, events.take(inserted).keys, prints[inserted], clock + 1, encoding)


def _run(model: Model, events: Changes) -> Applied:
    """Run the kernel, and keep the state right after the last deletion: what comes since can be replayed exactly."""
    engine = model.certified
    deleted = np.flatnonzero(events.op == queue.DELETE)
    if not len(deleted):
        return engine.pair.apply(events.op, events.x, events.y, events.c)
    before, after = events.take(slice(0, int(deleted[-1]) + 1)), events.take(slice(int(deleted[-1]) + 1, None))
    applied = engine.pair.apply(before.op, before.x, before.y, before.c)
    engine.after_deletion, engine.new_after_deletion = pack_after_deletion(engine.pair.arrays), True
    engine.pair.apply(after.op, after.x, after.y, after.c)
    return applied


def _exhaust(model: Model, record: Record) -> None:
    """Say that the next deletion does not fit; it is served by a retrain, or waits for one, as the policy says."""
    pair = model.certified.pair
    if pair.price(pair.tally("clock")) == 0:
        reason = "certified noise would cost more than gamma allows at this number of rows"
    else:
        reason = f"the deletion budget is spent after {pair.odometer.deletions} deletions"
    model.move("exhausted", reason)
    if model.on_exhausted == "retrain":
        model.retrain_requested = reason
    else:
        pair.ready = False  # a model that halts predicts no more, until it is retrained
    record.enter("exhausted", rho_cap=pair.odometer.cap, detail=reason)
    record.note(f"exhausted: {reason}")
