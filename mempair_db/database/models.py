"""A declared model as the worker sees it, under the lock of its state row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from mempair_db.database.certified import Certified
from mempair_db.database.exact import Exact
from mempair_db.database.queries import query
from mempair_db.pair import events
from mempair_db.pair.calibration import Parameters

# Where a parameter and its column have different names: lambda is a word of Python.
_COLUMNS = {"lam": "lambda"}
# What an epoch is begun with, and keeps whatever the model's row says later.
PROMISE = [
    "loss",
    "epsilon",
    "delta",
    "gamma",
    "lambda",
    "m",
    "tau",
    "kappa",
    "clip",
    "calibration_rows",
    "unlearner",
    "on_null",
    "ridge",
    "curves",
    "times",
    "categories",
    "class_weight",
]

# What an event of the queue says has happened to its rows. Capture writes the same numbers (sql/32_triggers.sql), which
# tests/integration/test_capture.py compares.
INSERT: Final = events.INSERT
DELETE: Final = events.DELETE
TRUNCATE: Final = 3

# Where a model stands, as its own row says.
STANDING = ("epoch", "phase", "reason", "retrain_requested")

KEEP_EVERY = 3600.0  # seconds between versions that are kept, and after which one is kept again when all were erased

# The phases of a model, and what leads from one to another. Paused, to be retrained and failed are not among them:
# those are said by columns of their own, so that none of them loses what another one says.
TRANSITIONS = {
    ("calibrating", "learning"): "enough rows: the constants are chosen",
    ("calibrating", "ready"): "the same, and the gate opens at once",
    ("learning", "ready"): "the gate opens",
    ("ready", "learning"): "an exact model has lost so many rows that its gate closes",
    ("learning", "exhausted"): "a certified model cannot afford the next deletion",
    ("ready", "exhausted"): "the same",
    ("learning", "calibrating"): "the table was truncated, or is read anew",
    ("ready", "calibrating"): "the same",
    ("exhausted", "calibrating"): "the same: this is what a retrain begins with",
}


class Member(NamedTuple):
    """A model's place in a fleet: several databases that have one model together, with the same constants."""

    shard: str
    generation: int  # of the fleet's constants; 0: none yet
    constants: dict[str, Any] | None
    reference_rows: int | None


@dataclass
class Model:
    """One row of mempair.model joined with mempair.state, under the lock of the latter."""

    id: int
    name: str
    phase: str
    paused: bool
    retrain_requested: str | None
    reason: str | None  # why it is exhausted, or what is odd about it
    on_exhausted: str
    serve_during_refresh: bool
    fleet: Member | None  # of which its constants and some of what it serves come
    epoch: int
    version: int
    deletions: int  # by noise, in the present epoch
    number_count: int  # with the weight
    text_count: int  # with the class
    ledger_seq: int  # the last entry
    secret: bytes
    declared: dict[str, Any]  # what the user wants now
    promise: dict[str, Any] | None  # what the present epoch was begun with
    engine: Certified | Exact
    held: int | None = None  # the version that is published instead of the newest
    versions: int = 0  # that are kept
    versions_age: float | None = None  # seconds since the last one was kept, or all were erased
    numbers: list[str] = field(default_factory=list)  # names of the features
    texts: list[str] = field(default_factory=list)
    arrays: list[str] = field(default_factory=list)
    stored: tuple[Any, ...] = ()  # what its own row says
    forgets: bool = True  # whether a learned row goes; who only adds rows says that none does

    @property
    def terms(self) -> dict[str, Any]:
        """What holds now: the epoch's promise once it has begun, what was declared until then."""
        return self.declared if self.promise is None else self.promise

    @property
    def imputes(self) -> bool:
        """Whether a missing value counts as the centre."""
        return bool(self.terms["on_null"] == "impute")

    @property
    def regression(self) -> bool:
        """Whether the target is a number rather than a label."""
        return bool(self.terms["loss"] in ("squared", "huber"))

    @property
    def exact(self) -> Exact:
        """The engine of an exact model."""
        if not isinstance(self.engine, Exact):
            raise TypeError(f"model {self.name} is not exact")
        return self.engine

    @property
    def certified(self) -> Certified:
        """The engine of a certified model."""
        if not isinstance(self.engine, Certified):
            raise TypeError(f"model {self.name} is not certified")
        return self.engine

    @property
    def queues(self) -> dict[str, sql.Identifier]:
        """The two queue tables, as placeholders `a` and `b` of a query."""
        return {half: sql.Identifier("mempair", f"change_{self.id}_{half}") for half in ("a", "b")}

    def statement(self, name: str) -> sql.Composed:
        """Return a named query with this model's tables and functions filled in."""
        return sql.SQL(query(name)).format(
            rows=sql.Identifier("mempair", f"source_{self.id}"),
            delete=sql.Literal(DELETE),
            truncate=sql.Literal(TRUNCATE),
            **self.queues,
            **{f: sql.Identifier("mempair", f"{f}_{self.id}") for f in ("key", "x", "c", "y", "find", "place")},
        )

    def named(self, reason: str) -> str:
        """Return why a row was refused, with the name of the column where the reason has its place."""
        kind, _, rest = reason.partition(" ")
        place, _, what = rest.partition(" ")
        names = {"number": self.numbers, "text": self.texts, "array": self.arrays}.get(kind, [])
        if not place.isdecimal() or not names:
            return reason
        return f"feature '{names[int(place) - 1]}' {what}" if int(place) <= len(names) else f"a feature {what}"

    def begin(self, *, again: bool = False) -> None:
        """Begin a new epoch, with what is declared now; or `again` with what the last one was begun with."""
        self.epoch += 1
        if not again:
            self.promise = None
        self.engine = _engine(self.terms)
        self.move("calibrating")

    def move(self, phase: str, reason: str | None = None) -> None:
        """Go to another phase, along one of the TRANSITIONS; `reason` says why it is exhausted, or what is odd."""
        if phase != self.phase and (self.phase, phase) not in TRANSITIONS:
            raise ValueError(f"model {self.name} cannot go from {self.phase} to {phase}")
        self.phase, self.reason = phase, reason

    def promised(self) -> None:
        """Freeze what this epoch promises: its constants are chosen."""
        if self.promise is None:
            self.promise = dict(self.declared)


def hold(connection: psycopg.Connection[Any], model_id: int, *, queue: bool = False) -> None:
    """Keep a model's table, and perhaps its queue, as it is while this transaction reads: before it has a snapshot."""
    places = {half: sql.Identifier("mempair", f"change_{model_id}_{half}") for half in ("a", "b")}
    statement = query("hold_all") if queue else query("hold_table")
    connection.execute(sql.SQL(statement).format(rows=sql.Identifier("mempair", f"source_{model_id}"), **places))


def lease(connection: psycopg.Connection[Any], model_id: int, *, load: bool = True) -> Model | None:
    """Lock the model's state row for this transaction and load it; None while another worker has it.

    Who reads the table anew need not load the old state, and so can mend one that cannot be read.
    """
    statement = f"{query('look')}\nand ({query('own_limits')}\n) is not null\n{query('lock_state')}"
    return _load(connection, model_id, statement, load)


def look(connection: psycopg.Connection[Any], model_id: int) -> Model | None:
    """Load a model as it is, without locking anything; None if it is not there."""
    return _load(connection, model_id, query("look"))


def _load(connection: psycopg.Connection[Any], model_id: int, statement: str, load: bool = True) -> Model | None:
    row = connection.cursor(row_factory=dict_row).execute(statement, {"model": model_id}, binary=True).fetchone()
    if row is None:
        return None
    categories = row["categories"] or {}
    declared = {name: row[name] for name in PROMISE}
    declared["categories"] = [categories.get(feature) for feature in row["text_features"]]
    declared["weighted"] = weighted = has_weight(row)
    promise = row["promise"]
    if promise is not None and "categories" not in promise:  # begun before promises had them
        promise = promise | {"categories": declared["categories"]}
    engine = _engine(declared if promise is None else promise)
    if load and row["constants"] is not None:
        engine.load(connection, row)
    return Model(
        id=row["id"],
        name=row["name"],
        phase=row["phase"],
        paused=row["paused"],
        retrain_requested=row["retrain_requested"],
        reason=row["reason"],
        on_exhausted=row["on_exhausted"],
        serve_during_refresh=row["serve_during_refresh"],
        fleet=_member(row),
        epoch=row["epoch"],
        version=row["version"],
        deletions=row["deletions"],
        number_count=len(row["numeric_features"]) + weighted,
        text_count=len(row["text_features"]) + (row["loss"] == "classes"),
        ledger_seq=row["ledger_seq"],
        secret=row["secret"],
        declared=declared,
        promise=promise if row["constants"] is not None else None,
        engine=engine,
        held=row["held"],
        numbers=row["numeric_features"],
        texts=row["text_features"],
        arrays=[part["feature"] for part in row["parts"] or () if part["as"] == "array"],
        versions=row["versions"],
        versions_age=row["versions_age"],
        stored=tuple(row[name] for name in (*STANDING, "failure")),
    )


def _member(row: Mapping[str, Any]) -> Member | None:
    if row["fleet_shard"] is None:
        return None
    return Member(row["fleet_shard"], row["fleet_generation"], row["constants"], row["reference_rows"])


def has_weight(row: Mapping[str, Any]) -> bool:
    """Whether the last number of a model's rows is their weight, as mempair.has_weight says."""
    arrays = any(part["as"] == "array" for part in row["parts"] or ())
    return bool(row["unlearner"] == "exact" and (row["weight"] is not None or arrays))


def _engine(terms: Mapping[str, Any]) -> Certified | Exact:
    if terms["unlearner"] == "exact":
        return Exact(terms)
    return Certified(parameters(terms), terms["categories"])


def parameters(row: Mapping[str, Any]) -> Parameters:
    """Return what the user chose for a certified model, from columns of mempair.model or from a promise."""
    names = (each.name for each in fields(Parameters))
    return Parameters(**{name: row[_COLUMNS.get(name, name)] for name in names if _COLUMNS.get(name, name) in row})


def save(connection: psycopg.Connection[Any], model: Model, *, erases: bool) -> None:
    """Write the state, the published weights and the model's own row; `erases`: what was applied is to be purged."""
    model.version += 1
    common = {"model": model.id, "version": model.version, "epoch": model.epoch, "erases": erases}
    if model.engine.begun:
        model.engine.save(connection, common)
    else:
        salt = model.engine.salt if isinstance(model.engine, Exact) else None
        connection.execute(query("blank_state"), common | {"salt": salt})
        connection.execute(query("blank_published"), common | {"needed": model.terms["calibration_rows"]})
        connection.execute(query("unpublish_classes"), {"model": model.id})
        connection.execute(query("cut_window"), {"model": model.id, "pairs": 0})
        connection.execute(query("forget_reference"), {"model": model.id})
        connection.execute(query("forget_losses"), {"model": model.id})
    save_row(connection, model)
    if model.engine.new_constants:
        constants = Jsonb(model.engine.constants()) if model.engine.begun else None
        promise = Jsonb(model.promise) if model.promise is not None else None
        connection.execute(query("save_constants"), {"model": model.id, "constants": constants, "promise": promise})
    _keep_versions(connection, model)


def _keep_versions(connection: psycopg.Connection[Any], model: Model) -> None:
    """Keep what was published now and then; erase all of it when a learned row goes, which may be in every version."""
    values = {"model": model.id}
    if model.forgets:
        if model.versions or model.held is not None:
            connection.execute(query("erase_versions"), values)
    elif model.held is not None:
        connection.execute(query("hold_version"), values)
    elif model.phase == "ready" and (model.versions_age is None or model.versions_age > KEEP_EVERY):
        connection.execute(query("store_version"), values)


def save_row(connection: psycopg.Connection[Any], model: Model) -> None:
    """Write where the model stands, and nothing of what it has learned."""
    standing = {name: getattr(model, name) for name in STANDING}
    if model.stored != (*standing.values(), None):
        connection.execute(query("save_model"), {"model": model.id} | standing)
