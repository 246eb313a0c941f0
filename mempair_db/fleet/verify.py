"""`mempair fleet verify`: a model computed anew from the tables of all shards, and compared.

    sums        a shard's own sums are those of its table, less what waits; its learned keys are those of the table
    exchange    what a shard has of the others, and the coordinator of each, are those sums
    served      what a shard serves follows from the sums of all
    constants   follow from the reference rows of all shards

Dask's tasks read ranges of blocks, each shard under one snapshot; no more is locked than by a SELECT.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mempair_db.database.exact import total as sums
from mempair_db.database.marks import Marks, each_learned, mark
from mempair_db.database.queries import query
from mempair_db.errors import ModelNotReady
from mempair_db.fleet import compute, constants, shard
from mempair_db.fleet.compute import share
from mempair_db.fleet.config import Place
from mempair_db.fleet.constants import Where
from mempair_db.fleet.exchange import Exchange
from mempair_db.offline import names
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums, nothing
from mempair_db.verify import checks, snapshot
from mempair_db.verify.checks import Check, Report
from mempair_db.verify.snapshot import Snapshot
from mempair_db.worker import reference

TRIES: Final = 3


class Part(NamedTuple):
    """What some rows of a shard's table add up to."""

    total: Sums
    marks: Marks

    def __add__(self, other: object) -> Part:
        """Return both parts together."""
        if not isinstance(other, Part):
            return NotImplemented
        return Part(self.total + other.total, self.marks + other.marks)


@dataclass
class Looked:
    """A shard in one moment: its state, its queue, and what the tasks found in its table."""

    place: Place
    taken: Snapshot
    where: Where
    learned: Any  # futures
    table: Sequence[Any]


def part_of(where: Where, part: tuple[int, int], given: Reference, salt: bytes) -> Part:
    """Add up the rows in some blocks of a shard, and mark them (a task)."""
    total = Part(nothing(given), Marks())
    for model, rows in compute.each(*where, part):
        chunk = reference.usable(model, rows)[0]
        prints = fingerprints(model.secret, chunk.x, chunk.y, chunk.c)
        added = sums(given, model.terms, chunk.x, chunk.y, chunk.c)
        total += Part(added, mark(chunk.keys, prints, salt))
    return total


def learned_of(where: Where, salt: bytes) -> Marks:
    """Mark what a shard has learned (a task)."""
    total = Marks()
    with compute.under(*where) as (connection, model):
        for keys, prints, _ in each_learned(connection, model.id):
            total += mark(keys, prints, salt)
    return total


def verify(exchange: Exchange, name: str) -> Report:
    """Verify a model over all shards. What moved meanwhile is exchanged, and looked at again."""
    for attempt in range(TRIES):
        report = _look(exchange, name)
        moving = [check for check in report.checks if check.check.endswith("exchange") and not check.fine]
        if not moving or attempt == TRIES - 1:
            break
        exchange.once(name)
    return report


def _look(exchange: Exchange, name: str) -> Report:
    model, computing = exchange.known.model(name), exchange.computing
    given, salt = model.reference, secrets.token_bytes(16)
    if given is None:
        raise ModelNotReady(f"{name} has no constants yet.", remedy="`mempair fleet sync` chooses them.")
    with ExitStack() as stack:
        looks = []
        for place in exchange.fleet.shards:
            connection = stack.enter_context(shard.looked_at(place))
            found = shard.find(connection, name)
            taken = snapshot.take(connection, found.id)
            assert taken is not None  # noqa: S101  (it was found in the same snapshot)
            where = Where(place, share(connection), found.id)
            parts = compute.parts(connection, found)
            table = [computing.submit(part_of, place, where, part, given, salt) for part in parts]
            looks.append(Looked(place, taken, where, computing.submit(learned_of, place, where, salt), table))
        results = [(computing.add(look.table), look.learned.result()) for look in looks]
        lines: list[Check] = []
        for look, (table, learned) in zip(looks, results, strict=True):
            lines += _shard(look, table, learned, given, salt)
        lines += _exchange(exchange, name, looks, model.generation)
        lines.append(_constants(exchange, looks, given))
    rows, waiting = sum(table.marks.rows for table, _ in results), sum(len(k.taken.waiting.changes) for k in looks)
    return Report(name, "exact", rows, waiting, lines)


def _shard(look: Looked, table: Part, learned: Marks, given: Reference, salt: bytes) -> Iterator[Check]:
    name, taken = look.place.name, look.taken
    engine, waiting = taken.model.exact, taken.waiting
    if engine.reference is None or engine.sums is None or engine.reference.to_bytes() != given.to_bytes():
        yield Check(f"{name}: constants", False, "are not those of the fleet; `mempair fleet sync` brings it up")
        return
    if waiting.plan.mismatch:
        yield Check(f"{name}: queue", False, f"{waiting.plan.mismatch}; a retrain will serve it")
    begun = nothing(given) if waiting.truncated else engine.sums
    delta = begun + waiting.sums(engine) - table.total
    wrong = names.difference(delta, names.of_sums(given, *taken.features))
    fine = f"are those of its {table.marks.rows} rows, bit for bit"
    yield Check(f"{name}: sums", not wrong, f"stored less computed: {wrong}" if wrong else fine)
    has = (Marks() if waiting.truncated else learned) + waiting.marks(salt)
    same = has == table.marks
    detail = (
        "keys and fingerprints are those of the rows" if same else "are not those of the rows: `mempair verify` there"
    )
    yield Check(f"{name}: learned", same, detail)
    served = checks.served(taken)
    yield Check(f"{name}: served", served.fine, served.detail)


def _exchange(exchange: Exchange, name: str, looks: Sequence[Looked], generation: int) -> Iterator[Check]:
    """Compare the copies of every shard's sums with the sums themselves, byte by byte."""
    own = {look.place.name: _packed(look) for look in looks}
    for look in looks:
        values = {"model": look.taken.model.id, "generation": generation}
        parts = dict(look.taken.connection.execute(query("fleet_parts"), values, binary=True).fetchall())
        yield _copies(f"{look.place.name}: exchange", {k: v for k, v in own.items() if k != look.place.name}, parts)
    known = {k: v.sums for k, v in exchange.known.shards(name).items() if v.generation == generation}
    yield _copies("coordinator: exchange", own, known)


def _packed(look: Looked) -> bytes | None:
    total = look.taken.model.exact.sums
    return None if total is None else total.to_bytes()


def _copies(check: str, own: dict[str, bytes | None], has: dict[str, bytes | None]) -> Check:
    other = [name for name in own if has.get(name) != own[name]] + [name for name in has if name not in own]
    if other:
        return Check(check, False, f"other sums than the shards themselves have: {', '.join(sorted(other))}")
    return Check(check, True, f"has the sums of {len(own)} shards as they are")


def _constants(exchange: Exchange, looks: Sequence[Looked], given: Reference) -> Check:
    first = looks[0].taken.model
    places = [look.where for look in looks]
    chosen = constants.choose(exchange.computing, places, first.terms, len(first.numbers), None, given.labels)
    there, stored = sum(chosen.references.values()), sum(len(look.taken.references) for look in looks)
    same = chosen.reference.to_bytes() == given.to_bytes()
    how = "follow" if same else "do not follow"
    gone = f"; {stored - there} others are on their way out, or not as they were" if stored > there else ""
    return Check("constants", same, f"{how} from the {there} reference rows of all shards{gone}")
