"""How well rows are predicted before they are learned, as counts that hide every single row.

Each row is one count in one of 16 cells, by its loss: −ln of the probability that its label had, or the size of a
regression's error in deviations. No row, value or sum is kept; and the counts of a day begin at noise, discrete
Gaussian with σ = 8 per cell, which nobody keeps. So who sees the counts after the row is deleted learns of its own
count at most what ρ = 1/(2σ²) = 1/128 allows: by one such table ε = 0.51, by two (a day's and a refresh's) ε = 0.74, at
δ = 1e−6. That is why a deletion does not have to undo them, and why a day of few rows tells next to nothing.

What the noise does not hide: rows that came after it were predicted by a model that had the row, and were counted so.
Who knows all of them, their order and their batches could tell an extreme row from another, in a small model (one
far beyond the clamp among 1,000 shifts the counts of 20,000 later rows by 22 σ, among 20,000 by 2 σ). Nothing of a
row is stored, but this table is not in the theorem of the exact pair (EXACT.md, 4). Days go after 90; the counts of
a refresh go with the next one; all of them go when nothing is left to learn.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .encode import Matrix, Texts, Vector
from .exact import predict
from .noise import discrete_gaussian
from .reference import Reference

# ln 2 is among the edges: below it the probability of a row's own label was above ½.
EDGES: Final = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, np.log(2.0), 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0])
CELLS: Final = len(EDGES) + 1
FINENESS: Final = 3  # σ = 2^3
MOST: Final = 2_000  # rows of a batch that are looked at, evenly spaced

Counts = npt.NDArray[np.int64]


def losses(reference: Reference, w: Matrix, x: Matrix, y: Vector, c: Texts = ()) -> Vector:
    """Return every row's loss; labels are 1 and 0, or a class's number."""
    served = predict(reference, w, x, c)
    if reference.regression:
        return np.asarray(np.abs(y - served[:, 0]) / reference.encoding.target.scale)
    if reference.labels:
        own = np.where(y < 0, 0.0, served[np.arange(len(y)), y.astype(np.intp)])  # a class without a place
    else:
        own = np.where(y > 0, served[:, 0], 1.0 - served[:, 0])
    return np.asarray(-np.log(own.clip(min=1e-15)))


def counts(values: Vector) -> Counts:
    """Return how many losses fall into each cell.

    >>> counts(np.array([0.01, 0.65, 0.7, 99.0])).tolist()
    [1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    """
    return np.bincount(np.searchsorted(EDGES, values, side="right"), minlength=CELLS).astype(np.int64)


def noise() -> Counts:
    """Return what the counts of a day begin with. There is no seed: who knows the noise can subtract it."""
    return discrete_gaussian(CELLS, FINENESS)


def some(rows: int) -> Counts:
    """Return which rows of a batch are looked at.

    >>> some(3).tolist(), len(some(100_000))
    ([0, 1, 2], 2000)
    """
    return np.unique(np.linspace(0, max(rows - 1, 0), min(rows, MOST)).astype(np.int64))
