"""The exact pair as a scikit-learn classifier: `fit`, `partial_fit`, and `forget`.

Needs the extra `mempair_db[sklearn]`. Two classes or more; numbers, which may be missing.

>>> import numpy as np
>>> x = np.random.default_rng(0).normal(size=(500, 2)); y = np.where(x[:, 0] > 0, "yes", "no")
>>> model = MemoryPairClassifier().fit(x, y).forget(x[:100], y[:100])
>>> bool((model.predict_proba(x) == MemoryPairClassifier().fit(x[100:], y[100:]).predict_proba(x)).all())
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .pair.exact_model import ExactPair


class MemoryPairClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression that forgets rows exactly (mempair_db/pair/EXACT.md)."""

    def __init__(self, ridge: float = 10.0, curves: int | None = None, times: Sequence[int] = ()) -> None:
        """Take the ridge, how many bends each number's effect has, and which columns are points in time."""
        self.ridge = ridge
        self.curves = curves
        self.times = times

    def fit(self, X: Any, y: Any) -> MemoryPairClassifier:
        """Learn these rows and no others."""
        X, y = validate_data(self, X, y, ensure_all_finite="allow-nan")
        check_classification_targets(y)
        self._start(np.unique(y))
        self.pair_.learn_many(X, self._yes(y))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> MemoryPairClassifier:
        """Learn more rows; the first call may name the classes."""
        first = not hasattr(self, "pair_")
        X, y = validate_data(self, X, y, ensure_all_finite="allow-nan", reset=first)
        check_classification_targets(y)
        if first:
            self._start(np.unique(y if classes is None else classes))
        self.pair_.learn_many(X, self._yes(y))
        return self

    def forget(self, X: Any, y: Any) -> MemoryPairClassifier:
        """Forget rows that were learned: the model is the one of the rows that are left."""
        check_is_fitted(self, "pair_")
        X, y = validate_data(self, X, y, ensure_all_finite="allow-nan", reset=False)
        self.pair_.unlearn_many(X, self._yes(y))
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class."""
        check_is_fitted(self, "pair_")
        X = validate_data(self, X, ensure_all_finite="allow-nan", reset=False)
        return self.pair_.predict_proba_many(X)[:, self._order]

    def predict(self, X: Any) -> Any:
        """Return the likeliest class."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def _start(self, classes: Any) -> None:
        if len(classes) == 1:
            raise ValueError("The data has only one class, and there is nothing to tell apart.")
        self.classes_, several = classes, len(classes) > 2
        options: dict[str, Any] = {"loss": "classes", "classes": list(range(len(classes)))} if several else {}
        options |= {"ridge": float(self.ridge), "curves": self.curves, "times": list(self.times)}
        self.pair_ = ExactPair(calibration_rows=1, gamma=1e9, **options)
        names = [str(place) for place in range(len(classes))]
        self._order = np.argsort(np.argsort(names)) if several else np.arange(2)

    def _yes(self, y: Any) -> Any:
        """Return the place of each label among the classes; of two, 1.0 for the second."""
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"A label is none of the classes {self.classes_}.")
        places = np.searchsorted(self.classes_, y)
        return places if len(self.classes_) > 2 else places.astype(float)

    def __sklearn_tags__(self) -> Any:
        """Numbers may be missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
