"""`ExactPair`: learn by adding, unlearn by subtracting; after any history the state is the one of the rows left.

It adds to the arithmetic of `exact` what a user needs: rows as they come, a first calibration, the reference rows, and
refreshes. It keeps the reference rows (EXACT.md, 3), and as long as there are at most 10,000 rows, all of
them: then it refreshes itself. Later it asks `rows`, a function that returns all rows that are there as `learn_many`
takes them; without it `refresh_needed` says why, the model goes on with its old constants, and `refresh` mends that.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> x = rng.normal(size=(3000, 2)); y = x[:, 0] + 0.5 * rng.normal(size=3000) > 0
>>> pair, never = ExactPair(), ExactPair()
>>> pair.learn_many(x, y)
>>> for row, label in zip(x[:100], y[:100]):
...     pair.unlearn_one(row, label)
>>> never.learn_many(x[100:], y[100:])
>>> pair.predict_one([2.0, 0.0]) == never.predict_one([2.0, 0.0]), pair.predict_one([2.0, 0.0]) > 0.9
(True, True)

Rows may be dicts, with numbers and texts:

>>> pair = ExactPair(calibration_rows=200)
>>> for i in range(1000):
...     pair.learn_one({"age": 20 + i % 50, "plan": "pro" if i % 3 else "basic"}, i % 3 == 0)
>>> pair.predict_one({"age": 30, "plan": "basic"}) > 0.9
True

Several classes, of whatever kind, and weights:

>>> pair = ExactPair(loss="classes", weighted=True)
>>> pair.learn_many(x, np.select([x[:, 0] > 1, x[:, 0] < -1], ["high", "low"], "middle"), weights=np.ones(3000))
>>> pair.predict_one([3.0, 0.0]), max(pair.predict_proba_one([0.0, 0.0]).items(), key=lambda item: item[1])[0]
('high', 'middle')
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from ..errors import InvalidRow, ModelNotReady
from . import exact, payload, rules
from .encode import Matrix, Texts, Vector, curves_for
from .exact_parameters import ExactParameters
from .kept import Kept
from .memory_pair import MemoryPair
from .payload import Learnable
from .reference import Reference
from .rows import Row, Shape, class_name, label, sample, value, weight
from .sums import Sums

_WAIT: Final = 2_048  # single rows that wait to be added up together; nobody can tell, since addition commutes


Rows = Callable[[], Sequence[Any]]
"""Returns (x, y) or (x, y, c): all rows that are there."""


class ExactPair(MemoryPair):
    """Online learner whose deletions are exact. Rows are dicts, or numbers with texts beside them."""

    def __init__(
        self,
        parameters: ExactParameters | None = None,
        *,
        categories: list[list[str] | None] | None = None,
        classes: Sequence[Any] | None = None,
        rows: Rows | None = None,
        **options: Any,
    ) -> None:
        """Take the parameters as an object or as keywords; `categories` has one entry per text feature.

        Of several classes, those that are named in `classes` have a place whether they have rows or not; without it,
        those with at least 5 rows.
        """
        self.parameters = parameters if parameters is not None else ExactParameters.of(options)
        self.categories = categories or []
        self._declared = tuple(sorted(map(class_name, classes))) if classes is not None else None
        self._rows = rows
        self._several = self.parameters.loss == "classes"
        self._simple = not self._several and not self.parameters.weighted
        self._target = label if self.parameters.loss == "logistic" else value
        self._forget_everything()

    def _forget_everything(self) -> None:
        self.n = 0
        self.reference: Reference | None = None
        self._needed: str | None = None
        self._shape: Shape | None = None
        self._total: Sums | None = None
        self._weights: Matrix | None = None
        self._kept = Kept()
        self.rows_then = 0  # rows at the last refresh
        self.others_then = 0  # and rows of a class without a place
        self._stale = False  # without the unlearned reference rows the constants are others
        self._waiting: list[tuple[Row, float]] = []

    # -- one row at a time ---------------------------------------------------------------------------------------

    def learn_one(self, x: Any, y: Any, c: Sequence[str | None] = (), weight: float = 1.0) -> None:
        """Learn one row."""
        shape = self._shape_for(x, c)
        row = self._row(shape, x, y, c, weight)
        self._adopt(shape)
        if self._kept.others is not None:
            self._kept.add_one(shape.plain(row))
        self.n += 1
        self._wait(row, 1.0)

    def unlearn_one(self, x: Any, y: Any, c: Sequence[str | None] = (), weight: float = 1.0) -> None:
        """Forget one row that was learned: whatever is asked of the pair from now on does not know it."""
        shape = self._learned_shape()
        row = self._row(shape, x, y, c, weight)
        if self._kept.others is not None:  # otherwise nobody can say that it was never learned, and `flush` will do
            self._kept.take(shape.plain(row))
        self.n -= 1
        self._wait(row, -1.0)

    def predict_one(self, x: Any, c: Sequence[str | None] = ()) -> Any:
        """Return the probability of yes (logistic), the value (regression) or the likeliest class (classes)."""
        [predicted] = self.predict_many([x], [c] if len(c) else ())
        return predicted if self.parameters.loss == "classes" else float(predicted)

    def predict_proba_one(self, x: Any, c: Sequence[str | None] = ()) -> dict[Any, float]:
        """Return the probability of every class."""
        p = self.predict_proba_many([x], [c] if len(c) else ())
        return dict(zip(self.classes, p[0].tolist(), strict=True))

    # -- many rows -----------------------------------------------------------------------------------------------

    def learn_many(self, x: Any, y: Any, c: Texts = (), weights: Any = None) -> None:
        """Learn rows; the same result as one by one, but for the moment at which the reference is chosen."""
        self.flush()
        if not len(x):
            return
        rows = self._checked(x, y, c, weights)
        self.n += len(rows[0])
        if self._kept.others is not None:
            if self.n > exact.REFERENCE_ROWS:  # too many to keep, and the last time that all are at hand
                self._refresh(*_joined(self._all(), rows))
                return
            self._kept.add(self._learned_shape().rows(*rows))
        self._add(*rows, 1.0)
        self._settle()

    def unlearn_many(self, x: Any, y: Any, c: Texts = (), weights: Any = None) -> None:
        """Forget rows that were learned: all of them, or none if one was not."""
        self.flush()
        if not len(x):
            return
        rows = self._checked(x, y, c, weights)
        packed = self._learned_shape().rows(*rows)
        if self._kept.lacks(packed):
            raise InvalidRow("one of these rows was never learned.", remedy="Nothing has been forgotten.")
        for row in packed:
            self._kept.take(row)
        self.n -= len(packed)
        self._add(*rows, -1.0)
        self._settle()

    def predict_many(self, x: Any, c: Texts = ()) -> Any:
        """Predict rows in order, encoded as learned rows are."""
        p = self._predicted(x, c)
        if self._several:
            names = self.classes
            return [names[k] for k in p.argmax(axis=1).tolist()]
        return p[:, 0]

    def predict_proba_many(self, x: Any, c: Texts = ()) -> Matrix:
        """Return the probabilities of the `classes`, one row per row."""
        p = self._predicted(x, c)
        return p if self._several else np.column_stack([1.0 - p[:, 0], p[:, 0]])

    @property
    def classes(self) -> list[Any]:
        """The classes that are predicted."""
        return [json.loads(name) for name in self._calibrated().labels] if self._several else [False, True]

    def _predicted(self, x: Any, c: Texts) -> Matrix:
        if not self.ready:
            raise ModelNotReady(
                f"{self.n} rows learned, about {self.samples_needed()} needed.",
                remedy="Learn more rows, or fewer features, or allow a larger gamma.",
            )
        shape = self._learned_shape()
        if len(c) not in (0, len(x)):
            raise InvalidRow(f"{len(x)} rows and {len(c)} texts do not match.")
        numbers, texts = shape.bare(x, c)
        return exact.predict(self._calibrated(), self.weights, numbers, texts)

    # -- what is known -------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:  # type: ignore[override]
        """Whether enough rows are there to predict: d_eff/(2n) ≤ γ."""
        self.flush()
        if self.reference is None or self._total is None:
            return False
        return rules.gate(self.reference, self._total, self.parameters.gamma, self.parameters.ridge)

    def samples_needed(self) -> int:
        """Return about how many rows it takes before the model predicts, as far as can be told now."""
        self.flush()
        if self.reference is None or self._total is None:
            return self.parameters.calibration_rows
        if self.ready:
            return self.n
        return rules.rows_needed(self.reference, self._total, self.parameters.gamma, self.parameters.ridge)

    @property
    def sums(self) -> Sums:
        """All that is known of the rows, in integers."""
        self.flush()
        if self._total is None:
            raise ModelNotReady(f"{self.n} rows of {self.parameters.calibration_rows} for its calibration.")
        return self._total

    @property
    def weights(self) -> Matrix:
        """The served model: a function of the sums."""
        total = self.sums
        if self._weights is None:
            self._weights = exact.solve(self._calibrated(), total, self.parameters.ridge)
        return self._weights

    @property
    def refresh_needed(self) -> str | None:
        """Say why the reference should be chosen again, if it should and the pair cannot do it alone."""
        self.flush()
        return self._needed

    def reference_rows(self) -> tuple[Matrix, Vector, Texts]:
        """Return the reference rows that are still there; last among numbers and texts the weight and the class."""
        self.flush()
        return self._reference_rows()

    def _reference_rows(self) -> tuple[Matrix, Vector, Texts]:
        return self._learned_shape().arrays(list(self._kept.reference.elements()))

    def verify(self, x: Any, y: Any, c: Texts = (), weights: Any = None) -> bool:
        """Compute the state anew from all rows that are there, and compare every bit."""
        self.flush()
        if self.reference is None:
            return len(x) == self.n
        total = self._sums(*self._checked(x, y, c, weights))
        return total.to_bytes() == self.sums.to_bytes() and self._same_constants()

    # -- refreshes -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Add up the single rows that wait. Everything that asks the pair something does this first."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            shape = self._learned_shape()
            rows, signs = shape.arrays([row for row, _ in waiting]), [sign for _, sign in waiting]
            if self._kept.others is None and -1.0 in signs:
                for row, sign in zip(shape.rows(*rows), signs, strict=True):
                    if sign < 0.0:
                        self._kept.take(row)
            self._add(*rows, np.array(signs))
            self._settle()

    def refresh(self, x: Any, y: Any, c: Texts = (), weights: Any = None) -> None:
        """Choose the reference again; these are all rows that are there."""
        self.flush()
        if len(x) < self.parameters.calibration_rows:
            raise InvalidRow(f"{len(x)} rows of {self.parameters.calibration_rows} for a calibration.")
        self._refresh(*self._checked(x, y, c, weights))

    def _refresh(self, x: Matrix, y: Vector, c: Texts) -> None:
        places = sample(x, y, c, exact.REFERENCE_ROWS)
        chosen = (x[places], y[places], [c[i] for i in places.tolist()] if len(c) else ())
        labels = (self._declared or payload.chosen(c)) if self._several else None
        if labels == ():  # no class has the 5 rows that it needs; all rows wait, as before the first calibration
            self._kept = Kept(others=self._learned_shape().rows(x, y, c))
            self.reference, self._total, self.n = None, None, len(x)
            return
        self.reference = self._refer(*chosen, labels)
        self._total, self._weights = self._sums(x, y, c), None
        self.others_then = rules.rounded(self._total.fourth) if self._several else 0
        self._kept = Kept(self._learned_shape().rows(*chosen), () if len(places) == len(x) else None)
        self.n = self.rows_then = len(x)
        self._stale, self._needed = False, None

    def _settle(self) -> None:
        """Calibrate, refresh, or say why a refresh is needed, where the rows that are there now ask for it."""
        kept = self._kept
        few = kept.others is not None and self.n < self.parameters.calibration_rows
        if self.n == 0:
            self._forget_everything()
        elif self.reference is None and not few:
            self._refresh(*self._all())
        elif kept.touched and few:  # as if the rows that are gone had never come
            self._kept = Kept(others=kept.all())
            self.reference, self._total = None, None
        elif self.reference is not None:
            self._stale = self._stale or (kept.touched and not self._same_constants())
            kept.touched = False
            self._needed = self._why()
            if self._needed is not None:
                self._try_to_refresh()

    def _why(self) -> str | None:
        if self._stale:
            return "an unlearned row is still in the constants"
        if self._kept.others is not None and self.n > exact.REFERENCE_ROWS:
            return "there are too many rows to keep them all"
        left = self._kept.reference.total()
        return rules.outgrown(
            self._calibrated(),
            self.sums,
            self.weights,
            rows_then=self.rows_then,
            left=left,
            rows=self._kept.chosen,
            others_then=self.others_then,
            declared=self._declared is not None,
        )

    def _try_to_refresh(self) -> None:
        if self._kept.others is not None:
            self._refresh(*self._all())
        elif self._rows is not None:
            rows = self._checked(*self._rows())
            if len(rows[0]) != self.n:
                self._needed = f"{self._needed}, but rows() has {len(rows[0])} rows where there are {self.n}"
                return
            self._refresh(*rows)

    def _same_constants(self) -> bool:
        if not self._kept.reference:
            return False
        now = self._refer(*self._reference_rows(), self._calibrated().labels if self._several else None)
        return now.to_bytes() == self._calibrated().to_bytes()

    def _refer(self, x: Matrix, y: Vector, c: Texts, labels: tuple[str, ...] | None) -> Reference:
        p, rows, shape = self.parameters, self._learnable(x, y, c, labels), self._learned_shape()
        return exact.refer(
            rows.x,
            rows.y,
            rows.c,
            weight=rows.weight,
            loss=p.loss,
            labels=labels or (),
            balance=p.class_weight == "balanced",
            curves=curves_for(rows.x.shape[1]) if p.curves is None else p.curves,
            times=shape.places(shape.times.union(p.times)),
            clip=p.clip,
            declared=self.categories,
            ridge=p.ridge,
        )

    # -- saving and loading ----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything, as plain values and bytes: `from_state` gives back the same bits."""
        self.flush()
        return {
            "parameters": asdict(self.parameters),
            "categories": self.categories,
            "classes": None if self._declared is None else [json.loads(name) for name in self._declared],
            "shape": self._shape.to_json() if self._shape else None,
            "reference": self.reference.to_json() if self.reference else None,
            "sums": self._total.to_bytes() if self._total else None,
            "kept": self._kept.to_json(),
            "rows_then": self.rows_then,
            "others_then": self.others_then,
            "stale": self._stale,
            "refresh_needed": self._needed,
        }

    @classmethod
    def from_state(cls, saved: Mapping[str, Any], rows: Rows | None = None) -> ExactPair:
        """Rebuild what `state` returned; the function `rows` is not part of it."""
        named = {"categories": saved["categories"], "classes": saved.get("classes")}
        pair = cls(ExactParameters(**saved["parameters"]), rows=rows, **named)
        if saved["shape"] is not None:
            pair._shape = Shape(**saved["shape"])
        pair._kept = Kept.from_json(saved["kept"])
        pair.rows_then, pair._stale, pair._needed = saved["rows_then"], saved["stale"], saved["refresh_needed"]
        pair.others_then = saved.get("others_then", 0)
        pair.n = len(pair._kept.all())
        if saved["reference"] is not None:
            pair.reference = Reference.from_json(saved["reference"])
            pair._total = Sums.from_bytes(saved["sums"], *pair.reference.shape)
            pair.n = pair._total.n
        return pair

    def __getstate__(self) -> dict[str, Any]:
        """Hand nothing on that still waits, least of all a row to be forgotten."""
        self.flush()
        return self.__dict__

    # -- inside ------------------------------------------------------------------------------------------------------

    def _wait(self, row: Row, sign: float) -> None:
        if self.reference is None:
            self._settle()
            return
        self._waiting.append((row, sign))
        if len(self._waiting) >= _WAIT:
            self.flush()

    def _add(self, x: Matrix, y: Vector, c: Texts, sign: Any) -> None:
        if self.reference is not None and self._total is not None:
            part = self._sums(x, y, c, np.broadcast_to(np.asarray(sign, float), len(x)))
            self._total, self._weights = self._total + part, None

    def _sums(self, x: Matrix, y: Vector, c: Texts, sign: Vector | None = None) -> Sums:
        reference = self._calibrated()
        rows = self._learnable(x, y, c, reference.labels)
        return exact.sums(reference, rows.x, rows.y, rows.c, sign, rows.weight)

    def _learnable(self, x: Matrix, y: Vector, c: Texts, labels: tuple[str, ...] | None) -> Learnable:
        weighted = self.parameters.weighted
        return payload.separated(x, y, c, weighted=weighted, labels=labels if self._several else None)

    def _row(self, shape: Shape, x: Any, y: Any, c: Sequence[str | None], given: float) -> Row:
        if self._simple:
            if given != 1.0:
                raise InvalidRow(f"a weight of {given!r} for a row.", remedy="Say weighted=True.")
            return shape.row(x, c, self._target(y))
        heavy = weight(given) if self.parameters.weighted else 1.0
        return shape.row(x, c, 1.0, heavy, class_name(y)) if self._several else shape.row(x, c, self._target(y), heavy)

    def _all(self) -> tuple[Matrix, Vector, Texts]:
        """Return all rows, as long as they are kept."""
        return self._learned_shape().arrays(self._kept.all())

    def _checked(self, x: Any, y: Any, c: Texts = (), weights: Any = None) -> tuple[Matrix, Vector, Texts]:
        """Return rows as arrays, or say what is wrong with the first bad one."""
        if not len(x) == len(y) or len(c) not in (0, len(x)):
            raise InvalidRow(f"{len(x)} rows, {len(y)} targets and {len(c)} texts do not match.")
        if weights is not None and (not self.parameters.weighted or len(weights) != len(x)):
            remedy = "Give one for each row" if self.parameters.weighted else "Say weighted=True"
            raise InvalidRow(f"{len(weights)} weights for {len(x)} rows.", remedy=f"{remedy}.")
        shape = self._shape
        if self.reference is None:
            for one, texts in zip(x, c if len(c) else [()] * len(x), strict=True):
                shape = self._shape_for(one, texts, shape)
        if shape is None:
            raise InvalidRow("nothing has been learned, so there is nothing to unlearn.")
        names = [class_name(one) for one in y] if self._several else []
        heavy = None
        if self.parameters.weighted:
            heavy = np.array([weight(one) for one in ([1.0] * len(x) if weights is None else weights)])
        rows = shape.checked(x, y, c, self._target, heavy, names)
        self._adopt(shape)
        return rows

    def _shape_for(self, x: Any, c: Sequence[str | None], shape: Shape | None = None) -> Shape:
        """Return the shape of the rows; until the first calibration it may widen."""
        if self.reference is not None:
            return self._learned_shape()
        shape = shape or self._shape
        if shape is None:
            payload = "weight" * self.parameters.weighted + " class" * self._several
            return Shape.of(x, c, allow_missing=self.parameters.on_null == "impute", payload=payload)
        return shape.widened(x)

    def _adopt(self, shape: Shape) -> None:
        if self._shape is not shape:
            if self._shape is not None:
                self._kept = Kept(others=self._shape.moved(self._kept.all(), shape))
            self._shape = shape

    def _learned_shape(self) -> Shape:
        if self._shape is None:
            raise InvalidRow("nothing has been learned, so there is nothing to unlearn.")
        return self._shape

    def _calibrated(self) -> Reference:
        if self.reference is None:
            raise ModelNotReady(f"{self.n} rows of {self.parameters.calibration_rows} for its calibration.")
        return self.reference


def _joined(one: tuple[Matrix, Vector, Texts], other: tuple[Matrix, Vector, Texts]) -> tuple[Matrix, Vector, Texts]:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]]), [*one[2], *other[2]]
