"""Raw row → vector in the unit ball: the integers of `encode`, divided by a radius, clipped to the ball.

    z = x_q/2^10                 standardised and clamped numbers, indicators of levels, the intercept: see `encode`
    X = z/max(radius, ‖z‖)       in the unit ball, whatever the row

The constants are frozen per epoch and rounded so coarsely that one calibration row rarely changes them; the worker
computes them again without a calibration row that is deleted, and retrains if any bit differs.

`radius` is the median norm of the calibration rows, rounded to a quarter of a power of two. A smaller radius costs
nothing in the proofs and lets a model of bounded norm say more: Adult at λ = 0.01 scores .811 with the median where the
90th percentile scores .801.

A prediction encodes as learning does: θᵀX = (Σ_j θ_j·z_j)/max(radius, ‖z‖), for a regression on the target's scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from . import encode
from .encode import UNIT, Texts
from .reference import Reference
from .serve import fold
from .state import Vector

Matrix = npt.NDArray[np.float64]

STEPS: Final = 4  # radii in every octave


@dataclass(frozen=True)
class Encoding:
    """The frozen constants of an epoch's encoding."""

    integers: encode.Encoding
    radius: float
    regression: bool = False

    @property
    def d(self) -> int:
        """Length of an encoded row."""
        return self.integers.d

    @property
    def center(self) -> Vector:
        """What a missing number counts as."""
        return np.array([number.centre for number in self.integers.numbers])

    def encode(self, x: Matrix, c: Texts = ()) -> Matrix:
        """Encode raw rows; missing numbers (NaN) become their column's centre.

        >>> encoding = Encoding(encode.Encoding((encode.Number(10.0, 4.0),), (encode.Text(("basic", "pro")),)), 2.0)
        >>> encoding.encode(np.array([[14.0], [1e9]]), [["pro"], ["gold"]]).round(3).tolist()
        [[0.5, 0.5, 0.0, 0.5, 0.0], [0.236, 0.943, 0.0, 0.0, 0.236]]
        """
        z, _, _ = self.integers.encode(x, c)
        z /= UNIT
        z /= np.maximum(self.radius, np.sqrt(np.einsum("ij,ij->i", z, z)))[:, None]
        return z

    def encode_target(self, y: Vector) -> Vector:
        """Standardise and clamp targets; ±1 labels stay what they are."""
        return self.integers.encode_target(y) / UNIT if self.regression else y

    def decode_target(self, z: Vector) -> Vector:
        """Return predictions on the target's own scale."""
        return z * self.integers.target.scale + self.integers.target.centre if self.regression else z

    def serve(self, theta: Vector, *, imputes: bool = True) -> dict[str, Any]:
        """Sort θ by feature, as SQL needs it: `serve.fold` of the same integers, and how to divide.

        value = shift + margin/max(radius, ‖z‖),    ‖z‖² = 1 + number of texts + Σ_j (x_q[j]/2^10)²
        """
        target = self.integers.target
        reference = Reference(self.integers, "logistic", np.zeros((1, self.d), np.int64), 0)
        return fold(reference, theta * (target.scale if self.regression else 1.0), imputes=imputes) | {
            "radius": self.radius,
            "shift": target.centre if self.regression else 0.0,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values that survive JSON without loss."""
        return {"integers": self.integers.to_json(), "radius": self.radius, "regression": self.regression}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Encoding:
        """Rebuild what `to_json` wrote."""
        integers = encode.Encoding.from_json(values["integers"])
        return cls(integers, float(values["radius"]), bool(values["regression"]))


def fit(x: Matrix, c: Texts, y: Vector, *, regression: bool, declared: Sequence[Sequence[str] | None]) -> Encoding:
    """Fit the constants on the calibration rows. `declared` has one entry per text feature: its categories, or None."""
    integers = encode.fit(x, c, y, regression=regression, declared=declared)
    numbers = tuple(replace(number, missing=False) for number in integers.numbers)  # missing counts as the centre
    integers = replace(integers, numbers=numbers)
    z, _, _ = integers.encode(x, c)
    return Encoding(integers, rounded(float(np.sqrt(np.median((z * z).sum(axis=1)))) / UNIT), regression)


def rounded(radius: float) -> float:
    """Round to one of `STEPS` numbers in every octave.

    >>> [rounded(radius) for radius in (1.0, 1.1, 1.2, 1.99, 3.3)]
    [1.0, 1.0, 1.25, 2.0, 3.5]
    """
    step = 2.0 ** math.floor(math.log2(radius)) / STEPS
    return math.floor(radius / step + 0.5) * step
