"""The refresh of an exact model: choose the constants anew from a sample of the whole table, and add all rows up.

Sums of parts add up, so the table is read in parts, each on a connection of its own that sees this transaction's
snapshot. Whatever number of parts there is, the sums have the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from mempair_db.database import learned
from mempair_db.database.exact import refer, total
from mempair_db.database.faults import point
from mempair_db.database.models import Member, Model
from mempair_db.database.packed import Rows
from mempair_db.database.queries import query
from mempair_db.database.source import each_chunk
from mempair_db.ledger.record import Record
from mempair_db.offline.progress import Bars
from mempair_db.pair import classes
from mempair_db.pair.encode import RAREST
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums, nothing
from mempair_db.worker import changes as queue
from mempair_db.worker import progressive
from mempair_db.worker import reference as rows_of_reference
from mempair_db.worker.changes import Changes


class Given(NamedTuple):
    """Constants that a fleet has chosen, for all its shards."""

    reference: Reference | None  # None: it has too few rows left to choose any
    generation: int
    sample: tuple[int, int] | None = None  # salt and threshold of its reference rows; None: those that are left


def kept(member: Member) -> Given | None:
    """Return the constants that a shard has already, for another look at its own table."""
    if member.constants is None:
        return None
    return Given(Reference.from_json(member.constants), member.generation)


def read(
    connection: psycopg.Connection[Any],
    model: Model,
    record: Record,
    dsn: str | None,
    give_up: Callable[[], bool],
    bars: Bars,
    given: Given | None = None,
) -> int | None:
    """Learn every row anew under new constants, or under those that are given; how many, None if told to give up."""
    if given is None:
        reference, sample, rows = _choose(connection, model)
    else:
        reference, sample, rows = take(connection, model, given), None, 0
    learned.forget_all(connection, model.id)
    if reference is None:
        return 0
    added, terms = nothing(reference), model.terms

    def add(rows: Rows) -> tuple[Sums, bytes, list[tuple[str, str]]]:
        chunk, rejected = rows_of_reference.usable(model, rows)
        prints = fingerprints(model.secret, chunk.x, chunk.y, chunk.c)
        part = total(reference, terms, chunk.x, chunk.y, chunk.c)
        return part, learned.pack(model.id, chunk.keys, prints, None, connection.info.encoding), rejected

    with bars(f"Reading the table of {model.name}", rows) as advance:
        for part, packed, rejected in each_chunk(connection, model, dsn, add):
            added += part
            learned.enter(connection, packed)
            for key, reason in rejected:
                record.reject(0, key, queue.INSERT, reason)
            record.flush(connection)
            point("chunk replayed")
            advance(part.n + len(rejected))
            if give_up():
                return None
    engine = model.exact
    begin(connection, model, reference, added, given)
    record.enter("calibrated", rows=engine.reference_rows, detail="exact")  # no constant: a ledger stays
    record.note(f"epoch {model.epoch}: exact d={reference.d} from {engine.reference_rows} reference rows")
    if sample is not None:
        progressive.at_refresh(connection, model, sample)
    ready = engine.ready
    model.move("ready" if ready else "learning", model.reason)
    if ready:
        record.enter("gate_opened", rows=added.n)
    return added.n


def begin(
    connection: psycopg.Connection[Any], model: Model, reference: Reference, total: Sums, given: Given | None = None
) -> None:
    """Take new constants, and the sums of all rows under them."""
    engine, left = model.exact, model.exact.references_left
    engine.start(reference, total, engine.reference_rows)
    model.promised()
    if given is not None:
        engine.references_left = left
        engine.others_refreshed = total.fourth if reference.labels else 0  # as it is: the fleet adds its shards' up
        engine.take_in(connection, model.id, given.generation)


def take(connection: psycopg.Connection[Any], model: Model, given: Given) -> Reference | None:
    """Take the fleet's constants; the reference rows are those that its salt chooses, or the ones that are left."""
    engine, renewed = model.exact, {"model": model.id, "generation": given.generation}
    if given.reference is None:
        rows_of_reference.forget(connection, model)
        connection.execute(query("fleet_leave"), {"model": model.id, "shards": []})  # sums of rows that may be gone
        connection.execute(query("fleet_renew"), renewed | {"references": 0})
    elif given.sample is None:
        left = rows_of_reference.without(connection, model, [])
        rows_of_reference.drop(connection, model, left.dropped)
        engine.references_left = len(left.x)
        engine.reference_rows = max(1, (model.fleet.reference_rows if model.fleet else None) or 0)
    else:
        connection.execute(query("forget_reference"), {"model": model.id})
        sample = rows_of_reference.read(connection, model, *given.sample)
        rows_of_reference.store(connection, model, sample)
        engine.references_left = len(sample)
        engine.reference_rows = max(1, len(sample))  # an entry of the ledger counts one at least
        connection.execute(query("fleet_renew"), renewed | {"references": None})
    return given.reference


def _choose(connection: psycopg.Connection[Any], model: Model) -> tuple[Reference | None, Changes | None, int]:
    """Choose the constants from new reference rows; return both, and how many rows there are: None if too few."""
    engine = model.exact
    sample, rows = rows_of_reference.choose(connection, model)
    if sample is None:
        return None, None, rows
    engine.reference_rows = len(sample)
    labels = _classes(connection, model) if engine.terms["loss"] == "classes" else ()
    if (sample.y == sample.y[0]).all() and len(labels) < 2:  # of several classes y says nothing
        no = engine.terms["loss"] == "logistic" and sample.y[0] < 0
        what = "no row had the value that counts as yes" if no else "every row had the same target"
        model.reason = f"at the last refresh {what}: there was nothing to tell apart"
    if engine.terms["loss"] == "classes" and not labels:
        model.reason = "no class has the 5 rows that it needs"
        rows_of_reference.forget(connection, model)
        return None, None, rows
    return refer(engine.terms, sample.x, sample.y, sample.c, labels), sample, rows


def _classes(connection: psycopg.Connection[Any], model: Model) -> tuple[str, ...]:
    """Return the classes that have a place, counted among all rows that can be learned."""
    values = {"skip": not model.imputes, "weighted": bool(model.terms.get("weighted")), "least": RAREST}
    return classes.choose(Counter(dict(connection.execute(model.statement("count_classes"), values).fetchall())))
