"""One batch, one transaction: lock, read, step, write, delete what was read. All of it happens, or nothing.

The transaction is REPEATABLE READ, so "delete what was read" is the same rows by construction: an event that commits
meanwhile, even with a smaller number, is not in the snapshot and stays for the next batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import psycopg
from psycopg import IsolationLevel
from psycopg.errors import UniqueViolation

from mempair_db.catalog import arrays, models
from mempair_db.catalog.ledger import Ledger, new_tag
from mempair_db.catalog.models import Model
from mempair_db.catalog.queries import query
from mempair_db.pair.calibration import calibrate
from mempair_db.pair.odometer import UNITS
from mempair_db.worker import changes as queue
from mempair_db.worker.changes import Changes, Plan, plan


@dataclass
class Outcome:
    """What one transaction did to a model."""

    learned: int = 0
    unlearned: int = 0
    cancelled: int = 0
    rejected: int = 0
    retrained: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def worked(self) -> bool:
        """Whether anything changed, so that it is worth looking again at once."""
        return bool(self.learned or self.unlearned or self.cancelled or self.rejected or self.notes)


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Set a worker's connection up: one snapshot per transaction, numpy arrays in binary, no prepared statements."""
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.prepare_threshold = None  # a pooler in transaction mode hands every transaction another session
    arrays.register(connection)


def apply_batch(connection: psycopg.Connection[Any], model_id: int) -> Outcome:
    """Apply the next events of a model. Does nothing while another worker has the model."""
    outcome = Outcome()
    with connection.transaction():
        model = models.lease(connection, model_id)
        if model is None or model.status == "exhausted":
            return outcome
        changes = queue.read(connection, model)
        if len(changes):
            _apply(connection, model, changes, outcome)
    return outcome


def _apply(connection: psycopg.Connection[Any], model: Model, changes: Changes, outcome: Outcome) -> None:
    ledger = open_ledger(model)
    truncated = np.flatnonzero(changes.op == queue.TRUNCATE)
    if len(truncated):
        _truncate(connection, model, changes.take(slice(0, int(truncated[-1]) + 1)), ledger, outcome)
        return
    known = _learned(
        connection, model, [key for key, op in zip(changes.keys, changes.op, strict=True) if op == queue.DELETE]
    )
    reduced = _plan(model, changes, known)
    if model.pair.epoch is None and not _calibrate(model, changes, reduced, ledger, outcome):
        _drop(connection, model, changes, reduced, ledger, outcome)
        return
    affordable = model.pair.affordable(changes.op[reduced.events])
    exhausted = affordable < len(reduced.events)
    if exhausted:
        changes = changes.take(slice(0, reduced.events[affordable]))
        reduced = _plan(model, changes, known)
    try:
        with connection.transaction():
            _write_learned(connection, model, changes, reduced)
    except UniqueViolation:  # a row that was learned already came again; rare, so nobody looks before
        known |= _learned(connection, model, changes.keys)
        reduced = _plan(model, changes, known)
        _write_learned(connection, model, changes, reduced)
    _file(connection, model, changes, reduced, ledger, outcome)
    _step(connection, model, changes, reduced, ledger, outcome)
    if exhausted:
        _exhaust(model, ledger, outcome)
    if len(changes):
        for half in ("a", "b"):
            connection.execute(model.statement(f"delete_{half}"), {"last": int(changes.seq[-1])})
    close(connection, model, ledger)


def open_ledger(model: Model) -> Ledger:
    """Continue the model's ledger."""
    return Ledger(model.id, model.ledger_seq, model.ledger_hash, datetime.now(timezone.utc))


def close(connection: psycopg.Connection[Any], model: Model, ledger: Ledger) -> None:
    """Write the ledger and, with it, the state that it describes."""
    ledger.write(connection)
    model.ledger_seq, model.ledger_hash = ledger.seq, ledger.head
    models.save(connection, model)


def _learned(connection: psycopg.Connection[Any], model: Model, keys: list[str]) -> set[str]:
    rows = connection.execute(query("find_learned"), {"model": model.id, "keys": keys}) if keys else ()
    return {key for (key,) in rows}


def _plan(model: Model, changes: Changes, known: set[str]) -> Plan:
    parameters = model.pair.parameters
    return plan(changes, known, impute=parameters.on_null == "impute", regression=parameters.regression)


def _calibrate(model: Model, changes: Changes, reduced: Plan, ledger: Ledger, outcome: Outcome) -> bool:
    """Start an epoch if enough rows wait for it."""
    if len(reduced.events) < model.pair.parameters.calibration_rows:
        return False
    rows = changes.take(reduced.events)
    start_epoch(model, rows, ledger, outcome)
    return True


def start_epoch(model: Model, rows: Changes, ledger: Ledger, outcome: Outcome) -> None:
    """Fix the constants of a new epoch from these rows."""
    pair = model.pair
    model.epoch += 1
    declared = pair.categories or [None] * model.texts
    epoch = calibrate(pair.parameters, rows.x, rows.c, rows.y, declared=declared, number=model.epoch)
    pair.start(epoch)
    model.status, model.reason = "learning", None
    note = f"lambda={epoch.constants.lam:.6g} d={epoch.d} rho={epoch.cap / UNITS:.6g}"
    ledger.append("calibrated", epoch=model.epoch, clock=0, rows=epoch.calibration_rows, rho_cap=epoch.cap, detail=note)
    outcome.notes.append(f"epoch {model.epoch} calibrated on {epoch.calibration_rows} rows: {note}")


def _drop(
    connection: psycopg.Connection[Any],
    model: Model,
    changes: Changes,
    reduced: Plan,
    ledger: Ledger,
    outcome: Outcome,
) -> None:
    """Before calibration rows wait in the queue; only what will never be learned leaves it."""
    gone = [*reduced.cancelled, *reduced.dropped, *(i for i, _ in reduced.rejected)]
    if not gone:
        return
    _file(connection, model, changes, reduced, ledger, outcome)
    for half in ("a", "b"):
        connection.execute(model.statement(f"delete_some_{half}"), {"seqs": changes.seq[sorted(gone)].tolist()})
    close(connection, model, ledger)


def _file(
    connection: psycopg.Connection[Any],
    model: Model,
    changes: Changes,
    reduced: Plan,
    ledger: Ledger,
    outcome: Outcome,
) -> None:
    """Enter cancelled deletions, with their receipts, and rejected rows."""
    cancelled_pairs = {changes.keys[i] for i in reduced.dropped}
    clock = model.pair.tally("clock") if model.pair.epoch else 0
    spent = model.pair.odometer.spent if model.pair.epoch else 0
    receipts = []
    for i in reduced.cancelled:
        kind = "cancelled" if changes.keys[i] in cancelled_pairs else "never learned"
        tag, salt = new_tag(changes.keys[i])
        seq = ledger.append("cancelled", epoch=model.epoch, clock=clock, rows=1, rho_spent=spent, tag=tag, detail=kind)
        receipts.append((model.id, changes.keys[i], tag, salt, seq, changes.captured_at[i], ledger.at, kind))
    write_receipts(connection, receipts)
    if reduced.rejected:
        with connection.cursor().copy(query("copy_rejected")) as copy:
            for i, reason in reduced.rejected:
                copy.write_row((model.id, int(changes.seq[i]), changes.keys[i], int(changes.op[i]), reason))
        ledger.append("rejected", epoch=model.epoch, clock=clock, rows=len(reduced.rejected), rho_spent=spent)
    outcome.cancelled += len(reduced.cancelled)
    outcome.rejected += len(reduced.rejected)


def _write_learned(connection: psycopg.Connection[Any], model: Model, changes: Changes, reduced: Plan) -> None:
    """Keep `learned` in step: deleted rows leave it, inserted rows enter with their ticks."""
    forgotten = [changes.keys[i] for i in reduced.events if changes.op[i] == queue.DELETE]
    if forgotten:
        connection.execute(query("forget_learned"), {"model": model.id, "keys": forgotten})
    inserted = (changes.keys[i] for i in reduced.events if changes.op[i] == queue.INSERT)
    copy_learned(connection, model.id, inserted, model.pair.tally("clock") + 1)


def copy_learned(connection: psycopg.Connection[Any], model_id: int, keys: Iterable[str], first_tick: int) -> None:
    """Enter rows with consecutive ticks."""
    with connection.cursor().copy(query("copy_learned")) as copy:
        copy.set_types(["int4", "text", "int8"])
        for tick, key in enumerate(keys, first_tick):
            copy.write_row((model_id, key, tick))


def write_receipts(connection: psycopg.Connection[Any], receipts: list[tuple[Any, ...]]) -> None:
    """Keep what a person can fetch as proof."""
    if receipts:
        with connection.cursor().copy(query("copy_receipts")) as copy:
            for row in receipts:
                copy.write_row(row)


def _step(
    connection: psycopg.Connection[Any],
    model: Model,
    changes: Changes,
    reduced: Plan,
    ledger: Ledger,
    outcome: Outcome,
) -> None:
    """Run the kernel over the batch and enter what it did."""
    pair = model.pair
    events = changes.take(reduced.events)
    was_ready, clock, spent = pair.ready, pair.tally("clock"), pair.odometer.spent
    applied = pair.apply(events.op, events.x, events.y, events.c)
    clocks = clock + np.cumsum(events.op == queue.INSERT)
    receipts = []
    for i, rho in zip(np.flatnonzero(events.op == queue.DELETE), applied.spent, strict=True):
        spent += rho
        tag, salt = new_tag(events.keys[i])
        seq = ledger.append(
            "unlearned",
            epoch=model.epoch,
            clock=int(clocks[i]),
            rows=1,
            rho=rho,
            rho_spent=spent,
            rho_cap=pair.odometer.cap,
            tag=tag,
        )
        receipts.append((model.id, events.keys[i], tag, salt, seq, events.captured_at[i], ledger.at, "unlearned"))
    write_receipts(connection, receipts)
    learned = len(events) - len(receipts)
    common: dict[str, Any] = {"epoch": model.epoch, "clock": pair.tally("clock"), "rho_spent": spent}
    if learned:
        ledger.append("learned", rows=learned, **common)
    if pair.ready and not was_ready:
        ledger.append("gate_opened", rows=pair.tally("rows"), **common)
        outcome.notes.append(f"gate opened after {pair.tally('rows')} rows")
    model.status = "ready" if pair.ready else "learning"
    outcome.learned += learned
    outcome.unlearned += len(receipts)


def _exhaust(model: Model, ledger: Ledger, outcome: Outcome) -> None:
    """Say that the next deletion does not fit; the loop retrains or halts, as the model's policy says."""
    budget = model.pair.odometer
    if model.pair.price(model.pair.tally("clock")) == 0:
        model.reason = "certified noise would cost more than gamma allows at this number of rows"
    else:
        model.reason = f"the deletion budget is spent after {budget.deletions} deletions"
    model.status = "exhausted"
    ledger.append(
        "exhausted",
        epoch=model.epoch,
        clock=model.pair.tally("clock"),
        rho_spent=budget.spent,
        rho_cap=budget.cap,
        detail=model.reason,
    )
    outcome.notes.append(f"exhausted: {model.reason}")


def _truncate(
    connection: psycopg.Connection[Any], model: Model, changes: Changes, ledger: Ledger, outcome: Outcome
) -> None:
    """Forget everything: whatever came before the TRUNCATE is void."""
    rows = connection.execute(query("forget_all_learned"), {"model": model.id}).rowcount
    model.epoch += 1
    model.pair.reset()
    model.status, model.reason = "calibrating", None
    ledger.append("epoch", epoch=model.epoch, clock=0, rows=rows, detail="truncate")
    for half in ("a", "b"):
        connection.execute(model.statement(f"delete_{half}"), {"last": int(changes.seq[-1])})
    close(connection, model, ledger)
    outcome.notes.append(f"table truncated: {rows} rows forgotten")
