"""The noise of a deletion: a discrete Gaussian on a grid, drawn exactly. No bit of it tells where it was centred.

A sum of doubles shows in its last bits which number the noise was added to. So a deletion first rounds the anchor to
multiples of a step g, and then adds whole steps:

    a ← g·(round(a/g) + n),    P(n = z) ∝ exp(−z²/2N²), z ∈ Z, in every coordinate        N = σ/g = 2²⁴

Rounding moves two worlds apart by at most one step in each of d coordinates, so S grows by g√d, and g solves
N·g = (S + g√d)/√(2ρ). The roundings of deletions before have moved them apart as well, by so much less as the anchor
has contracted since: `grids`. So a grid depends on clocks, budgets and constants alone. All arithmetic is on integers,
with bits of the operating system.

**Why the accounting of a continuous Gaussian holds** (Canonne, Kamath and Steinke 2020 prove ρ = S²/(2σ²); this gives
the exact δ(ε) too). Let x ~ N(q, N² − r²) and round it at random to z with P(z | x) ∝ exp(−(z − x)²/2r²). The sum of
the latter over z ∈ Z is r√(2π) but for a factor 1 ± 2.1·exp(−2π²r²), whatever x is (Poisson's summation formula), so
z has the discrete Gaussian's probabilities around q, each but for that factor: 1e-308 at r = 6. The discrete noise is
thus a continuous one of variance N² − 36, seen through a function that knows nothing of q. `odometer.ROUNDING` is far
larger than the 6e-14 by which its σ is smaller.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InvalidParameter
from .odometer import ROUNDING, UNITS
from .state import Vector

Ints = npt.NDArray[np.int64]

FINENESS: Final = 24
STEPS: Final = float(2**FINENESS)
"""N: σ in steps of the grid."""

CUT: Final = 2.0**50
"""Steps from zero at which the anchor is cut, before the noise: a/g is exact there to an eighth of a step."""

APART: Final = 1.25
"""How many steps a coordinate of two worlds can be moved apart by rounding both: one, and what a/g is not exact by."""

LONGEST: Final = 127
"""Deviations beyond which nothing is drawn: a mass of less than exp(−8000)."""


class Noise(NamedTuple):
    """What falls on the anchors of several deletions: whole steps, a row for each, and the length of a step."""

    steps: Vector  # (m, d), integers
    grid: Vector  # (m,)


def no_noise(d: int) -> Noise:
    """Return the noise of no deletion at all.

    >>> no_noise(3).steps.shape
    (0, 3)
    """
    return Noise(np.empty((0, d)), np.empty(0))


def grid(sensitivity: float, rho_units: int, d: int) -> float:
    """g = S/(N·√(2ρ) − 1.25·√d), S with its rounding: the step of the grid; σ is N of them.

    >>> round(grid(1.0, UNITS // 2, d=100) * STEPS, 5)
    1.0
    """
    if not is_fine(rho_units, d):
        raise InvalidParameter(f"{rho_units} units of 1e-12 ρ are too few for a grid in {d} dimensions.")
    return sensitivity * (1.0 + ROUNDING) / (STEPS * math.sqrt(2.0 * rho_units / UNITS) - APART * math.sqrt(d))


def grids(
    sensitivities: Sequence[float],
    clocks: Sequence[int],
    rho_units: Sequence[int],
    d: int,
    t0: float,
    rounded: float = 0.0,
) -> tuple[list[float], float]:
    """Return the grid of each of these deletions, in order, and Σ 1.25·√d·g_i·(T_i + t0) over them and those before.

    At clock T the roundings of earlier deletions keep two worlds Σ 1.25·√d·g_i·(T_i + t0)/(T + t0) further apart.
    """
    found = []
    for S, clock, units in zip(sensitivities, clocks, rho_units, strict=True):
        found.append(grid(S + rounded / (clock + t0), units, d))
        rounded += APART * math.sqrt(d) * found[-1] * (clock + t0)
    return found, rounded


def sigma(sensitivity: float, rho_units: int, d: int) -> float:
    """Return σ = N·g: what the noise of a deletion really has, S with its rounding included.

    >>> round(sigma(1.0, UNITS // 2, d=100), 5)
    1.0
    """
    return STEPS * grid(sensitivity, rho_units, d)


def is_fine(rho_units: int, d: int) -> bool:
    """Tell whether the grid is so fine that rounding adds no more than a tenth to the noise.

    >>> is_fine(1, d=1), is_fine(1, d=10), is_fine(1000, d=1000)
    (True, False, True)
    """
    return STEPS * math.sqrt(2.0 * rho_units / UNITS) >= 11.0 * APART * math.sqrt(d)


def draw(grids: Vector, d: int) -> Noise:
    """Return fresh noise for deletions on these grids. There is no seed: who knows the noise can subtract it.

    >>> draw(np.array([0.5, 0.25]), d=3).steps.shape
    (2, 3)
    """
    if type(d) is not int or d < 1:
        raise InvalidParameter(f"d = {d!r} is not a positive integer.")
    return Noise(discrete_gaussian(len(grids) * d).reshape(-1, d).astype(float), np.asarray(grids, float))


def of_scale(sigma: float, count: int, d: int) -> Noise:
    """Return fresh noise of a given σ for so many deletions.

    >>> of_scale(2.0, 4, d=3).grid.tolist() == [2.0 / STEPS] * 4
    True
    """
    drawn = draw(np.full(count, sigma / STEPS), d)
    return drawn if sigma > 0.0 else Noise(np.zeros((count, d)), np.zeros(count))


def discrete_gaussian(count: int, fineness: int = FINENESS) -> Ints:
    """Return independent z with P(z) ∝ exp(−z²/2N²), N = 2^fineness: algorithm 3 of Canonne, Kamath and Steinke 2020.

    A discrete Laplace y, P(y) ∝ exp(−|y|/N), is kept with probability exp(−(|y| − N)²/2N²); every probability is a
    number of the form exp(−integer/2^b), and `_exp_minus` decides it exactly.

    >>> discrete_gaussian(4).shape
    (4,)
    """
    bits = 2 * fineness + 1
    kept: list[Ints] = []
    while (missing := count - sum(map(len, kept))) > 0:
        y = _discrete_laplace(missing + missing // 2 + 8, fineness)  # two of three are kept
        square = (np.abs(y) - (1 << fineness)) ** 2
        accepted = _exp_minus(square & ((1 << bits) - 1), bits)
        _all_times(accepted, square >> bits)
        kept.append(y[accepted][:missing])
    return np.concatenate([*kept, np.empty(0, np.int64)])


def _discrete_laplace(count: int, fineness: int) -> Ints:
    """P(y) ∝ exp(−|y|/N): the last bits u of |y| with probability ∝ exp(−u/N), the others geometric; −0 is refused."""
    u = _bits(count, fineness)
    u = u[_exp_minus(u, fineness)]
    times = np.zeros(len(u), np.int64)
    going = np.arange(len(u))
    while len(going := going[_exp_minus(np.ones(len(going), np.int64), 0)]):
        times[going] += 1
    y = u + (times << fineness)
    negative = _bits(len(y), 1) == 1
    kept: Ints = np.where(negative, -y, y)[~(negative & (y == 0)) & (times < LONGEST)]
    return kept


def _exp_minus(numerator: Ints, bits: int) -> npt.NDArray[np.bool_]:
    """Return True with probability exp(−γ), γ = numerator/2^bits in [0, 1]: whether a run of trials ends at an odd one.

    The k-th succeeds with probability γ/k, so the run is longer than k with probability γ^k/k!.
    """
    result = np.zeros(len(numerator), bool)
    going, k = np.arange(len(numerator)), 1
    while len(going):
        success = (_bits(len(going), bits) < numerator[going]) & _one_in(k, len(going))
        result[going[~success]] = k % 2 == 1
        going, k = going[success], k + 1
    return result


def _all_times(accepted: npt.NDArray[np.bool_], times: Ints) -> None:
    """Keep what is accepted with probability exp(−times)."""
    going = np.flatnonzero(accepted & (times > 0))
    left = times[going]
    while len(going):
        success = _exp_minus(np.ones(len(going), np.int64), 0)
        accepted[going[~success]] = False
        left = left[success] - 1
        going = going[success][left > 0]
        left = left[left > 0]


def _one_in(k: int, count: int) -> npt.NDArray[np.bool_]:
    """Return True with probability 1/k."""
    if k == 1:
        return np.ones(count, bool)
    whole = (1 << 62) // k * k  # the largest multiple of k: numbers below it have every remainder equally often
    numbers = _bits(count, 62)
    while len(again := np.flatnonzero(numbers >= whole)):
        numbers[again] = _bits(len(again), 62)
    chosen: npt.NDArray[np.bool_] = numbers % k == 0
    return chosen


def _bits(count: int, bits: int) -> Ints:
    """Return integers of so many fresh random bits, at most 62."""
    return (np.frombuffer(os.urandom(8 * count), "<u8") >> np.uint64(64 - bits) if bits else np.zeros(count)).astype(
        np.int64
    )
