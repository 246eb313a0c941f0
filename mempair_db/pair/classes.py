"""Several classes: the terms of softmax regression as integers (EXACT.md, 2).

    e_k = table[z_max − z_k]                    2^20·exp(−t/2^10), rounded, for t = 0 … 2^14
    p_k = (2^15·e_k + Σe) div (2·Σe)            2^14·e_k/Σe, rounded
    o_kj = (p_k·p_j + 2^17) >> 18               2^10·p_k·p_j, rounded, for k ≠ j
    c_kj = −o_kj,   c_kk = max(1, Σ_j o_kj)

    g_k += (p_k − (2^14 if the row is of class k))·x_q        H_kj += c_kj·x_q x_qᵀ

Rows and columns of c have no negative sum, so H has no negative eigenvalue, whatever was rounded. All classes are one
model of K·d coordinates. Where those are more than 1,024, H keeps the blocks of each class with itself alone,

    c_kk = max(1, (p_k·(2^14 − p_k) + 2^17) >> 18)

and every class takes ¾ of its own step: where two are mixed up, both would go the whole way that lies between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from .encode import RAREST, Matrix, Vector

WIDEST: Final = 1_024  # classes times coordinates, to be solved together
ALONE: Final = 0.75  # of a step, where they are not; from 1 on it need not lead anywhere
MOST: Final = 50  # classes
P_UNIT: Final = 2**14
EXP_UNIT: Final = 2**20
EXP_LAST: Final = 2**14


def _table() -> Vector:
    """2^20·exp(−t/2^10), rounded; a test has the checksum, and that no entry lies near a rounding boundary."""
    return np.floor(np.exp(-np.arange(EXP_LAST + 1) / 2**10) * EXP_UNIT + 0.5)


TABLE_EXP: Final = _table()


def probabilities(z: Matrix) -> Matrix:
    """Return p of every class from the scores z (rows × classes).

    >>> probabilities(np.array([[0.0, 0.0, -10240.0]])).tolist()
    [[8192.0, 8192.0, 0.0]]
    """
    below = np.minimum(z.max(axis=1, keepdims=True) - z, EXP_LAST)
    e = TABLE_EXP[below.astype(np.intp)]
    total = e.sum(axis=1, keepdims=True)
    p: Matrix = np.floor((2**15 * e + total) / (2.0 * total))
    return p


def curvatures(p: Matrix, *, together: bool) -> dict[tuple[int, int], Vector]:
    """Return c of every pair of classes k ≤ j; of every class with itself, where they are not solved together.

    >>> p = np.array([[8192.0, 8192.0, 0.0]])
    >>> {pair: int(c[0]) for pair, c in curvatures(p, together=True).items()}
    {(0, 1): -256, (0, 2): 0, (1, 2): 0, (0, 0): 256, (1, 1): 256, (2, 2): 1}
    """
    count = p.shape[1]
    if not together:
        whole = P_UNIT - p
        return {(k, k): np.maximum(1.0, np.floor((p[:, k] * whole[:, k] + 2**17) / 2**18)) for k in range(count)}
    pairs = {(k, j): -np.floor((p[:, k] * p[:, j] + 2**17) / 2**18) for k in range(count) for j in range(k + 1, count)}
    sums = [np.zeros(len(p)) for _ in range(count)]
    for (k, j), c in pairs.items():
        sums[k] = sums[k] - c
        sums[j] = sums[j] - c
    return pairs | {(k, k): np.maximum(1.0, sums[k]) for k in range(count)}


def arranged(count: int, blocks: Mapping[tuple[int, int], Matrix]) -> Matrix:
    """Return one symmetric matrix of the blocks of all pairs."""
    return np.block([[blocks[min(k, j), max(k, j)] for j in range(count)] for k in range(count)])


def choose(counts: Counter[str]) -> tuple[str, ...]:
    """Return the classes that have a place: the 50 most frequent of those with at least 5 rows, ordered by name.

    >>> choose(Counter({"basic": 9, "pro": 5, "a name": 4}))
    ('basic', 'pro')
    """
    frequent = sorted((-count, label) for label, count in counts.items() if count >= RAREST)
    return tuple(sorted(label for _, label in frequent[:MOST]))


def places(labels: Sequence[str], given: Sequence[str | None]) -> Vector:
    """Return where each row's class is among the labels, −1 if it has no place."""
    where = {label: float(i) for i, label in enumerate(labels)}
    return np.fromiter((where.get(label, -1.0) if label is not None else -1.0 for label in given), float, len(given))
