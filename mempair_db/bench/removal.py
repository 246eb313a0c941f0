"""Certified removal for L2 logistic regression, from the description in its paper, as a peer for benchmarks.

C. Guo, T. Goldstein, A. Hannun, L. van der Maaten, *Certified Data Removal from Machine Learning Models* (2020).

    train     w = argmin Σ_i ℓ(wᵀx_i, y_i) + (nλ/2)‖w‖² + bᵀw,  b ~ N(0, σ²I)          objective perturbation
    remove u  Δ = λw + ∇ℓ(w; x_u, y_u);  H = ∇² of the remaining sum at w;  w ← w + H⁻¹Δ    one Newton step
    account   the step misses the new minimum by a gradient of at most  ¼·‖X‖₂·‖H⁻¹Δ‖·‖X H⁻¹Δ‖, which adds up

b hides a gradient of length σε/c with c = √(2 ln(1.5/δ)); once the sum passes that, the model must be trained again.
It must keep every row, since H is summed anew for each removal: O(n·d² + d³) a removal.
"""

from __future__ import annotations

import math

import numpy as np

from mempair_db.pair.comparators import derivative, second_derivative
from mempair_db.pair.state import Matrix, Vector

BEND = 0.25
"""The paper's Lipschitz constant of ℓ''."""


class CertifiedRemoval:
    """A trained model that removes rows until its budget of gradient residual is spent."""

    def __init__(self, X: Matrix, y: Vector, *, lam: float, sigma: float, epsilon: float, delta: float, seed: int = 0):
        """Train on rows with ‖x‖ ≤ 1 and labels ±1."""
        self.X, self.y, self.lam = X, y, lam
        self.there = np.ones(len(X), bool)
        self.budget = sigma * epsilon / math.sqrt(2.0 * math.log(1.5 / delta))
        self.residual = 0.0
        self.norm = math.sqrt(float(np.linalg.eigvalsh(X.T @ X)[-1]))  # removing rows only lowers it
        self.b = sigma * np.random.default_rng(seed).normal(size=X.shape[1])
        self.w = self._minimise()

    @property
    def spent(self) -> bool:
        """Whether the last removal went over the budget."""
        return self.residual > self.budget

    def remove(self, row: int) -> float:
        """Remove one row; return what it adds to the gradient residual."""
        x, y = self.X[row], self.y[row : row + 1]
        delta = self.lam * self.w + derivative("logistic", x[None, :] @ self.w, y)[0] * x
        self.there[row] = False
        X = self._rows()
        step = np.linalg.solve(self._hessian(X, self.w), delta)
        self.w = self.w + step
        added = BEND * self.norm * float(np.linalg.norm(step)) * float(np.linalg.norm(X @ step))
        self.residual += added
        return added

    def _rows(self) -> Matrix:
        return self.X if self.there.all() else self.X[self.there]

    def _hessian(self, X: Matrix, w: Vector) -> Matrix:
        weights = second_derivative("logistic", X @ w, self.y[self.there])
        hessian: Matrix = X.T @ (weights[:, None] * X) + len(X) * self.lam * np.eye(X.shape[1])
        return hessian

    def _minimise(self) -> Vector:
        """Newton steps, halved until the objective falls, until the gradient vanishes."""
        X, y = self._rows(), self.y[self.there]
        ridge = len(X) * self.lam

        def value(w: Vector) -> float:
            return float(np.logaddexp(0.0, -y * (X @ w)).sum() + ridge / 2.0 * (w @ w) + self.b @ w)

        w = np.zeros(X.shape[1])
        for _ in range(100):
            gradient = X.T @ derivative("logistic", X @ w, y) + ridge * w + self.b
            if np.linalg.norm(gradient) <= 1e-10 * len(X):
                break
            step = -np.linalg.solve(self._hessian(X, w), gradient)
            size = 1.0
            while size > 1e-9 and value(w + size * step) > value(w) + 0.1 * size * float(gradient @ step):
                size /= 2.0
            w = w + size * step
        return w
