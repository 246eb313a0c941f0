"""Why a row cannot be learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from mempair_db.pair.encode import MOST_SPREAD, Matrix, Vector, usable_target


class Payloads(Protocol):
    """Rows as the extractors give them."""

    @property
    def x(self) -> Matrix:
        """Numbers."""

    @property
    def c(self) -> Sequence[Sequence[str | None]]:
        """Texts; empty if there are none."""

    @property
    def y(self) -> Vector:
        """Targets."""


NO_WEIGHT: Final = -1.0  # what an extractor says in place of a weight; below, which array has another length


def unusable(rows: Payloads, impute: bool, regression: bool, infinite: bool, weighted: bool = False) -> list[str]:
    """Return why each row cannot be learned; an empty text if it can. `Model.named` puts in the names of columns."""
    reasons = [""] * len(rows.y)
    for i in np.flatnonzero(~np.isfinite(rows.x).all(axis=1)).tolist():
        if np.isinf(rows.x[i]).any() and not infinite:
            reasons[i] = f"number {int(np.isinf(rows.x[i]).argmax()) + 1} is infinite"
        elif np.isnan(rows.x[i]).any() and not impute:
            reasons[i] = f"number {int(np.isnan(rows.x[i]).argmax()) + 1} is missing"
    if not impute:
        for i, values in enumerate(rows.c):
            if None in values:
                reasons[i] = f"text {list(values).index(None) + 1} is missing"
    good = usable_target(rows.y) if regression else np.abs(rows.y) == 1.0
    for i in np.flatnonzero(~good).tolist():
        reasons[i] = f"target beyond {MOST_SPREAD:.0e}" if np.isfinite(rows.y[i]) else "infinite target"
    if weighted:
        for i in np.flatnonzero(rows.x[:, -1] < 0.0).tolist():
            mark = rows.x[i, -1]
            reasons[i] = (
                "weight missing, negative or infinite"
                if mark == NO_WEIGHT
                else f"array {int(NO_WEIGHT - mark)} has another length"
            )
    return reasons
