"""How good predictions for held-out rows are, beside the constant prediction: the base rate, or the target's mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mempair_db.pair.state import Vector


@dataclass(frozen=True)
class Scores:
    """Loss: log loss, or the share of the variance that is not explained. Fit: accuracy, or the share that is."""

    loss: float
    base: float  # loss of the constant prediction
    error: float  # standard error of base − loss
    fit: float
    auc: float | None  # of a classification

    @property
    def beats_base(self) -> bool:
        """Whether the model is better than the constant, beyond what chance may do."""
        return self.base - self.loss > 2.0 * self.error

    def row(self) -> dict[str, Any]:
        """Return loss and AUC as columns."""
        if self.auc is None:
            return {"unexplained": round(self.loss, 4), "of the mean": round(self.base, 4)}
        return {"log loss": round(self.loss, 4), "base rate": round(self.base, 4), "AUC": round(self.auc, 4)}


@dataclass(frozen=True)
class Targets:
    """The held-out targets, and the constant that the learned rows suggest."""

    y: Vector
    constant: float
    regression: bool

    @classmethod
    def of(cls, y: Vector, learned: Vector, *, regression: bool) -> Targets:
        """Take the held-out targets and the learned ones; labels are ±1."""
        return cls(y, float(learned.mean() if regression else (learned > 0).mean()), regression)

    def scores(self, predictions: Sequence[Vector]) -> Scores:
        """Compare one model with the held-out targets, or several draws of it: what they come to on average."""
        losses = np.array([self._losses(p) for p in predictions])
        base = self._losses(np.full(len(self.y), self.constant))
        gains = base - losses
        of_rows = float(gains.mean(axis=0).std(ddof=1)) / math.sqrt(len(self.y))
        of_draws = float(gains.mean(axis=1).std(ddof=1)) / math.sqrt(len(losses)) if len(losses) > 1 else 0.0
        loss = float(losses.mean())
        return Scores(
            loss=loss,
            base=float(base.mean()),
            error=math.hypot(of_rows, of_draws),
            fit=1.0 - loss if self.regression else float(np.mean([(p > 0.5) == (self.y > 0) for p in predictions])),
            auc=None if self.regression else float(np.mean([auc(self.y, p) for p in predictions])),
        )

    def _losses(self, p: Vector) -> Vector:
        if self.regression:
            return np.asarray((p - self.y) ** 2 / max(float(self.y.var()), 1e-300))
        return np.asarray(-np.log(np.clip(np.where(self.y > 0, p, 1.0 - p), 1e-12, 1.0)))


def auc(y: Vector, p: Vector) -> float:
    """Return how often a yes is placed above a no; a tie counts half, and without either there is nothing to place.

    >>> auc(np.array([1.0, -1.0, 1.0]), np.array([0.9, 0.5, 0.5]))
    0.75
    """
    yes, no = np.sort(p[y > 0]), p[y <= 0]
    if not len(yes) or not len(no):
        return 0.5
    above = len(yes) - (np.searchsorted(yes, no, "left") + np.searchsorted(yes, no, "right")) / 2.0
    return float(above.mean() / len(yes))
