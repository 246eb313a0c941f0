"""The constants of a fleet: chosen by questions that every shard answers with integers (pair/merged.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mempair_db.database.exact import targets
from mempair_db.errors import InvalidParameter
from mempair_db.fleet.compute import Computing, under
from mempair_db.fleet.config import Place
from mempair_db.pair import merged
from mempair_db.pair.reference import Reference
from mempair_db.worker import reference as reference_rows


class Rows(NamedTuple):
    """A shard's reference rows, which stay in the memory of the Dask worker that read them."""

    x: Any
    c: Any
    y: Any


class Where(NamedTuple):
    """A shard's model under a snapshot that is held."""

    shard: Place
    snapshot: str
    model_id: int


def read(where: Where, sample: tuple[int, int] | None) -> Rows:
    """Read a shard's reference rows: those that a salt and a threshold choose, or the ones that are left (a task)."""
    with under(*where) as (connection, model):
        if sample is None:
            rows = reference_rows.without(connection, model, [])
            x, c, y = rows.x, rows.c, rows.y
        else:
            chosen = reference_rows.read(connection, model, *sample)
            x, c, y = chosen.x, chosen.c, chosen.y
        return Rows(x, c, targets(np.asarray(y, float), model.declared["loss"]))


def answered(rows: Rows, question: str, given: Any) -> Any:
    """Answer a question about a shard's reference rows (a task)."""
    return merged.answer(question, given, rows.x, rows.c, rows.y)


def counted(rows: Rows) -> int:
    """How many there are (a task)."""
    return len(rows.x)


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
) -> Chosen:
    """Choose the constants from the reference rows of all shards, in rounds of messages of integers."""
    if terms["loss"] == "classes" or terms.get("weighted") or terms.get("class_weight"):
        raise InvalidParameter(
            "A fleet has no models of several classes, with weights or with arrays.",
            remedy="Name one class with positive, and leave weight and class_weight out.",
        )
    futures = [computing.submit(read, where.shard, where, sample) for where in places]
    pairs = list(zip(places, futures, strict=True))

    def ask(question: str, given: Any) -> list[Any]:
        asked = [computing.submit(answered, where.shard, rows, question, given) for where, rows in pairs]
        return computing.gather(asked)

    counts = computing.gather([computing.submit(counted, where.shard, rows) for where, rows in pairs])
    reference = merged.refer(
        ask,
        loss=terms["loss"],
        curves=terms["curves"],
        clip=terms["clip"],
        declared=terms["categories"],
        numbers=numbers,
    )
    return Chosen(reference, {where.shard.name: count for where, count in zip(places, counts, strict=True)})
