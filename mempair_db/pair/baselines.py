"""Baselines: well-known online learners on the same encoded rows, for benchmarks and tests.

    SGD                 w ← w − η_t·g,  η_t = rate/√t (Zinkevich 2003) or 1/(λt) (Hazan, Agarwal, Kale 2007)
    AdaGrad             w_i ← w_i − rate·g_i/√(Σ_s g_{s,i}²)            (Duchi, Hazan, Singer 2011; diagonal)
    OnlineNewtonStep    A ← A + g·gᵀ,  w ← w − rate·A⁻¹g,  A_0 = ε·I    (Hazan, Agarwal, Kale 2007)

with g = ∇f_t(w), f_t(w) = ℓ(wᵀx_t, y_t) + (λ/2)‖w‖². SGD and AdaGrad cost O(d) a row, Online Newton Step O(d²), its
inverse kept by Sherman and Morrison's formula: not worth using from d = 1 000 or so.

None of them projects onto a ball, which their papers' regret bounds ask for, and none of them can forget a row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from ..errors import InvalidParameter
from . import losses
from .comparators import Array, Loss
from .compiled import compiled
from .curvature import dot


class Baseline(ABC):
    """An online learner: `step` for one row, `run` for many; the same result either way."""

    def __init__(self, d: int, loss: Loss = "logistic", *, lam: float = 0.0, clip: float = 1.0) -> None:
        """Start at w = 0."""
        self.w: Array = np.zeros(d)
        self.t = 0
        self.code = losses.CODES[loss]
        self.lam = lam
        self.clip = clip

    def step(self, x: Array, y: float) -> float:
        """Learn one row and return f_t(w) from before it was learned."""
        return float(self.run(x[None, :], np.array([y]))[0])

    def run(self, X: Array, y: Array) -> Array:
        """Learn rows in order and return every f_t(w_t), each from before its row was learned."""
        before = np.empty(len(X))
        self._learn(np.ascontiguousarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64), before)
        self.t += len(X)
        return before

    @abstractmethod
    def _learn(self, X: Array, y: Array, before: Array) -> None: ...


class SGD(Baseline):
    """w ← w − η_t·g with η_t = rate/√t, or 1/(λt) if no rate is given; the latter's first steps are as long as 1/λ.

    >>> learner = SGD(1, "squared", lam=0.5, rate=1.0)
    >>> learner.step(np.array([1.0]), 2.0), learner.w
    (2.0, array([2.]))
    """

    def __init__(
        self, d: int, loss: Loss = "logistic", *, lam: float = 0.0, clip: float = 1.0, rate: float | None = None
    ) -> None:
        """Start at w = 0."""
        super().__init__(d, loss, lam=lam, clip=clip)
        if (lam if rate is None else rate) <= 0.0:
            raise InvalidParameter("Steps of rate/√t need rate > 0, steps of 1/(λt) need lam > 0.")
        self.rate = rate

    def _learn(self, X: Array, y: Array, before: Array) -> None:
        _sgd(X, y, before, self.w, self.t, self.code, self.clip, self.lam, self.rate or 0.0)


class AdaGrad(Baseline):
    """w_i ← w_i − rate·g_i/√(Σ_s g_{s,i}²); a coordinate without a gradient so far stays where it is.

    >>> learner = AdaGrad(2, "squared", rate=0.5)
    >>> learner.step(np.array([1.0, 0.0]), 2.0), learner.w
    (2.0, array([0.5, 0. ]))
    """

    def __init__(
        self, d: int, loss: Loss = "logistic", *, lam: float = 0.0, clip: float = 1.0, rate: float = 1.0
    ) -> None:
        """Start at w = 0."""
        super().__init__(d, loss, lam=lam, clip=clip)
        self.rate = rate
        self.squares: Array = np.zeros(d)

    def _learn(self, X: Array, y: Array, before: Array) -> None:
        _adagrad(X, y, before, self.w, self.squares, self.code, self.clip, self.lam, self.rate)


class OnlineNewtonStep(Baseline):
    """A ← A + g·gᵀ, w ← w − rate·A⁻¹g, with A⁻¹ ← A⁻¹ − (A⁻¹g)(A⁻¹g)ᵀ/(1 + gᵀA⁻¹g) and A_0 = ε·I.

    >>> learner = OnlineNewtonStep(1, "squared", epsilon=4.0)
    >>> learner.step(np.array([1.0]), 2.0), learner.inverse, learner.w
    (2.0, array([[0.125]]), array([0.25]))
    """

    def __init__(
        self,
        d: int,
        loss: Loss = "logistic",
        *,
        lam: float = 0.0,
        clip: float = 1.0,
        rate: float = 1.0,
        epsilon: float = 1.0,
    ) -> None:
        """Start at w = 0."""
        super().__init__(d, loss, lam=lam, clip=clip)
        self.rate = rate
        self.inverse: Array = np.eye(d) / epsilon

    def _learn(self, X: Array, y: Array, before: Array) -> None:
        _online_newton_step(X, y, before, self.w, self.inverse, self.code, self.clip, self.lam, self.rate)


@compiled
def _gradient(x: Array, y: float, w: Array, g: Array, code: int, clip: float, lam: float) -> float:
    """Set g = ∇f_t(w) and return f_t(w)."""
    z = dot(w, x)
    slope = losses.derivative(code, clip, z, y)
    for i in range(w.shape[0]):
        g[i] = slope * x[i] + lam * w[i]
    return losses.value(code, clip, z, y) + 0.5 * lam * dot(w, w)


@compiled
def _sgd(X: Array, y: Array, before: Array, w: Array, t: int, code: int, clip: float, lam: float, rate: float) -> None:
    g = np.empty_like(w)
    for row in range(X.shape[0]):
        before[row] = _gradient(X[row], y[row], w, g, code, clip, lam)
        t += 1
        eta = rate / math.sqrt(t) if rate > 0.0 else 1.0 / (lam * t)
        for i in range(w.shape[0]):
            w[i] -= eta * g[i]


@compiled
def _adagrad(
    X: Array, y: Array, before: Array, w: Array, squares: Array, code: int, clip: float, lam: float, rate: float
) -> None:
    g = np.empty_like(w)
    for row in range(X.shape[0]):
        before[row] = _gradient(X[row], y[row], w, g, code, clip, lam)
        for i in range(w.shape[0]):
            squares[i] += g[i] * g[i]
            if squares[i] > 0.0:
                w[i] -= rate * g[i] / math.sqrt(squares[i])


@compiled
def _online_newton_step(
    X: Array, y: Array, before: Array, w: Array, inverse: Array, code: int, clip: float, lam: float, rate: float
) -> None:
    d = w.shape[0]
    g = np.empty_like(w)
    v = np.empty_like(w)
    for row in range(X.shape[0]):
        before[row] = _gradient(X[row], y[row], w, g, code, clip, lam)
        for i in range(d):
            v[i] = dot(inverse[i], g)
        shrink = 1.0 / (1.0 + dot(g, v))
        for i in range(d):
            for j in range(d):
                inverse[i, j] -= shrink * v[i] * v[j]
            w[i] -= rate * shrink * v[i]  # A⁻¹g with the new A
