"""Progressive evaluation: rows are predicted before they are learned, and counted by their loss."""

from __future__ import annotations

from typing import Any

import psycopg

from mempair_db.database.exact import learnable
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.pair import progressive
from mempair_db.worker.changes import Changes
from mempair_db.worker.plan import Plan


def before_learning(connection: psycopg.Connection[Any], model: Model, changes: Changes, reduced: Plan) -> None:
    """Count how well the new rows of a batch are predicted by what was learned before them.

    Only rows that are new: one that is updated often would count as often, and its noise would wear off.
    """
    if not model.exact.ready:
        return
    replaced = {changes.keys[i] for i in reduced.unlearn}
    new = [i for i in reduced.learn if changes.keys[i] not in replaced] if replaced else list(reduced.learn)
    if new:
        looked_at = changes.take([new[i] for i in progressive.some(len(new)).tolist()])
        _count(connection, model, looked_at, "progressive")


def at_refresh(connection: psycopg.Connection[Any], model: Model, sample: Changes) -> None:
    """Count how well the reference rows are predicted by the new model: what later rows are compared with."""
    connection.execute(query("forget_refresh_losses"), {"model": model.id, "unit": _unit(model)})
    if model.exact.rows:
        _count(connection, model, sample, "refresh")


def _count(connection: psycopg.Connection[Any], model: Model, rows: Changes, kind: str) -> None:
    engine = model.exact
    assert engine.reference is not None  # noqa: S101  (there is something to predict with)
    found = learnable(engine.terms, rows.x, rows.y, rows.c, engine.reference.labels)
    counts = progressive.counts(progressive.losses(engine.reference, engine.weights(), found.x, found.y, found.c))
    values = {"model": model.id, "kind": kind, "epoch": model.epoch, "counts": counts.tolist()}
    if connection.execute(query("add_losses"), values).rowcount == 0:
        values["counts"] = (counts + progressive.noise()).tolist()
        connection.execute(query("begin_losses"), values | {"unit": _unit(model)})


def _unit(model: Model) -> float:
    """What a loss of 1 is."""
    reference = model.exact.reference
    assert reference is not None  # noqa: S101  (there is something to predict with)
    return reference.encoding.target.scale if reference.regression else 1.0
