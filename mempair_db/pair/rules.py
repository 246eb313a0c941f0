"""When an exact model's predictions open, and when its constants no longer fit (EXACT.md, 3)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from . import classes
from .encode import RAREST, Matrix
from .exact import NOTHING_LEFT, REACH, RIDGE, foretold, moved, penalties, spared, units
from .reference import SHARES, Reference
from .sums import Sums

FAR: Final = 0.35  # a model that has moved scores by more is refreshed
CUT: Final = 0.999 * REACH
GAMMA: Final = 0.1  # the default; one that the user chose is left alone
TELLING: Final = 100  # rows: with fewer a criterion believes a model too soon
HALF: Final = 0.5  # of the mean's squared error: a regression that foretells less opens
MOST_OUTSIDE: Final = 0.01
MOST_UNKNOWN: Final = 0.05


def effective_dimension(reference: Reference, total: Sums, ridge: float = RIDGE) -> float:
    """d_eff = tr H(H + Λ)⁻¹, the largest of the classes': what a fitted model loses is about d_eff/(2n)."""
    return _dimension(_spectra(reference, total), ridge)


def _spectra(reference: Reference, total: Sums) -> Matrix:
    _, H_unit = units(reference)
    spectra: Matrix = np.linalg.eigvalsh(total.H / H_unit).clip(min=0.0)
    return spectra


def _dimension(spectra: Matrix, ridge: float) -> float:
    return float((spectra / (spectra + ridge)).sum(axis=-1).max())


def gate(reference: Reference, total: Sums, gamma: float, ridge: float = RIDGE) -> bool:
    """Predictions open once d_eff/(2n) ≤ γ; with the default γ, as soon as the model tells more than the base rate."""
    if total.n <= 0:
        return False
    most = reference.shape[2]
    if most <= 2 * total.n * gamma or effective_dimension(reference, total, ridge) <= 2 * total.n * gamma:
        return True
    return gamma == GAMMA and tells(reference, total, ridge)


def tells(reference: Reference, total: Sums, ridge: float = RIDGE) -> bool:
    """Whether new rows would cost less than with the intercept alone, by Akaike's criterion (EXACT.md, 3).

    Where there are nearly as many coordinates as rows, d_eff counts rows that are decided as if they were not. A
    regression's noise would be told from residuals that a wide model has used up, so generalised cross-validation
    judges it, and must foretell half of the mean's error or less. Huber's sums, cut at w0, do not tell the squares.
    """
    if reference.loss == "huber" or total.n < TELLING:
        return False
    penalty = penalties(reference, ridge)
    base_rate = np.full(reference.d, NOTHING_LEFT)
    base_rate[0] = penalty[0]
    if reference.regression:
        return foretold(reference, total, penalty) < HALF * foretold(reference, total, base_rate)
    return spared(reference, total, base_rate, penalty) > 0.0


def rows_needed(reference: Reference, total: Sums, gamma: float, ridge: float = RIDGE) -> int:
    """Return about how many rows open the gate, if those to come are like those that are there.

    With more rows d_eff grows as well, and ever more slowly: 250 rows of 300 numbers have 134, 2,000 have 288. With the
    default γ fewer may do, which nothing foretells: how soon the model tells more than the base rate.
    """
    spectra = _spectra(reference, total) / max(total.n, 1)
    fewest, most = total.n + 1, max(math.ceil(reference.shape[2] / (2.0 * gamma)), total.n + 1)
    while fewest < most:
        n = (fewest + most) // 2
        if _dimension(n * spectra, ridge) <= 2 * n * gamma:
            most = n
        else:
            fewest = n + 1
    return most


def rounded(others: int) -> int:
    """Return how many rows were of classes without a place, down to 5, 10, 20, …: it stays when one of them goes.

    >>> [rounded(n) for n in (0, 4, 5, 9, 10, 1000)]
    [0, 0, 5, 5, 10, 640]
    """
    return 0 if others < RAREST else RAREST << ((others // RAREST).bit_length() - 1)


def outgrown(
    reference: Reference,
    total: Sums,
    w: Matrix,
    *,
    rows_then: int,
    left: int,
    rows: int,
    others_then: int = 0,
    declared: bool = False,
) -> str | None:
    """Say why the constants no longer fit, or None (EXACT.md, 3).

    `rows_then`: rows at the last refresh; `left` of `rows` reference rows are still there. New rows are judged by how
    many more of all rows are beyond the clamp, or unknown, than the share among the reference rows lets expect. How
    many are new is told by the reference rows too: of the rows of then, as large a share has gone as of them. A class
    keeps its place as long as it has 5 rows; rows of classes without one are looked at when they have become 5, and
    then whenever they have doubled (`others_then`: how many there were at the last refresh, `rounded`). Declared
    classes stay.
    """
    new = total.n - rows_then * left // max(rows, 1)
    away = 0.0 if reference.regression else moved(reference, total, w).max()
    # A drifting table is not read all the time; sooner where the step had to be cut, so that w is not the model yet.
    enough = new >= max(rows_then // (50 if away > CUT else 10), 1)
    expected_outside, expected_unknown = (part * total.n / SHARES for part in (reference.outside, reference.unknown))
    several, others = bool(reference.labels) and not declared, total.fourth
    reasons = {
        "a class has too few rows left": several and bool((total.of_class < RAREST).any()),
        "there are rows of a new class": (
            several and len(reference.labels) < classes.MOST and others >= max(RAREST, 2 * others_then)
        ),
        "the table has doubled": total.n >= 2 * rows_then,
        "half of the reference rows are gone": 2 * left < rows,
        "new rows have numbers beyond the clamp": enough and total.outside - expected_outside > MOST_OUTSIDE * new,
        "new rows have levels nobody knew": enough and total.unknown - expected_unknown > MOST_UNKNOWN * new,
        "the model has gone far from its reference": enough and away > FAR,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
