"""What the model is compared with: itself computed from the rows alone, and plain logistic regression."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np

from mempair_db.demo.customers import Customer
from mempair_db.pair import exact
from mempair_db.pair.encode import Matrix, Vector, curves_for

PLANS = ("basic", "plus", "pro")
TIMES = (1,)  # among the numbers, the day of signing up


class Fresh(NamedTuple):
    """An exact model computed from rows, without a database, a queue or a history."""

    constants: bytes
    sums: bytes
    scores: Vector


def fresh(rows: Sequence[Customer]) -> Fresh:
    """Compute it with all the rows as its reference rows, as up to 10,000 rows are."""
    x, c, y = numbers(rows), [(row.plan,) for row in rows], labels(rows)
    reference = exact.refer(x, y, c, curves=curves_for(x.shape[1]), times=TIMES)
    total = exact.sums(reference, x, y, c)
    scores = exact.predict(reference, exact.solve(reference, total), x, c)
    return Fresh(reference.to_bytes(), total.to_bytes(), scores.reshape(len(rows)))


def short(data: bytes) -> str:
    """Return the beginning of the data's SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def numbers(rows: Sequence[Customer]) -> Matrix:
    """Return the features that are numbers, as the database gives them."""
    began = date(1970, 1, 1)
    return np.array(
        [[row.age, (row.signed_up - began).days, float(row.monthly_spend), row.newsletter] for row in rows], float
    )


def labels(rows: Sequence[Customer]) -> Vector:
    """1 for who left, 0 for who stayed."""
    return np.array([row.churned for row in rows], float)


def logistic_regression(rows: Sequence[Customer], asked: Sequence[Customer]) -> Vector:
    """Fit plain logistic regression to rows by Newton's steps until it stands still; return what it says of others."""
    x = numbers(rows)
    centre, scale = x.mean(axis=0), x.std(axis=0)

    def design(some: Sequence[Customer]) -> Matrix:
        plans = [[row.plan == plan for plan in PLANS[1:]] for row in some]
        return np.hstack([np.ones((len(some), 1)), (numbers(some) - centre) / scale, np.array(plans, float)])

    X, y = design(rows), labels(rows)
    w = np.zeros(X.shape[1])
    for _ in range(25):
        p = 1.0 / (1.0 + np.exp(-X @ w))
        w -= np.linalg.solve((X * (p * (1.0 - p))[:, None]).T @ X, X.T @ (p - y))
    return np.asarray(1.0 / (1.0 + np.exp(-design(asked) @ w)))


def quality(scores: Vector, truth: Vector) -> tuple[float, float, float]:
    """Return log loss, the share that is right, and the area under the ROC curve."""
    loss = -np.log(np.where(truth > 0, scores, 1.0 - scores)).mean()
    yes, no = np.sort(scores[truth > 0]), scores[truth == 0]
    above = len(yes) - (np.searchsorted(yes, no, "left") + np.searchsorted(yes, no, "right")) / 2.0
    return float(loss), float(((scores > 0.5) == (truth > 0)).mean()), float(above.mean() / len(yes))
