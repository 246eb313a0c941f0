"""Can a calibration row be read off the constants of an epoch, with the row and without it?

Who knows n and both means of a column knows the row's number: x = n·m − (n − 1)·m'. Rounded constants rarely differ at
all, and when they do, they give a multiple of the rounding. The attack is tried on every row, and as a positive control
on means that are not rounded, where it must read all of them. And the constants that are stored must be rounded ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mempair_db.offline.folder import Offline
from mempair_db.pair import encode
from mempair_db.pair.encode import Matrix, Number, Vector

ROWS: Final = 300
NEAR: Final = 0.01
"""Deviations: a number is read if the guess is that close."""


@dataclass(frozen=True)
class Readable:
    """How many of the rows could be read."""

    rows: int
    read: int
    changed: int  # rows whose removal changes any constant: each of them costs a retrain
    control: int  # rows that were read off means that are not rounded
    rounded: bool = True  # whether the constants that are stored are


def measure(model: Offline) -> Readable:
    """Try the attack on the first numbers of an export."""
    x: list[Matrix] = []
    for rows in model.batches():
        x.append(rows.x[rows.there])
        if sum(map(len, x)) >= ROWS:
            break
    epoch = model.live().epoch
    numbers = epoch.encoding.integers.numbers if epoch else ()
    return replace(attack(np.concatenate(x)[:ROWS]), rounded=all(map(is_rounded, numbers)))


def is_rounded(number: Number) -> bool:
    """Whether the scale is a power of two, and the centre a multiple of its eighth.

    >>> is_rounded(Number(44.0, 16.0)), is_rounded(Number(44.1, 16.0)), is_rounded(Number(44.0, 15.0))
    (True, False, False)
    """
    return math.frexp(number.scale)[0] == 0.5 and (8.0 * number.centre / number.scale).is_integer()


def attack(x: Matrix) -> Readable:
    """Read every row of a calibration off the constants."""
    x = x[np.isfinite(x).all(axis=1)]
    spread = np.maximum(x.std(axis=0), 1e-9 * np.abs(x).max(axis=0, initial=1e-300))  # of a constant, rounding
    with_all = rounded_centres(x)
    changed = sum(not np.array_equal(with_all, rounded_centres(np.delete(x, i, axis=0))) for i in range(len(x)))
    read, control = (_read(x, spread, centres) for centres in (rounded_centres, plain_means))
    return Readable(len(x), read, changed, control)


def rounded_centres(x: Matrix) -> Vector:
    """Return the centres as models have them."""
    fitted = encode.fit(x, [()] * len(x), np.ones(len(x)))
    return np.array([number.centre for number in fitted.numbers])


def plain_means(x: Matrix) -> Vector:
    """Return what models must not have."""
    means: Vector = x.mean(axis=0)
    return means


def _read(x: Matrix, spread: Vector, centres: Callable[[Matrix], Vector]) -> int:
    n, whole, read = len(x), centres(x), 0
    for i, row in enumerate(x):
        without = centres(np.delete(x, i, axis=0))
        if not np.array_equal(whole, without):  # else the guess is the centre, whatever the row
            read += bool((np.abs(n * whole - (n - 1) * without - row) <= NEAR * spread).all())
    return read
