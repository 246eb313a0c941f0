"""The coordinator's memory: the models of a fleet, their constants, and every shard's last known sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from mempair_db.database.queries import query
from mempair_db.errors import MempairError, UnknownModel
from mempair_db.fleet.compute import opened
from mempair_db.fleet.config import Fleet
from mempair_db.fleet.shard import Part, Report
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums, nothing


@dataclass(frozen=True)
class Declared:
    """A model of the fleet."""

    name: str
    declared: dict[str, Any]
    generation: int
    salt: int | None
    threshold: int | None
    constants: dict[str, Any] | None
    rows_refreshed: int | None
    reference_rows: int | None
    refresh_requested: str | None
    refreshed_at: datetime | None

    @property
    def reference(self) -> Reference | None:
        """The constants that all shards share."""
        return None if self.constants is None else Reference.from_json(self.constants)

    @property
    def sample(self) -> tuple[int, int]:
        """Salt and threshold of the reference rows."""
        return self.salt or 0, self.threshold or 0


@dataclass(frozen=True)
class Known:
    """What is known of a shard."""

    model: str
    shard: str
    generation: int
    ledger_seq: int | None
    rows: int | None
    sums: bytes | None
    digest: bytes | None
    taken_at: datetime | None
    references_left: int | None
    seen_at: datetime | None
    down_since: datetime | None
    trouble: str | None
    everywhere_seq: int
    everywhere_at: datetime | None

    def part(self, generation: int) -> Part | None:
        """Its sums, if they are under these constants."""
        if self.sums is None or self.digest is None or self.generation != generation:
            return None
        return Part(self.shard, generation, self.ledger_seq or 0, self.rows or 0, self.sums, self.digest)


class Coordinator:
    """The coordinator's database."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Work on a connection in autocommit mode: every statement is a transaction."""
        self.connection = connection

    def _rows(self, statement: str, /, **values: Any) -> list[dict[str, Any]]:
        return self.connection.cursor(row_factory=dict_row).execute(query(statement), values, binary=True).fetchall()

    def do(self, statement: str, /, **values: Any) -> None:
        """Run a query that returns nothing."""
        self.connection.execute(query(statement), values)

    def models(self, name: str | None = None) -> list[Declared]:
        """Return the fleet's models, or one of them."""
        found = [Declared(**row) for row in self._rows("fleet_models", name=name)]
        if name is not None and not found:
            raise UnknownModel(f"The fleet has no model {name!r}.", remedy="`mempair fleet model create` declares it.")
        return found

    def model(self, name: str) -> Declared:
        """Return one model."""
        return self.models(name)[0]

    def declared(self, name: str) -> dict[str, Any] | None:
        """Return what a model is on every shard; None if the fleet has none of that name."""
        found = self._rows("fleet_models", name=name)
        return found[0]["declared"] if found else None

    def declare(self, name: str, declared: dict[str, Any], shards: Sequence[str]) -> None:
        """Note a model and the shards it lies on."""
        self.do("fleet_declare", name=name, declared=Jsonb(declared))
        self.do("fleet_enlist", name=name, shards=list(shards))

    def shards(self, name: str) -> dict[str, Known]:
        """Return what is known of every shard."""
        return {row["shard"]: Known(**row) for row in self._rows("fleet_shards", name=name)}

    def saw(self, name: str, report: Report) -> None:
        """Note what a shard said; the same again changes nothing."""
        values = {
            key: getattr(report, key) for key in ("generation", "ledger_seq", "digest", "sums", "references_left")
        }
        self.do("fleet_seen", name=name, shard=report.shard, rows=report.rows_learned, trouble=report.trouble, **values)

    def total(self, model: Declared) -> Sums | None:
        """Return the sums of all shards; None unless all of them are known."""
        reference = model.reference
        if reference is None:
            return None
        total = nothing(reference)
        for known in self.shards(model.name).values():
            part = known.part(model.generation)
            if part is None:
                return None
            total += Sums.from_bytes(part.sums, *reference.shape)
        return total

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Be the only one that chooses constants for this model."""
        row = self.connection.execute(query("fleet_lock"), {"name": name}).fetchone()
        if row is None or not row[0]:
            raise MempairError(f"Another process refreshes {name} over the fleet.", remedy="Wait until it is done.")
        try:
            yield
        finally:
            if not self.connection.closed and not self.connection.broken:
                self.connection.execute(query("fleet_unlock"), {"name": name})


@contextmanager
def coordinator(fleet: Fleet) -> Iterator[Coordinator]:
    """Connect to the coordinator."""
    with opened(fleet.coordinator) as connection:
        yield Coordinator(connection)
