"""The constants of an exact model: what is frozen while its sums grow and shrink (EXACT.md, 1 and 3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from . import classes
from .encode import WIDER, Encoding

Integers = npt.NDArray[np.int64]

SHARES: Final = 128


@dataclass(frozen=True)
class Reference:
    """The frozen constants F is a function of, beside the rows: the encoding, the loss, w0 on a grid of 2^−h."""

    encoding: Encoding
    loss: str  # logistic, squared, huber or classes
    w0: Integers  # (1 or the number of classes, d), in units of 2^−h
    h: int
    clip: int = 0  # huber: in units of 2^−10 deviations
    outside: int = 0  # share of the reference rows with a number or target beyond the clamp, see `share`
    unknown: int = 0  # and with a level nobody knew
    labels: tuple[str, ...] = ()  # of several classes, in the order of their names
    weighted: bool = False  # whether rows count by weights, in 16ths
    class_weights: tuple[int, ...] = ()  # of no and yes, or of each class, in 16ths
    eased: bool = False  # whether a tenth of the ridge holds, see `exact.settle`
    wide: bool = False  # whether numbers are clamped at ±16 of their scales instead of ±4

    @property
    def narrow(self) -> Encoding:
        """How rows would become integers if the model were not wide: what follows from means, deviations, quantiles."""
        return self.encoding.scaled(1.0 / WIDER) if self.wide else self.encoding

    @property
    def regression(self) -> bool:
        """Whether a number is predicted."""
        return self.loss in ("squared", "huber")

    @property
    def together(self) -> bool:
        """Whether all classes are solved together; otherwise each by itself (`classes`)."""
        return len(self.labels) * self.d <= classes.WIDEST

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many sums there are: counts, matrices, and the width of each."""
        count = len(self.labels)
        return 4 + count, *((1, count * self.d) if count and self.together else (len(self.w0), self.d))

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return self.encoding.d

    def to_json(self) -> dict[str, Any]:
        """Return plain values that survive JSON without loss."""
        kinds = {name: getattr(self, name) for name in ("labels", "weighted", "class_weights", "eased", "wide")}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kinds.items() if value} | {
            "encoding": self.encoding.to_json(),
            "loss": self.loss,
            "w0": self.w0.tolist(),
            "h": self.h,
            "clip": self.clip,
            "outside": self.outside,
            "unknown": self.unknown,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Reference:
        """Rebuild what `to_json` wrote."""
        plain = {name: int(values[name]) for name in ("h", "clip", "outside", "unknown")}
        return cls(
            Encoding.from_json(values["encoding"]),
            str(values["loss"]),
            np.array(values["w0"], np.int64),
            labels=tuple(values.get("labels", ())),
            weighted=bool(values.get("weighted", False)),
            class_weights=tuple(values.get("class_weights", ())),
            eased=bool(values.get("eased", False)),
            wide=bool(values.get("wide", False)),
            **plain,
        )

    def to_bytes(self) -> bytes:
        """Return the canonical bytes: two references are the same if these are."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":")).encode()

    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        return hashlib.sha256(self.to_bytes()).digest()


def share(rows: int, of: int) -> int:
    """Return a share in units of 1/128, half a unit added and then rounded up.

    So coarsely that one row rarely changes it, and so generously that the luck of a sample does not look like drift.

    >>> share(0, 1000), share(50, 1000), share(49, 999), share(1000, 1000)
    (1, 7, 7, 129)
    """
    return (2 * SHARES * rows + of + 2 * of - 1) // (2 * of)
