"""The models regret is measured against: optimal in hindsight, or learned online by well-known rules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import LogisticRegression

from mempair_db.errors import InvalidParameter, InvalidRow
from mempair_db.pair import comparators, losses
from mempair_db.pair.baselines import SGD, AdaGrad, Baseline, OnlineNewtonStep
from mempair_db.pair.bounds import comparator_norm
from mempair_db.pair.comparators import Loss, best_static, path_length, rolling, row_losses

Array = npt.NDArray[np.float64]
LOSSES: tuple[Loss, ...] = ("logistic", "huber", "squared")


def stream(n: int, d: int, loss: Loss, seed: int = 0) -> tuple[Array, Array]:
    """Return rows in the unit ball, with noisy labels, or with targets of which a tenth are far outliers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    score = X @ rng.normal(size=d) * 3
    if loss == "logistic":
        return X, np.where(score + rng.normal(size=n) > 0, 1.0, -1.0)
    return X, score + np.where(rng.random(n) < 0.1, 30.0, 0.5) * rng.normal(size=n)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_derivatives_are_those_of_the_value(loss: Loss) -> None:
    # Given points away from huber's kinks, when the value is differenced, then both derivatives agree with it.
    z, h = np.array([-7.3, -0.4, 0.0, 0.3, 6.1]), 1e-5
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    up, here, down = (comparators.value(loss, z + step, y, 1.5) for step in (h, 0, -h))
    assert comparators.derivative(loss, z, y, 1.5) == pytest.approx((up - down) / (2 * h), abs=1e-8)
    assert comparators.second_derivative(loss, z, y, 1.5) == pytest.approx((up - 2 * here + down) / h**2, abs=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_whole_arrays_and_single_rows_have_the_same_losses(loss: Loss) -> None:
    # The kernel's scalar functions and the arrays here are two writings of the same formulas.
    z = np.linspace(-40, 40, 81)
    code = losses.CODES[loss]
    for y in (1.0, -1.0):
        for array, scalar in (
            (comparators.value, losses.value),
            (comparators.derivative, losses.derivative),
            (comparators.second_derivative, losses.second_derivative),
        ):
            expected = [scalar(code, 0.7, float(point), y) for point in z]
            assert array(loss, z, np.full_like(z, y), 0.7) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_extreme_scores_overflow_nothing() -> None:
    z, y = np.array([-1e4, 1e4]), np.array([1.0, 1.0])
    assert comparators.value("logistic", z, y).tolist() == [1e4, 0.0]
    assert comparators.derivative("logistic", z, y).tolist() == [-1.0, 0.0]
    assert comparators.second_derivative("logistic", z, y).tolist() == [0.0, 0.0]


def test_the_best_static_model_of_squared_loss_is_ridge_regression() -> None:
    X, y = stream(300, 5, "squared")
    expected = np.linalg.solve(X.T @ X + 300 * 0.01 * np.eye(5), X.T @ y)
    assert best_static(X, y, "squared", lam=0.01) == pytest.approx(expected, rel=1e-9)


def test_the_best_static_model_of_logistic_loss_is_the_one_scikit_learn_finds() -> None:
    X, y = stream(2_000, 5, "logistic")
    theirs = LogisticRegression(C=1 / (2_000 * 0.01), fit_intercept=False, tol=1e-10).fit(X, y)
    assert best_static(X, y, "logistic", lam=0.01) == pytest.approx(theirs.coef_[0], abs=1e-6)


@pytest.mark.parametrize("lam", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_no_other_model_can_do_better(loss: Loss, lam: float) -> None:
    # Given outliers and a clip that cuts them, when the slope ∇F of the total is measured at our answer, then strong
    # convexity leaves room for an improvement of ‖∇F‖²/(2nλ) at most, and that is nothing.
    X, y = stream(500, 8, loss)

    def total(w: Array) -> float:
        return float(np.sum(row_losses(X, y, w, loss, lam, clip=0.5)))

    ours, h = best_static(X, y, loss, lam, clip=0.5), 1e-5
    slope = np.array([(total(ours + h * e) - total(ours - h * e)) / (2 * h) for e in np.eye(8)])
    assert slope @ slope / (2 * 500 * lam) <= 1e-8 * total(ours)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_best_static_model_lies_within_the_proved_norm(loss: Loss) -> None:
    X, y = stream(200, 4, loss)
    for lam in (1e-3, 0.1, 10.0):
        at_zero = float(np.mean(comparators.value(loss, np.zeros(200), y)))
        assert np.linalg.norm(best_static(X, y, loss, lam)) <= comparator_norm(at_zero, lam)


def test_separable_labels_have_a_best_model_because_of_the_ridge() -> None:
    # One row x = 1, y = 1: the derivative −1/(1 + e^w) + λw is zero.
    w = best_static(np.ones((1, 1)), np.ones(1), "logistic", lam=0.1)[0]
    assert 0.1 * w == pytest.approx(1 / (1 + np.exp(w)), rel=1e-5)


def test_a_target_of_a_million_moves_the_clipped_model_no_more_than_its_clip() -> None:
    # ‖Δw‖ ≤ G/(nλ) when one row changes.
    X, y = stream(100, 3, "huber")
    before = best_static(X, y, "huber", lam=0.1)
    y[0] = 1e6
    assert np.linalg.norm(best_static(X, y, "huber", lam=0.1) - before) <= 2 * 1.0 / (100 * 0.1) + 1e-6


def test_constant_columns_and_more_columns_than_rows_are_no_obstacle() -> None:
    X = np.full((3, 6), 0.2)
    w = best_static(X, np.array([1.0, 1.0, -1.0]), "logistic", lam=0.01)
    assert np.isfinite(w).all()
    assert np.ptp(w) < 1e-9


@pytest.mark.parametrize("lam", [0.0, -1.0, float("nan")])
def test_a_comparator_without_a_ridge_is_refused(lam: float) -> None:
    with pytest.raises(InvalidParameter, match="lam"):
        best_static(np.ones((1, 1)), np.ones(1), "logistic", lam)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.array([[np.nan]]), np.ones(1)),
        (np.ones((1, 1)), np.array([np.inf])),
        (np.ones((2, 1)), np.ones(3)),
        (np.ones(2), np.ones(2)),
        (np.ones((0, 2)), np.ones(0)),
    ],
    ids=["nan", "infinite", "lengths", "one-dimensional", "empty"],
)
def test_rows_that_are_no_rows_are_refused(X: Array, y: Array) -> None:
    with pytest.raises(InvalidRow):
        best_static(X, y, "logistic", lam=0.1)


def test_a_rolling_comparator_is_the_best_model_of_each_window() -> None:
    # Given 250 rows, when the window is 100 and the stride 40, then number k ends with its stretch, the last at 250.
    X, y = stream(250, 3, "logistic")
    ws = rolling(X, y, "logistic", lam=0.01, window=100, stride=40)
    windows = [(0, 40), (0, 80), (20, 120), (60, 160), (100, 200), (140, 240), (150, 250)]
    expected = [best_static(X[a:b], y[a:b], "logistic", lam=0.01) for a, b in windows]
    assert ws == pytest.approx(np.array(expected), abs=1e-4)


def test_a_rolling_comparator_over_everything_is_the_static_one_and_does_not_move() -> None:
    X, y = stream(50, 3, "logistic")
    ws = rolling(X, y, "logistic", lam=0.01, window=50, stride=50)
    assert ws == pytest.approx(best_static(X, y, "logistic", lam=0.01)[None, :])
    assert path_length(ws) == 0.0


def test_a_stream_that_turns_around_has_a_longer_path_and_a_better_rolling_comparator() -> None:
    X, y = stream(400, 3, "logistic")
    turned = np.concatenate([y[:200], -y[200:]])
    calm, moving = (rolling(X, labels, "logistic", lam=0.01, window=100, stride=100) for labels in (y, turned))
    assert path_length(moving) > 2 * path_length(calm)
    static = row_losses(X, turned, best_static(X, turned, "logistic", lam=0.01), "logistic", lam=0.01)
    dynamic = row_losses(X, turned, moving[np.arange(400) // 100], "logistic", lam=0.01)
    assert np.sum(dynamic) < 0.8 * np.sum(static)


@pytest.mark.parametrize(("window", "stride"), [(10, 0), (10, 11)])
def test_a_stride_longer_than_the_window_would_skip_rows_and_is_refused(window: int, stride: int) -> None:
    with pytest.raises(InvalidParameter, match="stride"):
        rolling(np.ones((20, 1)), np.ones(20), "logistic", lam=0.1, window=window, stride=stride)


def test_the_path_length_is_the_distance_travelled() -> None:
    # From (0, 0) to (3, 4) and back: 5 + 5.
    assert path_length(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])) == 10.0


# ---- Baselines ----

LEARNERS: dict[str, Callable[[int, Loss], Baseline]] = {
    "SGD rate/√t": lambda d, loss: SGD(d, loss, lam=0.01, rate=1.0),
    "SGD 1/(λt)": lambda d, loss: SGD(d, loss, lam=0.01),
    "AdaGrad": lambda d, loss: AdaGrad(d, loss, lam=0.01, rate=0.5),
    "Online Newton Step": lambda d, loss: OnlineNewtonStep(d, loss, lam=0.01, rate=2.0),
}
learners = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS.keys())


def plain(learner: Baseline, X: Array, y: Array, loss: Loss) -> Array:
    """Return w after the rules as the papers print them, in whole vectors and with A inverted from scratch."""
    w, squares, A = np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.eye(X.shape[1])
    for t, (x, target) in enumerate(zip(X, y, strict=True), start=1):
        g = comparators.derivative(loss, np.array([w @ x]), np.array([target]))[0] * x + learner.lam * w
        squares, A = squares + g**2, A + np.outer(g, g)
        if isinstance(learner, SGD):
            w = w - g * (learner.rate / np.sqrt(t) if learner.rate else 1 / (learner.lam * t))
        elif isinstance(learner, AdaGrad):
            w = w - learner.rate * g / np.sqrt(squares)
        elif isinstance(learner, OnlineNewtonStep):
            w = w - learner.rate * np.linalg.solve(A, g)
    return w


@learners
@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_a_baseline_follows_its_paper(make: Callable[[int, Loss], Baseline], loss: Loss) -> None:
    X, y = stream(200, 4, loss)
    learner = make(4, loss)
    learner.run(X, y)
    assert learner.w == pytest.approx(plain(learner, X, y, loss), rel=1e-8)


@learners
def test_rows_one_by_one_and_rows_in_batches_give_the_same_bits(make: Callable[[int, Loss], Baseline]) -> None:
    X, y = stream(60, 4, "logistic")
    whole, parts, single = make(4, "logistic"), make(4, "logistic"), make(4, "logistic")
    expected = whole.run(X, y)
    assert np.array_equal(expected, np.concatenate([parts.run(X[:17], y[:17]), parts.run(X[17:], y[17:])]))
    assert expected.tolist() == [single.step(x, target) for x, target in zip(X, y, strict=True)]
    assert np.array_equal(whole.w, parts.w)
    assert np.array_equal(whole.w, single.w)


@learners
def test_the_loss_returned_is_that_of_the_model_before_the_row(make: Callable[[int, Loss], Baseline]) -> None:
    X, y = stream(30, 4, "logistic")
    learner = make(4, "logistic")
    for x, target in zip(X, y, strict=True):
        expected = row_losses(x[None, :], np.array([target]), learner.w.copy(), "logistic", learner.lam)[0]
        assert learner.step(x, target) == pytest.approx(expected, rel=1e-12)


@learners
def test_the_average_regret_of_a_baseline_vanishes(make: Callable[[int, Loss], Baseline]) -> None:
    # Given a stationary stream, when it is learned sixteen times as long, then regret per row falls.
    X, y = stream(16_000, 5, "logistic")
    before = make(5, "logistic").run(X, y)
    averages = []
    for n in (1_000, 16_000):
        best = row_losses(X[:n], y[:n], best_static(X[:n], y[:n], "logistic", lam=0.01), "logistic", lam=0.01)
        averages.append((np.sum(before[:n]) - np.sum(best)) / n)
    assert averages[1] < 0.4 * averages[0]
    assert averages[1] < 0.02


@pytest.mark.parametrize(("rate", "lam"), [(0.0, 0.1), (-1.0, 0.1), (None, 0.0)])
def test_steps_of_no_length_are_refused(rate: float | None, lam: float) -> None:
    with pytest.raises(InvalidParameter, match="steps"):
        SGD(3, rate=rate, lam=lam)
