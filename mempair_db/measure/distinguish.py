"""Empirical ε: can anybody tell a model that forgot a row from one in which the row's place was left empty?

Both `worlds` are sampled n times with fresh noise, and an attack gives every state a score:

    likelihood   the exact log likelihood ratio: the two means are known from one run without noise, so
                 s = ⟨θ − (m_1 + m_0)/2, m_1 − m_0⟩/σ², plus ±∞ if any other stored byte betrays the world
    last bits    in how many coordinates the noise, were it centred at m_1 or at m_0, is one that a sampler can return

The threshold is fixed on one half of the samples; the other half gives error rates with Clopper-Pearson limits, 95 %
for both together, and `intervals.gaussian_mu` turns these into a lower limit of μ, hence of ρ and of ε at the same δ.
A mechanism that keeps its promise stays below it. Algorithm 1 as printed is caught, since its window is not noised, and
so is every one of `worlds.FLAWS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mempair_db.measure import intervals
from mempair_db.measure.worlds import Worlds
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair import odometer
from mempair_db.pair.state import State, Vector

CHUNK: Final = 1_000
ALPHA: Final = 0.05 / 2
NOISED: Final = ("anchor", "theta", "block_theta")
"""What a deletion puts noise on. All else must be the same in both worlds, bit for bit."""

CERTAIN: Final = 1e6
"""Stands for an infinite log likelihood ratio."""

Score = Callable[[State], float]


@dataclass(frozen=True)
class Empirical:
    """What a distinguishing test found."""

    name: str
    attack: str
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


def distinguish(
    worlds: Worlds, *, delta: float, samples: int, attack: str = "likelihood", bars: Bars = silent
) -> Empirical:
    """Run the test."""
    score = ATTACKS[attack](worlds)
    scores = np.empty((2, samples))
    with bars(f"Two worlds: {worlds.name}", samples) as advance:
        for begin in range(0, samples, CHUNK):
            end = min(begin + CHUNK, samples)
            for world, sample in enumerate((worlds.never_had, worlds.forgotten)):
                drawn = worlds.draw(end - begin)
                scores[world, begin:end] = [score(sample(drawn, i)) for i in range(end - begin)]
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
        attack=attack,
        samples=samples,
        true_positives=float(hits[1]) / n,
        false_positives=float(hits[0]) / n,
        epsilon=odometer.epsilon_of(mu * mu / 2.0, delta),
        exact_epsilon=odometer.epsilon_of((gap / worlds.sigma) ** 2 / 2.0, delta) if math.isfinite(gap) else math.inf,
        claimed=odometer.epsilon_of(worlds.rho / odometer.UNITS, delta),
        delta=delta,
    )


def confirmed(
    worlds: Worlds, *, delta: float, samples: int, attack: str = "likelihood", bars: Bars = silent
) -> Empirical:
    """Run the test, and once more with fresh noise if it seems to refute the claim: 95 % is too little to accuse.

    Where the claim is exact, one run passes it by chance about three times in a thousand, two in a row never.
    """
    found = distinguish(worlds, delta=delta, samples=samples, attack=attack, bars=bars)
    return found if found.holds else distinguish(worlds, delta=delta, samples=samples, attack=attack, bars=bars)


def strongest(worlds: Worlds, *, delta: float, samples: int, bars: Bars = silent) -> Empirical:
    """Try every attack and return the one that proved most."""
    found = [confirmed(worlds, delta=delta, samples=samples, attack=attack, bars=bars) for attack in ATTACKS]
    return max(found, key=lambda one: one.epsilon)


# -- attacks ----------------------------------------------------------------------------------------------------------


def _likelihood_ratio(worlds: Worlds) -> Score:
    one, zero = worlds.forgotten(worlds.quiet()), worlds.never_had(worlds.quiet())
    direction, middle = (one.theta - zero.theta) / worlds.sigma**2, (one.theta + zero.theta) / 2.0
    kept_one, kept_zero = kept(one), kept(zero)
    if kept_one == kept_zero:
        return lambda state: float(direction @ (state.theta - middle))

    def betrayed(state: State) -> float:
        found = kept(state)
        return float(direction @ (state.theta - middle)) + CERTAIN * ((found == kept_one) - (found == kept_zero))

    return betrayed


def kept(state: State) -> bytes:
    """Return every byte that is stored but for the noised anchor and its copies."""
    return b"".join(part.tobytes() for name, part in zip(State._fields, state, strict=True) if name not in NOISED)


def _last_bits(worlds: Worlds) -> Score:
    one, zero = worlds.forgotten(worlds.quiet()).theta, worlds.never_had(worlds.quiet()).theta

    def explained(state: State) -> float:
        return float(_possible(state.theta, one, worlds.sigma).sum() - _possible(state.theta, zero, worlds.sigma).sum())

    return explained


def _possible(found: Vector, mean: Vector, sigma: float) -> npt.NDArray[np.bool_]:
    """Tell where `found` is the rounded sum of the mean and σ times some double, all products and sums in doubles."""
    candidates = _neighbours(_neighbours(found - mean) / sigma)
    possible: npt.NDArray[np.bool_] = (mean + sigma * candidates == found).any(axis=(0, 1))
    return possible


def _neighbours(x: Vector, count: int = 2) -> Vector:
    up, down, found = x, x, [x]
    for _ in range(count):
        up, down = np.nextafter(up, np.inf), np.nextafter(down, -np.inf)
        found += [up, down]
    return np.array(found)


ATTACKS: Final[dict[str, Callable[[Worlds], Score]]] = {"likelihood": _likelihood_ratio, "last bits": _last_bits}


def _gap(worlds: Worlds) -> float:
    """Return the distance of the two means; infinite if something without noise differs too."""
    one, zero = worlds.forgotten(worlds.quiet()), worlds.never_had(worlds.quiet())
    return float(np.linalg.norm(one.theta - zero.theta)) if kept(one) == kept(zero) else math.inf


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
