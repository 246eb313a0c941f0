"""Can a calibration row be read off the constants of an epoch, with the row and without it?

Who knows n and both means of a column knows the row's number: x = n·m − (n − 1)·m'. Rounded constants rarely differ at
all, and when they do, they give a multiple of the rounding. The attack is tried on every row, and as a positive control
on means that are not rounded, where it must read all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from mempair_db.offline.folder import Offline
from mempair_db.pair import encode
from mempair_db.pair.encode import Matrix, Vector

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


def measure(model: Offline) -> Readable:
    """Try the attack on the first numbers of an export."""
    x: list[Matrix] = []
    for rows in model.batches():
        x.append(rows.x[rows.there])
        if sum(map(len, x)) >= ROWS:
            break
    return attack(np.concatenate(x)[:ROWS])


def attack(x: Matrix) -> Readable:
    """Read every row of a calibration off the constants."""
    x = x[np.isfinite(x).all(axis=1)]
    spread = np.maximum(x.std(axis=0), 1e-300)
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
