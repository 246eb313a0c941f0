"""Exact binomial limits (Clopper and Pearson 1934), and what two error rates say about a Gaussian mechanism.

    lower(k, n, α):  the p with P(Bin(n, p) ≥ k) = α;      upper(k, n, α):  the p with P(Bin(n, p) ≤ k) = α

A test that tells two worlds N(0, 1) and N(μ, 1) apart has Φ⁻¹(true positives) − Φ⁻¹(false positives) ≤ μ, with
equality for every threshold on the likelihood ratio (Dong, Roth, Su 2022). So limits of the two rates give a lower
limit of μ, and ρ = μ²/2 converts to (ε, δ) without loss by `odometer.epsilon_of`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import numpy.typing as npt


def lower(k: int, n: int, alpha: float) -> float:
    """Return the lower limit of a proportion of which k of n were seen, wrong with probability α at most.

    >>> round(lower(10, 10, 0.025), 4), lower(0, 10, 0.025)
    (0.6915, 0.0)
    """
    if k == 0:
        return 0.0
    logs = _log_choose(n)[k:]
    j = np.arange(k, n + 1)
    return _bisect(lambda p: _log_tail(logs, j, n, p) <= math.log(alpha))


def upper(k: int, n: int, alpha: float) -> float:
    """Return the upper limit.

    >>> round(upper(0, 10, 0.025), 4), upper(10, 10, 0.025)
    (0.3085, 1.0)
    """
    return 1.0 - lower(n - k, n, alpha)


def gaussian_mu(true_positives: float, false_positives: float) -> float:
    """μ = Φ⁻¹(true positives) − Φ⁻¹(false positives), at least 0.

    >>> round(gaussian_mu(0.8413447, 0.5), 4), gaussian_mu(0.2, 0.3), gaussian_mu(0.0, 0.1)
    (1.0, 0.0, 0.0)
    """
    if not (true_positives > 0.0 and false_positives < 1.0):
        return 0.0
    normal = NormalDist()
    return max(0.0, normal.inv_cdf(min(true_positives, 1 - 1e-12)) - normal.inv_cdf(max(false_positives, 1e-12)))


def _log_choose(n: int) -> npt.NDArray[np.float64]:
    i = np.arange(1, n + 1)
    return np.concatenate(([0.0], np.cumsum(np.log((n - i + 1) / i))))


def _log_tail(logs: npt.NDArray[np.float64], j: npt.NDArray[np.int64], n: int, p: float) -> float:
    terms = logs + j * math.log(p) + (n - j) * math.log1p(-p)
    top = float(terms.max())
    return top + math.log(float(np.exp(terms - top).sum()))


def _bisect(small_enough: Callable[[float], bool]) -> float:
    """Return the largest p in (0, 1), to 1e-12, for which the increasing tail is still small enough."""
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2.0
        if small_enough(middle):
            low = middle
        else:
            high = middle
    return low
