from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mempair_db.measure import distinguish
from mempair_db.pair import bounds


def test_the_tight_instance_attains_theorem_b() -> None:
    worlds = distinguish.tight_instance(1.0, 1e-6)
    k = worlds.constants
    quiet = np.zeros(1)
    gap = np.linalg.norm(worlds.forgotten(quiet).theta - worlds.never_had(quiet).theta)
    assert gap == pytest.approx(bounds.sensitivity(k.G, k.lam, 50, k.t0, "symmetric"), rel=1e-12)


def test_on_the_tight_instance_the_limit_comes_close_and_stays_below_the_claim() -> None:
    found = distinguish.confirmed(distinguish.tight_instance(3.0, 1e-6), delta=1e-6, samples=8_000)
    assert found.exact_epsilon == pytest.approx(found.claimed, rel=1e-6)
    assert found.holds
    assert found.closeness > 0.6


def test_half_the_noise_is_caught() -> None:
    worlds = distinguish.tight_instance(3.0, 1e-6)
    found = distinguish.confirmed(replace(worlds, sigma=worlds.sigma / 2), delta=1e-6, samples=8_000)
    assert not found.holds


def test_algorithm_1_as_printed_is_caught() -> None:
    found = distinguish.distinguish(distinguish.printed_instance(1.0, 1e-6), delta=1e-6, samples=400)
    assert not found.holds
    assert (found.true_positives, found.false_positives) == (1.0, 0.0)


def test_after_a_deletion_nothing_but_noised_numbers_is_carried() -> None:
    worlds = distinguish.tight_instance(1.0, 1e-6)
    state = worlds.forgotten(np.ones(1))
    assert state.theta == state.anchor
    assert not any(
        part.any() for part in (state.window_v, state.window_r, state.window_vr, state.block_v, state.block_r)
    )


def test_worlds_that_do_not_differ_prove_nothing() -> None:
    worlds = distinguish.tight_instance(1.0, 1e-6)
    worlds = replace(worlds, learned=worlds.ideal, x=np.zeros(1))
    found = distinguish.distinguish(worlds, delta=1e-6, samples=2_000)
    assert found.epsilon < 0.2
    assert found.exact_epsilon == 0.0
