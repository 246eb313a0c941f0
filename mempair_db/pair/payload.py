"""A row as it is kept and fingerprinted: its numbers, and last its weight; its texts, and last its class.

Neither is a feature, but both are part of what is learned, so both are part of what must be unlearned.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from . import classes
from .encode import Matrix, Texts, Vector


class Learnable(NamedTuple):
    """Rows as `exact.sums` and `exact.refer` take them."""

    x: Matrix
    y: Vector
    c: Texts
    weight: Vector | None


def separated(x: Matrix, y: Vector, c: Texts, *, weighted: bool, labels: tuple[str, ...] | None) -> Learnable:
    """Take weight and class out of rows; `labels` is None where there are not several classes.

    >>> import numpy as np
    >>> rows = separated(np.array([[7.0, 2.0]]), np.ones(1), [("pro", "red")], weighted=True, labels=("blue", "red"))
    >>> rows.x.tolist(), rows.y.tolist(), rows.c, rows.weight.tolist()
    ([[7.0]], [1.0], [('pro',)], [2.0])
    """
    weight = None
    if weighted:
        x, weight = x[:, :-1], x[:, -1]
    if labels is not None:
        y = classes.places(labels, [row[-1] for row in c])
        c = [row[:-1] for row in c] if len(c) and len(c[0]) > 1 else ()
    return Learnable(x, y, c, weight)


def chosen(c: Texts) -> tuple[str, ...]:
    """Return the classes that have a place, of all rows that are there."""
    return classes.choose(Counter(row[-1] for row in c if row[-1] is not None))
