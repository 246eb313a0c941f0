"""`CertifiedPair`: one battery that every combination passes, the gate, the budget, the errors and the noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mempair_db.errors import BudgetExhausted, InvalidParameter, InvalidRow, ModelNotReady
from mempair_db.pair import bounds, events, odometer
from mempair_db.pair.encoding import Matrix
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.state import Vector, to_bytes

Options = dict[str, Any]

ANCHORED: list[Options] = [
    {"loss": loss, "unlearner": unlearner} for loss in ("logistic", "huber") for unlearner in ("symmetric", "passive")
]
PAPER: list[Options] = [
    {"loss": loss, "mode": "paper", "m": 5, "pairs": pairs, "schedule": schedule}
    for loss in ("logistic", "huber", "squared")
    for pairs, schedule in (("step", "newton"), ("minibatch", "newton"), ("minibatch", "curvature"))
]


def table(loss: str, n: int = 1500) -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(n, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, -1.0]
    score = x[:, 0] - (x[:, 1] - 5.0) / 10.0 + 0.1 * rng.normal(size=n)
    return x, np.where(score > 0, 1.0, -1.0) if loss == "logistic" else 50.0 + 20.0 * score


def learned(options: Options, n: int = 1500) -> tuple[CertifiedPair, Matrix, Vector]:
    x, y = table(options["loss"], n)
    pair = CertifiedPair(**{"lam": 0.1, "epsilon": 10.0, "gamma": 1.0, **options})
    pair.learn_many(x, y)
    return pair, x, y


def bits(pair: CertifiedPair) -> bytes:
    return to_bytes(pair.arrays)


# ---- The battery: each check takes a combination, and every combination takes every check. ----


def check_it_learns(options: Options) -> None:
    # Then its raw predictions follow the target: they correlate with it.
    pair, x, y = learned(options)
    assert pair.epoch is not None
    assert np.corrcoef(pair.epoch.encoding.encode(x) @ pair.arrays.theta, y)[0, 1] > 0.5


def check_one_by_one_is_the_same_as_many(options: Options) -> None:
    pair, x, y = learned(options, 600)
    single = CertifiedPair.from_state(pair.state())
    pair.learn_many(x, y)
    for row, target in zip(x, y, strict=True):
        single.learn_one(list(row), float(target))
    assert bits(single) == bits(pair)


def check_learning_repeats_itself(options: Options) -> None:
    assert bits(learned(options)[0]) == bits(learned(options)[0])


def check_a_stored_model_is_the_same_model(options: Options) -> None:
    pair, x, y = learned(options)
    loaded = CertifiedPair.from_state(pair.state())
    assert loaded.state() == pair.state()
    for model in (pair, loaded):
        model.learn_many(x[:100], y[:100])
    assert bits(loaded) == bits(pair)


def check_a_deletion_is_paid_for_and_changes_the_model(options: Options) -> None:
    pair, x, y = learned(options)
    before, theta = pair.odometer, pair.arrays.theta.copy()
    price = pair.price(pair.tally("clock"))
    pair.unlearn_one(x[3], y[3])
    assert (pair.odometer.spent - before.spent, pair.odometer.deletions) == (price, 1)
    assert not np.array_equal(pair.arrays.theta, theta)
    assert (pair.tally("clock"), pair.tally("rows"), pair.tally("deletions")) == (1500, 1500, 1)


def check_it_learns_on_after_a_deletion(options: Options) -> None:
    pair, x, y = learned(options)
    pair.unlearn_one(x[3], y[3])
    pair.learn_many(x, y)
    assert pair.tally("clock") == 3000
    assert np.isfinite(pair.arrays.theta).all()


def check_a_bad_row_changes_nothing(options: Options) -> None:
    pair, x, y = learned(options)
    before = pair.state()
    for bad in ([np.nan, 0.0, 0.0], [0.0, np.inf, 0.0], [0.0], [0.0] * 4):
        for act in (pair.learn_one, pair.unlearn_one):
            with pytest.raises(InvalidRow):
                act(bad, y[0])
    for bad_target in (np.nan, np.inf, *([0.0, 2.0] if options["loss"] == "logistic" else [])):
        with pytest.raises(InvalidRow):
            pair.learn_one(x[0], bad_target)
    assert pair.state() == before


def check_its_input_stays_as_it_was(options: Options) -> None:
    x, y = table(options["loss"])
    kept = x.copy(), y.copy()
    x.flags.writeable = y.flags.writeable = False
    pair = CertifiedPair(lam=0.1, **options)
    pair.learn_many(x, y)
    assert np.array_equal(x, kept[0])
    assert np.array_equal(y, kept[1])


def check_its_memory_does_not_grow(options: Options) -> None:
    pair, x, y = learned(options, 600)
    before = sum(array.nbytes for array in pair.arrays)
    for _ in range(5):
        pair.learn_many(x, y)
    assert sum(array.nbytes for array in pair.arrays) == before
    assert not pair.state()["waiting"]


def check_it_can_be_copied(options: Options) -> None:
    pair, x, y = learned(options, 600)
    other = copy.deepcopy(pair)
    before = bits(pair)
    other.learn_many(x, y)
    assert bits(pair) == before != bits(other)


def check_it_calibrates_before_it_learns(options: Options) -> None:
    # Given fewer rows than calibration needs, when one of them is unlearned, then it never was there.
    x, y = table(options["loss"], 500)
    pair, other = (CertifiedPair(lam=0.1, calibration_rows=400, **options) for _ in range(2))
    pair.learn_many(x[:300], y[:300])
    pair.unlearn_one(x[7], y[7])
    with pytest.raises(ModelNotReady, match="299 rows"):
        pair.predict_one(x[0])
    with pytest.raises(InvalidRow, match="never learned"):
        pair.unlearn_one(x[7], y[7])
    pair.learn_many(x[300:], y[300:])
    other.learn_many(np.delete(x, 7, axis=0), np.delete(y, 7))
    assert bits(pair) == bits(other)
    assert pair.odometer.spent == 0


def check_forgetting_everything_starts_over(options: Options) -> None:
    pair, _, _ = learned(options)
    fresh = CertifiedPair(pair.parameters)
    pair.reset()
    assert pair.state() == fresh.state()


CHECKS: list[Callable[[Options], None]] = [
    check_it_learns,
    check_one_by_one_is_the_same_as_many,
    check_learning_repeats_itself,
    check_a_stored_model_is_the_same_model,
    check_a_deletion_is_paid_for_and_changes_the_model,
    check_it_learns_on_after_a_deletion,
    check_a_bad_row_changes_nothing,
    check_its_input_stays_as_it_was,
    check_its_memory_does_not_grow,
    check_it_can_be_copied,
    check_it_calibrates_before_it_learns,
    check_forgetting_everything_starts_over,
]


@pytest.mark.parametrize("options", ANCHORED + PAPER, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_battery(check: Callable[[Options], None], options: Options) -> None:
    check(options)


# ---- The gate. ----


def test_the_gate_opens_by_itself_and_stays_open() -> None:
    # Given a model that is asked after every batch,
    x, y = table("logistic", 6000)
    pair = CertifiedPair(lam=0.1, calibration_rows=20)
    was_ready = []
    for start in range(0, 6000, 20):
        pair.learn_many(x[start : start + 20], y[start : start + 20])
        was_ready.append(pair.ready)
    # then it opens once, when the bound says so, and neither bad rows nor deletions close it again.
    assert not was_ready[0]
    assert was_ready[-1]
    assert was_ready == sorted(was_ready)
    pair.learn_many(x[:1000], -y[:1000])
    pair.unlearn_one(x[0], y[0])
    assert pair.ready
    assert 0.0 < pair.predict_one(x[0]) < 1.0


def test_before_the_gate_a_prediction_is_refused_with_both_counts() -> None:
    x, y = table("logistic", 60)
    pair = CertifiedPair(lam=0.01, calibration_rows=50)
    with pytest.raises(ModelNotReady, match="0 rows learned, about 50 needed"):
        pair.predict_one(x[0])
    pair.learn_many(x, y)
    assert not pair.ready
    with pytest.raises(ModelNotReady, match=f"60 rows learned, about {pair.samples_needed()} needed") as refused:
        pair.predict_one(x[0])
    assert pair.samples_needed() > 60
    assert refused.value.remedy


def test_while_calibrating_there_is_no_budget_and_no_state() -> None:
    pair = CertifiedPair()
    pair.learn_one([1.0], 1.0)
    for ask in (lambda: pair.odometer, lambda: pair.tally("clock"), lambda: pair.arrays, pair.served, pair.capacity):
        with pytest.raises(ModelNotReady):
            ask()
    assert pair.samples_needed() == 500


def test_the_gate_of_the_paper_waits_for_its_sample_complexity() -> None:
    patient, x, _ = learned({"loss": "logistic", "mode": "paper", "m": 5, "gamma": 0.1})
    assert not patient.ready
    assert patient.samples_needed() > 1500
    with pytest.raises(ModelNotReady):
        patient.predict_one(x[0])
    easy, x, _ = learned({"loss": "logistic", "mode": "paper", "m": 5, "gamma": 10.0})
    assert easy.samples_needed() <= 1500
    assert 0.0 < easy.predict_one(x[0]) < 1.0


def test_the_paper_has_no_regret_bound_that_holds() -> None:
    assert learned({"loss": "logistic", "mode": "paper", "m": 5})[0].regret_bound() == math.inf


# ---- The budget. ----


def test_an_exhausted_budget_refuses_and_changes_nothing() -> None:
    # Given a budget split over three deletions,
    pair, x, y = learned({"loss": "logistic", "m": 3, "gamma": 1e6})
    for i in range(3):
        pair.unlearn_one(x[i], y[i])
    before = pair.state()
    # when a fourth is asked for,
    with pytest.raises(BudgetExhausted, match="3 deletions at clock 1500") as refused:
        pair.unlearn_one(x[3], y[3])
    # then it is refused with a remedy, and the model is what it was.
    assert "Retrain" in refused.value.remedy
    assert pair.state() == before


def test_without_a_fixed_m_the_budget_serves_as_many_deletions_as_the_capacity_says() -> None:
    pair, x, y = learned({"loss": "logistic"})
    capacity = math.floor(pair.capacity())
    assert capacity >= 2
    for i in range(capacity):
        pair.unlearn_one(x[i], y[i])
    with pytest.raises(BudgetExhausted):
        pair.unlearn_one(x[capacity], y[capacity])


def test_a_deletion_whose_noise_would_cost_more_than_gamma_is_refused() -> None:
    # m* < 1 at this clock: a retrain serves it.
    pair, x, y = learned({"loss": "logistic", "epsilon": 0.01, "gamma": 0.001})
    assert pair.capacity() < 1.0
    assert pair.price(pair.tally("clock")) == 0
    with pytest.raises(BudgetExhausted):
        pair.unlearn_one(x[0], y[0])


def test_a_fixed_m_that_gamma_does_not_allow_is_refused_too() -> None:
    pair, x, y = learned({"loss": "logistic", "m": 1000, "gamma": 0.001})
    assert pair.odometer.can_spend(pair.price(1500))
    with pytest.raises(BudgetExhausted):
        pair.unlearn_one(x[0], y[0])


def test_events_up_to_the_first_unaffordable_deletion_happen() -> None:
    pair, x, y = learned({"loss": "logistic", "m": 1, "gamma": 1e6})
    ops = np.array([events.INSERT, events.DELETE, events.INSERT, events.DELETE, events.INSERT], np.int16)
    applied = pair.apply(ops, x[:5], y[:5], [()] * 5)
    assert (applied.done, applied.spent) == (3, [pair.odometer.cap])
    assert (pair.tally("clock"), pair.tally("deletions")) == (1502, 1)


# ---- What cannot be learned. ----


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([np.nan, 0.0, 0.0], 1.0, "number 0 of row 0"),
        ([0.0, 0.0, -np.inf], 1.0, "number 2 of row 0"),
        ([0.0, 0.0], 1.0, "it has 2 numbers and 0 texts. Give 3 and 0"),
        ([0.0, 0.0, 0.0], 0.5, "target of row 0 is unusable. Give -1 or \\+1"),
    ],
)
def test_a_bad_row_is_refused_and_says_where(x: list[float], y: float, message: str) -> None:
    pair, _, _ = learned({"loss": "logistic"})
    with pytest.raises(InvalidRow, match=message):
        pair.learn_one(x, y)


def test_one_bad_row_among_many_is_named_and_none_is_learned() -> None:
    pair, x, y = learned({"loss": "logistic"})
    x[41, 1] = np.inf
    with pytest.raises(InvalidRow, match="number 1 of row 41"):
        pair.learn_many(x, y)
    assert pair.tally("rows") == 1500


def test_arrays_that_do_not_match_are_refused() -> None:
    pair = CertifiedPair()
    for x, y, c in (
        (np.zeros((2, 1)), np.ones(3), ()),
        (np.zeros(2), np.ones(2), ()),
        (np.zeros((2, 1)), np.ones(2), [("a",)]),
        (np.zeros((2, 1)), np.ones(2), [("a",), ()]),
    ):
        with pytest.raises(InvalidRow):
            pair.learn_many(x, y, c)


def test_texts_are_counted_against_the_declared_categories() -> None:
    with pytest.raises(InvalidRow, match=r"1 numbers and 0 texts\. Give 1 and 1"):
        CertifiedPair(categories=[["a", "b"]]).learn_one([1.0], 1.0)


def test_unknown_options_and_bad_values_are_refused_at_once() -> None:
    with pytest.raises(InvalidParameter, match="Did you mean 'lam'"):
        CertifiedPair(lamda=0.1)
    with pytest.raises(InvalidParameter):
        CertifiedPair(epsilon=-1.0)


def test_no_rows_at_all_change_nothing() -> None:
    pair, _, _ = learned({"loss": "logistic"})
    before = pair.state()
    pair.learn_many(np.empty((0, 3)), np.empty(0))
    assert pair.state() == before


# ---- What is predicted. ----


def test_probabilities_and_values_are_on_the_users_scale() -> None:
    pair, x, y = learned({"loss": "logistic"})
    assert np.mean((pair.predict_many(x) > 0.5) == (y > 0)) > 0.9
    # Far outside, a row is served as it would be learned: clamped, and clipped to the ball.
    assert pair.predict_one([1e300, 0.0, 0.0]) == pair.predict_one([1e3, 0.0, 0.0]) > 0.6
    values, x, y = learned({"loss": "huber"})
    assert np.mean(np.abs(values.predict_many(x) - y)) < 0.5 * np.mean(np.abs(y - np.mean(y)))


def texts(n: int) -> list[list[str | None]]:
    return [["None" if i % 3 == 0 else "b" if i % 3 == 1 else None] for i in range(n)]


def test_missing_values_are_predicted_as_they_are_learned() -> None:
    # Given a model that imputes, with a category that happens to be called None,
    x, y = table("logistic", 900)
    y = np.array([1.0 if i % 3 == 0 else -1.0 for i in range(900)])
    pair = CertifiedPair(lam=0.1, gamma=10.0, on_null="impute")
    x[::7, 1] = np.nan
    pair.learn_many(x, y, texts(900))
    assert pair.epoch is not None
    # then a missing number counts as its column's centre, and a missing text as itself, not as "None".
    centre = float(pair.epoch.encoding.center[1])
    assert pair.predict_one([0.0, np.nan, 0.0], ["b"]) == pair.predict_one([0.0, centre, 0.0], ["b"])
    assert pair.predict_one([0.0, 5.0, 0.0], ["None"]) > 0.5 > pair.predict_one([0.0, 5.0, 0.0], [None])
    # A model that skips such rows refuses to predict them.
    strict = CertifiedPair(lam=0.1, gamma=10.0)
    strict.learn_many(table("logistic", 900)[0], y, [["a"]] * 900)
    for bad, text in (([0.0, np.nan, 0.0], "a"), ([0.0, 0.0, 0.0], None)):
        with pytest.raises(InvalidRow):
            strict.predict_one(bad, [text])


# ---- The noise. ----


def realised_noise(pair: CertifiedPair, x: Vector, y: float) -> Vector:
    """Return the jump of a passive delete, which is the noise alone, in units of the σ that was paid for."""
    before, clock = pair.arrays.anchor.copy(), pair.tally("clock")
    units = pair.price(clock)
    pair.unlearn_one(x, y)
    k, epoch = pair.epoch.constants, pair.epoch  # type: ignore[union-attr]
    assert epoch is not None
    sensitivity = bounds.sensitivity(k.G, k.lam, clock, k.t0, "passive")
    jump: Vector = pair.arrays.anchor - before
    return jump / odometer.sigma(sensitivity, units)


@pytest.fixture(scope="module")
def noises() -> npt.NDArray[np.float64]:
    """2,000 models from one stored state, two deletions each: (model, deletion, coordinate)."""
    pair, x, y = learned({"loss": "logistic", "unlearner": "passive", "m": 2, "gamma": 1e9})
    saved = pair.state()
    drawn = []
    for _ in range(2000):
        model = CertifiedPair.from_state(saved)
        drawn.append([realised_noise(model, x[0], y[0]), realised_noise(model, x[0], y[0])])
    return np.array(drawn)


# The draws cannot be repeated, so each test is allowed to fail once in a billion runs.
ONCE_IN_A_BILLION = 1e-9


def test_the_noise_is_normal_with_the_scale_that_was_paid_for(noises: npt.NDArray[np.float64]) -> None:
    # Kolmogorov and Smirnov: P(√n·sup|F_n − Φ| > x) is at most 2·exp(−2x²).
    values, n = np.sort(noises.ravel()), noises.size
    expected = np.array([NormalDist().cdf(value) for value in values])
    distance = np.abs(np.arange(1, n + 1) / n - expected).max() + 1 / n
    assert math.sqrt(n) * distance < math.sqrt(math.log(2 / ONCE_IN_A_BILLION) / 2)
    # The sum of n squares has mean n and variance 2n.
    assert abs(float(np.sum(values**2)) - n) < 6.5 * math.sqrt(2 * n)


def test_the_noise_of_one_deletion_says_nothing_about_another(noises: npt.NDArray[np.float64]) -> None:
    # Coordinates of one deletion, and the two deletions of one model: no correlation, also not in size.
    flat = noises.reshape(len(noises), -1)
    for values in (flat, np.abs(flat)):
        correlation = np.corrcoef(values, rowvar=False)
        off_diagonal = correlation[np.triu_indices(len(correlation), 1)]
        allowed = -NormalDist().inv_cdf(ONCE_IN_A_BILLION / 2 / len(off_diagonal)) / math.sqrt(len(noises))
        assert np.abs(off_diagonal).max() < allowed


def test_two_deletions_never_reuse_noise(noises: npt.NDArray[np.float64]) -> None:
    # Not within a model, nor between models loaded from the same stored state. One coordinate may meet another by
    # chance, since noise is whole steps of a grid; all of them may not.
    vectors = noises.reshape(-1, noises.shape[-1])
    assert len(np.unique(vectors, axis=0)) == len(vectors)


def test_the_deletions_of_one_batch_have_noise_of_their_own() -> None:
    pair, x, y = learned({"loss": "logistic", "unlearner": "passive", "m": 2, "gamma": 1e9})
    saved, clock = pair.state(), pair.tally("clock")
    k = pair.epoch.constants  # type: ignore[union-attr]
    sigma = odometer.sigma(bounds.sensitivity(k.G, k.lam, clock, k.t0, "passive"), pair.price(clock))
    jumps = []
    for _ in range(1000):
        model = CertifiedPair.from_state(saved)
        before = model.arrays.anchor.copy()
        model.apply(np.full(2, events.DELETE, np.int16), x[:2], y[:2], [()] * 2)
        jumps.append((model.arrays.anchor - before) / sigma)
    # Two independent draws have twice the variance of one; the same draw twice would have four times as much.
    n = np.size(jumps)
    assert abs(float(np.mean(np.square(jumps))) - 2.0) < 2.0 * 6.5 * math.sqrt(2 / n) < 1.0
