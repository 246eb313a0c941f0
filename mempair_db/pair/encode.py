"""Raw row → integers, with constants that are frozen and coarsely rounded (EXACT.md, 2).

    x_q = floor(clamp((x − centre)/scale, −4, 4)·2^10 + ½)     scale a power of two, centre a multiple of scale/8
    max(x_q − knot, 0)                                         curves: one coordinate per knot
    2^10 or 0                                                  an indicator: missing, a level, the intercept

The coordinates of a row, in this order: the intercept; then for every number x_q, its knots, and whether it is missing
where that was seen; then for every text its levels, "any other", and NULL where that was seen. A missing number counts
as the centre. Each operation is an integer's, or one correctly rounded IEEE operation, so numpy, PostgreSQL and DuckDB
give the same bits. What is learned is what is served: predictions encode with the same constants, in SQL too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import InvalidRow
from .compiled import plain
from .quantised import Coordinates, fill

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Texts = Sequence[Sequence[str | None]]  # one sequence of text values per row

UNIT: Final = 2**10
CLAMP: Final = 4
TARGET_CLAMP: Final = 64
KNOT: Final = UNIT // 8  # knots are multiples of it
MOST_LEVELS: Final = 300  # observed levels kept per text feature
WIDER: Final = 4  # so many times larger are the scales of a wide model, and with them what numbers are clamped to
RAREST: Final = 5  # what is seen less often among the reference rows has no coordinate: it must not name a person
WIDEST: Final = 1_024  # coordinates
MOST_SPREAD: Final = 1e150


@dataclass(frozen=True)
class Number:
    """The constants of one number."""

    centre: float = 0.0
    scale: float = 1.0
    knots: tuple[int, ...] = ()
    missing: bool = False  # whether being missing has a coordinate


@dataclass(frozen=True)
class Text:
    """The constants of one text feature."""

    levels: tuple[str, ...] = ()  # in the order of their names
    null: bool = False  # whether NULL has a coordinate of its own; otherwise it counts as "any other"


@dataclass(frozen=True)
class Encoding:
    """How the rows of a model become integers."""

    numbers: tuple[Number, ...]
    texts: tuple[Text, ...] = ()
    target: Number = Number()  # of a regression; labels are not encoded

    @cached_property
    def d(self) -> int:
        """Number of coordinates."""
        return (
            1
            + sum(1 + len(number.knots) + number.missing for number in self.numbers)
            + sum(len(text.levels) + 1 + text.null for text in self.texts)
        )

    @cached_property
    def names(self) -> list[tuple[str, int, Any]]:
        """What each coordinate is: ("intercept", 0, None), ("number", j, None), ("knot", j, at), ("level", k, v) …"""
        names: list[tuple[str, int, Any]] = [("intercept", 0, None)]
        for j, number in enumerate(self.numbers):
            names += [("number", j, None), *(("knot", j, at) for at in number.knots)]
            names += [("missing", j, None)] * number.missing
        for k, text in enumerate(self.texts):
            names += [*(("level", k, level) for level in text.levels), ("other", k, None)]
            names += [("null", k, None)] * text.null
        return names

    def straightened(self, numbers: Collection[int]) -> Encoding:
        """Return it without the bends of some numbers."""
        straight = [replace(number, knots=()) if j in numbers else number for j, number in enumerate(self.numbers)]
        return replace(self, numbers=tuple(straight))

    def scaled(self, by: float) -> Encoding:
        """Return it with scales, and so a clamp, that are so many times larger; the knots stay where they are."""
        numbers = [
            replace(number, scale=number.scale * by, knots=tuple(int(knot / by) for knot in number.knots))
            for number in self.numbers
        ]
        return replace(self, numbers=tuple(numbers))

    def encode(self, x: Matrix, c: Texts = (), out: Matrix | None = None) -> tuple[Matrix, Flags, Flags]:
        """Return the integers (as float64), which rows have a number beyond the clamp, which a level nobody knew.

        `out` is room for them that is used again: at least as many rows, each of d.

        >>> encoding = Encoding((Number(10.0, 4.0),), (Text(("basic", "pro")),))
        >>> X, outside, unknown = encoding.encode(np.array([[12.0], [99.0]]), [["pro"], ["gold"]])
        >>> X.astype(int).tolist(), outside.tolist(), unknown.tolist()
        ([[1024, 512, 0, 1024, 0], [1024, 4096, 0, 0, 1024]], [False, True], [False, True])
        """
        if x.shape[1] != len(self.numbers):  # the kernel does not look
            raise ValueError(f"rows of {x.shape[1]} numbers do not go with the constants of {len(self.numbers)}")
        X = np.empty((len(x), self.d)) if out is None else out[: len(x)]
        outside, unknown = np.empty(len(x), bool), np.empty(len(x), bool)
        fill(plain(x, np.float64), self._coordinates, X, outside, unknown)
        at = 1 + len(self._coordinates.number)
        X[:, at:] = 0.0
        rows = np.arange(len(x))
        texts = zip(*c, strict=True) if len(x) else [()] * len(self.texts)
        for text, places, values in zip(self.texts, self._places, texts if self.texts else (), strict=True):
            found = np.fromiter(map(places.__getitem__, values), np.intp, len(x))
            unknown |= found == len(text.levels)
            X[rows, at + found] = UNIT
            at += len(text.levels) + 1 + text.null
        return X, outside, unknown

    def encode_target(self, y: Vector) -> Vector:
        """Quantise a regression's target as if it were a feature, with a wider clamp."""
        return quantise(y, self.target.centre, self.target.scale, TARGET_CLAMP)

    @cached_property
    def _coordinates(self) -> Coordinates:
        """All that the numbers' coordinates are made with, as the kernel wants it."""
        each = [name for name in self.names if name[0] in ("number", "knot", "missing")]
        return Coordinates(
            centre=np.array([number.centre for number in self.numbers]),
            factor=np.array([UNIT / number.scale for number in self.numbers]),
            may_miss=np.array([number.missing for number in self.numbers], bool),
            number=np.array([j for _, j, _ in each], np.int64),
            knot=np.array([float(at or 0) for _, _, at in each]),
            least=np.array([-np.inf if kind == "number" else 0.0 for kind, _, _ in each]),
            gaps=np.array([i for i, (kind, _, _) in enumerate(each) if kind == "missing"], np.int64),
            largest=float(CLAMP * UNIT),
            one=float(UNIT),
        )

    @cached_property
    def _places(self) -> tuple[_Places, ...]:
        """For every text where each value's coordinate is."""
        return tuple(
            _Places(
                {value: i for i, value in enumerate(text.levels)} | ({None: len(text.levels) + 1} if text.null else {}),
                other=len(text.levels),
            )
            for text in self.texts
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values that survive JSON without loss."""
        return {
            "numbers": [[n.centre, n.scale, list(n.knots), n.missing] for n in self.numbers],
            "texts": [[list(t.levels), t.null] for t in self.texts],
            "target": [self.target.centre, self.target.scale],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Encoding:
        """Rebuild what `to_json` wrote."""
        return cls(
            tuple(Number(float(a), float(b), tuple(map(int, knots)), bool(m)) for a, b, knots, m in values["numbers"]),
            tuple(Text(tuple(levels), bool(null)) for levels, null in values["texts"]),
            Number(float(values["target"][0]), float(values["target"][1])),
        )


class _Places(dict[str | None, int]):
    """Where each value's coordinate is; what is not there is "any other", and stays out."""

    def __init__(self, places: Mapping[str | None, int], other: int) -> None:
        super().__init__(places)
        self.other = other

    def __missing__(self, value: str | None) -> int:
        return self.other


def quantise(x: Matrix, centre: Any, scale: Any, clamp: int = CLAMP, out: Matrix | None = None) -> Matrix:
    """x_q: NaN stays NaN, an infinite number is beyond the clamp.

    The scale is a power of two, so its place in the formula changes no bit.

    >>> quantise(np.array([-np.inf, 11.0, np.nan]), 10.0, 4.0).tolist()
    [-4096.0, 256.0, nan]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        z: Matrix = np.subtract(x, centre, out=out)
        z *= UNIT / scale
        np.clip(z, -clamp * UNIT, clamp * UNIT, out=z)
        z += 0.5
        np.floor(z, out=z)
    return z


def usable_target(y: Vector) -> npt.NDArray[np.bool_]:
    """Whether each target of a regression can be learned: its deviation must be a number that has a square."""
    near: npt.NDArray[np.bool_] = np.abs(y) <= MOST_SPREAD
    return near


def curves_for(numbers: int) -> int:
    """How many knots each number gets unless the user says: few enough numbers can bend (EXACT.md, 7).

    Its twin is mempair.default_curves in sql/50_models.sql.
    """
    return 4 if numbers <= 32 else 0


def fit(
    x: Matrix,
    c: Texts,
    y: Vector,
    *,
    regression: bool = False,
    curves: int = 0,
    declared: Sequence[Sequence[str] | None] = (),
) -> Encoding:
    """Choose the constants from the reference rows, in whatever order they come.

    `declared` has the levels of each text feature, or None where they are to be observed.
    """
    if len(x) == 0:
        raise InvalidRow("there is no row to choose the constants from.")
    numbers = tuple(_fit_number(x[:, j], curves) for j in range(x.shape[1]))
    target = Number(*_standard(y)) if regression else Number()
    declared = declared or [None] * (len(c[0]) if len(c) else 0)
    counts = [Counter(row[k] for row in c) for k in range(len(declared))]
    most = MOST_LEVELS
    while True:
        texts = tuple(_fit_text(count, names, most) for count, names in zip(counts, declared, strict=True))
        encoding = Encoding(numbers, texts, target)
        if encoding.d <= WIDEST or most == 1:
            return encoding
        most //= 2


def _fit_number(x: Vector, curves: int) -> Number:
    centre, scale = _standard(x)
    number = Number(centre, scale, missing=int(np.isnan(x).sum()) >= RAREST)
    if curves == 0:
        return number
    z = quantise(x[~np.isnan(x)], centre, scale)
    places = np.quantile(z, np.arange(1, curves + 1) / (curves + 1)) if len(z) else np.zeros(0)
    knots = {int(np.floor(place / KNOT + 0.5)) * KNOT for place in places.tolist()}
    return Number(centre, scale, tuple(sorted(k for k in knots if z.min() < k < z.max())), number.missing)


def _standard(x: Vector) -> tuple[float, float]:
    """Mean and deviation, rounded so coarsely that one row rarely changes them.

    The outermost thousandth is cut, and at least one row at each end; a hundredth or a twentieth if that makes the
    deviation 8 times smaller: a few numbers in another unit, or 999999 for "none", must not decide for all others. With
    1 % of the numbers of Credit a million times too large the log loss was .528 without this rule and is .470 with it,
    .467 without these numbers. It costs Adult, sorted by a number, .007 (EXACT.md, 7).

    >>> _standard(np.append(np.arange(1000.0), 1e300)), _standard(np.append(np.arange(1000.0), [1e9] * 20))
    ((512.0, 256.0), (512.0, 256.0))
    """
    x = np.sort(x[np.isfinite(x)])  # sorted: a sum of floats depends on their order
    n = len(x)
    if n == 0:
        return 0.0, 1.0
    best, *wider, widest = [_spread(x, cut) for cut in (n // 1000 + 1, n // 100 + 1, n // 20 + 1, n // 4)]
    for spread in wider:
        if _tells(spread) and best[1] > 8.0 * spread[1]:
            best = spread
    if best[1] == np.inf:
        best = widest
    for mean, deviation in filter(_tells, (best, _spread(x, 0))):  # nothing is cut where a 1 is rare
        scale = 2.0 ** np.floor(np.log2(deviation) + 0.5)
        return float(np.floor(mean / scale * 8.0 + 0.5) * scale / 8.0) + 0.0, float(scale)
    if abs(x[0]) < MOST_SPREAD:  # one value only, or nearly
        return float(np.floor(x[0] * 8.0 + 0.5) / 8.0) + 0.0, 1.0
    return 0.0, 1.0


def _spread(x: Vector, cut: int) -> tuple[float, float]:
    """Mean and deviation of sorted numbers, the outermost counted as the first that is not cut."""
    cut = min(cut, (len(x) - 1) // 2)
    part = np.clip(x, x[cut], x[-1 - cut])
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(part.mean())
        deviation = float(np.sqrt(np.mean((part - mean) ** 2)))
    return mean, deviation if deviation <= MOST_SPREAD else np.inf


def _tells(spread: tuple[float, float]) -> bool:
    """Whether the deviation is one, not the rounding of a constant."""
    return max(1e-12 * abs(spread[0]), 1.0 / MOST_SPREAD) < spread[1] <= MOST_SPREAD


def _fit_text(counts: Counter[str | None], declared: Sequence[str] | None, most: int) -> Text:
    if declared is None:
        frequent = sorted((-count, value) for value, count in counts.items() if value is not None and count >= RAREST)
        declared = [value for _, value in frequent[:most]]
    return Text(tuple(sorted(declared)), counts[None] >= RAREST)
