"""The coordinates that come from numbers, compiled: in one pass over the rows (EXACT.md, 2).

x_q = floor(clamp((x − centre)/scale, −4, 4)·2^10 + ½)     0 if x is missing
max(x_q − knot, 0)                                         one coordinate per knot
2^10 or 0                                                  whether x is missing, where that has a coordinate
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import compiled

Vector = npt.NDArray[np.float64]


class Coordinates(NamedTuple):
    """What `encode.Number` says of every number, and what is made of it."""

    centre: Vector
    factor: Vector  # 2^10/scale: a power of two, so that its place in the formula changes no bit
    may_miss: npt.NDArray[np.bool_]
    number: npt.NDArray[np.int64]  # of every coordinate after the intercept: which number it comes from,
    knot: Vector  # what is subtracted, 0 for the number itself,
    least: Vector  # and the least that it can be, −∞ for the number itself
    gaps: npt.NDArray[np.int64]  # those among them that say whether their number is missing
    largest: float  # 4·2^10
    one: float  # 2^10


@compiled
def fill(
    x: npt.NDArray[np.float64],
    k: Coordinates,
    X: npt.NDArray[np.float64],
    outside: npt.NDArray[np.bool_],
    unknown: npt.NDArray[np.bool_],
) -> None:
    """Fill the intercept and what comes from numbers; say which rows are beyond the clamp, which miss what none did."""
    d = x.shape[1]
    straight = len(k.number) == d
    room = np.empty(d)
    for i in range(len(x)):
        X[i, 0] = k.one
        x_q = X[i, 1 : d + 1] if straight else room
        far, strange = False, False
        for j in range(d):
            missing = np.isnan(x[i, j])
            clamped = min(max((x[i, j] - k.centre[j]) * k.factor[j], -k.largest), k.largest)
            x_q[j] = 0.0 if missing else np.floor(clamped + 0.5)
            far |= abs(x_q[j]) == k.largest
            strange |= missing & (not k.may_miss[j])
        outside[i], unknown[i] = far, strange
        if not straight:
            for at in range(len(k.number)):
                X[i, 1 + at] = max(x_q[k.number[at]] - k.knot[at], k.least[at])
            for at in k.gaps:
                X[i, 1 + at] = k.one if np.isnan(x[i, k.number[at]]) else 0.0
