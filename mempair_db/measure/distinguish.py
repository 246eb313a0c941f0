"""Empirical ε: can anybody tell a model that forgot a row from one that never had it?

    world 1   learned with the row, then the row deleted: the carried state after the delete
    world 0   the ideal replay, the row's tick without data, with the same noise (theory 3.4)

Both are sampled n times with fresh noise through the kernel that runs in production. The statistic is the exact log
likelihood ratio: the two means are known from one run without noise, so

    s = ⟨θ − (m_1 + m_0)/2, m_1 − m_0⟩/σ²      plus ±∞ if a part of the state that got no noise betrays the world.

The threshold is fixed on one half of the samples; the other half gives error rates with Clopper-Pearson limits, 95 %
for both together, and `intervals.gaussian_mu` turns these into a lower limit of μ, hence of ρ and of ε at the same δ.
A mechanism that keeps its promise stays below it; Algorithm 1 as printed is caught, since its window is not noised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from mempair_db.measure import intervals
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair import bounds, events, odometer
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.state import PAPER, Constants, State, Vector, copy, empty

CHUNK: Final = 1_000
ALPHA: Final = 0.05 / 2
CERTAIN: Final = 1e6
"""Stands for an infinite log likelihood ratio."""


@dataclass(frozen=True)
class Worlds:
    """The carried state in both worlds just before the noise falls, and the row whose deletion is tested."""

    name: str
    constants: Constants
    learned: State  # world 1, before the delete
    ideal: State  # world 0, before its noise
    x: Vector
    y: float
    rho: int  # what the deletion spends, in units
    sigma: float

    def forgotten(self, noise: Vector) -> State:
        """World 1: delete the row."""
        state = copy(self.learned)
        events.apply(state, self.constants, _DELETE, self.x[None, :], np.array([self.y]), noise[None, :])
        return state

    def never_had(self, noise: Vector) -> State:
        """World 0: the same noise on the replay. A deletion of x = 0 has no gradient: its step is the noise alone."""
        state = copy(self.ideal)
        if self.constants.mode == PAPER:  # its gradient has the ridge in it as well
            state.theta[:] += noise
        else:
            events.apply(state, self.constants, _DELETE, np.zeros((1, len(self.x))), np.ones(1), noise[None, :])
        return state


@dataclass(frozen=True)
class Empirical:
    """What a distinguishing test found."""

    name: str
    samples: int  # in each world
    true_positives: float
    false_positives: float
    epsilon: float  # lower limit
    exact_epsilon: float  # of the two means, known without sampling; inf if the noise does not cover the difference
    claimed: float
    delta: float

    @property
    def holds(self) -> bool:
        """Whether the claim survives."""
        return self.epsilon <= self.claimed

    @property
    def closeness(self) -> float:
        """The share of the claimed ε that the test could prove."""
        return self.epsilon / self.claimed


def distinguish(worlds: Worlds, *, delta: float, samples: int, bars: Bars = silent) -> Empirical:
    """Run the test."""
    score = _likelihood_ratio(worlds)
    scores = np.empty((2, samples))
    with bars(f"Two worlds: {worlds.name}", samples) as advance:
        for begin in range(0, samples, CHUNK):
            end = min(begin + CHUNK, samples)
            for world, sample in enumerate((worlds.never_had, worlds.forgotten)):
                scores[world, begin:end] = [score(sample(noise)) for noise in _noise(worlds, end - begin)]
            advance(end - begin)
    half = samples // 2
    threshold = _best_threshold(scores[:, :half])
    hits = (scores[:, half:] > threshold).sum(axis=1)
    n = samples - half
    true_low, false_high = intervals.lower(int(hits[1]), n, ALPHA), intervals.upper(int(hits[0]), n, ALPHA)
    mu = intervals.gaussian_mu(true_low, false_high)
    gap = _gap(worlds)
    return Empirical(
        name=worlds.name,
        samples=samples,
        true_positives=float(hits[1]) / n,
        false_positives=float(hits[0]) / n,
        epsilon=odometer.epsilon_of(mu * mu / 2.0, delta),
        exact_epsilon=odometer.epsilon_of((gap / worlds.sigma) ** 2 / 2.0, delta) if math.isfinite(gap) else math.inf,
        claimed=odometer.epsilon_of(worlds.rho / odometer.UNITS, delta),
        delta=delta,
    )


def confirmed(worlds: Worlds, *, delta: float, samples: int, bars: Bars = silent) -> Empirical:
    """Run the test, and once more with fresh noise if it seems to refute the claim: 95 % is too little to accuse.

    Where the claim is exact, one run passes it by chance about three times in a thousand, two in a row never.
    """
    found = distinguish(worlds, delta=delta, samples=samples, bars=bars)
    return found if found.holds else distinguish(worlds, delta=delta, samples=samples, bars=bars)


def _noise(worlds: Worlds, count: int) -> Vector:
    d = len(worlds.x)
    return worlds.sigma * odometer.gaussian_noise(count * d).reshape(count, d)


def tight_instance(epsilon: float, delta: float, *, ticks: int = 50) -> Worlds:
    """Return a stream on which Theorem B is attained: the two means differ by exactly S = 2G/(λ(T + t0)).

    One dimension, huber loss, λ = 0.1. The row (1, 2) pulls the anchor up by η_1·G. All later rows, (1, 1000), have a
    clipped gradient wherever the anchor is, so both worlds contract by the ridge alone. At the end the anchor is far
    above 2, the row's gradient has turned, and the negative step moves it up once more, by as much.
    """
    parameters = Parameters(loss="huber", epsilon=epsilon, delta=delta, lam=0.1)
    k = constants_for(parameters, 0.1)
    x, y = np.ones((ticks, 1)), np.concatenate(([2.0], np.full(ticks - 1, 1000.0)))
    return _worlds("the tight instance of Theorem B", parameters, k, x, y, 0, 0.1)


def printed_instance(epsilon: float, delta: float, *, ticks: int = 200, d: int = 5) -> Worlds:
    """Return Algorithm 1 as printed on an invented stream; the deleted row is one of the last, so its pair is kept."""
    parameters = Parameters(epsilon=epsilon, delta=delta, lam=0.1, mode="paper", m=1)
    k = constants_for(parameters, 0.1)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ticks, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(x[:, 0] + 0.3 * rng.normal(size=ticks) > 0, 1.0, -1.0)
    return _worlds("Algorithm 1 as printed", parameters, k, x, y, ticks - 3, 0.1)


def _worlds(name: str, p: Parameters, k: Constants, x: Vector, y: Vector, row: int, lam: float) -> Worlds:
    learned, ideal = empty(x.shape[1], p.tau), empty(x.shape[1], p.tau)
    ops = np.full(len(x), events.INSERT, np.int16)
    nothing = np.empty((0, x.shape[1]))
    events.apply(learned, k, ops, x, y, nothing)
    ops[row] = events.TICK
    events.apply(ideal, k, ops, x, y, nothing)
    rho = odometer.to_units(odometer.rho_of(p.epsilon, p.delta))
    reach = k.G / lam if k.mode == PAPER else bounds.sensitivity(k.G, lam, len(x), k.t0, p.unlearner)
    return Worlds(name, k, learned, ideal, x[row], float(y[row]), rho, odometer.sigma(reach, rho))


def _likelihood_ratio(worlds: Worlds) -> Callable[[State], float]:
    quiet = np.zeros(len(worlds.x))
    one, zero = worlds.forgotten(quiet), worlds.never_had(quiet)
    direction, middle = (one.theta - zero.theta) / worlds.sigma**2, (one.theta + zero.theta) / 2.0
    kept_one, kept_zero = _kept(one), _kept(zero)
    if kept_one == kept_zero:
        return lambda state: float(direction @ (state.theta - middle))

    def betrayed(state: State) -> float:
        kept = _kept(state)
        return float(direction @ (state.theta - middle)) + CERTAIN * ((kept == kept_one) - (kept == kept_zero))

    return betrayed


def _gap(worlds: Worlds) -> float:
    """Return the distance of the two means; infinite if something without noise differs too."""
    quiet = np.zeros(len(worlds.x))
    one, zero = worlds.forgotten(quiet), worlds.never_had(quiet)
    return float(np.linalg.norm(one.theta - zero.theta)) if _kept(one) == _kept(zero) else math.inf


def _kept(state: State) -> bytes:
    """Return the parts of the carried state that get no noise of their own."""
    parts = (state.window_v, state.window_r, state.window_vr, state.block_v, state.block_r)
    return b"".join(part.tobytes() for part in parts)


def _best_threshold(scores: Vector) -> float:
    """Return the threshold that proves most on these samples."""
    n = scores.shape[1]
    candidates = np.unique(np.quantile(scores, np.linspace(0.25, 0.75, 11)))  # in the tails chance decides
    hits = [n - np.searchsorted(np.sort(world), candidates, side="right") for world in scores]
    margin = 2.0 * math.sqrt(0.25 / n)
    mu = [
        intervals.gaussian_mu(max(t / n - margin * _spread(t / n), 0.0), min(f / n + margin * _spread(f / n), 1.0))
        for f, t in zip(hits[0], hits[1], strict=True)
    ]
    return float(candidates[int(np.argmax(mu))])


def _spread(rate: float) -> float:
    return 2.0 * math.sqrt(rate * (1.0 - rate))


_DELETE: Final = np.array([events.DELETE], np.int16)
