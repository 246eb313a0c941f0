"""The exact pair keeps scikit-learn's rules, and forgets."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from mempair_db.errors import InvalidRow
from mempair_db.sklearn import MemoryPairClassifier


@pytest.mark.filterwarnings("ignore")  # the checks give it what it warns about
def test_it_keeps_the_rules_of_an_estimator() -> None:
    found = check_estimator(MemoryPairClassifier(), on_skip=None)
    assert sum(check["status"] == "passed" for check in found) > 40


def test_what_is_forgotten_was_never_there() -> None:
    x = np.random.default_rng(0).normal(size=(900, 3))
    y = np.where(x[:, 0] > 0, "yes", "no")
    model = MemoryPairClassifier(curves=1)
    for begin in range(0, 900, 300):
        model.partial_fit(x[begin : begin + 300], y[begin : begin + 300], classes=["no", "yes"])
    model.forget(x[::3], y[::3])
    left = np.arange(900) % 3 != 0
    assert model.pair_.verify(x[left], y[left] == "yes")
    with pytest.raises(InvalidRow, match=r"^This row cannot be used: one of these rows was never learned. Nothing has"):
        model.forget(x[:1], y[:1])
    with pytest.raises(ValueError, match="none of the classes"):
        model.partial_fit(x[:1], ["perhaps"])


def test_what_could_not_be_fitted_says_that_it_is_not() -> None:
    model = MemoryPairClassifier()
    with pytest.raises(ValueError, match="only one class"):
        model.fit([[1.0], [2.0]], ["a", "a"])
    with pytest.raises(NotFittedError):
        model.predict([[1.0]])


def test_columns_that_are_points_in_time_bend_only_where_that_pays() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([np.arange(900.0) + 1.7e9, rng.normal(size=900)])
    y = x[:, 1] + rng.logistic(size=900) > 0
    for times, bends in {(): [4, 4], (0,): [0, 4]}.items():
        reference = MemoryPairClassifier(times=times).fit(x, y).pair_.reference
        assert reference is not None
        assert [len(number.knots) for number in reference.encoding.numbers] == bends
