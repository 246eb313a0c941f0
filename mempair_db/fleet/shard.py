"""What is asked of one shard: where it stands, to take in what the others have, to say what is everywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import dict_row

from mempair_db.database import models
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.errors import MempairError, UnknownModel
from mempair_db.fleet.compute import opened, share
from mempair_db.fleet.config import Place
from mempair_db.ledger.record import Record
from mempair_db.worker import batch

PATIENCE: Final = 60.0  # seconds to wait for a worker's batch
PAUSE: Final = 0.005


class Part(NamedTuple):
    """A shard's sums under the fleet's constants."""

    shard: str
    generation: int
    ledger_seq: int
    rows: int
    sums: bytes
    digest: bytes


class Report(NamedTuple):
    """Where a shard stands, at one moment."""

    id: int
    shard: str
    generation: int
    references_checked: int | None
    ledger_seq: int
    rows_learned: int
    digest: bytes | None
    sums: bytes | None  # if they are not those that the asker has
    references_left: int
    others_refreshed: int | None  # rows of a class without a place, when it last took constants
    begun: bool
    failure: str | None
    paused: bool
    retrain_requested: str | None
    parts: dict[str, tuple[int, str]]  # what it has of others: generation and digest
    changes: int
    deletions: int
    oldest_deletion: Any

    @property
    def trouble(self) -> str | None:
        """What keeps it from applying deletions."""
        return self.failure or ("paused" if self.paused else self.retrain_requested)

    def has(self, part: Part) -> bool:
        """Whether it has taken in these sums of another shard."""
        return tuple(self.parts.get(part.shard, ())) == (part.generation, part.digest.hex())


def report(connection: psycopg.Connection[Any], name: str, known: bytes | None) -> Report:
    """Ask where a shard stands; its sums come along unless they are `known`."""
    values = {"name": name, "digest": known}
    row = connection.cursor(row_factory=dict_row).execute(query("fleet_report"), values, binary=True).fetchone()
    if row is None:
        raise UnknownModel(
            f"{name!r} is not declared here as part of a fleet.", remedy="`mempair fleet model create` declares it."
        )
    return Report(**row)


def deliver(
    connection: psycopg.Connection[Any], model_id: int, generation: int, parts: Sequence[Part], shards: Sequence[str]
) -> bool:
    """Let a shard take in other shards' sums and publish what follows, in one transaction; False if it is elsewhere.

    `shards` are those of the fleet: what it has of any other goes.
    """
    with connection.transaction():
        connection.execute(query("fleet_patience"))
        connection.execute(query("fleet_lock_state"), {"model": model_id})
        model = models.look(connection, model_id)
        if model is None or model.fleet is None or model.fleet.generation != generation or not model.engine.begun:
            return False
        gone = connection.execute(query("fleet_leave"), {"model": model_id, "shards": list(shards)}).rowcount
        for part in parts:
            connection.execute(query("fleet_take"), {"model": model_id, **part._asdict()})
        point("parts taken in")
        model.exact.take_in(connection, model_id, generation)
        taken = ", ".join(f"{part.shard} to {part.ledger_seq}" for part in parts)
        _publish(connection, model, f"fleet: took in {taken or 'nothing'}" + (f"; {gone} shards left" if gone else ""))
        point("delivered")
    return True


def _publish(connection: psycopg.Connection[Any], model: Model, detail: str) -> None:
    """Publish what follows from the own sums and the others', with an entry in the ledger that says why."""
    record, engine = Record(model), model.exact
    record.enter("config", detail=detail)
    was_ready, ready = model.phase == "ready", engine.ready
    model.move("ready" if ready else "learning", model.reason)
    if ready and not was_ready:
        record.enter("gate_opened", rows=engine.samples)
    record.write(connection)


def everywhere(connection: psycopg.Connection[Any], model_id: int, seq: int) -> None:
    """Say on the receipts that no shard serves anything of what was deleted up to this entry."""
    connection.execute(query("fleet_everywhere"), {"model": model_id, "seq": seq})


@dataclass
class Held:
    """A shard's model under the lock of its state row, in a transaction whose snapshot others may share."""

    shard: Place
    connection: psycopg.Connection[Any]
    model: Model
    snapshot: str


@contextmanager
def held(shard: Place, name: str) -> Iterator[Held]:
    """Hold a shard: its worker waits, its table is read as it is now. Commits at the end of the block."""
    with opened(shard) as connection:
        batch.prepare(connection)
        model_id = _number(connection, shard, name)
        until = time.monotonic() + PATIENCE
        while True:
            with connection.transaction():
                models.hold(connection, model_id)
                found = _leased(connection, shard, model_id)
                if found is not None:
                    yield found
            if found is not None:
                point("shard released")
                return
            if time.monotonic() > until:
                raise MempairError(
                    f"On shard {shard.name} a worker has had {name} for {PATIENCE:.0f} s.", remedy="Try again later."
                )
            time.sleep(PAUSE)


def _number(connection: psycopg.Connection[Any], shard: Place, name: str) -> int:
    row = connection.execute(query("fleet_find"), {"name": name}).fetchone()
    if row is None or row[1] is None:
        raise UnknownModel(
            f"Shard {shard.name} has no model {name!r} of the fleet.",
            remedy="`mempair fleet model create` declares it.",
        )
    return int(row[0])


def _leased(connection: psycopg.Connection[Any], shard: Place, model_id: int) -> Held | None:
    connection.execute(query("own_limits"))
    connection.execute("set local row_security = off")
    model = models.lease(connection, model_id)
    return None if model is None else Held(shard, connection, model, share(connection))


@contextmanager
def looked_at(shard: Place) -> Iterator[psycopg.Connection[Any]]:
    """Open a read-only transaction with one snapshot."""
    with opened(shard) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            connection.execute(query("own_limits"))
            connection.execute("set local row_security = off")
            yield connection


def find(connection: psycopg.Connection[Any], name: str) -> Model:
    """Return a shard's model, without locking it."""
    row = connection.execute(query("fleet_find"), {"name": name}).fetchone()
    model = models.look(connection, row[0]) if row is not None and row[1] is not None else None
    if model is None:
        raise UnknownModel(
            f"A shard has no model {name!r} of the fleet.", remedy="`mempair fleet model create` does that."
        )
    return model


def checked(connection: psycopg.Connection[Any], model_id: int, generation: int, references: int) -> None:
    """Note from how many reference rows here the fleet found the same constants; what waited for that is served."""
    values = {"model": model_id, "generation": generation, "references": references}
    with connection.transaction():
        connection.execute(query("fleet_patience"))
        connection.execute(query("fleet_lock_state"), {"model": model_id})
        if connection.execute(query("fleet_checked"), values).rowcount:
            model = models.look(connection, model_id)
            if model is not None and model.engine.begun:
                detail = f"fleet: the constants follow from the reference rows that are left, {references} here"
                _publish(connection, model, detail)
