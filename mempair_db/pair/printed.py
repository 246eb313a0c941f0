"""Algorithm 1 of the paper, as printed (mode `paper`): for research and comparison. It certifies nothing.

    insert:  g = ∇f(θ; x, y);  d = −H·g;  θ ← θ + α·d;          the pair (s, y) or the mini-batch feeds the window
    delete:  g = ∇f(θ; x, y);  d = −H·g;  θ ← θ − α·d + η       η ~ N(0, σ²I), σ = (G/λ)/√(2ρ_s)

Why it is not the default: the window depends on the deleted row and keeps it (theory 2.4, 2.5), G/λ is not the
length of the step (2.2), and the noise of one deletion is as large as the model.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .compiled import compiled, inlined, uncounted
from .curvature import STEP, direction, dot, observe, push, scale
from .losses import derivative, second_derivative, value
from .schedule import step_size
from .state import Constants, Matrix, Scratch, State, Vector
from .step import DELETE, INSERT


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
        push(state, d, g)
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


@uncounted
def run_with(
    state: State,
    k: Constants,
    ops: npt.NDArray[np.int16],
    X: npt.NDArray[np.float64],
    y: Vector,
    noise: Matrix,
    grid: Vector,
    scratch: Scratch,
) -> None:
    """Do what `run` says, with room for one step."""
    deleted = 0
    for i in range(ops.shape[0]):
        if ops[i] == INSERT:
            insert(state, k, X[i], y[i], scratch)
        elif ops[i] == DELETE:
            delete(state, k, X[i], y[i], noise[deleted], grid[deleted], scratch)
            deleted += 1
        else:
            state.tally[0].clock += 1


@compiled
def run(
    state: State,
    k: Constants,
    ops: npt.NDArray[np.int16],
    X: npt.NDArray[np.float64],
    y: Vector,
    noise: Matrix,
    grid: Vector,
) -> None:
    """Apply the events (ops[i], X[i], y[i]) in order, changing `state`; `noise` has one row per DELETE."""
    size = state.theta.shape[0]
    scratch = Scratch(np.empty(size), np.empty(size), np.empty(state.window_v.shape[0]), np.empty((0, 0)))
    run_with(state, k, ops, X, y, noise, grid, scratch)
