"""What holds after every event, and that batches, copies and stored states change nothing."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mempair_db.pair.state import State, copy, empty, from_bytes, to_bytes

from .streams import SLACK, Mixed, Stream, mixed, streams


@given(mixed())
def test_theta_stays_in_the_trust_region_after_every_event(given_: Mixed) -> None:
    stream, state = given_.stream, given_.stream.start()
    for i in range(len(given_.ops)):
        given_.apply(state, i, i + 1)
        clock = int(state.tally["clock"][0])
        rounding = np.linalg.norm(state.anchor) * np.finfo(float).eps * 4
        assert np.linalg.norm(state.theta - state.anchor) <= stream.k.kappa * stream.stability(clock) * SLACK + rounding


@given(mixed())
def test_every_pair_of_the_window_has_positive_curvature(given_: Mixed) -> None:
    stream, state = given_.stream, given_.stream.start()
    for i in range(len(given_.ops)):
        given_.apply(state, i, i + 1)
        for slot in range(int(state.tally["pairs"][0])):
            v, r = state.window_v[slot], state.window_r[slot]
            assert abs(np.linalg.norm(v) - 1.0) <= 1e-12
            assert v @ r >= stream.k.lam * (1.0 - 1e-12)
            assert abs(state.window_vr[slot] - v @ r) <= 1e-12 * (1.0 + v @ r)


@given(streams())
def test_the_window_fills_up_to_tau_pairs_and_no_further(stream: Stream) -> None:
    state = stream.play(stream.inserts())
    assert 0 <= state.tally["pairs"][0] <= stream.tau


@given(st.one_of(mixed(), mixed(mode="paper")), st.lists(st.integers(0, 400), max_size=8))
def test_batches_of_any_size_give_the_same_bits(given_: Mixed, cuts: list[int]) -> None:
    whole = given_.stream.start()
    given_.apply(whole, 0, len(given_.ops))
    # When the same events come in pieces,
    pieces = given_.stream.start()
    edges = [0, *sorted(min(cut, len(given_.ops)) for cut in cuts), len(given_.ops)]
    for start, end in itertools.pairwise(edges):
        given_.apply(pieces, start, end)
    # or one by one,
    single = given_.stream.start()
    for i in range(len(given_.ops)):
        given_.apply(single, i, i + 1)
    # then the states are equal to the last bit.
    assert to_bytes(pieces) == to_bytes(whole)
    assert to_bytes(single) == to_bytes(whole)


@given(st.one_of(mixed(), mixed(mode="paper")), st.integers(0, 400))
def test_a_stored_and_loaded_state_goes_on_with_the_same_bits(given_: Mixed, cut: int) -> None:
    cut = min(cut, len(given_.ops))
    whole = given_.stream.start()
    given_.apply(whole, 0, len(given_.ops))
    # When the state is stored and loaded in between,
    first = given_.stream.start()
    given_.apply(first, 0, cut)
    stored = to_bytes(first)
    loaded = from_bytes(stored, given_.stream.d, given_.stream.tau)
    # then nothing is lost,
    assert to_bytes(loaded) == stored
    given_.apply(loaded, cut, len(given_.ops))
    assert to_bytes(loaded) == to_bytes(whole)
    # and the copy shares nothing with its original.
    assert to_bytes(first) == stored


@given(st.integers(1, 50), st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_any_bits_round_trip(d: int, tau: int, seed: int) -> None:
    # Given any bits at all, NaN with a payload and −0 among them,
    size = sum(array.nbytes for array in empty(d, tau))
    data = np.random.default_rng(seed).bytes(size)
    assert to_bytes(from_bytes(data, d, tau)) == data


@given(mixed())
def test_a_copy_is_not_changed_by_what_happens_to_the_original(given_: Mixed) -> None:
    state = given_.stream.start()
    kept: State = copy(state)
    given_.apply(state, 0, len(given_.ops))
    assert to_bytes(kept) == to_bytes(given_.stream.start())


@given(mixed())
def test_the_tally_counts_what_happened_and_stays_finite(given_: Mixed) -> None:
    state = given_.stream.start()
    given_.apply(state, 0, len(given_.ops))
    tally = state.tally[0]
    kinds = [int(np.count_nonzero(given_.ops == kind)) for kind in (0, 1, 2)]
    assert [tally["clock"], tally["rows"], tally["deletions"]] == [kinds[0] + kinds[1], kinds[1], kinds[2]]
    assert all(np.isfinite(array).all() for array in state if array.dtype == np.float64)
    assert all(np.isfinite(tally[name]) for name in state.tally.dtype.names or ())
