"""New constants for a fleet, and every shard's sums under them.

All shards are held at once, each by the lock of its state row, so that what the constants are chosen from is what is
added up. Dask's tasks read the tables under the held snapshots. What waits in a shard's queue stays there: the sums are
those of the table less what waits, so learned keys and receipts are the worker's business as before. The coordinator
learns the constants first, then the shards, one transaction each. Killed in between, some shards are behind: the next
exchange brings them up, each by itself.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from mempair_db.database.exact import total
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.errors import MempairError
from mempair_db.fleet import compute, constants
from mempair_db.fleet.compute import Computing, opened
from mempair_db.fleet.config import Place
from mempair_db.fleet.constants import TooFew, Where
from mempair_db.fleet.coordinator import Coordinator, Declared
from mempair_db.fleet.shard import Held, Part, find, held
from mempair_db.ledger.record import Record
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums, nothing
from mempair_db.verify.snapshot import read_queue
from mempair_db.worker import batch, reference, refresh
from mempair_db.worker.refresh import Given
from mempair_db.worker.retrain import retrain

log = logging.getLogger("mempair.fleet")

TRIES: Final = 8
PAUSE: Final = 0.5
DRAINED: Final = 20  # batches before a refresh


class Refreshed(NamedTuple):
    """What a refresh did."""

    generation: int
    rows: int
    references: int


def part_sums(where: Where, part: tuple[int, int], constants: Reference) -> Sums:
    """Add up the rows in some blocks of a shard (a task)."""
    added = nothing(constants)
    for model, rows in compute.each(*where, part):
        chunk = reference.usable(model, rows)[0]
        added += total(constants, model.terms, chunk.x, chunk.y, chunk.c)
    return added


def load(shard: Place, model_id: int, given: Given, why: str) -> int:
    """Read a shard's whole table for the first time, learned keys and all, in one transaction (a task)."""
    with opened(shard) as connection:
        batch.prepare(connection)
        for _ in range(TRIES):
            outcome = retrain(connection, model_id, why, dsn=shard.dsn, given=given)
            if outcome.retrained:
                return outcome.learned
            time.sleep(PAUSE)
    raise MempairError(f"On shard {shard.name} a worker has the model, or it is paused.", remedy="Try again later.")


def refresh_fleet(
    computing: Computing, coordinator: Coordinator, name: str, why: str, salt: int | None = None
) -> Refreshed:
    """Choose constants anew and add everything up under them; a shard that restarts meanwhile costs another try."""
    with coordinator.alone(name):
        for attempt in range(TRIES):
            try:
                return _refresh(computing, coordinator, name, why, salt)
            except TooFew:
                if coordinator.model(name).constants is None:
                    raise
                return _begin_anew(computing, coordinator, name, why)
            except (psycopg.OperationalError, psycopg.errors.SerializationFailure) as error:
                if attempt == TRIES - 1:
                    raise
                log.warning("%s: %s; the refresh of %s begins anew", type(error).__name__, error, name)
                time.sleep(PAUSE * 2 ** min(attempt, 4))
    raise AssertionError("unreachable")


def _refresh(computing: Computing, coordinator: Coordinator, name: str, why: str, salt: int | None) -> Refreshed:
    fleet, model = computing.fleet, coordinator.model(name)
    if salt is None:  # the rows of the last sample that are left are chosen again
        salt = secrets.randbits(63) if model.salt is None else model.salt
    drain(fleet.shards, name)
    with ExitStack() as stack:
        holds = [stack.enter_context(held(shard, name)) for shard in fleet.shards]
        places = [Where(hold.shard, hold.snapshot, hold.model.id) for hold in holds]
        rows = sum(_count(hold) for hold in holds)
        first = holds[0].model
        _require_same(holds)
        if rows < first.declared["calibration_rows"]:
            raise TooFew(f"{name} begins with {first.declared['calibration_rows']} rows; its shards have {rows}.")
        sample = salt, reference.threshold(rows)
        labels = constants.labels_of(computing, places) if first.declared["loss"] == "classes" else ()
        chosen = constants.choose(computing, places, first.declared, len(first.numbers), sample, labels)
        given = Given(chosen.reference, model.generation + 1, sample)
        begun = [hold for hold in holds if _same_rows(hold.model)]
        point("constants chosen")
        parts = add_up(computing, begun, given)
        _store(coordinator, name, given, rows, chosen.references)
        point("constants stored")
        for hold in begun:
            others = [part for part in parts if part.shard != hold.shard.name]
            own = next(part for part in parts if part.shard == hold.shard.name)
            renew(hold, given, own, others, why)
    _load(computing, [(hold.shard, hold.model.id) for hold in holds if hold not in begun], given, why)
    return Refreshed(given.generation, rows, sum(chosen.references.values()))


def _begin_anew(computing: Computing, coordinator: Coordinator, name: str, why: str) -> Refreshed:
    """Forget the constants: too few rows are left to choose others, and these come from rows that may be gone.

    What is left waits in the queues, as before the first constants; nothing is served.
    """
    given = Given(None, coordinator.model(name).generation + 1)
    _store(coordinator, name, given, 0, {})
    point("constants forgotten")
    _load(computing, [(shard, _number(shard, name)) for shard in computing.fleet.shards], given, why)
    return Refreshed(given.generation, 0, 0)


def _number(shard: Place, name: str) -> int:
    with opened(shard) as connection:
        return find(connection, name).id


def _same_rows(model: Model) -> bool:
    """Whether a model has begun, and learns the same rows as before: else its table is read anew, keys and all."""
    return model.engine.begun and model.terms["on_null"] == model.declared["on_null"]


def _require_same(holds: Sequence[Held]) -> None:
    first, *others = holds
    for other in others:
        keys = [key for key, value in first.model.declared.items() if other.model.declared[key] != value]
        if keys:
            raise MempairError(
                f"{first.model.name} has another {', '.join(keys)} on shard {first.shard.name} than on "
                f"{other.shard.name}.",
                remedy="`mempair fleet model alter` was interrupted: give the same command again.",
            )


def bring_up(computing: Computing, model: Declared, shard: Place) -> None:
    """Give one shard the constants that the others have already."""
    given, why = Given(model.reference, model.generation, model.sample), "the fleet has other constants"
    if model.reference is None:
        given, why = Given(None, model.generation), "the fleet has too few rows"
    drain([shard], model.name)
    with held(shard, model.name) as hold:
        if given.reference is not None and _same_rows(hold.model):
            (own,) = add_up(computing, [hold], given)
            renew(hold, given, own, [], why)
            return
    _load(computing, [(shard, hold.model.id)], given, why)


def drain(shards: Sequence[Place], name: str) -> None:
    """Let what waits on the shards be applied first."""
    for shard in shards:
        with opened(shard) as connection:
            batch.prepare(connection)
            row = connection.execute(query("fleet_find"), {"name": name}).fetchone()
            if row is not None and row[2]:
                for _ in range(DRAINED):
                    if not batch.apply_batch(connection, row[0]).worked:
                        break


def add_up(computing: Computing, holds: Sequence[Held], given: Given) -> list[Part]:
    """Add up every shard's learned rows under new constants: its table, less what waits in its queue."""
    submitted = []
    for hold in holds:
        where = Where(hold.shard, hold.snapshot, hold.model.id)
        ranges = compute.parts(hold.connection, hold.model)
        submitted.append([computing.submit(part_sums, hold.shard, where, part, given.reference) for part in ranges])
    return [_part(hold, computing.add(futures), given) for hold, futures in zip(holds, submitted, strict=True)]


def _part(hold: Held, table: Sums, given: Given) -> Part:
    waiting = read_queue(hold.connection, hold.model)
    if waiting.truncated or waiting.plan.mismatch:
        raise MempairError(
            f"On shard {hold.shard.name} something waits that only its worker can serve: "
            f"{waiting.plan.mismatch or 'a TRUNCATE'}.",
            remedy="See that its worker runs, and refresh again.",
        )
    engine = hold.model.exact
    engine.reference = given.reference  # what waits, too, is counted under the new constants
    packed = (table - waiting.sums(engine)).to_bytes()
    rows = table.n - waiting.sums(engine).n
    return Part(hold.shard.name, given.generation, hold.model.ledger_seq, rows, packed, sha256(packed).digest())


def renew(hold: Held, given: Given, own: Part, others: Sequence[Part], why: str) -> None:
    """Let a shard that is held take new constants, its sums under them, and those of the others; and publish."""
    connection, model, constants = hold.connection, hold.model, given.reference
    assert constants is not None  # noqa: S101  (who has none begins anew)
    with connection.transaction():
        model.begin()
        refresh.take(connection, model, given)
        for part in others:
            connection.execute(query("fleet_take"), {"model": model.id, **part._asdict()})
        refresh.begin(connection, model, constants, Sums.from_bytes(own.sums, *constants.shape), given)
        record, engine = Record(model), model.exact
        record.enter("calibrated", rows=engine.reference_rows, detail="exact")
        model.move("ready" if engine.ready else "learning", model.reason)
        if engine.ready:
            record.enter("gate_opened", rows=engine.samples)
        model.retrain_requested = None
        record.enter("retrained", rows=own.rows, detail=f"fleet, constants {given.generation}: {why}")
        record.outcome.retrained = True
        record.write(connection)
        left = {"model": model.id, "generation": given.generation, "references": engine.references_left}
        connection.execute(query("fleet_checked"), left)
    point("shard renewed")


def _load(computing: Computing, models: Sequence[tuple[Place, int]], given: Given, why: str) -> None:
    computing.gather([computing.submit(load, shard, shard, number, given, why) for shard, number in models])


def _count(hold: Held) -> int:
    row: Any = hold.connection.execute(hold.model.statement("count_source")).fetchone()
    return int(row[0])


def _store(coordinator: Coordinator, name: str, given: Given, rows: int, references: dict[str, int]) -> None:
    salt, threshold = given.sample or (None, None)
    coordinator.do(
        "fleet_new_constants",
        name=name,
        generation=given.generation,
        salt=salt,
        threshold=threshold,
        constants=Jsonb(given.reference.to_json()) if given.reference else None,
        rows=rows,
        references=sum(references.values()),
    )
