"""The exact pair's part of `mempair bench core`. What is timed, per row and per call:

learn           `exact.sums` over a whole array of raw rows: encoding and adding up
X.T @ X         the bare product of the same rows
learn_one       `ExactPair.learn_one`, and all that is put off until a batch is full
unlearn_one     the same for `ExactPair.unlearn_one`, where the constants do not change
deletion        one row's sums subtracted, the model solved and folded for SQL
sklearn array   `SGDClassifier.partial_fit` on the whole array
river           `LogisticRegression.learn_one` on dicts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ..pair import exact, serve
from ..pair.encode import Matrix, Vector
from ..pair.exact_model import ExactPair
from .report import Contestant, goal, side_by_side, timed

MICRO: Final = 1e6
MILLI: Final = 1e3
ARRAY_GOAL: Final = 1.5  # × scikit-learn's pass, d = 10 and 100
PRODUCT_GOAL: Final = 2.0  # × X.T @ X, d = 784
DELETION_GOAL: Final = 1.0  # ms, d = 100


def times(rows: tuple[Matrix, Vector], peers: Mapping[str, Contestant], repeats: int, *, quick: bool) -> dict[str, Any]:
    """Measure one dimension, in turns with the peers."""
    x, y = rows[0], (rows[1] > 0).astype(float)
    d = x.shape[1]
    reference = exact.refer(x[: 100 if quick else 1000], y[: 100 if quick else 1000])
    total = exact.sums(reference, x, y)
    pair = _pair(x, y, 300 if quick else exact.REFERENCE_ROWS + 2_000)
    calls = 20 if quick else 2_048

    def delete() -> None:
        left = total - exact.sums(reference, x[:1], y[:1])
        serve.fold(reference, exact.solve(reference, left)[0])

    contestants = {
        "learn": timed(len(x), lambda: exact.sums(reference, x, y)),
        "X.T @ X": timed(len(x), lambda: x.T @ x),
        "learn_one": timed(calls, _each(pair, pair.learn_one, x, y, calls)),
        "unlearn_one": timed(calls, _each(pair, pair.unlearn_one, x, y, calls)),
        "deletion": timed(1, delete),
        **peers,
    }
    seconds = side_by_side(contestants, repeats)
    return {
        "d": d,
        "rows": len(x),
        **{name: seconds[name] * MICRO for name in contestants if name != "deletion"},
        "ms per deletion": seconds["deletion"] * MILLI,
        "learn/array": seconds["learn"] / seconds["sklearn array"],
        "learn/product": seconds["learn"] / seconds["X.T @ X"],
        "learn_one/river": seconds["learn_one"] / seconds["river"],
        "unlearn_one/river": seconds["unlearn_one"] / seconds["river"],
    }


def goals(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Say what was to be reached."""
    by_d = {row["d"]: row for row in table}
    return [
        *(
            goal(f"exact: learn within 1.5 × of sklearn array, d = {d}", by_d[d]["learn/array"], most=ARRAY_GOAL)
            for d in (10, 100)
        ),
        goal("exact: learn within 2 × of X.T @ X, d = 784", by_d[784]["learn/product"], most=PRODUCT_GOAL),
        goal("exact: a deletion within 1 ms, d = 100", by_d[100]["ms per deletion"], most=DELETION_GOAL),
        *(
            goal(f"exact: {call} within river's time, d = {d}", by_d[d][f"{call}/river"], most=1.0)
            for call in ("learn_one", "unlearn_one")
            for d in by_d
        ),
    ]


def _pair(x: Matrix, y: Vector, count: int) -> ExactPair:
    """Return a pair with more rows than it keeps, none of those that are learned and unlearned below among them."""
    pair = ExactPair(calibration_rows=200)
    others = np.resize(x[::-1], (count, x.shape[1])) + 0.125
    pair.learn_many(others, np.resize(y[::-1], len(others)))
    return pair


def _each(
    pair: ExactPair, act: Callable[[Vector, float], None], x: Matrix, y: Vector, calls: int
) -> Callable[[], object]:
    rows = [(x[i % len(x)], float(y[i % len(x)])) for i in range(calls)]

    def work() -> None:
        for row, target in rows:
            act(row, target)
        pair.flush()

    return work
