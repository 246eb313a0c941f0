"""The constants of a fleet: chosen by questions that every shard answers with integers (pair/merged.py)."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mempair_db.database.exact import learnable, times
from mempair_db.errors import MempairError
from mempair_db.fleet.compute import Computing, under
from mempair_db.fleet.config import Place
from mempair_db.pair import classes, merged
from mempair_db.pair.encode import RAREST
from mempair_db.pair.payload import Learnable
from mempair_db.pair.reference import Reference
from mempair_db.worker import reference as reference_rows

Labels = tuple[str, ...]


class TooFew(MempairError):
    """The fleet has too few rows to choose constants from."""


class Where(NamedTuple):
    """A shard's model under a snapshot that is held."""

    shard: Place
    snapshot: str
    model_id: int


def read(where: Where, sample: tuple[int, int] | None, labels: Labels) -> Learnable:
    """Read a shard's reference rows: those that a salt and a threshold choose, or the ones that are left (a task).

    They stay in the memory of the Dask worker that read them.
    """
    with under(*where) as (connection, model):
        if sample is None:
            left = reference_rows.without(connection, model, [])
            return learnable(model.terms, left.x, left.y, left.c, labels)
        model.promise = None  # new constants are for what is declared now
        chosen = reference_rows.read(connection, model, *sample)
        return learnable(model.terms, chosen.x, chosen.y, chosen.c, labels)


def answered(rows: Learnable, question: str, given: Any) -> Any:
    """Answer a question about a shard's reference rows (a task)."""
    return merged.answer(question, given, rows)


def counted(rows: Learnable) -> int:
    """How many there are (a task)."""
    return len(rows.x)


def classes_of(where: Where, salt: bytes, wanted: set[bytes] | None) -> dict[bytes, Any]:
    """Count a shard's rows of each class under a keyed hash of its name; or name those that are wanted (a task)."""
    with under(*where) as (connection, model):
        model.promise = None
        values = {"skip": not model.imputes, "weighted": bool(model.terms.get("weighted")), "least": 1}
        found = dict(connection.execute(model.statement("count_classes"), values).fetchall())
    if wanted is None:
        return {merged.hashed(salt, label): count for label, count in found.items()}
    return {h: label for label in found if (h := merged.hashed(salt, label)) in wanted}


def labels_of(computing: Computing, places: Sequence[Where]) -> Labels:
    """Choose the classes that have a place, by their rows on all shards together."""
    salt, counts, names = secrets.token_bytes(16), Counter[bytes](), dict[bytes, str]()

    def ask(wanted: set[bytes] | None) -> list[dict[bytes, Any]]:
        return computing.gather([computing.submit(classes_of, where.shard, where, salt, wanted) for where in places])

    for found in ask(None):
        counts.update(found)
    for known in ask({h for h, count in counts.items() if count >= RAREST}):
        names.update(known)
    labels = classes.choose(Counter({label: counts[h] for h, label in names.items()}))
    if not labels:
        raise TooFew("No class has the 5 rows, on all shards together, that it needs.")
    return labels


class Chosen(NamedTuple):
    """Constants, and how many reference rows every shard had."""

    reference: Reference
    references: dict[str, int]


def choose(
    computing: Computing,
    places: Sequence[Where],
    terms: Mapping[str, Any],
    numbers: int,
    sample: tuple[int, int] | None,
    labels: Labels,
) -> Chosen:
    """Choose the constants from the reference rows of all shards, in rounds of messages of integers."""
    futures = [computing.submit(read, where.shard, where, sample, labels) for where in places]
    pairs = list(zip(places, futures, strict=True))

    def ask(question: str, given: Any) -> list[Any]:
        asked = [computing.submit(answered, where.shard, rows, question, given) for where, rows in pairs]
        return computing.gather(asked)

    counts = computing.gather([computing.submit(counted, where.shard, rows) for where, rows in pairs])
    reference = refer(ask, terms, numbers, labels)
    return Chosen(reference, {where.shard.name: count for where, count in zip(places, counts, strict=True)})


def refer(
    ask: Callable[[str, Any], Sequence[Any]], terms: Mapping[str, Any], numbers: int, labels: Labels
) -> Reference:
    """Choose a model's constants by questions to all parts of its reference rows."""
    return merged.refer(
        ask,
        loss=terms["loss"],
        labels=labels,
        weighted=bool(terms.get("weighted")),
        balance=terms.get("class_weight") == "balanced",
        curves=terms["curves"],
        times=times(terms),
        clip=terms["clip"],
        declared=terms["categories"],
        ridge=terms["ridge"],
        numbers=numbers,
    )
