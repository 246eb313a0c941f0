"""A batch of an exact model: add what is learned, subtract what is unlearned, and look after the reference rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg

from mempair_db.database import arrays, learned
from mempair_db.database.exact import Exact, refer, targets
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger.record import Record
from mempair_db.pair.exact import Sums, sums
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.worker import batch
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes
from mempair_db.worker.plan import Plan, Prints


def apply(
    connection: psycopg.Connection[Any], model: Model, changes: Changes, prints: Prints, reduced: Plan, record: Record
) -> None:
    """Apply a netted batch; or, where a deletion changes the constants, ask for a refresh, which serves it."""
    engine = model.exact
    unlearned = [changes.keys[i] for i in reduced.unlearn]
    dropped = _references_among(connection, model, unlearned)
    if dropped:
        dropped, same = check_reference(connection, model, dropped)
        if not same:
            batch.request_retrain(connection, model, "a reference row went, and the constants with it", record)
            return
    engine.add(terms(engine, changes, reduced))
    point("stepped")
    if dropped:
        connection.execute(query("drop_reference"), {"model": model.id, "keys": dropped})
        engine.references_left -= len(dropped)
    learned.forget(connection, model.id, unlearned)
    batch.empty_queue(connection, model, changes)
    new = list(reduced.learn)
    keys = changes.keys if len(new) == len(changes) else [changes.keys[i] for i in new]
    learned.enter(connection, learned.pack(model.id, keys, prints[new], None, connection.info.encoding))
    _enter(changes, reduced, record)
    why = engine.outgrown()
    if why is not None:
        model.retrain_requested = why
        record.note(f"to be refreshed: {why}")
    was_ready, ready = model.phase == "ready", engine.ready
    model.phase = "ready" if ready else "learning"
    if ready and not was_ready:
        record.enter("gate_opened", rows=engine.rows)
        record.note(f"gate opened after {engine.rows} rows")
    record.write(connection)


def terms(engine: Exact, changes: Changes, reduced: Plan) -> Sums:
    """Return the sums that the batch adds: those of its new rows less those of the old ones."""
    assert engine.reference is not None  # noqa: S101  (the batch has looked)
    which = np.array([*reduced.learn, *reduced.unlearn], np.intp)
    sign = np.ones(len(which))
    sign[len(reduced.learn) :] = -1.0
    c = [changes.c[i] for i in which.tolist()] if len(changes.c) else ()
    y = targets(changes.y[which], engine.reference.loss)
    return sums(engine.reference, changes.x[which], y, c, sign)


def _references_among(connection: psycopg.Connection[Any], model: Model, keys: Sequence[str]) -> list[str]:
    if not keys:
        return []
    values = {"model": model.id, "keys": list(keys)}
    return [key for (key,) in connection.execute(query("find_reference"), values).fetchall()]


def check_reference(connection: psycopg.Connection[Any], model: Model, gone: Sequence[str]) -> tuple[list[str], bool]:
    """Choose the constants again from the reference rows without these; return which are gone, and if nothing changed.

    The rows are read under the batch's own snapshot. One that is not there as it was learned has a change waiting in
    the queue, and is no longer a reference row either.
    """
    engine = model.exact
    stored = dict(connection.execute(query("load_reference"), {"model": model.id}).fetchall())
    left = [key for key in stored if key not in set(gone)]
    rows = arrays.fetch(connection, model.statement("find_rows"), {"keys": left})
    keys, x, c, y = decode(model, rows)
    marks = fingerprints(model.secret, x, y, c)
    kept = [i for i, (key, mark) in enumerate(zip(keys, marks.tolist(), strict=True)) if stored[key] == mark]
    dropped = sorted(set(stored) - {keys[i] for i in kept})
    if not kept:
        return dropped, False
    labels = targets(y[kept], engine.terms["loss"])
    new = refer(engine.terms, x[kept], labels, [c[i] for i in kept] if len(c) else ())
    assert engine.reference is not None  # noqa: S101
    return dropped, new.to_bytes() == engine.reference.to_bytes()


def decode(model: Model, rows: list[tuple[Any, ...]]) -> tuple[list[str], Any, Any, Any]:
    """Return keys, numbers, texts and targets of rows as the source's view gives them."""
    keys, x, c, y = queue.columns(rows, 4)
    return keys, queue.numbers(x, model.number_count), queue.texts(c, model.text_count), np.array(y, float)


def _enter(changes: Changes, reduced: Plan, record: Record) -> None:
    """Enter what the batch did: rows learned and updated in one entry each, every deletion with its own tag."""
    updated = len(reduced.unlearn) - len(reduced.gone)
    new = len(reduced.learn) - updated
    for i in reduced.unlearn:
        if i in reduced.gone:
            at, subject = changes.captured_at[i], changes.subject(i)
            record.deletion("unlearned", "unlearned", changes.keys[i], at, subject, detail="exact")
    for i, kind in reduced.cancelled:
        record.deletion("cancelled", kind, changes.keys[i], changes.captured_at[i], changes.subject(i), detail=kind)
    for i, reason in reduced.rejected:
        record.reject(int(changes.seq[i]), changes.keys[i], int(changes.op[i]), reason)
    if updated > 0:
        record.enter("updated", rows=updated, detail="exact")
        record.outcome.learned += updated
    if new > 0:
        record.enter("learned", rows=new)
        record.outcome.learned += new
