from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mempair_db.measure import distinguish, worlds
from mempair_db.pair import bounds
from mempair_db.pair.state import State, copy


def test_the_tight_instance_attains_theorem_b() -> None:
    both = worlds.tight_instance(1.0, 1e-6)
    k = both.constants
    gap = np.linalg.norm(both.forgotten(both.quiet()).theta - both.never_had(both.quiet()).theta)
    assert gap == pytest.approx(bounds.sensitivity(k.G, k.lam, 50, k.t0, "symmetric"), rel=1e-6)  # rounded to the grid


def test_on_the_tight_instance_the_limit_comes_close_and_stays_below_the_claim() -> None:
    found = distinguish.confirmed(worlds.tight_instance(3.0, 1e-6), delta=1e-6, samples=8_000)
    assert found.exact_epsilon == pytest.approx(found.claimed, rel=1e-5)
    assert found.holds
    assert found.closeness > 0.6


def test_half_the_noise_is_caught() -> None:
    both = worlds.tight_instance(3.0, 1e-6)
    found = distinguish.confirmed(replace(both, sigma=both.sigma / 2), delta=1e-6, samples=8_000)
    assert not found.holds


def test_algorithm_1_as_printed_is_caught() -> None:
    found = distinguish.distinguish(worlds.printed_instance(1.0, 1e-6), delta=1e-6, samples=400)
    assert not found.holds
    assert (found.true_positives, found.false_positives) == (1.0, 0.0)


def test_after_a_deletion_nothing_but_noised_numbers_is_carried() -> None:
    both = worlds.tight_instance(1.0, 1e-6)
    state = both.forgotten(both.draw(1))
    assert state.theta == state.anchor
    assert not any(
        part.any() for part in (state.window_v, state.window_r, state.window_vr, state.block_v, state.block_r)
    )


def test_worlds_that_do_not_differ_prove_nothing() -> None:
    both = worlds.tight_instance(1.0, 1e-6)
    learned = copy(both.ideal)
    learned.tally["rows"] += 1
    both = replace(both, learned=learned, x=np.zeros(1))
    found = distinguish.distinguish(both, delta=1e-6, samples=2_000)
    assert found.epsilon < 0.2
    assert found.exact_epsilon == 0.0


@pytest.mark.parametrize("flaw", [flaw for flaw in worlds.FLAWS if flaw])
def test_every_flaw_is_caught(flaw: str) -> None:
    found = distinguish.strongest(worlds.flawed_instance(flaw, 0.29, 1e-6), delta=1e-6, samples=2_000)
    assert found.epsilon > 5 * found.claimed


def test_without_a_flaw_no_attack_proves_more_than_is_claimed() -> None:
    both = worlds.flawed_instance("", 0.29, 1e-6)
    found = [distinguish.confirmed(both, delta=1e-6, samples=4_000, attack=attack) for attack in distinguish.ATTACKS]
    assert all(one.holds for one in found), found


def test_noise_in_doubles_is_caught_by_its_last_bits_alone() -> None:
    both = worlds.flawed_instance(worlds.DOUBLES, 0.29, 1e-6)
    assert distinguish.confirmed(both, delta=1e-6, samples=2_000).holds
    assert not distinguish.confirmed(both, delta=1e-6, samples=2_000, attack="last bits").holds


def test_every_stored_byte_is_looked_at() -> None:
    # Given a state after a deletion, when any part of it but the noised anchor changes, then the test sees it.
    both = worlds.flawed_instance("", 0.29, 1e-6)
    state = both.forgotten(both.draw(1))
    before = distinguish.kept(state)
    for name in State._fields:
        if name in distinguish.NOISED:
            continue
        changed = copy(state)
        bits = getattr(changed, name).view(np.uint8).reshape(-1)
        for i in range(0, len(bits), 8):
            bits[i] ^= 1
            assert distinguish.kept(changed) != before, (name, i)
            bits[i] ^= 1
