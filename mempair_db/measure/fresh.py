"""How good a model is now, beside one computed anew from the same rows: what a history of deletions has cost."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from mempair_db.database.exact import learnable, refer, total
from mempair_db.measure import equalities, replay
from mempair_db.offline import script
from mempair_db.offline.folder import Offline
from mempair_db.pair import exact
from mempair_db.pair.encode import Matrix, Vector
from mempair_db.pair.exact import REFERENCE_ROWS
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums


@dataclass(frozen=True)
class Beside:
    """One figure of both, on the rows that are there."""

    metric: str
    rows: int
    now: float
    retrained: float


def beside(model: Offline) -> Beside | None:
    """Judge the model and a fresh retrain on the rows of the export; None where there is nothing to judge."""
    if not (model.has_rows and model.row["ready"] and model.row["constants"]):
        return None
    return _exact(model) if model.exact else _certified(model)


def _certified(model: Offline) -> Beside:
    now, retrained = (replay.quality(model, pair) for pair in (model.live(), replay.ideal(model)))
    metric = "accuracy" if "accuracy" in now else "rmse"
    return Beside(metric, int(retrained["rows"]), float(now[metric]), float(retrained[metric]))


def _exact(model: Offline) -> Beside | None:
    """A fresh retrain chooses its constants from a new sample of all rows."""
    row, terms = model.row, script.terms(model.row)
    chunks = [chunk for chunk, _ in equalities.usable_rows(model)]
    if not sum(map(len, chunks)):
        return None
    x, y = np.concatenate([c.x for c in chunks]), np.concatenate([c.y for c in chunks])
    texts = [values for chunk in chunks for values in chunk.c]
    old = Reference.from_json(json.loads(row["constants"]))
    every = max(1, len(x) // REFERENCE_ROWS)
    new = refer(terms, x[::every], y[::every], texts[::every], old.labels)
    stored = Sums.from_bytes(row["sums"], *old.shape)
    rows = learnable(terms, x, y, texts, old.labels)
    figures = [
        _fit(exact.predict(reference, exact.solve(reference, sums, terms["ridge"]), rows.x, rows.c), rows.y, reference)
        for reference, sums in ((old, stored), (new, total(new, terms, x, y, texts)))
    ]
    return Beside("R²" if old.regression else "accuracy", len(x), *figures)


def _fit(served: Matrix, y: Vector, reference: Reference) -> float:
    if reference.regression:
        return float(1.0 - ((y - served[:, 0]) ** 2).mean() / max(y.var(), 1e-300))
    if reference.labels:
        return float((served.argmax(axis=1) == y).mean())
    return float(((served[:, 0] >= 0.5) == (y > 0.5)).mean())
