"""Accuracy after m deletions, against an exact retrain without the same rows; beside it, how many the formulas allow.

    capacity         m* = (λ(N + t0)/G)·√(γρ_tot/(M + λd)), passive: twice as many            `bounds.capacity`
    regret_capacity  (N/G)·√(γλρ_tot/d), which counts regret over the whole stream instead of the next prediction
    paper_capacity   the largest m with m ≤ (γN − G·D·√(cC·S_N))/(G·σ·√(2 ln(1/δ))), σ = (G/λ)/√(2ρ_tot/m), as printed

Every fifth row is held out. For each m, m random rows are unlearned at the end of the stream, each with the noise of
ρ_tot/m; `draws` times, since noise is chance. `Extra` asks what γ promises: how much more does a prediction lose after
⌊m*⌋ deletions than after an exact retrain?
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mempair_db.measure.regret import NAMES
from mempair_db.offline.progress import Bars, silent
from mempair_db.offline.stream import Stream
from mempair_db.pair import bounds, comparators, events, noise, odometer
from mempair_db.pair.state import Constants, State, Vector, copy, empty

HELD_OUT: Final = 5


@dataclass(frozen=True)
class Step:
    """How good the model is after m deletions. Fit: accuracy, or the explained share of the target's variance."""

    m: int
    fit: float
    worst: float
    retrained: float
    noise: float  # σ√d: the typical length of one deletion's noise

    @property
    def loss(self) -> float:
        """What the deletions cost, on average."""
        return self.retrained - self.fit


@dataclass(frozen=True)
class Extra:
    """Loss of a held-out row right after m deletions, beyond that of the retrained model."""

    m: int
    mean: float
    error: float  # standard error of the mean
    gamma: float

    @property
    def holds(self) -> bool:
        """Whether γ is kept, as far as this many draws can tell."""
        return self.mean - 3.0 * self.error <= self.gamma


@dataclass(frozen=True)
class DeletionCurve:
    """How the model fares as ever more rows are deleted, and where the formulas say to stop."""

    rows: int
    metric: str
    untouched: float
    steps: list[Step]
    capacity: float
    regret_capacity: float
    paper_capacity: float
    extra: Extra

    def largest_within(self, loss: float) -> int:
        """Return the largest m of the table up to which no m cost more than `loss`, on average."""
        best = 0
        for step in self.steps:
            if step.loss > loss:
                break
            best = step.m
        return best


def measure(stream: Stream, *, draws: int = 5, seed: int = 0, bars: Bars = silent) -> DeletionCurve:
    """Unlearn ever more rows."""
    rows = stream.without_gaps()
    test = np.arange(len(rows)) % HELD_OUT == HELD_OUT - 1
    X, y = rows.X[~test], rows.y[~test]
    d = stream.epoch.d
    learned = learn(stream, X, y)
    capacity = capacity_at(stream, len(X))
    held_out = HeldOut(rows.X[test], rows.y[test], stream.parameters.regression)
    ms = grid(capacity, len(X) // 2)
    rng = np.random.default_rng(seed)
    steps = []
    with bars("Unlearning ever more rows", len(ms) * draws) as advance:
        for m in ms:
            fits, exact = [], []
            sigma = noise_scale(stream, len(X), m)
            for _ in range(draws):
                chosen = rng.choice(len(X), m, replace=False)
                fits.append(held_out.fit(unlearn(stream, learned, X[chosen], y[chosen], sigma).theta))
                exact.append(held_out.fit(learn(stream, X, y, without=chosen).theta))
                advance(1)
            steps.append(Step(m, float(np.mean(fits)), min(fits), float(np.mean(exact)), sigma * math.sqrt(d)))
    return DeletionCurve(
        rows=len(X),
        metric=held_out.metric,
        untouched=held_out.fit(learned.theta),
        steps=steps,
        capacity=capacity,
        regret_capacity=bounds.regret_capacity(len(X), **_constants(stream)),
        paper_capacity=paper_capacity(stream, len(X), learned),
        extra=_extra(stream, X, y, held_out, draws, rng),
    )


@dataclass(frozen=True)
class HeldOut:
    """Rows that no model has learned, to measure models on."""

    X: Vector
    y: Vector
    regression: bool

    @property
    def metric(self) -> str:
        """The name of what `fit` returns."""
        return "explained variance" if self.regression else "accuracy"

    def fit(self, theta: Vector) -> float:
        """Return the accuracy, or the explained share of the variance."""
        z = self.X @ theta
        if not self.regression:
            return float(((z > 0) == (self.y > 0)).mean()) if len(z) else math.nan
        return 1.0 - float(((z - self.y) ** 2).mean() / max(self.y.var(), 1e-300))

    def loss(self, theta: Vector, k: Constants) -> float:
        """Return the mean of f(θ), the ridge included."""
        return float(comparators.row_losses(self.X, self.y, theta, NAMES[k.loss], k.lam, k.clip).mean())  # type: ignore[arg-type]


def learn(stream: Stream, X: Vector, y: Vector, without: npt.NDArray[np.int64] | None = None) -> State:
    """Learn rows; the ticks of those in `without` pass without data."""
    state = empty(stream.epoch.d, stream.parameters.tau)
    ops = np.full(len(X), events.INSERT, np.int16)
    if without is not None:
        ops[without] = events.TICK
    events.apply(state, stream.epoch.constants, ops, X, y, np.empty((0, X.shape[1])))
    return state


def unlearn(stream: Stream, learned: State, X: Vector, y: Vector, sigma: float) -> State:
    """Unlearn rows from a copy of the state, with noise."""
    state = copy(learned)
    drawn = noise.of_scale(sigma, len(X), stream.epoch.d)
    events.apply(state, stream.epoch.constants, np.full(len(X), events.DELETE, np.int16), X, y, *drawn)
    return state


def noise_scale(stream: Stream, clock: int, m: int) -> float:
    """σ of a deletion at this clock that spends ρ_tot/m."""
    k = stream.epoch.constants
    reach = bounds.sensitivity(k.G, k.lam, clock, k.t0, stream.parameters.unlearner, stream.epoch.d)
    return odometer.sigma(reach, max(1, stream.epoch.cap // m))


def grid(capacity: float, most: int) -> list[int]:
    """Return numbers of deletions around the capacity: 1 to about twenty times as many.

    >>> grid(14.6, 10_000)
    [1, 3, 7, 14, 29, 58, 116, 292]
    """
    shares = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 20)
    return sorted({m for share in shares if 1 <= (m := max(1, math.floor(share * max(capacity, 1.0)))) <= most})


def paper_capacity(stream: Stream, clock: int, learned: State) -> float:
    """Solve the paper's formula for m: it falls with σ, and σ grows with √m, so m^(3/2) is its value at m = 1."""
    k = stream.epoch.constants
    at_one = bounds.paper_capacity(
        N=clock,
        G=k.G,
        D=k.diameter,
        c=1.0 / (k.M + k.lam),
        C=1.0 / k.lam,
        sigma=odometer.sigma(k.G / k.lam, stream.epoch.cap),
        delta_B=stream.parameters.delta,
        gamma=stream.parameters.gamma,
        S_N=float(learned.tally["gradient_sum"][0]),
    )
    return float(at_one ** (2.0 / 3.0))


def capacity_at(stream: Stream, clock: int) -> float:
    """m* at this clock."""
    return bounds.capacity(clock, M=stream.epoch.constants.M, **_constants(stream))


def _constants(stream: Stream) -> dict[str, Any]:
    k, p = stream.epoch.constants, stream.parameters
    rho_tot = stream.epoch.cap / odometer.UNITS
    return {
        "d": stream.epoch.d,
        "G": k.G,
        "lam": k.lam,
        "gamma": p.gamma,
        "rho_tot": rho_tot,
        "unlearner": p.unlearner,
    }


def _extra(stream: Stream, X: Vector, y: Vector, held_out: HeldOut, draws: int, rng: np.random.Generator) -> Extra:
    """Delete as many rows as the capacity allows; noise is cheap to draw, so draw it often."""
    k, gamma = stream.epoch.constants, stream.parameters.gamma
    m = min(math.floor(capacity_at(stream, len(X))), len(X))
    if m < 1:
        return Extra(0, 0.0, 0.0, gamma)
    learned, sigma = learn(stream, X, y), noise_scale(stream, len(X), m)
    chosen = rng.choice(len(X), m, replace=False)
    exact = held_out.loss(learn(stream, X, y, without=chosen).theta, k)
    found = [
        held_out.loss(unlearn(stream, learned, X[chosen], y[chosen], sigma).theta, k) for _ in range(10 * draws + 40)
    ]
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found))
    return Extra(m, float(np.mean(found)) - exact, error, gamma)
