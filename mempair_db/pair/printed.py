"""Algorithm 1 of the paper, as printed (mode `paper`): for research and comparison. It certifies nothing.

    insert:  g = ∇f(θ; x, y);  d = −H·g;  θ ← θ + α·d;          the pair (s, y) or the mini-batch feeds the window
    delete:  g = ∇f(θ; x, y);  d = −H·g;  θ ← θ − α·d + η       η ~ N(0, σ²I), σ = (G/λ)/√(2ρ_s)

Why it is not the default: the window depends on the deleted row and keeps it (theory 2.4, 2.5), G/λ is not the
length of the step (2.2), and the noise of one deletion is as large as the model.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .compiled import inlined, kernel
from .curvature import STEP, direction, dot, observe, push, scale
from .losses import derivative, second_derivative, value
from .schedule import step_size
from .state import Constants, Matrix, Scratch, State, Vector
from .step import INSERT, divided


@inlined
def current_step_size(state: State, k: Constants) -> float:
    """Return the step size of paper mode at the current clock."""
    t = state.tally[0]
    return step_size(k.schedule, float(t.clock), 0.0, k.lam, k.diameter, t.gradient_sum, t.curvature_sum)


@inlined
def insert(state: State, k: Constants, x: Vector, y: float, scratch: Scratch) -> None:
    """Learn one row: θ ← θ + α·d with d the L-BFGS direction of this row's gradient."""
    g, d, weights, inverse = scratch.g, scratch.d, scratch.weights, scratch.inverse
    theta, tally = state.theta, state.tally[0]
    size = x.shape[0]
    tally.clock += 1
    tally.rows += 1
    z = dot(theta, x)
    tally.loss += value(k.loss, k.clip, z, y)
    tally.zero_loss += value(k.loss, k.clip, 0.0, y)
    slope = derivative(k.loss, k.clip, z, y)
    for j in range(size):
        g[j] = slope * x[j] + k.lam * theta[j]
    squared, along = dot(g, g), dot(x, g)
    tally.gradient_sum += squared
    bend = second_derivative(k.loss, k.clip, z, y)
    tally.curvature_sum += k.lam + (bend * along * along / squared if squared > 0.0 else 0.0)

    direction(state, g, 1.0, d, weights, inverse)
    alpha = current_step_size(state, k)
    for j in range(size):
        theta[j] += alpha * d[j]

    if k.pairs == STEP:
        scale(alpha, d)  # s = θ_new − θ_old
        after = derivative(k.loss, k.clip, dot(theta, x), y)
        for j in range(size):
            g[j] = after * x[j] + k.lam * theta[j] - g[j]
        push(state.window_v, state.window_r, state.window_vr, tally, d, g)
    else:
        observe(state, k, x, y, z, k.block)


@inlined
def delete(state: State, k: Constants, x: Vector, y: float, noise: Vector, grid: float, scratch: Scratch) -> None:
    """Unlearn one row: θ ← θ − α·d + η. The window stays as it is, with what the row left in it."""
    g, d, weights, inverse = scratch.g, scratch.d, scratch.weights, scratch.inverse
    theta, tally = state.theta, state.tally[0]
    step = grid if grid > 0.0 else 1.0
    slope = derivative(k.loss, k.clip, dot(theta, x), y)
    for j in range(x.shape[0]):
        g[j] = slope * x[j] + k.lam * theta[j]
    direction(state, g, 1.0, d, weights, inverse)
    alpha = current_step_size(state, k)
    for j in range(x.shape[0]):
        theta[j] += noise[j] * step - alpha * d[j]
    tally.deletions += 1


@kernel
def learn(
    state: State, k: Constants, ops: npt.NDArray[np.int16], X: Matrix, y: Vector, room: Matrix, inverse: Matrix
) -> None:
    """Apply inserts and ticks (ops[i], X[i], y[i]) in order, changing `state`."""
    scratch = divided(room, inverse, X.shape[1])
    for i in range(ops.shape[0]):
        if ops[i] == INSERT:
            insert(state, k, X[i], y[i], scratch)
        else:
            state.tally[0].clock += 1


@kernel
def forget(
    state: State, k: Constants, X: Matrix, y: Vector, noise: Matrix, grid: Vector, room: Matrix, inverse: Matrix
) -> None:
    """Apply the deletions of (X[i], y[i]) in order, each with a row of `noise`, changing `state`."""
    scratch = divided(room, inverse, X.shape[1])
    for i in range(X.shape[0]):
        delete(state, k, X[i], y[i], noise[i], grid[i], scratch)
