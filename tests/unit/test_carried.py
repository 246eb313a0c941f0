"""The two-sided test of the noise that a state carries: honest anchors pass, too little and too much are seen."""

from __future__ import annotations

import numpy as np
import pytest

from mempair_db.measure import carried


def judged(scale: float, d: int, seed: int, lives: int = 400) -> carried.Carried:
    rng = np.random.default_rng(seed)
    spread = rng.normal(size=(d, d)) / 3 + np.eye(d)  # noise of many deletions is not round
    anchors, found = rng.normal(size=(lives, d)) @ spread, scale * rng.normal(size=d) @ spread
    return carried.verdict(found, anchors, on_grid=True, noncentral=0.05, deletions=20)


@pytest.mark.parametrize("d", [1, 6, 60])
def test_an_honest_anchor_is_accused_as_rarely_as_said(d: int) -> None:
    found = [judged(1.0, d, seed, lives=200) for seed in range(300)]
    assert sum(not one.holds for one in found) <= 2
    # and the two tails are probabilities: uniform, so a tenth of them lies below a tenth.
    for name in ("too_little", "too_much"):
        share = np.mean([getattr(one, name) < 0.1 for one in found])
        assert 0.03 < share < 0.2


def test_half_the_noise_is_seen_in_a_wide_model_and_the_power_says_so() -> None:
    found = [judged(0.5, 60, seed) for seed in range(100)]
    missed = np.mean([one.holds for one in found])
    assert missed < 0.05
    assert found[0].power == pytest.approx(1 - missed, abs=0.05)
    assert found[0].power > 0.95 > 0.1 > judged(0.5, 3, 0).power


@pytest.mark.parametrize("d", [6, 60])
def test_no_noise_is_seen_in_any_model(d: int) -> None:
    assert all(judged(1e-3, d, seed).too_little < carried.CHANCE for seed in range(20))


def test_twice_the_noise_is_seen_as_well() -> None:
    assert sum(judged(2.0, 60, seed).holds for seed in range(50)) == 0


def test_an_anchor_off_its_grid_fails_whatever_its_size() -> None:
    assert not carried.Carried(1, 6, False, True, 1.0, 0.5, 0.5, 0.1).holds
    assert not carried.Carried(1, 6, True, False, 1.0, 0.5, 0.5, 0.1).holds
    assert carried._on_grid(np.array([0.3 * 7, -0.3 * 2]), 0.3)
    assert not carried._on_grid(np.array([0.3 * 7, -0.3 * 2.5]), 0.3)
