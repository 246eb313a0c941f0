"""One batch, one transaction: lock, read, step, write, delete what was read. All of it happens, or nothing.

The transaction is REPEATABLE READ, so "delete what was read" is the same rows by construction: an event that commits
meanwhile, even with a smaller number, is not in the snapshot and stays for the next batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import psycopg
from psycopg import IsolationLevel

from mempair_db.database import arrays, learned, models
from mempair_db.database.connect import refuse_shadows
from mempair_db.database.exact import Exact
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger.record import Outcome, Record
from mempair_db.ledger.says import BY_RETRAIN
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.worker import certified, exact
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes
from mempair_db.worker.plan import Plan, Prints, plan
from mempair_db.worker.unusable import unusable

KEYS_AT_ONCE: Final = 20_000


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Set a worker's connection up: one snapshot per transaction, numpy arrays in binary."""
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    arrays.register(connection)
    refuse_shadows(connection)


def apply_batch(connection: psycopg.Connection[Any], model_id: int) -> Outcome:
    """Apply the next events of a model. Does nothing while another worker has the model, or it waits for a retrain."""
    with connection.transaction():
        models.hold(connection, model_id)
        model = models.lease(connection, model_id)
        if model is None or model.paused or model.retrain_requested or model.phase == "exhausted":
            return Outcome()
        point("leased")
        record = Record(model)
        changes = queue.read(connection, model)
        point("read")
        if len(changes):
            _apply(connection, model, changes, record)
    point("committed")
    return record.outcome


def _apply(connection: psycopg.Connection[Any], model: Model, changes: Changes, record: Record) -> None:
    truncated = np.flatnonzero(changes.op == queue.TRUNCATE)
    if len(truncated):
        _truncate(connection, model, changes, int(truncated[-1]), record)
        return
    prints, reduced = net(connection, model, changes)
    enough = model.terms["calibration_rows"]
    if reduced.waiting:
        changes = queue.read(connection, model, batches=queue.FAR)
        prints, reduced = net(connection, model, changes)
    _keep_the_moved(connection, model, changes, reduced)
    if reduced.mismatch:
        request_retrain(connection, model, reduced.mismatch, record)
    elif reduced.waiting:
        why = "the insertion that belongs to a deletion lies too far back in the queue"
        request_retrain(connection, model, why, record)
    elif not model.engine.begun and _too_few(connection, model, changes, reduced):
        _wait_for_calibration(connection, model, changes, reduced, record)
    elif not model.engine.begun and (isinstance(model.engine, Exact) or len(reduced.learn) < enough):
        request_retrain(connection, model, "enough rows for the first constants", record)
    elif isinstance(model.engine, Exact):
        exact.apply(connection, model, changes, prints, reduced, record)
    else:
        certified.apply(connection, model, changes, prints, reduced, record)


def net(connection: psycopg.Connection[Any], model: Model, changes: Changes) -> tuple[Prints, Plan]:
    """Fingerprint the events of a batch, and net them against what is learned."""
    is_exact = isinstance(model.engine, Exact)
    reasons = unusable(changes, model.imputes, model.regression, is_exact, bool(model.terms.get("weighted")))
    prints = fingerprints(model.secret, changes.x, changes.y, changes.c)
    deleted = set(changes.keys_of(queue.DELETE))
    new = [key for key in changes.keys_of(queue.INSERT) if key not in deleted] if deleted else changes.keys
    first = [new[0]] if len(new) else []
    known = learned.find(connection, model.id, [*deleted, *first])
    if first and first[0] in known:  # rare: only if the table was loaded anew beneath the model
        known = learned.find(connection, model.id, [*deleted, *new])
    return prints, plan(changes, prints, known, reasons)


def _keep_the_moved(connection: psycopg.Connection[Any], model: Model, changes: Changes, reduced: Plan) -> None:
    """Rows that come again beyond the end of the batch are not gone: a large UPDATE does not fit into one."""
    off = {} if changes.complete else {changes.keys[i]: i for i in (*reduced.gone, *(i for i, _ in reduced.cancelled))}
    if off:
        values = {"keys": arrays.Keys(off), "last": int(changes.seq[-1])}
        found = connection.execute(model.statement("coming_later"), values, prepare=False)
        again = {off[key] for (key,) in found}
        reduced.moved = reduced.gone & again
        reduced.gone -= again
        reduced.cancelled = [(i, why) for i, why in reduced.cancelled if i not in again]


def request_retrain(connection: psycopg.Connection[Any], model: Model, why: str, record: Record) -> None:
    """Ask for the table to be read anew; the next turn does it, and serves whatever waits in the queue."""
    connection.execute(query("request_retrain"), {"model": model.id, "why": why})
    if not model.serve_during_refresh:
        connection.execute(query("stop_serving"), {"model": model.id})
    record.note(f"to be retrained: {why}")


def empty_queue(connection: psycopg.Connection[Any], model: Model, changes: Changes) -> None:
    """Remove this batch from the queue."""
    connection.execute(model.statement("delete_changes"), {"last": int(changes.seq[-1])})
    point("queue emptied")


def enter_deletions(
    record: Record, entry: str, kind: str, changes: Changes, which: Sequence[int], *, detail: str
) -> None:
    """Enter some of a batch's deletions, which cost nothing, and their receipts."""
    keys, at = [changes.keys[i] for i in which], [changes.captured_at[i] for i in which]
    record.deletions(entry, kind, keys, at, [changes.subject(i) for i in which], detail=detail)


def enter_free(record: Record, changes: Changes, reduced: Plan) -> None:
    """Enter the deletions that need nothing; what was refused before has gone or changed."""
    record.forget_refused([changes.keys[i] for i in reduced.unseen])
    for kind in ("cancelled", "never learned"):
        which = [i for i, why in reduced.cancelled if why == kind]
        enter_deletions(record, "cancelled", kind, changes, which, detail=kind)


def _too_few(connection: psycopg.Connection[Any], model: Model, changes: Changes, reduced: Plan) -> bool:
    """Whether rows wait for more of them. A queue longer than a batch is counted, and keeps no deleted row's values."""
    enough = int(model.terms["calibration_rows"])
    if model.fleet is not None:  # which chooses the constants
        return True
    if changes.complete:
        return len(reduced.learn) < enough
    waiting, deletions = connection.execute(query("pending"), {"model": model.id}).fetchone() or (0, 0)
    return waiting < enough and deletions == 0


def _wait_for_calibration(
    connection: psycopg.Connection[Any], model: Model, changes: Changes, reduced: Plan, record: Record
) -> None:
    """Before calibration rows wait in the queue. Deleted ones must not: the queue is filled anew from the table."""
    if not reduced.cancelled or not changes.complete:
        return
    enter_free(record, changes, reduced)
    connection.execute(model.statement("empty_queue"))
    connection.execute(query("enqueue_source"), {"model": model.id})
    record.write(connection)


def _truncate(connection: psycopg.Connection[Any], model: Model, changes: Changes, last: int, record: Record) -> None:
    """Forget everything: whatever came before the TRUNCATE is void. Every row that was learned gets its receipt."""
    if model.fleet and model.engine.begun:  # its constants are the fleet's
        model.epoch += 1
        model.exact.empty()
        connection.execute(query("forget_reference"), {"model": model.id})
    else:
        model.begin()
    went = {changes.keys[i]: i for i in np.flatnonzero(changes.op[:last] == queue.DELETE).tolist()}
    known = learned.find(connection, model.id, list(went))
    never = [i for key, i in went.items() if key not in known]
    enter_deletions(record, "cancelled", "never learned", changes, never, detail="never learned")
    with connection.cursor(name="mempair_learned") as keys:
        keys.execute(model.statement("learned_of"), {"model": model.id})
        while some := keys.fetchmany(KEYS_AT_ONCE):
            at = [changes.captured_at[last]] * len(some)
            subjects = [subject for _, subject in some]
            record.deletions("unlearned", "retrained", [key for key, _ in some], at, subjects, detail=BY_RETRAIN)
            record.flush(connection)
    rows = learned.forget_all(connection, model.id)
    connection.execute(query("forget_rejected"), {"model": model.id, "keys": None})
    connection.execute(model.statement("delete_changes"), {"last": int(changes.seq[last])})
    record.enter("epoch", rows=rows, detail="truncate")
    record.enter("retrained", rows=0, detail=f"truncated: {rows} rows forgotten, none is left to learn")
    record.note(f"table truncated: {rows} rows forgotten")
    if model.engine.begun:
        model.move("ready" if model.exact.ready else "learning", model.reason)
    record.write(connection)
