"""The window of curvature pairs: a ring of fixed size, and the direction it gives against a dense inverse."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
import pytest

from mempair_db.pair.curvature import direction, empty_window, invert, push
from mempair_db.pair.state import State, Vector, empty

Matrix = npt.NDArray[np.float64]


def dense_inverse(pairs: list[tuple[Vector, Vector]], initial: float, d: int) -> Matrix:
    """Return H as the BFGS recursion writes it, oldest pair first: H ← (I − ρvrᵀ)·H·(I − ρrvᵀ) + ρvvᵀ, ρ = 1/vᵀr."""
    scale = pairs[-1][0] @ pairs[-1][1] / (pairs[-1][1] @ pairs[-1][1]) if pairs else initial
    H: Matrix = scale * np.eye(d)
    for v, r in pairs:
        rho = 1.0 / (v @ r)
        left = np.eye(d) - rho * np.outer(v, r)
        H = left @ H @ left.T + rho * np.outer(v, v)
    return H


@numba.njit
def put(state: State, v: Vector, r: Vector) -> None:
    push(state.window_v, state.window_r, state.window_vr, state.tally[0], v, r)


def random_pairs(rng: np.random.Generator, count: int, d: int) -> list[tuple[Vector, Vector]]:
    root = rng.normal(size=(d, d))
    hessian = root @ root.T / d + 0.1 * np.eye(d)
    return [(v, hessian @ v) for v in rng.normal(size=(count, d))]


def direction_of(state: State, g: Vector, *, loops: bool, initial: float = 2.0) -> Vector:
    """Return −H·g, by the two loops or by the matrix."""
    d, size = np.empty_like(g), 0 if loops else len(g)
    inverse = np.empty((size, size))
    invert(state, inverse, np.empty_like(g))
    direction(state, g, initial, d, np.empty(len(state.window_vr)), inverse)
    return d


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("tau", [1, 3, 10])
@pytest.mark.parametrize("count", [0, 1, 3, 12])
def test_the_direction_agrees_with_the_dense_inverse(tau: int, count: int, loops: bool) -> None:
    # Given a window that may have wrapped around, only its τ youngest pairs count.
    rng = np.random.default_rng(count)
    pairs, state, g = random_pairs(rng, count, d=6), empty(6, tau), rng.normal(size=6)
    for v, r in pairs:
        put(state, v, r)
    assert direction_of(state, g, loops=loops) == pytest.approx(-dense_inverse(pairs[-tau:], 2.0, 6) @ g, rel=1e-9)


@pytest.mark.parametrize("loops", [True, False])
def test_the_direction_of_a_pair_that_was_just_measured_is_exact(loops: bool) -> None:
    # The secant equation: H·r = v for the youngest pair.
    rng = np.random.default_rng(0)
    state, pairs = empty(4, 3), random_pairs(rng, 5, d=4)
    for v, r in pairs:
        put(state, v, r)
    v, r = pairs[-1]
    assert direction_of(state, r, loops=loops) == pytest.approx(-v, rel=1e-9)


def test_a_full_window_forgets_its_oldest_pair() -> None:
    state = empty(2, tau=2)
    for i in (1.0, 2.0, 3.0):
        put(state, np.array([i, 0.0]), np.array([i, 1.0]))
    assert state.window_v.tolist() == [[3.0, 0.0], [2.0, 0.0]]
    assert state.window_vr.tolist() == [9.0, 4.0]
    assert (state.tally["head"][0], state.tally["pairs"][0]) == (1, 2)


@pytest.mark.parametrize("r", [[-1.0, 0.0], [0.0, 1.0], [np.nan, 0.0]])
def test_a_pair_without_positive_curvature_is_dropped(r: list[float]) -> None:
    state = empty(2, tau=2)
    put(state, np.array([1.0, 0.0]), np.array(r))
    assert state.tally["pairs"][0] == 0
    assert not state.window_v.any()


def test_an_emptied_window_holds_nothing_and_starts_its_block_at_theta() -> None:
    state = empty(2, tau=2)
    put(state, np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    state.block_v[:], state.block_r[:], state.theta[:] = 1.0, 2.0, 3.0
    state.tally["block_rows"] = 7
    empty_window(state)
    for array in (state.window_v, state.window_r, state.window_vr, state.block_v, state.block_r):
        assert not array.any()
    assert state.block_theta.tolist() == [3.0, 3.0]
    assert [state.tally[name][0] for name in ("head", "pairs", "block_rows")] == [0, 0, 0]
