"""Deletions with noise that the test knows: how much falls, on what, and that every deletion has its own.

The expected anchors are computed here in plain numpy, from theory 3.2 and 3.4, not by the kernel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mempair_db.errors import BudgetExhausted
from mempair_db.pair import events, noise
from mempair_db.pair.bounds import Unlearner
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.odometer import UNITS
from mempair_db.pair.state import empty

Vector = npt.NDArray[np.float64]

ROWS, M = 120, 6
UNLEARNERS: tuple[Unlearner, ...] = ("symmetric", "passive")
LOSSES = ("logistic", "huber")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every number that is drawn, in order: 2²⁴ times −1.7, −0.7, 0.3, 1.3, −1.3, … and never twice the same."""
    drawn: list[int] = []

    def counted(count: int) -> npt.NDArray[np.int64]:
        start = len(drawn)
        drawn.extend(round(2**24 * (-1.7 + (i % 5) + 0.001 * i)) for i in range(start, start + count))
        return np.array(drawn[start:], np.int64)

    monkeypatch.setattr(noise, "discrete_gaussian", counted)
    return drawn


def pair_of(loss: str, unlearner: Unlearner, **options: Any) -> tuple[CertifiedPair, Vector, Vector]:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(ROWS, 3))
    score = x @ [1.0, -0.5, 0.2] + 0.3 * rng.normal(size=ROWS)
    y = np.where(score > 0, 1.0, -1.0) if loss == "logistic" else score
    chosen = {"lam": 0.05, "m": M, "gamma": 1e9, "calibration_rows": ROWS, "clip": 2.0, **options}
    pair = CertifiedPair(loss=loss, unlearner=unlearner, **chosen)
    pair.learn_many(x, y)
    return pair, x, y


def expected_grid(
    pair: CertifiedPair, clock: int, loss: str, unlearner: Unlearner, units: int, before: float = 0.0
) -> float:
    """g by hand: S is one or two times G/(λ(T + t0)), t0 = M/λ, and what earlier roundings left of their own."""
    G, curvature = (1.0, 0.25) if loss == "logistic" else (2.0, 1.0)
    S = (2.0 if unlearner == "symmetric" else 1.0) * G / (0.05 * (clock + curvature / 0.05))
    d = len(pair.arrays.anchor)
    S += before / (clock + curvature / 0.05)
    return S * (1 + 1e-6) / (2**24 * math.sqrt(2 * units / 1e12) - 1.25 * math.sqrt(d))


def derivative(loss: str, z: float, y: float) -> float:
    return -y / (1 + math.exp(y * z)) if loss == "logistic" else min(max(z - y, -2.0), 2.0)


def step(pair: CertifiedPair, a: Vector, op: int, X: Vector, y: float, clock: int, loss: str) -> Vector:
    """What one event does to the anchor before any noise, with an empty window."""
    M_loss = 0.25 if loss == "logistic" else 1.0
    s = clock + M_loss / 0.05
    if op == events.INSERT:
        return a - (derivative(loss, float(a @ X), y) * X + 0.05 * a) / (0.05 * s)
    symmetric = pair.parameters.unlearner == "symmetric"
    return a + symmetric * derivative(loss, float(a @ X), y) * X / (0.05 * s)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("unlearner", UNLEARNERS)
def test_a_batch_with_several_deletions_ends_where_the_known_noise_puts_it(
    known: list[int], loss: str, unlearner: Unlearner
) -> None:
    # Given a model whose window was emptied by a deletion,
    pair, x, y = pair_of(loss, unlearner)
    pair.unlearn_one(x[0], float(y[0]))
    assert pair.epoch is not None
    a, clock, d = pair.arrays.anchor.copy(), pair.tally("clock"), len(pair.arrays.anchor)
    t0, units = (5.0 if loss == "logistic" else 20.0), pair.odometer.cap // M
    before = 1.25 * math.sqrt(d) * expected_grid(pair, clock, loss, unlearner, units) * (clock + t0)
    X, targets = pair.epoch.encoding.encode(x, [()] * ROWS), pair.epoch.encoding.encode_target(y)
    # when a batch deletes, inserts, and deletes twice in a row,
    ops = [events.DELETE, events.INSERT, events.INSERT, events.DELETE, events.DELETE, events.INSERT]
    rows = [5, 6, 7, 8, 9, 10]
    used = len(known)
    applied = pair.apply(np.array(ops, np.int16), x[rows], y[rows], [()] * 6)
    # then each deletion has the next d numbers, on the grid of its own clock, and inserts alone move the clock.
    assert len(known) == used + 3 * d
    assert applied.spent == [pair.odometer.cap // M] * 3
    for op, row in zip(ops, rows, strict=True):
        clock += op == events.INSERT
        a = step(pair, a, op, X[row], float(targets[row]), clock, loss)
        if op == events.DELETE:
            grid = expected_grid(pair, clock, loss, unlearner, units, before)
            before += 1.25 * math.sqrt(d) * grid * (clock + t0)
            steps = np.array(known[used : used + d])
            used += d
            a = grid * (np.rint(a / grid) + steps)
    assert pair.arrays.anchor == pytest.approx(a, rel=1e-9, abs=1e-9)
    assert pair.tally("rounded") == pytest.approx(before, rel=1e-12)
    assert pair.tally("clock") == clock
    assert pair.tally("deletions") == pair.odometer.deletions == 4


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("unlearner", UNLEARNERS)
def test_the_noise_is_as_large_as_the_sensitivity_asks(known: list[int], loss: str, unlearner: Unlearner) -> None:
    pair, x, y = pair_of(loss, unlearner)
    clock, units = pair.tally("clock"), pair.price(pair.tally("clock"))
    pair.unlearn_one(x[3], float(y[3]))
    assert clock == ROWS
    steps = pair.arrays.anchor / expected_grid(pair, clock, loss, unlearner, units)
    assert steps == pytest.approx(np.rint(steps), abs=1e-6)
    # σ is S/√(2ρ) and not less, also after rounding up for the grid and for the steps' own rounding.
    G, curvature = (1.0, 0.25) if loss == "logistic" else (2.0, 1.0)
    S = (2.0 if unlearner == "symmetric" else 1.0) * G / (0.05 * clock + curvature)
    least = S / math.sqrt(2 * units / UNITS)
    sigma = 2**24 * expected_grid(pair, clock, loss, unlearner, units)
    assert least * (1 + 1e-6) <= sigma <= least * (1 + 1e-4)


@pytest.mark.parametrize("unlearner", UNLEARNERS)
def test_equal_deletions_in_one_batch_fall_with_different_noise(unlearner: Unlearner) -> None:
    # Real noise: what one deletion adds says nothing of the next.
    pair, x, y = pair_of("logistic", unlearner)
    pair.unlearn_one(x[0], float(y[0]))
    states = []
    for count in (1, 2):
        model = CertifiedPair.from_state(pair.state())
        model.apply(np.full(count, events.DELETE, np.int16), x[[1] * count], y[[1] * count], [()] * count)
        states.append(model.arrays.anchor - pair.arrays.anchor)
    assert not np.allclose(states[1], 2 * states[0], rtol=1e-3)


def test_a_split_that_follows_the_clock_is_asked_at_the_clock_of_each_deletion(known: list[int]) -> None:
    # Given a live split, when a batch deletes before and after inserts,
    pair, x, y = pair_of("logistic", "passive", m=None, gamma=10.0)
    clock = pair.tally("clock")
    ops = np.array([events.DELETE] + [events.INSERT] * 40 + [events.DELETE, events.DELETE], np.int16)
    applied = pair.apply(ops, x[: len(ops)], y[: len(ops)], [()] * len(ops))
    # then each pays what a deletion costs at its own clock, and the odometer has the sum.
    assert applied.spent == [pair.price(clock), pair.price(clock + 40), pair.price(clock + 40)]
    assert applied.spent[1] < applied.spent[0]
    assert pair.odometer.spent == sum(applied.spent)
    assert pair.tally("clock") == clock + 40


def test_a_jump_is_bounded_by_what_noise_of_this_size_can_be() -> None:
    # J = g·(2²⁴·(√d + √(2 ln 1e9)) + 2.25·√d), and nothing of the noise that really fell.
    k, d, grid = constants_for(Parameters(unlearner="passive"), 0.05), 4, 1e-8
    state = empty(d, tau=3)
    events.learn(state, k, np.full((10, d), 0.5), np.ones(10))
    events.apply(
        state, k, np.array([events.DELETE], np.int16), np.zeros((1, d)), np.ones(1), np.ones((1, d)), np.array([grid])
    )
    jump = grid * (2**24 * (2 + math.sqrt(2 * math.log(1e9))) + 2.25 * 2)
    assert state.tally["jump_slope"][0] == pytest.approx(0.05 * (10 + 5) * jump, rel=1e-12)


@pytest.mark.parametrize("unlearner", UNLEARNERS)
def test_no_noise_takes_the_anchor_further_than_the_bound_on_rounding_allows_for(unlearner: Unlearner) -> None:
    # Given noise of a size that nobody draws, when it falls,
    k, d, grid = constants_for(Parameters(unlearner=unlearner), 0.05), 4, 1e-5
    state = empty(d, tau=3)
    events.learn(state, k, np.full((10, d), 0.5), np.ones(10))
    steps, most = np.array([[3.0, -1.0, 2.0, 0.0]]) * 2**24, 2.0 / 0.05
    assert grid * np.linalg.norm(steps) > 10 * most
    delete = np.array([events.DELETE], np.int16)
    events.apply(state, k, delete, np.full((1, d), 0.5), np.ones(1), steps, np.array([grid]))
    # then the anchor is no longer than 2G/λ, in its direction and in whole steps of the grid; and so for good, since
    assert most * (1 - 1e-5) < np.linalg.norm(state.anchor) <= most
    assert state.anchor / most == pytest.approx(steps[0] / np.linalg.norm(steps), abs=0.01)
    assert np.array_equal(state.anchor, grid * np.rint(state.anchor / grid))
    assert np.array_equal(state.theta, state.anchor)
    assert state.tally["reach"][0] == most
    # no row takes it further.
    events.learn(state, k, np.full((50, d), -0.5), np.ones(50))
    assert np.linalg.norm(state.anchor) <= most


def test_a_budget_too_small_for_a_grid_is_served_by_a_retrain() -> None:
    pair, x, y = pair_of("logistic", "passive", m=2 * 10**9, epsilon=0.28)
    assert pair.odometer.cap // (2 * 10**9) == 1
    assert pair.price(pair.tally("clock")) == 0
    with pytest.raises(BudgetExhausted):
        pair.unlearn_one(x[0], float(y[0]))


@pytest.mark.parametrize("unlearner", UNLEARNERS)
def test_the_kernel_gives_every_deletion_its_own_row_of_noise(unlearner: Unlearner) -> None:
    k, d = constants_for(Parameters(unlearner=unlearner), 0.05), 4
    state, steps, X = empty(d, tau=3), np.arange(12.0).reshape(3, 4) + 1.0, np.zeros((3, d))  # no gradient
    delete = np.full(3, events.DELETE, np.int16)
    events.apply(state, k, delete, X, np.ones(3), steps, np.full(3, 0.5))
    assert state.anchor.tolist() == (0.5 * steps.sum(axis=0)).tolist()
    # and its own grid.
    before = state.anchor.copy()
    events.apply(state, k, delete[:2], X[:2], np.ones(2), steps[:2], np.array([0.5, 0.25]))
    assert state.anchor.tolist() == (before + 0.5 * steps[0] + 0.25 * steps[1]).tolist()
