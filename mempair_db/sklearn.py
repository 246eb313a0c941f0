"""The exact pair as a scikit-learn classifier: `fit`, `partial_fit`, and `forget`.

Needs the extra `mempair_db[sklearn]`. Two classes; numbers, which may be missing.

>>> import numpy as np
>>> x = np.random.default_rng(0).normal(size=(500, 2)); y = np.where(x[:, 0] > 0, "yes", "no")
>>> model = MemoryPairClassifier().fit(x, y).forget(x[:100], y[:100])
>>> bool((model.predict_proba(x) == MemoryPairClassifier().fit(x[100:], y[100:]).predict_proba(x)).all())
True
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .pair.exact_model import ExactPair


class MemoryPairClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression that forgets rows exactly (mempair_db/pair/EXACT.md)."""

    def __init__(self, ridge: float = 10.0, curves: int | None = None) -> None:
        """Take the ridge, and how many bends each number's effect has."""
        self.ridge = ridge
        self.curves = curves

    def fit(self, X: Any, y: Any) -> MemoryPairClassifier:
        """Learn these rows and no others."""
        X, y = validate_data(self, X, y, ensure_all_finite="allow-nan")
        check_classification_targets(y)
        self._start(np.unique(y))
        self.pair_.learn_many(X, self._yes(y))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> MemoryPairClassifier:
        """Learn more rows; the first call may name the two classes."""
        first = not hasattr(self, "pair_")
        X, y = validate_data(self, X, y, ensure_all_finite="allow-nan", reset=first)
        check_classification_targets(y)
        if first:
            self._start(np.unique(y if classes is None else classes))
        self.pair_.learn_many(X, self._yes(y))
        return self

    def forget(self, X: Any, y: Any) -> MemoryPairClassifier:
        """Forget rows that were learned: the model is the one of the rows that are left."""
        check_is_fitted(self)
        X, y = validate_data(self, X, y, ensure_all_finite="allow-nan", reset=False)
        self.pair_.unlearn_many(X, self._yes(y))
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class."""
        check_is_fitted(self)
        X = validate_data(self, X, ensure_all_finite="allow-nan", reset=False)
        p = self.pair_.predict_many(X)
        return np.column_stack([1.0 - p, p])

    def predict(self, X: Any) -> Any:
        """Return the likelier class."""
        yes = self.predict_proba(X)[:, 1] > 0.5
        return self.classes_[yes.astype(int)]

    def _start(self, classes: Any) -> None:
        if len(classes) != 2:
            kind = "only one class" if len(classes) == 1 else f"{len(classes)} classes"
            raise ValueError(f"Only binary classification is supported. The data has {kind}.")
        self.classes_ = classes
        self.pair_ = ExactPair(ridge=float(self.ridge), curves=self.curves, calibration_rows=1, gamma=1e9)

    def _yes(self, y: Any) -> Any:
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"A label is none of the classes {self.classes_}.")
        return (y == self.classes_[1]).astype(float)

    def __sklearn_tags__(self) -> Any:
        """Two classes, and numbers may be missing."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = True
        return tags
