"""One event, one step: the kernel of the Memory Pair.

Insert at tick t (theory 3.2), α_t = 1/(t + t0), η_t = α_t/λ:

    c = ℓ'(aᵀx, y);  a ← a − η_t(c·x + λ·a)                        anchor: strongly convex online gradient step
    g = ℓ'(θᵀx, y)·x + λ·θ;  d = −H·g, shrunk to ‖d‖ ≤ ‖g‖/λ
    θ ← θ + α_t·d                                                  quasi-Newton step
    if ‖θ − a‖ > κ·G·η_t: pull θ back onto that ball around a      trust region

Delete at clock T (theory 3.4):

    g = ℓ'(aᵀx, y)·x;  d = −H·g, ‖d‖ ≤ ‖g‖/λ;  a ← a − α_T·d      the symmetric negative step
    a ← g·(round(a/g) + n)                                         whole steps n of the grid g, drawn by the caller
    if ‖a‖ > 2G/λ: a is shortened to that, in whole steps          noise alone can take it there (theory 3.7)
    θ ← a;  window emptied;  sums of the past replaced by bounds   nothing is left that saw the row but a

A tick without data (a gap left by a deleted row in a replay) is the ridge alone: a ← a − η_t·λ·a, and θ likewise.

The events of an array are taken one after the other and nothing is carried but `State`, so a batch of any size
gives the same bits as its events one by one. Therefore every delete empties the window itself, and the second of
two deletions in a row steps with H = I/λ; the bound of Theorem B holds for any window.

Algorithm 1 as printed in the paper is in `printed`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from .bounds import LONGEST
from .compiled import inlined, kernel, small
from .curvature import assign, direction, dot, empty_window, fill, invert, observe, scale
from .losses import derivative, largest_at_zero, value
from .noise import APART, CUT, STEPS
from .state import Constants, Matrix, Scratch, State, Vector

INSERT: Final = 1
DELETE: Final = 2
TICK: Final = 0

SURE: Final = math.sqrt(2.0 * math.log(1e9))
"""‖η‖ ≤ σ(√d + SURE) but for one deletion in a billion."""


@small
def shrink(d: Vector, longest: float) -> None:
    """Shorten d to the given length if it is longer."""
    length = math.sqrt(dot(d, d))
    if length > longest:
        scale(longest / length, d)


@inlined
def insert(state: State, k: Constants, x: Vector, y: float, scratch: Scratch) -> None:
    """Learn one row."""
    g, d, weights, inverse = scratch.g, scratch.d, scratch.weights, scratch.inverse
    a, theta, tally = state.anchor, state.theta, state.tally[0]
    size = x.shape[0]
    tally.clock += 1
    tally.rows += 1
    alpha = 1.0 / (tally.clock + k.t0)
    eta = alpha / k.lam

    z_anchor, z_theta = dot(a, x), dot(theta, x)
    c = derivative(k.loss, k.clip, z_anchor, y)
    note_regret(state, k, x, y, z_anchor, z_theta, c, eta)
    for j in range(size):
        a[j] -= eta * (c * x[j] + k.lam * a[j])

    slope = derivative(k.loss, k.clip, z_theta, y)
    for j in range(size):
        g[j] = slope * x[j] + k.lam * theta[j]
    squared = dot(g, g)
    tally.gradient_sum += squared
    direction(state, g, 1.0 / k.lam, d, weights, inverse)
    shrink(d, math.sqrt(squared) / k.lam)
    for j in range(size):
        theta[j] += alpha * d[j]

    for j in range(size):
        d[j] = theta[j] - a[j]
    distance, radius = math.sqrt(dot(d, d)), k.kappa * k.G * eta
    if distance > radius:
        for j in range(size):
            theta[j] = a[j] + d[j] * (radius / distance)

    if observe(state, k, x, y, z_theta, max(k.block, tally.clock // 4)):
        invert(state, inverse, g)


@inlined
def note_regret(
    state: State, k: Constants, x: Vector, y: float, z_anchor: float, z_theta: float, c: float, eta: float
) -> None:
    """Keep the running sums of Theorem C, before the parameters move."""
    tally = state.tally[0]
    anchor_squared, theta_squared = dot(state.anchor, state.anchor), dot(state.theta, state.theta)
    gradient_squared = c * c * dot(x, x) + 2.0 * c * k.lam * z_anchor + k.lam * k.lam * anchor_squared
    loss = value(k.loss, k.clip, z_theta, y)
    tally.loss += loss
    tally.zero_loss += value(k.loss, k.clip, 0.0, y)
    tally.anchor_sum += 0.5 * eta * max(gradient_squared, 0.0)
    tally.excess += loss - value(k.loss, k.clip, z_anchor, y) + 0.5 * k.lam * (theta_squared - anchor_squared)


@inlined
def tick(state: State, k: Constants) -> None:
    """Let a tick pass without data. θ shrinks with the anchor, which keeps it inside the shrinking trust region.

    It moves the anchor away from a comparator w, which Theorem C must pay for. With s = t + t0 and a' = (1 − 1/s)·a,

        (λs/2)‖a' − w‖² − (λ(s−1)/2)‖a − w‖² = (λ/2)‖w‖² − (λ/2)(1 − 1/s)‖a‖²

    exactly: the last term is kept here, and `CertifiedPair.regret_bound` counts the ticks for the first.
    """
    tally = state.tally[0]
    tally.clock += 1
    keep = 1.0 - 1.0 / (tally.clock + k.t0)
    tally.anchor_sum -= 0.5 * k.lam * keep * dot(state.anchor, state.anchor)
    scale(keep, state.anchor)
    scale(keep, state.theta)


@inlined
def delete(state: State, k: Constants, x: Vector, y: float, noise: Vector, grid: float, scratch: Scratch) -> None:
    """Unlearn one row: negative step, noise, and nothing else left that knew the row.

    `noise` counts steps of the grid; without a grid (0) it is added as it is, and hides nothing: for tests and theory.
    """
    g, d, weights, inverse = scratch.g, scratch.d, scratch.weights, scratch.inverse
    a, tally = state.anchor, state.tally[0]
    size = x.shape[0]
    alpha = 1.0 / (tally.clock + k.t0)

    fill(d, 0.0)
    if k.symmetric:
        c = derivative(k.loss, k.clip, dot(a, x), y)
        for j in range(size):
            g[j] = c * x[j]
        direction(state, g, 1.0 / k.lam, d, weights, inverse)
        shrink(d, math.sqrt(dot(g, g)) / k.lam)
    for j in range(size):
        a[j] -= alpha * d[j]
        if grid > 0.0:
            a[j] = grid * (min(max(np.rint(a[j] / grid), -CUT), CUT) + noise[j])
        else:
            a[j] += noise[j]
    if grid > 0.0:
        keep_near(a, LONGEST * k.G / k.lam, grid)
    assign(state.theta, a)
    empty_window(state)
    tally.deletions += 1
    forget_sums(state, k, noise, grid)


@small
def keep_near(a: Vector, longest: float, grid: float) -> None:
    """Shorten the anchor to this length, in whole steps of the grid. It knows what the noise has left and no more."""
    length = math.sqrt(dot(a, a))
    if length > longest:
        for j in range(a.shape[0]):
            a[j] = grid * np.trunc(a[j] * (longest / length) / grid)


@inlined
def forget_sums(state: State, k: Constants, noise: Vector, grid: float) -> None:
    """Replace the running sums, which saw the row and the noise, by the largest they can have been.

    With s = T + t0 now and s' at the deletion before, which left an anchor of at most R', and R = max(G/λ, R'):

        ½Ση_t‖∇f_t(a_t)‖² ≤ (G + λR)²/(2λ)·ln(s/s')          Σ f_t(θ_t) − f_t(a_t) ≤ (G + λR + κG)·κG/λ·ln(s/s')
        (λs/2)‖a_T‖² ≤ (λs'/2)R'² + Σ f_t(0) + the first of these          Theorem C with w = 0; also ‖a_T‖ ≤ R
        ‖δ‖ ≤ G/(λs) + σ(√d + √(2 ln 1e9)) + rounding                      for the jump δ; shortening makes it no longer

    What stays depends on the constants and the clock alone, whatever the rows were and the noise is.
    """
    tally, size = state.tally[0], math.sqrt(float(noise.shape[0]))
    now, before, worst = tally.clock + k.t0, tally.forgot_at + k.t0, largest_at_zero(k.loss, k.clip)
    longest = max(k.G / k.lam, tally.reach)
    slope, passed = k.G + k.lam * longest, math.log(now / before) / k.lam
    steps = 0.5 * slope * slope * passed
    energy = 0.5 * k.lam * before * tally.reach * tally.reach + (tally.rows - tally.forgot_rows) * worst + steps
    norm = min(longest, math.sqrt(2.0 * energy / (k.lam * now)))
    jump = grid * (STEPS * (size + SURE) + (1.0 + APART) * size) if grid > 0.0 else math.sqrt(dot(noise, noise))
    if k.symmetric:
        jump += k.G / (k.lam * now)
    tally.past += steps + (slope + k.kappa * k.G) * k.kappa * k.G * passed
    tally.jump_const += k.lam * now * (norm * jump + 0.5 * jump * jump)
    tally.jump_slope += k.lam * now * jump
    tally.reach = norm + jump if grid == 0.0 else min(norm + jump, LONGEST * k.G / k.lam)
    tally.zero_loss = tally.rows * worst
    tally.loss = 0.0
    tally.anchor_sum = 0.0
    tally.excess = 0.0
    tally.gradient_sum = 0.0
    tally.forgot_at = tally.clock
    tally.forgot_rows = tally.rows


@inlined
def divided(room: Matrix, inverse: Matrix, size: int) -> Scratch:
    """Return room for one step, of two arrays: each one that is handed over takes a time."""
    return Scratch(room[0][:size], room[1][:size], room[2], inverse)


@kernel
def learn(
    state: State, k: Constants, ops: npt.NDArray[np.int16], X: Matrix, y: Vector, room: Matrix, inverse: Matrix
) -> None:
    """Apply inserts and ticks (ops[i], X[i], y[i]) in order, changing `state`."""
    scratch = divided(room, inverse, X.shape[1])
    invert(state, inverse, scratch.g)
    for i in range(ops.shape[0]):
        if ops[i] == INSERT:
            insert(state, k, X[i], y[i], scratch)
        else:
            tick(state, k)


@kernel
def forget(
    state: State, k: Constants, X: Matrix, y: Vector, noise: Matrix, grid: Vector, room: Matrix, inverse: Matrix
) -> None:
    """Apply the deletions of (X[i], y[i]) in order, each with a row of `noise` and its `grid`, changing `state`."""
    scratch = divided(room, inverse, X.shape[1])
    invert(state, inverse, scratch.g)
    for i in range(X.shape[0]):
        delete(state, k, X[i], y[i], noise[i], grid[i], scratch)
