"""A batch of an exact model: add what is learned, subtract what is unlearned, and look after the reference rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg

from mempair_db.database import learned
from mempair_db.database.exact import Exact, refer
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.ledger.record import Record
from mempair_db.pair.sums import Sums
from mempair_db.worker import batch, progressive, reference
from mempair_db.worker.changes import Changes
from mempair_db.worker.plan import Plan, Prints
from mempair_db.worker.reference import Left


def apply(
    connection: psycopg.Connection[Any], model: Model, changes: Changes, prints: Prints, reduced: Plan, record: Record
) -> None:
    """Apply a netted batch; or, where a deletion changes the constants, ask for a refresh, which serves it."""
    engine = model.exact
    unlearned = [changes.keys[i] for i in reduced.unlearn]
    with connection.pipeline():  # the server looks while the sums are computed
        answer = reference.ask(connection, model, unlearned)
        part = terms(engine, changes, reduced)
        dropped = answer()
    if dropped:
        left = reference.without(connection, model, dropped)
        dropped = left.dropped
        if model.fleet is None and not _same_constants(engine, left):  # a fleet's are checked by all shards together
            batch.request_retrain(connection, model, "a reference row went, and the constants with it", record)
            return
    progressive.before_learning(connection, model, changes, reduced)
    with connection.pipeline():  # the server forgets keys while weights and tags are computed
        reference.drop(connection, model, dropped)
        learned.forget(connection, model.id, unlearned)
        batch.empty_queue(connection, model, changes)
        engine.add(part)
        point("stepped")
        engine.references_left -= len(dropped)
        engine.halted |= bool(model.fleet and dropped and not model.serve_during_refresh)
        model.forgets = bool(unlearned or model.fleet)  # other shards may have forgotten
        new = list(reduced.learn)
        keys = changes.keys if len(new) == len(changes) else [changes.keys[i] for i in new]
        packed = learned.pack(model.id, keys, prints[new], None, connection.info.encoding)
        _enter(changes, reduced, record)
        why = engine.outgrown() if model.fleet is None else None
    learned.enter(connection, packed)
    if why is not None:
        model.retrain_requested = why
        record.note(f"to be refreshed: {why}")
    was_ready, ready = model.phase == "ready", engine.ready
    model.move("ready" if ready else "learning", model.reason)
    if ready and not was_ready:
        record.enter("gate_opened", rows=engine.rows)
        record.note(f"gate opened after {engine.rows} rows")
    record.write(connection)


def _same_constants(engine: Exact, left: Left) -> bool:
    """Choose the constants again from the reference rows that are left."""
    assert engine.reference is not None  # noqa: S101  (the batch has looked)
    if len(left.x) == 0:
        return False
    new = refer(engine.terms, left.x, left.y, left.c, engine.reference.labels)
    return new.to_bytes() == engine.reference.to_bytes()


def terms(engine: Exact, changes: Changes, reduced: Plan) -> Sums:
    """Return the sums that the batch adds: those of its new rows less those of the old ones."""
    if len(reduced.learn) == len(changes):  # the usual batch, whose rows need not be copied
        given = changes.sums  # added up while the rows were read
        return engine.sums_of(changes.x, changes.y, changes.c) if given is None else given
    which = np.array([*reduced.learn, *reduced.unlearn], np.intp)
    sign = np.ones(len(which))
    sign[len(reduced.learn) :] = -1.0
    c = [changes.c[i] for i in which.tolist()] if len(changes.c) else ()
    return engine.sums_of(changes.x[which], changes.y[which], c, sign)


def _enter(changes: Changes, reduced: Plan, record: Record) -> None:
    """Enter what the batch did: rows learned and updated in one entry each, deletions with their tags."""
    updated = len(reduced.unlearn) - len(reduced.gone)
    new = len(reduced.learn) - (updated - len(reduced.moved))
    gone = [i for i in reduced.unlearn if i in reduced.gone]
    batch.enter_deletions(record, "unlearned", "unlearned", changes, gone, detail="exact")
    batch.enter_free(record, changes, reduced)
    for i, reason in reduced.rejected:
        record.reject(int(changes.seq[i]), changes.keys[i], int(changes.op[i]), reason)
    if updated > 0:
        record.enter("updated", rows=updated, detail="exact")
        record.outcome.learned += updated
    if new > 0:
        record.enter("learned", rows=new)
        record.outcome.learned += new
