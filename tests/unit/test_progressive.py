"""Counts of losses that begin at noise: they tell how a model does, and nothing worth having of a single row."""

from __future__ import annotations

import numpy as np
import pytest

from mempair_db.pair import progressive
from mempair_db.pair.exact import refer, solve, sums
from mempair_db.pair.odometer import epsilon_of


def test_losses_are_those_of_the_label_that_a_row_has() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 2))
    y = (x[:, 0] + rng.normal(size=2000) > 0).astype(float)
    reference = refer(x, y)
    w = solve(reference, sums(reference, x, y))
    losses = progressive.losses(reference, w, x, y)
    assert losses.mean() == pytest.approx(0.49, abs=0.05)
    right = (losses < np.log(2)).mean()
    counted = progressive.counts(losses)
    assert counted.sum() == 2000
    assert counted[:8].sum() / 2000 == pytest.approx(right)
    flipped = progressive.losses(reference, w, x, 1 - y)
    assert np.exp(-losses) + np.exp(-flipped) == pytest.approx(np.ones(2000))


def test_a_regression_counts_errors_in_deviations() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(500, 1)) * 100
    y = 3 * x[:, 0] + rng.normal(size=500) * 50
    reference = refer(x, y, loss="squared")
    w = solve(reference, sums(reference, x, y))
    assert progressive.losses(reference, w, x, y).mean() * reference.encoding.target.scale == pytest.approx(40, rel=0.2)


def test_the_noise_has_the_spread_that_the_promise_is_computed_from() -> None:
    drawn = np.array([progressive.noise() for _ in range(1000)], float)
    assert drawn.std() == pytest.approx(2**progressive.FINENESS, rel=0.03)
    assert abs(drawn.mean()) < 0.3
    rho = 1 / (2 * 4**progressive.FINENESS)
    assert epsilon_of(rho, 1e-6) < 0.51
    assert epsilon_of(2 * rho, 1e-6) < 0.74


def test_who_looks_for_the_only_row_of_a_day_guesses() -> None:
    rng = np.random.default_rng(3)
    hits, trials = 0, 2000
    for _ in range(trials):
        cell = int(rng.integers(progressive.CELLS))
        seen = progressive.noise()
        seen[cell] += 1
        hits += int(np.argmax(seen)) == cell  # the likeliest cell, by Bayes
    assert hits / trials < 1 / progressive.CELLS + 0.04
