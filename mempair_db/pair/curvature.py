"""The window of τ curvature pairs (v, r), r ≈ ∇²F·v, and the quasi-Newton direction d = −H·g it gives.

Memory is fixed: two τ × d arrays used as a ring. How the pairs come about:

    BLOCK      (anchored) v = normalised displacement of θ over the previous block of rows;
               r = (1/n) Σ ℓ''(θᵀx_i, y_i)(x_iᵀv)·x_i + λv, accumulated as the rows of this block pass.
               A pair averages at least L rows and keeps none; vᵀr ≥ λ by construction.
    STEP       (paper, Algorithm 1 as printed) s = θ_new − θ_old, y = difference of one row's gradients.
               r − λv is then proportional to that row: the window stores the last τ people.
    MINIBATCH  (paper, appendix) the displacement of the previous block, and the difference of the mean gradients
               of this block's rows between its two ends.
"""

from __future__ import annotations

import math
from typing import Any, Final

from .compiled import inlined, small, summed
from .losses import derivative, second_derivative
from .state import Constants, Matrix, State, Vector

BLOCK: Final = 0
STEP: Final = 1
MINIBATCH: Final = 2

CODES: Final = {"block": BLOCK, "step": STEP, "minibatch": MINIBATCH}

DENSE: Final = 32  # up to this d the products of a matrix, which do not wait for each other, are faster than the loops
SHORTEST: Final = 1e-100  # the square of a shorter displacement loses digits, and ‖v‖ = 1 would not hold


@summed
def dot(a: Vector, b: Vector) -> float:
    """Return aᵀb. Summed in vector registers: the same bits for the same inputs on the same kind of processor."""
    total = 0.0
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@small
def axpy(factor: float, x: Vector, out: Vector) -> None:
    """Add factor·x to `out`."""
    for j in range(out.shape[0]):
        out[j] += factor * x[j]


@small
def scale(factor: float, out: Vector) -> None:
    """Multiply `out` by the factor."""
    for j in range(out.shape[0]):
        out[j] *= factor


@small
def assign(out: Vector, x: Vector) -> None:
    """Copy x into `out`. A slice assignment would allocate."""
    for j in range(out.shape[0]):
        out[j] = x[j]


@small
def fill(out: Vector, number: float) -> None:
    """Set every entry of `out`."""
    for j in range(out.shape[0]):
        out[j] = number


@inlined
def direction(state: State, g: Vector, initial: float, d: Vector, weights: Vector, inverse: Matrix) -> None:
    """Write d = −H·g; `initial`·I stands for H while the window is empty.

    `inverse` is H as `invert` left it, or has no rows: then the two loops are run, with `weights` for scratch.
    """
    if state.tally[0].pairs == 0:
        for j in range(d.shape[0]):
            d[j] = -initial * g[j]
    elif inverse.shape[0] > 0:
        multiply(inverse, g, d)
    else:
        two_loops(
            state.window_v, state.window_r, state.window_vr, state.tally[0].head, state.tally[0].pairs, g, d, weights
        )


@summed
def multiply(inverse: Matrix, g: Vector, d: Vector) -> None:
    """Write d = −H·g, H symmetric."""
    fill(d, 0.0)
    for i in range(d.shape[0]):
        for j in range(d.shape[0]):
            d[j] -= g[i] * inverse[i, j]


@inlined
def invert(state: State, inverse: Matrix, u: Vector) -> None:
    """Write H into `inverse`, if it has rows and the window pairs: wanted after every change of the window.

    H is a function of the window alone, so it makes no difference when it was last written. `u` is scratch.
    """
    tally = state.tally[0]
    if inverse.shape[0] > 0 and tally.pairs > 0:
        recursion(state.window_v, state.window_r, state.window_vr, tally.head, tally.pairs, inverse, u)


@summed
def recursion(V: Matrix, R: Matrix, vr: Vector, head: int, pairs: int, H: Matrix, u: Vector) -> None:
    """H ← (I − vrᵀ/vᵀr)·H·(I − rvᵀ/vᵀr) + vvᵀ/vᵀr, oldest pair first; with u = H·r/vᵀr that is

    H ← H − v·uᵀ − u·vᵀ + (1 + rᵀu)/vᵀr · v·vᵀ
    """
    tau, size = V.shape
    newest = (head - 1) % tau
    gamma = vr[newest] / dot(R[newest], R[newest])
    for i in range(size):
        fill(H[i], 0.0)
        H[i, i] = gamma
    for age in range(pairs, 0, -1):
        slot = (head - age) % tau
        v, r = V[slot], R[slot]
        for i in range(size):
            u[i] = dot(H[i], r) / vr[slot]
        bend = (1.0 + dot(r, u)) / vr[slot]
        for i in range(size):
            for j in range(size):
                H[i, j] += bend * v[i] * v[j] - (v[i] * u[j] + u[i] * v[j])


@small
def two_loops(V: Matrix, R: Matrix, vr: Vector, head: int, pairs: int, g: Vector, d: Vector, weights: Vector) -> None:
    """Write d = −H·g by the two-loop recursion: 4τ passes over d numbers. The window is not empty."""
    tau, size = V.shape
    for j in range(size):
        d[j] = -g[j]
    newest = (head - 1) % tau
    slot = newest
    for _ in range(pairs):  # newest first
        weights[slot] = dot(V[slot], d) / vr[slot]
        axpy(-weights[slot], R[slot], d)
        slot = slot - 1 if slot > 0 else tau - 1
    scale(vr[newest] / dot(R[newest], R[newest]), d)
    for _ in range(pairs):  # oldest first
        slot = slot + 1 if slot < tau - 1 else 0
        axpy(weights[slot] - dot(R[slot], d) / vr[slot], V[slot], d)


@small
def push(V: Matrix, R: Matrix, vr: Vector, tally: Any, v: Vector, r: Vector) -> None:
    """Put a pair into the ring, over the oldest; a pair without positive curvature is dropped."""
    bend = dot(v, r)
    if not bend > 0.0:
        return
    slot = tally.head
    assign(V[slot], v)
    assign(R[slot], r)
    vr[slot] = bend
    tally.head = (slot + 1) % V.shape[0]
    tally.pairs = min(tally.pairs + 1, V.shape[0])


@inlined
def empty_window(state: State) -> None:
    """Forget every pair and the block under way; the next block starts at θ."""
    tally = state.tally[0]
    for slot in range(state.window_v.shape[0]):
        fill(state.window_v[slot], 0.0)
        fill(state.window_r[slot], 0.0)
    fill(state.window_vr, 0.0)
    fill(state.block_v, 0.0)
    fill(state.block_r, 0.0)
    assign(state.block_theta, state.theta)
    tally.head = 0
    tally.pairs = 0
    tally.block_rows = 0


@inlined
def observe(state: State, k: Constants, x: Vector, y: float, z: float, length: int) -> bool:
    """Let one row, whose margin before the step was z = θᵀx, pass through the block; close the block at `length`.

    Return whether the block was closed, which may have changed the window.
    """
    tally = state.tally[0]
    v, r = state.block_v, state.block_r
    size = x.shape[0]
    if k.pairs == MINIBATCH:  # ∇f_i at the two ends of the previous block; the ridge's λv comes at the end
        z_end = dot(state.block_theta, x)
        z_start = z_end - dot(v, x)
        weight = derivative(k.loss, k.clip, z_end, y) - derivative(k.loss, k.clip, z_start, y)
    else:
        weight = second_derivative(k.loss, k.clip, z, y) * dot(x, v)
    if weight != 0.0:
        for j in range(size):
            r[j] += weight * x[j]
    tally.block_rows += 1
    if tally.block_rows < length:
        return False
    if dot(v, v) > 0.0:
        for j in range(size):
            r[j] = r[j] / tally.block_rows + k.lam * v[j]
        push(state.window_v, state.window_r, state.window_vr, tally, v, r)
    next_block(state.theta, state.block_theta, v, r, k.pairs)
    tally.block_rows = 0
    return True


@small
def next_block(theta: Vector, start: Vector, v: Vector, r: Vector, pairs: int) -> None:
    """Measure the next block along the displacement of θ over the one that just ended."""
    for j in range(v.shape[0]):
        v[j] = theta[j] - start[j]
    norm = math.sqrt(dot(v, v))
    if pairs == BLOCK:
        for j in range(v.shape[0]):
            v[j] = v[j] / norm if norm > SHORTEST else 0.0
    assign(start, theta)
    fill(r, 0.0)
