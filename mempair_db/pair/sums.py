"""The sums of an exact model: a group of integers (EXACT.md, 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import InvalidParameter
from .reference import Integers, Reference

MOST_ROWS: Final = 2**28  # n·2^34 stays below 2^62
LARGEST_SUM: Final = 2**62


@dataclass(frozen=True)
class Sums:
    """All that an exact model knows of its rows. A group: parts add up, and what was added can be subtracted."""

    counts: Integers  # n; rows with a number beyond the clamp; with a level nobody knew; see `fourth`; n of every class
    g: Integers  # (1 or the number of classes, width)
    H: Integers  # the same, and the width once more

    @property
    def n(self) -> int:
        """How many rows."""
        return int(self.counts[0])

    @property
    def outside(self) -> int:
        """How many have a number beyond the clamp."""
        return int(self.counts[1])

    @property
    def unknown(self) -> int:
        """How many have a level nobody knew."""
        return int(self.counts[2])

    @property
    def fourth(self) -> int:
        """Σ s·y_q² of a regression; of several classes, rows with a class that has no place."""
        return int(self.counts[3])

    @property
    def of_class(self) -> Integers:
        """How many rows each of several classes has."""
        return self.counts[4:]

    def __add__(self, other: Sums) -> Sums:
        """Return the sums of both parts, as long as no number can overflow."""
        if self.n + other.n > MOST_ROWS:
            raise InvalidParameter(
                f"{self.n + other.n} rows could overflow the sums.", remedy="Make several models, each of some rows."
            )
        total = Sums(self.counts + other.counts, self.g + other.g, self.H + other.H)
        largest = max(np.abs(part).max(initial=0) for part in (total.g, np.diagonal(total.H, axis1=1, axis2=2)))
        if largest > LARGEST_SUM:  # both parts were below, so nothing has overflown yet
            raise InvalidParameter(
                f"{total.n} rows with their weights could overflow the sums.", remedy="Give smaller weights."
            )
        return total

    def __sub__(self, other: Sums) -> Sums:
        """Return these sums without the other part."""
        return Sums(self.counts - other.counts, self.g - other.g, self.H - other.H)

    def to_bytes(self) -> bytes:
        """Pack as little-endian int64: the counts, g, then the upper triangle of every H row by row."""
        upper = _upper(self.g.shape[1])
        return b"".join(part.astype("<i8").tobytes() for part in (self.counts, self.g, *(H[upper] for H in self.H)))

    @classmethod
    def from_bytes(cls, data: bytes, counts: int, matrices: int, width: int) -> Sums:
        """Unpack what `to_bytes` packed; the numbers are those of `Reference.shape`."""
        expected = 8 * (counts + matrices * width + matrices * width * (width + 1) // 2)
        if len(data) != expected:
            raise ValueError(f"{counts} counts and sums of {matrices} × {width} have {expected} bytes, not {len(data)}")
        values = np.frombuffer(data, "<i8").astype(np.int64)
        first, g, triangles = np.split(values, (counts, counts + matrices * width))
        H = np.zeros((matrices, width, width), np.int64)
        rows, columns = _upper(width)
        H[:, rows, columns] = H[:, columns, rows] = triangles.reshape(matrices, -1)
        return cls(first, g.reshape(matrices, width), H)


@lru_cache(16)
def _upper(width: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return where the upper triangle is: to find that takes longer than to read it."""
    return np.triu_indices(width)


def nothing(reference: Reference) -> Sums:
    """Return the sums of no rows."""
    counts, matrices, width = reference.shape
    return Sums(
        np.zeros(counts, np.int64), np.zeros((matrices, width), np.int64), np.zeros((matrices, width, width), np.int64)
    )
