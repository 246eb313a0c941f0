"""Weights of rows: whole 16ths, so that what is added stays an integer (EXACT.md, 2).

w_q = floor(clamp(weight, 0, 16)·16 + ½)        s = (w_q·b + 8) >> 4,   b the weight of the row's class in 16ths
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .encode import Vector
from .reference import Integers

WEIGHT_UNIT: Final = 16
LARGEST_WEIGHT: Final = 16  # s is at most 2^8


def whole_weights(weight: Vector | None, y: Vector, class_weights: Sequence[int], *, has_labels: bool) -> Vector:
    """Return s of every row.

    >>> whole_weights(np.array([1.0, 0.5, 99.0]), np.ones(3), (), has_labels=False).tolist()
    [16.0, 8.0, 256.0]
    >>> whole_weights(None, np.array([1.0, 0.0, -1.0]), (8, 40), has_labels=True).tolist()
    [40.0, 8.0, 16.0]
    """
    if weight is None:
        whole = np.full(len(y), float(WEIGHT_UNIT))
    else:
        whole = np.floor(np.clip(weight, 0.0, LARGEST_WEIGHT) * WEIGHT_UNIT + 0.5)
    if not class_weights:
        return whole
    of = np.array([*class_weights, WEIGHT_UNIT], float)  # the last is that of a class without a place, −1
    place = y.astype(np.intp) if has_labels else (y > 0).astype(np.intp)
    s: Vector = np.minimum(np.floor((whole * of[place] + 8.0) / 16.0), LARGEST_WEIGHT * WEIGHT_UNIT)
    return s


def counted(y: Any, count: int) -> Integers:
    """Return how many rows each class has; those whose class has no place, −1, do not count.

    >>> counted(np.array([0, 0, -1, 0, 1]), 2).tolist()
    [3, 1]
    """
    place = np.asarray(y).astype(np.intp)
    return np.bincount(place[place >= 0], minlength=count).astype(np.int64)


def balanced(rows: Integers) -> tuple[int, ...]:
    """Return weights under which every class counts alike: n/(count·n_k) in 16ths, from the reference rows.

    >>> balanced(np.array([3, 1]))
    (11, 32)
    """
    n, count, most = int(rows.sum()), len(rows), LARGEST_WEIGHT * WEIGHT_UNIT
    return tuple(min(most, max(1, (2 * 16 * n + count * k) // (2 * count * k))) if k else most for k in rows.tolist())
