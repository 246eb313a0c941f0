"""Theorems A and B against a true replay, over hostile streams; and a control: the same checks catch Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import find, given, settings
from hypothesis import strategies as st

from mempair_db.pair import events
from mempair_db.pair.noise import APART, STEPS
from mempair_db.pair.state import Constants, State, Vector, copy, to_bytes

from .streams import SLACK, Mixed, Stream, mixed, streams, streams_with_a_row

Served = Callable[[State], Vector]
"""Which vector of a state the promise is about: the anchor, or θ where there is no anchor."""


def anchor(state: State) -> Vector:
    return state.anchor


def theta(state: State) -> Vector:
    return state.theta


def assert_every_tick_is_stable(stream: Stream, row: int, vector: Served, bound: Callable[[int], float]) -> None:
    """Check the distance to the replay without the row, at every clock T."""
    ops = stream.without(row)
    for clock, (live, replayed) in enumerate(zip(stream.walk(stream.inserts()), stream.walk(ops), strict=True), 1):
        assert np.linalg.norm(vector(live) - vector(replayed)) <= bound(clock) * SLACK


def assert_the_means_are_close(stream: Stream, row: int, vector: Served, claimed: float) -> None:
    """Check the distance of the live model after the delete, before noise, to the replay without the row."""
    live = stream.play(stream.inserts())
    stream.delete(live, row)
    ideal = stream.play(stream.without(row))
    assert np.linalg.norm(vector(live) - vector(ideal)) <= claimed * SLACK


# ---- Theorem A. ----


@given(streams_with_a_row())
def test_the_anchor_stays_as_close_to_the_replay_as_proved(given_: tuple[Stream, int]) -> None:
    stream, row = given_
    assert_every_tick_is_stable(stream, row, anchor, stream.stability)


@given(streams_with_a_row())
def test_theta_stays_as_close_to_the_replay_as_proved(given_: tuple[Stream, int]) -> None:
    stream, row = given_
    factor = 1.0 + 2.0 * stream.k.kappa
    assert_every_tick_is_stable(stream, row, theta, lambda clock: factor * stream.stability(clock))


def test_the_bound_of_theorem_a_is_attained() -> None:
    # Given a stream that comes within a millionth of the bound, the bound could not be smaller.
    def is_tight(given_: tuple[Stream, int]) -> bool:
        stream, row = given_
        live, replayed = stream.play(stream.inserts()), stream.play(stream.without(row))
        return bool(np.linalg.norm(live.anchor - replayed.anchor) >= (1.0 - 1e-6) * stream.stability(len(stream)))

    stream, row = find(streams_with_a_row(), is_tight, settings=settings(max_examples=1000))
    assert_every_tick_is_stable(stream, row, anchor, stream.stability)


# ---- Theorem B. ----


@given(streams_with_a_row())
def test_a_delete_lands_within_its_sensitivity_of_the_replay(given_: tuple[Stream, int]) -> None:
    stream, row = given_
    assert_the_means_are_close(stream, row, anchor, stream.sensitivity(len(stream)))


@given(streams_with_a_row())
def test_the_negative_step_moves_no_farther_than_proved(given_: tuple[Stream, int]) -> None:
    # Given a model that learned the row, when it takes the step without noise,
    stream, row = given_
    state = stream.play(stream.inserts())
    before = state.anchor.copy()
    stream.delete(state, row)
    # then it moves by at most the row's own influence, and passively not at all.
    moved = np.linalg.norm(state.anchor - before)
    assert moved <= (stream.stability(len(stream)) * SLACK if stream.k.symmetric else 0.0)


@given(streams_with_a_row())
def test_after_a_delete_nothing_but_the_anchor_can_carry_the_row(given_: tuple[Stream, int]) -> None:
    stream, row = given_
    state = stream.play(stream.inserts())
    stream.delete(state, row, noise=np.ones(stream.d))
    assert np.array_equal(state.theta, state.anchor)
    assert np.array_equal(state.block_theta, state.anchor)
    for array in (state.window_v, state.window_r, state.window_vr, state.block_v, state.block_r):
        assert not array.any()
    for counter in ("head", "pairs", "block_rows"):
        assert state.tally[counter][0] == 0


@given(streams_with_a_row(), st.floats(1e-6, 1e3))
def test_rounding_to_the_grid_moves_the_worlds_apart_by_no_more_than_is_paid_for(
    given_: tuple[Stream, int], share: float
) -> None:
    # Given a grid of any size, when both worlds are rounded to it and no noise falls,
    stream, row = given_
    grid = share * stream.sensitivity(len(stream))
    live, ideal = stream.play(stream.inserts()), stream.play(stream.without(row))
    stream.delete(live, row, grid=grid)
    stream.delete(ideal, row, grid=grid, k=stream.passive)
    # then both lie on it, and at most S and a step in every dimension apart.
    for state in (live, ideal):
        assert np.array_equal(state.anchor, grid * np.rint(state.anchor / grid))
    apart = stream.sensitivity(len(stream)) * SLACK + APART * grid * np.sqrt(stream.d)
    assert np.linalg.norm(live.anchor - ideal.anchor) <= apart


@given(streams_with_a_row(), st.integers(0, 2**32 - 1))
def test_what_a_delete_keeps_beside_the_anchor_knows_neither_the_rows_nor_the_noise(
    given_: tuple[Stream, int], seed: int
) -> None:
    # Given two streams that share nothing but their length and constants, and noise of their own,
    stream, row = given_
    rng = np.random.default_rng(seed)
    other = replace(stream, X=rng.permutation(-stream.X), y=rng.permutation(stream.y))
    kept = []
    for world in (stream, other):
        state = world.play(world.inserts())
        world.delete(state, row, np.rint(rng.normal(size=stream.d) * STEPS), grid=1e-9)
        kept.append(without_anchor(state))
    # then every byte but the anchor and its copies is the same. Before, jumps gave ‖a‖ and ‖η‖ away, losses the row.
    assert kept[0] == kept[1]


def without_anchor(state: State) -> bytes:
    """Return every byte of the state but the anchor's and its copies', which must be copies."""
    assert state.anchor.tobytes() == state.theta.tobytes() == state.block_theta.tobytes()
    blank = copy(state)
    for array in (blank.anchor, blank.theta, blank.block_theta):
        array[:] = 0.0
    return to_bytes(blank)


@given(streams_with_a_row())
def test_after_a_delete_both_worlds_go_on_alike(given_: tuple[Stream, int]) -> None:
    # Given both worlds at the same anchor after the delete, when the stream goes on,
    stream, row = given_
    live, ideal = stream.play(stream.inserts()), stream.play(stream.without(row))
    ideal.tally["rows"] += 1  # the empty place is counted: that there was a row is public
    noise = np.full(stream.d, 0.5)
    ideal.anchor[:] = 0.0
    live.anchor[:] = 0.0
    for state in (live, ideal):
        stream.delete(state, row, noise, k=stream.passive)
        events.learn(state, stream.k, stream.X, stream.y)
    # then every byte agrees: no other part of the state reaches them.
    assert to_bytes(live) == to_bytes(ideal)


@given(mixed(ticks=False, grids=False))
def test_each_of_many_deletions_lands_within_its_own_sensitivity(given_: Mixed) -> None:
    # Given worlds that lack the first i deleted rows, with all the noise, when the next one is really deleted,
    stream, deletes = given_.stream, np.flatnonzero(given_.ops == events.DELETE)
    for i, position in enumerate(deletes[:8]):
        live, ideal = replays(given_, i, int(position)), replays(given_, i + 1, int(position))
        stream.delete(live, int(given_.rows[position]), given_.noise[i])
        stream.delete(ideal, int(given_.rows[position]), given_.noise[i], k=stream.passive)
        # then it lands within S of the world that never had it.
        clock = int(live.tally["clock"][0])
        scale = np.abs(live.anchor).max() * np.finfo(float).eps * stream.d
        assert np.linalg.norm(live.anchor - ideal.anchor) <= stream.sensitivity(clock) * SLACK + scale


def replays(given_: Mixed, lacking: int, until: int) -> State:
    """Return the world at an event that never had the first so many deleted rows, but has the noise of every delete."""
    deleted = given_.rows[given_.ops == events.DELETE][:lacking]
    ops = given_.ops.copy()
    ops[np.isin(given_.rows, deleted) & (ops == events.INSERT)] = events.TICK
    world = Mixed(with_constants(given_.stream, given_.stream.passive), ops, given_.rows, given_.noise)
    state = world.stream.start()
    world.apply(state, 0, until)
    return state


def with_constants(stream: Stream, k: Constants) -> Stream:
    return Stream(stream.kind, stream.X, stream.y, k, stream.tau, stream.parameters)


@given(mixed(grids=False))
def test_deleting_everything_leaves_the_noise_and_a_proven_distance(given_: Mixed) -> None:
    # Given a stream of m rows with deletes in between, when at the end every surviving row is deleted too,
    stream = given_.stream
    alive = set(given_.rows[given_.ops == events.INSERT]) - set(given_.rows[given_.ops == events.DELETE])
    everything = Mixed(
        stream,
        np.concatenate((given_.ops, np.full(len(alive), events.DELETE, np.int16))),
        np.concatenate((given_.rows, np.array(sorted(alive), np.intp))),
        np.concatenate((given_.noise, np.full((len(alive), stream.d), stream.k.G))),
    )
    state = stream.start()
    everything.apply(state, 0, len(everything.ops))
    # then the model is at most m·S from the same noise on an empty stream: each row is proved to leave at most S(T_i)
    # at its delete, which the ticks that follow shrink to S(T). θ is the anchor, so no prediction differs by more.
    m = int(np.count_nonzero(everything.ops == events.INSERT))
    noise_alone = stream.start()
    silent = Mixed(
        with_constants(stream, stream.passive),
        np.where(everything.ops == events.INSERT, events.TICK, everything.ops).astype(np.int16),
        everything.rows,
        everything.noise,
    )
    silent.apply(noise_alone, 0, len(silent.ops))
    clock = int(state.tally["clock"][0])
    rounding = np.abs(noise_alone.anchor).max() * np.finfo(float).eps * len(everything.ops)
    assert np.linalg.norm(state.anchor - noise_alone.anchor) <= m * stream.sensitivity(clock) * SLACK + rounding
    if m:
        assert np.linalg.norm(state.theta - noise_alone.anchor) <= m * stream.sensitivity(clock) * SLACK + rounding


# ---- The positive control: Algorithm 1 as printed claims S = α·G/λ, and the same checks catch it. ----


def claimed(stream: Stream, clock: int) -> float:
    """α_T·G/λ with the paper's α_T = 1/T: its G/λ with the step size it forgot."""
    return stream.k.G / (stream.k.lam * clock)


def fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return True
    return False


def test_the_check_of_theorem_a_catches_algorithm_1() -> None:
    def is_caught(given_: tuple[Stream, int]) -> bool:
        stream, row = given_
        return fails(lambda: assert_every_tick_is_stable(stream, row, theta, lambda clock: claimed(stream, clock)))

    find(streams_with_a_row(mode="paper"), is_caught)


def test_the_check_of_theorem_b_catches_algorithm_1() -> None:
    def is_caught(given_: tuple[Stream, int]) -> bool:
        stream, row = given_
        return fails(lambda: assert_the_means_are_close(stream, row, theta, claimed(stream, len(stream))))

    find(streams_with_a_row(mode="paper"), is_caught)


def test_algorithm_1_is_caught_by_more_than_twice_its_claim() -> None:
    # Given only finite models, so that no division by almost nothing decides it.
    def is_caught_twice(given_: tuple[Stream, int]) -> bool:
        stream, row = given_
        live, ideal = stream.play(stream.inserts()), stream.play(stream.without(row))
        stream.delete(live, row)
        distance = np.linalg.norm(live.theta - ideal.theta)
        return bool(np.isfinite(distance) and distance > 2.0 * claimed(stream, len(stream)))

    find(streams_with_a_row(mode="paper"), is_caught_twice)


def test_a_stream_without_rows_left_is_the_empty_one() -> None:
    # A replay in which every row became a tick has learned nothing.
    stream = find(streams(), lambda s: len(s) > 3)
    state = stream.play(stream.without(*range(len(stream))))
    assert not state.anchor.any()
    assert not state.theta.any()
