"""Standard errors: an interval of 95 % holds the truth in about 95 of 100 simulated tables."""

from __future__ import annotations

import numpy as np
import pytest

from mempair_db.pair.exact import refer, solve, sums
from mempair_db.pair.serve import fold
from mempair_db.pair.uncertainty import spread, uncertainty

TRUTH = np.array([0.8, -0.4, 0.0])
LEVELS = np.array([0.0, 0.5, -0.5])
TABLES, ROWS = 100, 1500


def simulated(rng: np.random.Generator, loss: str) -> tuple[np.ndarray, np.ndarray, list[list[str]]]:
    x = rng.normal(size=(ROWS, 3)) * [1, 2, 1] + [0, 5, 0]
    level = rng.integers(0, 3, ROWS)
    z = x @ TRUTH + 1.5 + LEVELS[level]
    yes = (rng.random(ROWS) < 1 / (1 + np.exp(-z))).astype(float)
    return x, yes if loss == "logistic" else z + 2 * rng.normal(size=ROWS), [["abc"[i]] for i in level]


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_an_interval_of_95_percent_holds_the_truth_as_often(loss: str) -> None:
    rng = np.random.default_rng(7)
    corrected, plain = [], []
    for _ in range(TABLES):
        x, y, c = simulated(rng, loss)
        reference = refer(x, y, c, loss=loss)
        total = sums(reference, x, y, c)
        w = solve(reference, total)
        served = fold(reference, w[0])
        found = uncertainty(reference, total, w)
        assert found is not None
        unit = 1024 / served["scales"]
        lack, error = found[:, 1:4] * unit
        weights = served["weights"] * unit
        corrected.append(abs(weights + lack - TRUTH) < 1.96 * error)
        plain.append(abs(weights - TRUTH) < 1.96 * error)
        # Differences between levels are what the rows tell; their sum is the intercept's too.
        names = reference.encoding.names
        a, b = names.index(("level", 0, "a")), names.index(("level", 0, "b"))
        whole = spread(reference, total, w)
        assert whole is not None
        difference = np.zeros(reference.d)
        difference[[b, a]] = 1, -1
        scale = 1.0 if loss == "logistic" else reference.encoding.target.scale
        estimate = difference @ (w[0] + whole.lack) * scale
        half = 1.96 * np.sqrt(difference @ whole.covariance @ difference) * scale
        corrected.append([abs(estimate - 0.5) < half])
    covered = np.concatenate(corrected).mean()
    assert 0.92 < covered < 0.98, covered  # 400 intervals: a standard deviation of .011
    if loss == "logistic":
        assert np.concatenate(plain).mean() < 0.92  # a shrunken weight is not the middle of its interval


def test_a_missing_number_with_knots_has_the_variance_of_the_sum() -> None:
    rng = np.random.default_rng(3)
    x, y, c = simulated(rng, "logistic")
    x[::7, 0] = np.nan
    reference = refer(x, y, c, curves=3)
    total = sums(reference, x, y, c)
    w = solve(reference, total)
    served, found = fold(reference, w[0], 3), uncertainty(reference, total, w, curves=3)
    whole = spread(reference, total, w)
    assert found is not None
    assert whole is not None
    draws = rng.multivariate_normal(w[0], whole.covariance, 4000)
    folded = np.array([fold(reference, draw, 3)["missing_weights"] for draw in draws])
    first = 1 + 3 + 9
    assert found.shape == (2, first + 3 + len(served["level_weights"]))
    assert found[1, first : first + 3] == pytest.approx(folded.std(axis=0), rel=0.05)


def test_where_the_sums_do_not_tell_nothing_is_said() -> None:
    x, y, c = simulated(np.random.default_rng(1), "squared")
    huber = refer(x, y, c, loss="huber")
    total = sums(huber, x, y, c)
    assert uncertainty(huber, total, solve(huber, total)) is None
    few = refer(x[:5], y[:5], loss="squared")
    assert uncertainty(few, sums(few, x[:3], y[:3]), np.zeros((1, few.d)), ridge=1e-9) is None
