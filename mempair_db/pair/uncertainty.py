"""How far the weights can be trusted: standard errors and what the ridge takes away, from the sums alone.

H is the information that the rows hold about the weights. With A = H + Λ the weights w = w0 − A⁻¹(g + Λw0) lack about
A⁻¹Λw of what they would be without the ridge; with that added they have the covariance

    V = σ²·(I + A⁻¹Λ) A⁻¹HA⁻¹ (I + ΛA⁻¹)      σ² = 1; of a regression the variance of its residuals, which are sums too:
    Σ (y − wᵀx)² = Σ y² + 2·gᵀw + wᵀHw        at w0 = 0, over n − d_eff degrees of freedom

Without the correction an interval around a shrunken weight misses the truth too often: in a simulation of 1,500 rows
88 % of the time instead of 95 % (tests/unit/test_uncertainty.py). Nothing but the sums and the constants is used, so
what is said of the weights forgets a row when the weights do.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from .encode import UNIT, Matrix, Vector
from .exact import RIDGE, penalties, units
from .reference import Reference
from .serve import fold
from .sums import Sums

WIDEST: Final = 512  # coordinates of all classes together: inverting more takes longer than a batch should


class Spread(NamedTuple):
    """What the ridge took from the weights, and the covariance of weights with it."""

    lack: Vector
    covariance: Matrix


def spread(reference: Reference, total: Sums, w: Matrix, k: int = 0, ridge: float = RIDGE) -> Spread | None:
    """Return it for the weights of class k; None where the sums do not tell.

    They do not for huber's loss, whose residuals count by weights that the sums have not kept.
    """
    if reference.loss == "huber" or len(reference.w0) * reference.d > WIDEST:
        return None
    g_unit, H_unit = units(reference)
    own = slice(None)
    if reference.labels and reference.together:  # one matrix of all classes, of which each has its part
        own, k, w = slice(k * reference.d, (k + 1) * reference.d), 0, w.reshape(1, -1)
    H = total.H[k] / H_unit
    penalty = np.tile(penalties(reference, ridge), len(H) // reference.d)
    inverse = np.linalg.inv(H + np.diag(penalty))
    shrunk = inverse * penalty  # A⁻¹Λ
    corrected = inverse + shrunk @ inverse
    variance = 1.0
    if reference.loss == "squared":
        freedom = total.n - (reference.d - float(np.trace(shrunk)))
        squares = total.fourth / g_unit + 2.0 * (total.g[k] / g_unit) @ w[k] + w[k] @ H @ w[k]
        if freedom <= 0:
            return None
        variance = max(float(squares), 0.0) / freedom
    return Spread((shrunk @ w[k])[own], variance * (corrected @ H @ corrected.T)[own, own])


def uncertainty(
    reference: Reference, total: Sums, w: Matrix, *, ridge: float = RIDGE, curves: int = 0, imputes: bool = True
) -> Matrix | None:
    """Return two rows per class, what served numbers lack and their standard errors, folded as they are.

    The columns: intercept, weights, knots, missing, levels.
    """
    rows: list[Vector] = []
    for k in range(len(reference.w0)):
        found = spread(reference, total, w, k, ridge)
        if found is None:
            return None
        rows.append(_folded(reference, found.lack, curves, imputes=imputes))
        errors = _folded(reference, np.sqrt(np.diag(found.covariance).clip(min=0.0)), curves, imputes=imputes)
        if curves and imputes:
            _missing_errors(reference, found.covariance, errors)
        rows.append(errors)
    return np.array(rows)


def _scale(reference: Reference) -> float:
    return reference.encoding.target.scale if reference.regression else 1.0


def _folded(reference: Reference, values: Vector, curves: int, *, imputes: bool) -> Vector:
    """Fold what is linear in the weights."""
    served = fold(reference, values, curves, imputes=imputes)
    centre = reference.encoding.target.centre if reference.regression else 0.0
    missing = served["missing_weights"] if imputes else np.zeros(0)
    return np.concatenate(
        [[served["intercept"] - centre], served["weights"], served["knot_weights"], missing, served["level_weights"]]
    )


def _missing_errors(reference: Reference, covariance: Matrix, errors: Vector) -> None:
    """Put in what a missing number with knots adds: a sum of weights, of which one may lose what another gains."""
    encoding = reference.encoding
    places = {name: i for i, name in enumerate(encoding.names)}
    levels = sum(len(text.levels) + 1 + text.null for text in encoding.texts)
    first = len(errors) - levels - len(encoding.numbers)
    for j, number in enumerate(encoding.numbers):
        part = np.zeros(encoding.d)
        for at in number.knots:
            part[places["knot", j, at]] = max(-at, 0) / UNIT
        if number.missing:
            part[places["missing", j, None]] = 1.0
        errors[first + j] = math.sqrt(max(float(part @ covariance @ part), 0.0)) * _scale(reference)
