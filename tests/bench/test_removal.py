"""The certified-removal baseline does what its paper describes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mempair_db.bench.peers import Shards, Statistics
from mempair_db.bench.removal import CertifiedRemoval
from mempair_db.pair.comparators import best_static, derivative

LAM = 0.01


def rows(n: int = 300, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)


def model(sigma: float = 1.0) -> CertifiedRemoval:
    return CertifiedRemoval(*rows(), lam=LAM, sigma=sigma, epsilon=1.0, delta=1e-4)


def test_without_perturbation_it_is_the_best_static_model() -> None:
    assert model(sigma=0.0).w == pytest.approx(best_static(*rows(), "logistic", LAM), abs=1e-6)


def test_the_true_gradient_residual_stays_under_what_is_accounted() -> None:
    trained = model()
    X, y = rows()
    for row in range(20):
        trained.remove(row)
        left = slice(row + 1, None)
        gradient = X[left].T @ derivative("logistic", X[left] @ trained.w, y[left])
        gradient += len(X[left]) * LAM * trained.w + trained.b
        assert np.linalg.norm(gradient) <= trained.residual + 1e-6
    assert trained.residual > 0


def test_the_budget_is_what_the_perturbation_hides() -> None:
    assert model(sigma=2.0).budget == pytest.approx(2.0 / math.sqrt(2.0 * math.log(1.5e4)))


def test_statistics_forget_exactly() -> None:
    X, y = rows()
    peer = Statistics(X, y, LAM)
    peer.fit()
    for row in range(3):
        peer.delete(row)
    ridge = len(X) * LAM * np.eye(X.shape[1])
    assert peer.w == pytest.approx(np.linalg.solve(X[3:].T @ X[3:] + ridge, X[3:].T @ y[3:]))


def test_only_the_shard_of_the_row_is_trained_again() -> None:
    X, y = rows()
    peer = Shards(X, y, LAM, 3)
    peer.fit()
    before = list(peer.models)
    peer.delete(4)
    assert [new is old for new, old in zip(peer.models, before, strict=True)] == [True, False, True]
