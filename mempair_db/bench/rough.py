"""Small and rough tables for `mempair bench quality`: few rows, a rare yes, absurd numbers, gaps, many levels, time.

plain          as they are
rare yes       1.5 % of the rows
absurd         1 % of the numbers a million times too large
gaps           a fifth of the numbers missing
many levels    a text beside them that tells nothing and has a level for every ten rows
clock          a time stamp beside them; the rows to predict come later
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ..pair import exact
from ..pair.encode import UNIT, Matrix, Vector, curves_for
from ..pair.reference import Reference
from . import data
from .report import extra

SIZES: Final = (200, 1_000, 4_000)
HELD_OUT: Final = 4_000
SEEDS: Final = 3


def table(rows: data.Rows, sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """Return the mean log loss on later rows for every size and every kind of trouble."""
    found = []
    for size in sizes:
        if 2 * size > len(rows):
            continue
        tries = [_try(rows, size, np.random.default_rng(seed)) for seed in range(SEEDS)]
        for kind in tries[0]:
            each = [one[kind] for one in tries]
            means = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
            found.append({"set": rows.name, "rows": size, "table": kind, **means})
    return found


def _try(rows: data.Rows, size: int, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    return {kind: _losses(some, size) for kind, some in _tables(rows, min(len(rows), size + HELD_OUT), rng)}


def _tables(rows: data.Rows, count: int, rng: np.random.Generator) -> Iterator[tuple[str, data.Rows]]:
    order = rng.permutation(len(rows))
    some = rows.take(order[:count])
    x = some.x
    yield "plain", some
    yes, no = order[rows.y[order] > 0], order[rows.y[order] <= 0]
    rare = max(6, count * 15 // 1000)
    yield "rare yes", rows.take(rng.permutation(np.concatenate([yes[:rare], no[: count - rare]])))
    yield "absurd", replace(some, x=np.where(rng.random(x.shape) < 0.01, x * 1e6, x))
    yield "gaps", replace(some, x=np.where(rng.random(x.shape) < 0.2, np.nan, x))
    levels = rng.integers(0, max(50, count // 10), len(some))
    texts = some.c or [()] * len(some)
    yield "many levels", replace(some, c=[(*row, str(level)) for row, level in zip(texts, levels, strict=True)])
    yield "clock", replace(some, x=np.column_stack([x, 1.6e9 + 1e3 * np.arange(len(some))]))


def _losses(rows: data.Rows, size: int) -> dict[str, float]:
    train, test = rows.take(np.arange(size)), rows.take(np.arange(size, len(rows)))
    reference, straight = _served(train, test, 0)
    X, X_test = (reference.encoding.encode(part.x, part.c)[0][:, 1:] / UNIT for part in (train, test))
    return {
        "exact": _loss(test.y, _served(train, test, curves_for(train.x.shape[1]))[1]),
        "straight": _loss(test.y, straight),
        "C = 1": _loss(test.y, _fitted(X, train.y, X_test, 1.0)),
        "C = 0.1": _loss(test.y, _fitted(X, train.y, X_test, 0.1)),
        "base rate": _loss(test.y, np.full(len(test), (train.y > 0).mean())),
    }


def _served(train: data.Rows, test: data.Rows, curves: int) -> tuple[Reference, Vector]:
    reference = exact.refer(train.x, train.y, train.c, curves=curves)
    w = exact.solve(reference, exact.sums(reference, train.x, train.y, train.c))
    return reference, exact.predict(reference, w, test.x, test.c)[:, 0]


def _fitted(X: Matrix, y: Vector, X_test: Matrix, C: float) -> Vector:
    yes = y > 0
    if yes.all() or not yes.any():
        return np.full(len(X_test), yes.mean())
    model = extra("sklearn.linear_model").LogisticRegression(C=C, max_iter=3_000).fit(X, yes)
    return np.asarray(model.predict_proba(X_test)[:, 1])


def _loss(y: Vector, p: Vector) -> float:
    p = np.clip(p, 1e-6, 1.0 - 1e-6)
    return float(-np.log(np.where(y > 0, p, 1.0 - p)).mean())
