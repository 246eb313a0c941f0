"""The exact pair's part of `mempair bench core`. What is timed, per row and per call:

learn           `exact.sums` over a whole array of raw rows: encoding and adding up
X.T @ X         the bare product of the same rows
learn_one       `ExactPair.learn_one` on numpy's rows or on dicts, and all that is put off until a batch is full
unlearn_one     the same for `ExactPair.unlearn_one`, where the constants do not change
deletion        one row's sums subtracted, the model solved and folded for SQL
sklearn array   `SGDClassifier.partial_fit` on the whole array
river           `LogisticRegression.learn_one` on dicts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
CALLS: Final = ("learn_one", "unlearn_one", "learn_one, dict", "unlearn_one, dict")


def times(rows: tuple[Matrix, Vector], peers: Mapping[str, Contestant], repeats: int, *, quick: bool) -> dict[str, Any]:
    """Measure one dimension, in turns with the peers."""
    x, y = rows[0], (rows[1] > 0).astype(float)
    d = x.shape[1]
    reference = exact.refer(x[: 100 if quick else 1000], y[: 100 if quick else 1000])
    total = exact.sums(reference, x, y)
    calls = 20 if quick else 2_048

    def delete() -> None:
        left = total - exact.sums(reference, x[:1], y[:1])
        serve.fold(reference, exact.solve(reference, left)[0])

    contestants = {
        "learn": timed(len(x), lambda: exact.sums(reference, x, y)),
        "X.T @ X": timed(len(x), lambda: x.T @ x),
        **_calls(x, y, calls, learned=300 if quick else exact.REFERENCE_ROWS + 2_000),
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
        **{f"{call}/river": seconds[call] / seconds["river"] for call in CALLS},
    }


def tables(measured: list[dict[str, Any]], repeats: int) -> list[dict[str, Any]]:
    """Return one table for rows by the array, and one for a row a call."""
    single = ("d", *CALLS, "river", *(f"{call}/river" for call in CALLS))
    others = [name for name in measured[0] if name == "d" or name not in single]
    return [
        {
            "title": f"The exact pair: microseconds per row, medians of {repeats}",
            "rows": _part(measured, others),
        },
        {"title": "The exact pair, a row a call: microseconds", "rows": _part(measured, single)},
    ]


def _part(measured: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in measured]


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
            for call in CALLS
            for d in by_d
        ),
    ]


def _calls(x: Matrix, y: Vector, calls: int, learned: int) -> dict[str, Contestant]:
    """Learn and unlearn rows one by one, in pairs that have learned others, and more than a pair keeps."""
    others = np.resize(x[::-1], (learned, x.shape[1])) + 0.125
    places = [i % len(x) for i in range(calls)]
    labels = [float(y[i]) for i in places]
    found = {}
    for kind, rows in (("", [x[i] for i in places]), (", dict", [_dict(x[i]) for i in places])):
        pair = ExactPair(calibration_rows=200)
        pair.learn_many([_dict(row) for row in others] if kind else others, np.resize(y[::-1], learned))
        for act in (pair.learn_one, pair.unlearn_one):
            found[act.__name__ + kind] = timed(calls, _each(pair, act, list(zip(rows, labels, strict=True))))
    return found


def _dict(row: Vector) -> dict[str, float]:
    return {f"x{j}": value for j, value in enumerate(row.tolist())}


def _each(pair: ExactPair, act: Callable[..., None], rows: list[tuple[Any, float]]) -> Callable[[], object]:
    def work() -> None:
        for row, target in rows:
            act(row, target)
        pair.flush()

    return work
