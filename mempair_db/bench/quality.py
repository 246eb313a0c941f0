"""`mempair bench quality`: how good an exact model is, beside models that cannot forget.

Shuffled, a fifth held out (or the set's own test rows), all on the encoding that the exact pair chose:

    exact                  sums of integers and one Newton step (EXACT.md); numbers bend unless there are many
    straight               the same without bends, `curves => 0`
    logistic regression    scikit-learn's, converged; C = 1
    anchored               the certified pair with λ = 0.01, before any deletion
    boosting               scikit-learn's histogram gradient boosting, on the raw rows

Then 1, 100 and a tenth of the rows are deleted, reference rows among them, so that constants change and the pair
refreshes itself; its constants and sums are compared with those computed from the rows that are left.

In order, as tables really grow: the file's order, sorted by the number that tells most about the label, sorted by the
first text. Rows come in batches; each is predicted before it is learned:

    exact      refreshes itself by its own rules
    straight   the same without bends
    refit      a converged logistic regression on all rows so far, for every batch anew
    river      StandardScaler and OneHotEncoder before LogisticRegression, row by row

Small and rough tables are in `rough`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import InvalidParameter
from ..pair import events, exact, sums
from ..pair.calibration import Parameters
from ..pair.encode import UNIT, Matrix, Vector, curves_for
from ..pair.exact_model import ExactPair
from ..pair.reference import Reference
from ..pair.rows import sample
from ..pair.state import empty
from . import data, rough
from .report import Result, extra, goal, machine

BATCHES: Final = 25
MOST_ORDERED: Final = 3_000_000  # numbers of a set that is streamed: a refit for every batch takes its time
MOST: Final = 50_000_000
SHUFFLED_GOAL: Final = 0.002
ORDER_GOAL: Final = 0.01
ENOUGH: Final = 10_000
LAM: Final = 0.01


def run(*, folder: Path | None = None, quick: bool = False, only: str | None = None) -> Result:
    """Measure every set, or one; `quick` only shows that it works."""
    at = machine()
    there = data.names(folder)
    names = [name for name in there if only in (None, name)][: 1 if quick else None]
    if not names:
        raise InvalidParameter(f"there is no set {only!r}.", remedy=f"Choose one of {', '.join(there)}.")
    sets = [data.load(name, folder) for name in names]
    shuffled, deleted = [], []
    for rows in sets:
        learned = _Learned.of(rows, quick=quick)
        shuffled += learned.beside_others()
        deleted += learned.after_deletions()
    ordered = [row for rows in sets for row in _in_order(rows, quick=quick)]
    return {
        "bench": "quality",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": "Shuffled; held-out rows", "rows": shuffled},
            {"title": "After deletions; held-out rows", "rows": deleted},
            {
                "title": "Small and rough tables, log loss; scikit-learn's logistic regression by its C",
                "rows": [row for rows in sets if not rows.image for row in rough.table(rows)]
                if not quick
                else rough.table(sets[0], (100,)),
            },
            {"title": f"In order, {BATCHES} batches, each predicted before it is learned", "rows": ordered},
        ],
        "goals": [*_shuffled_goals(shuffled), *_deletion_goals(deleted), *_order_goals(ordered)],
        "notes": [],
    }


def _shuffled_goals(table: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    losses = {(row["set"], row["model"]): row["log loss"] for row in table}
    for row in table:
        if row["model"] == "exact" and row["rows"] >= ENOUGH:
            behind = row["log loss"] - losses[row["set"], "logistic regression"]
            yield goal(f"{row['set']}: within .002 of converged logistic regression", behind, most=SHUFFLED_GOAL)


def _deletion_goals(table: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in table:
        yield goal(
            f"{row['set']}: {row['deleted']} deleted, constants and sums are those of the rows left",
            float(row["same bytes"]),
            least=1.0,
        )


def _order_goals(table: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in table:
        behind = row["exact"] - min(row["refit"], row["river"])
        yield goal(
            f"{row['set']}, {row['order']}: within .01 of the better of refit and river", behind, most=ORDER_GOAL
        )


# ---- Shuffled, and after deletions. ----


@dataclass(frozen=True)
class _Learned:
    """A set that an exact model has learned, and the rows held out."""

    train: data.Rows
    test: data.Rows
    reference: Reference
    total: sums.Sums

    @classmethod
    def of(cls, rows: data.Rows, *, quick: bool) -> _Learned:
        train, test = _mixed(rows).split()
        train = train.take(np.arange(min(len(train), 300 if quick else MOST // train.x.shape[1])))
        reference = refer(train)
        return cls(train, test, reference, exact.sums(reference, train.x, train.y, train.c))

    def encoded(self, rows: data.Rows) -> Matrix:
        """Encode as the exact pair does."""
        return np.ascontiguousarray(self.reference.encoding.encode(rows.x, rows.c)[0]) / UNIT

    def beside_others(self) -> list[dict[str, Any]]:
        """Return one row for each model."""
        return [
            {
                "set": self.train.name,
                "rows": len(self.train),
                "d": self.reference.d,
                "model": model,
                **scores(self.test.y, p),
            }
            for model, p in self._predictions()
        ]

    def _predictions(self) -> Iterator[tuple[str, Vector]]:
        yield "exact", self._served(self.total)
        train, straight = self.train, refer(self.train, 0)
        w = exact.solve(straight, exact.sums(straight, train.x, train.y, train.c))
        yield "straight", exact.predict(straight, w, self.test.x, self.test.c)[:, 0]
        y, encode = train.y > 0, straight.encoding.encode
        X, X_test = (np.ascontiguousarray(encode(rows.x, rows.c)[0]) / UNIT for rows in (train, self.test))
        yield "logistic regression", converged(X, y).predict_proba(X_test)[:, 1]
        stream = data.encode(self.train, Parameters(lam=LAM))
        state = empty(stream.epoch.d, stream.parameters.tau)
        events.learn(state, stream.epoch.constants, stream.X, stream.y)
        yield "anchored", sigmoid(stream.epoch.encoding.encode(self.test.x, self.test.c) @ state.theta)
        ensemble = extra("sklearn.ensemble").HistGradientBoostingClassifier(random_state=0)
        yield "boosting", ensemble.fit(_raw(self.train, self.train), y).predict_proba(_raw(self.test, self.train))[:, 1]

    def after_deletions(self) -> list[dict[str, Any]]:
        """Delete more and more rows, one batch after the other."""
        found, n = [], len(self.train)
        order = np.random.default_rng(1).permutation(n)
        gone, left = 0, self.train
        pair = ExactPair(gamma=1e9, calibration_rows=1, rows=lambda: (left.x, left.y, left.c))
        pair.learn_many(left.x, left.y, left.c)
        before = pair.predict_many(self.test.x, self.test.c)
        for many in sorted({0, 1, min(100, n // 20), n // 10}):
            batch, constants = self.train.take(order[gone:many]), pair.reference
            gone, left = many, self.train.take(order[many:])
            pair.unlearn_many(batch.x, batch.y, batch.c)
            now, X = pair.predict_many(self.test.x, self.test.c), self.encoded(left)
            found.append(
                {
                    "set": self.train.name,
                    "deleted": many,
                    **scores(self.test.y, now),
                    "refit": scores(self.test.y, converged(X, left.y > 0).predict_proba(self.encoded(self.test))[:, 1])[
                        "log loss"
                    ],
                    "largest move": float(np.abs(now - before).max()),
                    "rank correlation": _rank_correlation(now, before),
                    "refreshed": pair.reference is not constants,
                    "same bytes": pair.verify(left.x, left.y, left.c),
                }
            )
        return found

    def _served(self, total: sums.Sums) -> Vector:
        w = exact.solve(self.reference, total)
        return exact.predict(self.reference, w, self.test.x, self.test.c)[:, 0]


def refer(rows: data.Rows, curves: int | None = None) -> Reference:
    """Choose the reference as a refresh does."""
    labels = (rows.y > 0).astype(float)  # as the pair hashes them, so that it chooses the same rows
    chosen = rows.take(sample(rows.x, labels, rows.c, exact.REFERENCE_ROWS))
    knots = curves_for(rows.x.shape[1]) if curves is None else curves
    return exact.refer(chosen.x, chosen.y, chosen.c, curves=knots)


def converged(X: Matrix, y: npt.NDArray[np.bool_]) -> Any:
    """Fit logistic regression until it stands still; the intercept is a column of X."""
    return extra("sklearn.linear_model").LogisticRegression(C=1.0, fit_intercept=False, max_iter=3_000).fit(X, y)


def sigmoid(z: Vector) -> Vector:
    """Return probabilities."""
    return np.exp(-np.logaddexp(0.0, -z))


def scores(y: Vector, p: Vector) -> dict[str, float]:
    """Return log loss, accuracy and area under the curve."""
    metrics = extra("sklearn.metrics")
    yes = y > 0
    p = np.clip(p, 1e-12, 1.0 - 1e-12)
    auc = float(metrics.roc_auc_score(yes, p)) if 0 < yes.mean() < 1 else 0.5
    loss = float(metrics.log_loss(yes, p, labels=[False, True]))
    return {"log loss": loss, "accuracy": float(((p > 0.5) == yes).mean()), "AUC": auc}


def _mixed(rows: data.Rows) -> data.Rows:
    """Shuffle a time-ordered set too: here the question is how well a model fits."""
    return rows.take(np.random.default_rng(0).permutation(len(rows)))


def _raw(rows: data.Rows, train: data.Rows) -> Matrix:
    """Return numbers, and texts as the numbers of their levels."""
    columns = [rows.x]
    for k in range(len(train.c[0]) if train.c else 0):
        levels = {value: i for i, value in enumerate(sorted({row[k] for row in train.c}))}
        columns.append(np.array([[levels.get(row[k], -1)] for row in rows.c], float))
    return np.hstack(columns)


def _rank_correlation(a: Vector, b: Vector) -> float:
    ranks = np.array([np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (a, b)])
    return float(np.corrcoef(ranks)[0, 1])


# ---- In order. ----


def orders(rows: data.Rows) -> dict[str, data.Rows]:
    """Return the rows as they lie in the file, by their most telling number, and by their first text."""
    found = {"file": rows, "by number": rows.take(np.argsort(rows.x[:, _most_telling(rows)], kind="stable"))}
    if rows.c:
        found["by text"] = rows.take(np.argsort(np.array([texts[0] for texts in rows.c]), kind="stable"))
    return found


def _most_telling(rows: data.Rows) -> int:
    deviation = rows.x.std(axis=0)
    centred = rows.x - rows.x.mean(axis=0)
    told = np.abs((centred * (rows.y - rows.y.mean())[:, None]).mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return int(np.where(deviation > 0, told, 0.0).argmax())


def _in_order(rows: data.Rows, *, quick: bool) -> Iterator[dict[str, Any]]:
    for order, there in orders(rows).items():
        most = 300 if quick else MOST_ORDERED // rows.x.shape[1]
        step = max(1, -(-len(there) // most))
        some = there.take(np.arange(0, len(there), step))  # every so-manieth: the order stays what it is
        y = some.y[len(some) // BATCHES :]
        served, refreshes = stream_exact(some)
        straight, _ = stream_exact(some, 0)
        by = {"exact": served, "straight": straight, "refit": stream_refit(some), "river": stream_river(some)}
        each = {name: scores(y, p) for name, p in by.items()}
        yield {
            "set": rows.name,
            "order": order,
            "rows": len(some),
            **{name: one["log loss"] for name, one in each.items()},
            **{f"AUC, {name}": one["AUC"] for name, one in each.items()},
            "base rate": scores(y, _base_rate(some))["log loss"],
            "refreshes": refreshes,
        }


def batches(rows: data.Rows) -> Iterator[tuple[data.Rows, data.Rows]]:
    """Yield the rows so far, and the next batch."""
    size = len(rows) // BATCHES
    for begin in range(size, len(rows), size):
        yield rows.take(np.arange(begin)), rows.take(np.arange(begin, min(begin + size, len(rows))))


def stream_exact(rows: data.Rows, curves: int | None = None) -> tuple[Vector, int]:
    """Return what an exact pair served before it learned each batch, and how often it refreshed."""
    there: list[data.Rows] = []
    all_rows = lambda: (there[0].x, there[0].y, there[0].c)  # noqa: E731
    pair = ExactPair(gamma=1e9, calibration_rows=1, curves=curves, rows=all_rows)
    served, refreshes, last = [], 0, None
    for past, batch in batches(rows):
        there = [past]
        new = past if last is None else last
        pair.learn_many(new.x, new.y, new.c)
        refreshes += pair.rows_then == len(past)
        served.append(pair.predict_many(batch.x, batch.c))
        last = batch
    return np.concatenate(served), refreshes


def stream_refit(rows: data.Rows) -> Vector:
    """Return what a logistic regression said that was refitted before each batch."""
    served = []
    for past, batch in batches(rows):
        encoding = refer(past, 0).encoding
        X, next_X = (np.ascontiguousarray(encoding.encode(part.x, part.c)[0]) / UNIT for part in (past, batch))
        yes = past.y > 0
        both = 0 < yes.mean() < 1
        served.append(converged(X, yes).predict_proba(next_X)[:, 1] if both else np.full(len(batch), yes.mean()))
    return np.concatenate(served)


def stream_river(rows: data.Rows) -> Vector:
    """Return what river said, row by row within each batch but the first."""
    compose, preprocessing, linear = (extra(f"river.{name}") for name in ("compose", "preprocessing", "linear_model"))
    numbers = compose.Select(*(f"x{j}" for j in range(rows.x.shape[1]))) | preprocessing.StandardScaler()
    texts = compose.Select(*(f"c{k}" for k in range(len(rows.c[0]) if rows.c else 0))) | preprocessing.OneHotEncoder()
    model = ((numbers + texts) if rows.c else numbers) | linear.LogisticRegression()
    served, size = np.empty(len(rows)), len(rows) // BATCHES
    dicts = [{f"x{j}": value for j, value in enumerate(row)} for row in rows.x.tolist()]
    for row, some in zip(dicts, rows.c, strict=False):
        row.update({f"c{k}": value for k, value in enumerate(some)})
    for begin in range(0, len(rows), size):
        part = range(begin, min(begin + size, len(rows)))
        served[part.start : part.stop] = [model.predict_proba_one(dicts[i]).get(True, 0.5) for i in part]
        for i in part:
            model.learn_one(dicts[i], bool(rows.y[i] > 0))
    return served[size:]


def _base_rate(rows: data.Rows) -> Vector:
    return np.concatenate([np.full(len(batch), (past.y > 0).mean()) for past, batch in batches(rows)])
