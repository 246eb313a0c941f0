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


def f_cdf(q: float, d1: int, d2: int, noncentral: float = 0.0) -> float:
    """P(F ≤ q) for F's law with d1 and d2 degrees of freedom: I_x(d1/2, d2/2) at x = d1·q/(d1·q + d2).

    Noncentral, it is the mean of I_x(d1/2 + j, d2/2) over j ~ Poisson(noncentral/2).

    >>> round(f_cdf(1.0, 4, 4), 6), round(f_cdf(2.5, 3, 20), 4), round(f_cdf(2.5, 3, 20, 1.0), 4)
    (0.5, 0.9112, 0.8346)
    """
    x, half = d1 * q / (d1 * q + d2), noncentral / 2.0
    weight, total, j = math.exp(-half), 0.0, 0
    while j <= half or weight > 1e-18:
        total += weight * _incomplete_beta(x, d1 / 2.0 + j, d2 / 2.0)
        j += 1
        weight *= half / j
    return min(total, 1.0)


def f_quantile(p: float, d1: int, d2: int) -> float:
    """Return the q with P(F ≤ q) = p.

    >>> round(f_quantile(0.9112, 3, 20), 2)
    2.5
    """
    x = _bisect(lambda x: f_cdf(x / (1.0 - x), d1, d2) <= p)
    return x / (1.0 - x)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), by its continued fraction (Abramowitz and Stegun 26.5.8) and Lentz' method."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - math.log(a)
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    fraction = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d, c = 1.0 / (1.0 + term * d), 1.0 + term / c
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return math.exp(front) * fraction


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
