"""What there is, under one snapshot: the model's state, what waits in its queue, and one pass over its table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
from psycopg.rows import dict_row

from mempair_db.database import models
from mempair_db.database.exact import Exact, total
from mempair_db.database.marks import Marks, Numbers, Prints, each_learned, mark, numbers_of
from mempair_db.database.models import Model
from mempair_db.database.packed import Rows as Found
from mempair_db.database.queries import query
from mempair_db.database.source import each_chunk
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums, nothing
from mempair_db.worker import batch, exact
from mempair_db.worker import changes as queue
from mempair_db.worker import reference as reference_rows
from mempair_db.worker.changes import Changes
from mempair_db.worker.plan import Plan, plan
from mempair_db.worker.unusable import unusable


@dataclass
class Waiting:
    """What waits in the queue, and what it will come to."""

    changes: Changes
    prints: Prints
    plan: Plan
    truncated: bool  # all that was learned goes first

    def marks(self, salt: bytes | None = None) -> Marks:
        """Return what learned keys will change by."""
        learn, unlearn = list(self.plan.learn), self.plan.unlearn
        keys = self.changes.keys
        came = mark([keys[i] for i in learn], self.prints[learn], salt)
        return came - mark([keys[i] for i in unlearn], self.prints[unlearn], salt)

    def sums(self, engine: Exact) -> Sums:
        """Return what the sums will change by."""
        return exact.terms(engine, self.changes, self.plan)


@dataclass
class Rows:
    """Some rows of the table that can be learned, or all: what they add up to."""

    total: Sums | None
    marks: Marks = field(default_factory=Marks)
    rejected: int = 0
    seen: set[str] = field(default_factory=set)  # of the keys that other tables of ours hold
    references: list[tuple[str, Any, Any, float]] = field(default_factory=list)  # key, numbers, texts, target

    def __add__(self, other: Rows) -> Rows:
        """Return both parts together."""
        total = None if self.total is None or other.total is None else self.total + other.total
        marks, rejected = self.marks + other.marks, self.rejected + other.rejected
        return Rows(total, marks, rejected, self.seen | other.seen, self.references + other.references)


class Among:
    """Which of many keys are among a few, found by their numbers."""

    def __init__(self, few: Collection[str]) -> None:
        """Take the few."""
        self.few, self.numbers = few, np.sort(numbers_of(list(few)))

    def places(self, keys: Sequence[str], numbers: Numbers) -> list[int]:
        """Return where they are; two keys may have one number, so the keys are compared too."""
        if not len(self.numbers):
            return []
        nearest = self.numbers[np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)]
        return [i for i in np.flatnonzero(nearest == numbers).tolist() if keys[i] in self.few]


@dataclass
class Snapshot:
    """A model beside its table, in one moment."""

    connection: psycopg.Connection[Any]
    model: Model
    features: tuple[list[str], list[str]]  # names of numbers and texts
    published: dict[str, Any]
    published_classes: list[dict[str, Any]]
    stored_rows: int
    references: dict[str, int]  # fingerprints of the reference rows
    learned: Marks
    misplaced: int  # learned keys that lie where no deletion will find them
    held: dict[str, str]  # other keys in tables of ours, and where
    waiting: Waiting

    @property
    def reference(self) -> Reference | None:
        """The constants of an exact model, once they are chosen."""
        return self.model.engine.reference if isinstance(self.model.engine, Exact) else None

    def read_table(self, dsn: str | None, advance: Callable[[int], None]) -> Rows:
        """Go through the table once and add up everything that is compared."""
        reference, model = self.reference, self.model

        held, references = Among(self.held), Among(self.references)

        def work(rows: Found) -> tuple[Rows, int]:
            chunk, rejected = reference_rows.usable(model, rows)
            prints, numbers = fingerprints(model.secret, chunk.x, chunk.y, chunk.c), numbers_of(chunk.keys)
            seen = {chunk.keys[i] for i in held.places(chunk.keys, numbers)}
            seen |= self.held.keys() & {key for key, _ in rejected}
            there = [
                (chunk.keys[i], chunk.x[i], chunk.c[i] if len(chunk.c) else (), float(chunk.y[i]))
                for i in references.places(chunk.keys, numbers)
                if self.references[chunk.keys[i]] == prints[i]
            ]
            part = total(reference, model.terms, chunk.x, chunk.y, chunk.c) if reference is not None else None
            return Rows(part, mark(numbers, prints), len(rejected), seen, there), len(rows.y)

        found = Rows(None if reference is None else nothing(reference))
        for part, rows in each_chunk(self.connection, model, dsn, work):
            found += part
            advance(rows)
        return found

    def chunks(self) -> Iterator[tuple[Changes, Prints]]:
        """Go through the table again, on one connection."""
        for rows in each_chunk(self.connection, self.model, None, lambda rows: rows):
            chunk = reference_rows.usable(self.model, rows)[0]
            yield chunk, fingerprints(self.model.secret, chunk.x, chunk.y, chunk.c)


def take(connection: psycopg.Connection[Any], model_id: int) -> Snapshot | None:
    """Read the state and the queue; the connection is in a REPEATABLE READ transaction, and so the table is the same's.

    Workers and writers go on.
    """
    try:
        models.hold(connection, model_id, queue=True)
    except psycopg.errors.UndefinedTable:
        return None
    connection.execute(query("own_limits"))
    connection.execute("set local row_security = off")
    model = models.look(connection, model_id)
    if model is None:
        return None
    row = (
        connection.cursor(row_factory=dict_row)
        .execute(query("verify_published"), {"model": model_id}, binary=True)
        .fetchone()
        or {}
    )
    features = row.pop("numeric_features"), row.pop("text_features")
    stored = row.pop("rows_learned")
    references = dict(connection.execute(query("load_reference"), {"model": model_id}).fetchall())
    learned = Marks()
    misplaced = 0
    for keys, prints, elsewhere in each_learned(connection, model_id):
        learned += mark(keys, prints)
        misplaced += elsewhere
    held = dict(connection.execute(query("verify_keys"), {"model": model_id}).fetchall())
    each_class = connection.cursor(row_factory=dict_row).execute(
        query("verify_classes"), {"model": model_id}, binary=True
    )
    served = each_class.fetchall()
    waiting = read_queue(connection, model)
    return Snapshot(connection, model, features, row, served, stored, references, learned, misplaced, held, waiting)


def read_queue(connection: psycopg.Connection[Any], model: Model) -> Waiting:
    """Read what waits, and net it against what is learned."""
    changes = queue.read(connection, model, batches=queue.EVERYTHING)
    truncations = np.flatnonzero(changes.op == queue.TRUNCATE)
    if not len(truncations):
        return Waiting(changes, *batch.net(connection, model, changes), False)
    changes = changes.take(slice(int(truncations[-1]) + 1, None))
    is_exact = isinstance(model.engine, Exact)
    reasons = unusable(changes, model.imputes, model.regression, is_exact, bool(model.terms.get("weighted")))
    prints = fingerprints(model.secret, changes.x, changes.y, changes.c)
    return Waiting(changes, prints, plan(changes, prints, {}, reasons), True)
