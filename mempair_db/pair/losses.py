"""Losses of one row, ℓ(z, y) with z = θᵀx, and the two constants the proofs need.

    logistic   ℓ = ln(1 + exp(−y·z)), y ∈ {−1, +1}               G = 1      M = 1/4
    huber      ℓ = ½r² for |r| ≤ clip, else clip·|r| − ½clip²     G = clip   M = 1      (r = z − y)
    squared    ℓ = ½r²                                            G = clip   M = 1      (paper mode only)

With ‖x‖ ≤ 1, G bounds the gradient ‖ℓ'(z, y)·x‖ and M the curvature ℓ''(z, y)·‖x‖². The residual is clipped as a
scalar, never the gradient vector: ``clip(r)`` is the derivative of a convex function, which Theorem A needs.
Squared loss has no G at all; the paper's formulas are then evaluated with G = clip, and nothing is certified.
"""

from __future__ import annotations

import math
from typing import Final

from .compiled import small
from .encode import TARGET_CLAMP

LOGISTIC: Final = 0
HUBER: Final = 1
SQUARED: Final = 2

FARTHEST: Final = float(TARGET_CLAMP)
"""Deviations at which targets are cut: huber's slope is the same beyond `clip`, and an outlier would drown the sums."""

CODES: Final = {"logistic": LOGISTIC, "huber": HUBER, "squared": SQUARED}


def lipschitz(loss: str, clip: float) -> float:
    """G: the largest |ℓ'|."""
    return 1.0 if loss == "logistic" else clip


def smoothness(loss: str) -> float:
    """M: the largest ℓ''."""
    return 0.25 if loss == "logistic" else 1.0


@small
def largest_at_zero(loss: int, clip: float) -> float:
    """Bound ℓ(0, y) for every target there can be.

    >>> largest_at_zero(HUBER, 2.0), round(largest_at_zero(LOGISTIC, 1.0), 3)
    (128.0, 0.693)
    """
    return math.log(2.0) if loss == LOGISTIC else clip * FARTHEST


@small
def value(loss: int, clip: float, z: float, y: float) -> float:
    """ℓ(z, y).

    >>> round(value(LOGISTIC, 1.0, 0.0, 1.0), 12)
    0.69314718056
    >>> value(HUBER, 1.0, 3.0, 0.0)
    2.5
    """
    if loss == LOGISTIC:
        margin = y * z
        if margin > 0.0:
            return math.log1p(math.exp(-margin))
        return math.log1p(math.exp(margin)) - margin
    residual = abs(z - y)
    if loss == HUBER and residual > clip:
        return clip * residual - 0.5 * clip * clip
    return 0.5 * residual * residual


@small
def derivative(loss: int, clip: float, z: float, y: float) -> float:
    """ℓ'(z, y).

    >>> derivative(LOGISTIC, 1.0, 0.0, 1.0), derivative(HUBER, 1.0, 3.0, 0.0), derivative(SQUARED, 1.0, 3.0, 0.0)
    (-0.5, 1.0, 3.0)
    """
    if loss == LOGISTIC:
        margin = y * z
        if margin > 0.0:
            e = math.exp(-margin)
            return -y * e / (1.0 + e)
        return -y / (1.0 + math.exp(margin))
    residual = z - y
    if loss == HUBER:
        return min(max(residual, -clip), clip)
    return residual


@small
def second_derivative(loss: int, clip: float, z: float, y: float) -> float:
    """ℓ''(z, y), where huber's kink counts as flat.

    >>> second_derivative(LOGISTIC, 1.0, 0.0, 1.0), second_derivative(HUBER, 1.0, 3.0, 0.0)
    (0.25, 0.0)
    """
    if loss == LOGISTIC:
        e = math.exp(-abs(z))
        return e / ((1.0 + e) * (1.0 + e))
    if loss == HUBER and abs(z - y) > clip:
        return 0.0
    return 1.0
