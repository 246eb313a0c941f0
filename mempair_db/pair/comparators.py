"""Comparators: the models regret is measured against, found in hindsight (theory 3.5 and 5).

    static     w*  = argmin_w Σ_t f_t(w),   f_t(w) = ℓ(wᵀx_t, y_t) + (λ/2)‖w‖²
    rolling    w_k = argmin over the last `window` rows, renewed every `stride` rows;   P_T = Σ_k ‖w_{k+1} − w_k‖

Both by damped Newton steps w ← w − s·(∇²F)⁻¹∇F, F = Σ f_t, with s halved until F falls enough. F is nλ-strongly
convex, so F(w) − F(w*) ≤ ‖∇F(w)‖²/(2nλ): the search ends once that gap is negligible, and the answer is certain,
also for huber, whose second derivative jumps. O(n·d² + d³) a step: for benchmarks and audits, not for the stream.
It does not hold for λ = 0, where separable rows have no best model at all.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import InvalidParameter, InvalidRow

Array: TypeAlias = npt.NDArray[np.float64]
Loss: TypeAlias = Literal["logistic", "huber", "squared"]

GAP: Final = 1e-12
"""F(w) − F(w*) at which the search ends, relative to F(w)."""

STEPS: Final = 500
"""Newton steps after which the search gives up; encoded rows take about ten."""

ROWS: Final = 4096
"""Rows per block of the Hessian, so that no second copy of X is made."""


def best_static(X: Array, y: Array, loss: Loss, lam: float, clip: float = 1.0) -> Array:
    """Return w* = argmin Σ f_t, the best static model in hindsight.

    For squared loss it is ridge regression, (XᵀX + nλI)⁻¹Xᵀy:

    >>> X, y = np.array([[1.0], [0.5]]), np.array([2.0, 0.0])
    >>> best_static(X, y, "squared", lam=0.375)
    array([1.])
    """
    _check(X, y, lam)
    return _minimise(X, y, loss, lam, clip, start=np.zeros(X.shape[1]))


def rolling(X: Array, y: Array, loss: Loss, lam: float, window: int, stride: int, clip: float = 1.0) -> Array:
    """Return one comparator a row of the result; row t of the stream is compared with number t // stride.

    Number k is the best static model of the `window` rows that end with its own stretch of `stride` rows (fewer at the
    start), so it knows the rows it is compared on.

    >>> X, y = np.ones((4, 1)), np.array([1.0, 1.0, 3.0, 3.0])
    >>> rolling(X, y, "squared", lam=1.0, window=2, stride=2)
    array([[0.5],
           [1.5]])
    """
    _check(X, y, lam)
    if not 1 <= stride <= window:
        raise InvalidParameter(f"stride = {stride} is not between 1 and window = {window}.")
    comparators = []
    w = np.zeros(X.shape[1])
    for start in range(0, len(X), stride):
        end = min(start + stride, len(X))
        rows = slice(max(0, end - window), end)
        w = _minimise(X[rows], y[rows], loss, lam, clip, start=w)
        comparators.append(w)
    return np.array(comparators).reshape(-1, X.shape[1])


def path_length(ws: Array) -> float:
    """P_T = Σ ‖w_{k+1} − w_k‖.

    >>> path_length(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]]))
    6.0
    """
    return float(np.sum(np.linalg.norm(np.diff(ws, axis=0), axis=1)))


def row_losses(X: Array, y: Array, w: Array, loss: Loss, lam: float, clip: float = 1.0) -> Array:
    """f_t(w) for every row t, with one w for all rows or one a row.

    >>> row_losses(np.array([[1.0], [2.0]]), np.array([0.0, 0.0]), np.array([2.0]), "squared", lam=1.0)
    array([ 4., 10.])
    """
    z = np.einsum("td,td->t", X, np.broadcast_to(w, X.shape))
    ridge: Array = lam / 2.0 * np.sum(w * w, axis=-1)
    return value(loss, z, y, clip) + ridge


def value(loss: Loss, z: Array, y: Array, clip: float = 1.0) -> Array:
    """ℓ(z, y): ln(1 + exp(−yz)); ½r² up to |r| = clip and straight beyond, r = z − y; ½r².

    >>> value("huber", np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """
    if loss == "logistic":
        return np.logaddexp(0.0, -y * z)
    residual = z - y
    if loss == "squared":
        return 0.5 * residual**2
    inner = np.clip(residual, -clip, clip)
    return 0.5 * inner**2 + clip * np.abs(residual - inner)


def derivative(loss: Loss, z: Array, y: Array, clip: float = 1.0) -> Array:
    """ℓ'(z, y): −y/(1 + exp(yz)); r clipped to ±clip; r.

    >>> derivative("huber", np.array([0.5, 3.0]), np.zeros(2))
    array([0.5, 1. ])
    """
    if loss == "logistic":
        return -y * np.exp(-np.logaddexp(0.0, y * z))
    residual = z - y
    return residual if loss == "squared" else np.clip(residual, -clip, clip)


def second_derivative(loss: Loss, z: Array, y: Array, clip: float = 1.0) -> Array:
    """ℓ''(z, y): p(1 − p) with p = 1/(1 + exp(yz)); 1 up to |r| = clip and 0 beyond; 1.

    >>> second_derivative("huber", np.array([0.5, 3.0]), np.zeros(2))
    array([1., 0.])
    """
    if loss == "logistic":
        p: Array = np.exp(-np.logaddexp(0.0, y * z))
        return p * (1.0 - p)
    if loss == "squared":
        return np.ones_like(z)
    return (np.abs(z - y) <= clip).astype(np.float64)


def _minimise(X: Array, y: Array, loss: Loss, lam: float, clip: float, start: Array) -> Array:
    n, d = X.shape
    ridge = n * lam
    w = start
    total = _total(X, y, w, loss, lam, clip)
    for _ in range(STEPS):
        z = X @ w
        gradient = X.T @ derivative(loss, z, y, clip) + ridge * w
        if gradient @ gradient <= 2.0 * ridge * GAP * max(1.0, total):
            return w
        hessian = _gram(X, second_derivative(loss, z, y, clip)) + ridge * np.eye(d)
        direction = -np.linalg.solve(hessian, gradient)
        scale, fall = 1.0, -float(gradient @ direction)
        while (reached := _total(X, y, w + scale * direction, loss, lam, clip)) > total - scale * fall / 4.0:
            scale /= 2.0
            if scale < 2.0**-40:  # F is not computed exactly enough to fall any further
                return w
        w, total = w + scale * direction, reached
    raise InvalidRow(f"{STEPS} Newton steps did not find the best model.", remedy="Encode the rows first.")


def _total(X: Array, y: Array, w: Array, loss: Loss, lam: float, clip: float) -> float:
    return float(np.sum(value(loss, X @ w, y, clip)) + len(X) * lam / 2.0 * (w @ w))


def _gram(X: Array, weights: Array) -> Array:
    """Return Σ_t weights_t·x_t x_tᵀ."""
    gram = np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, len(X), ROWS):
        block = X[start : start + ROWS]
        gram += block.T @ (weights[start : start + ROWS, None] * block)
    return gram


def _check(X: Array, y: Array, lam: float) -> None:
    if not 0.0 < lam < math.inf:
        raise InvalidParameter(f"lam = {lam!r} is not a positive number.")
    if X.ndim != 2 or y.shape != X.shape[:1] or not len(X):
        raise InvalidRow(f"X has shape {X.shape} and y {y.shape}: it takes rows, and one target for each.")
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise InvalidRow("X or y holds a value that is not finite.")
