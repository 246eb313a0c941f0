"""Rows as users have them → rows as the exact pair keeps them: (numbers as bytes, texts, target).

A row is a dict as river has them (numbers and texts by name; a missing key and None are the same), or numbers in order
with the texts beside them. A date or datetime counts as seconds since 1970, without a time zone as of UTC, and bends
only where that pays (EXACT.md, 3). Two rows are the same row if these three are equal: −0.0 is 0.0, every NaN is the
same, a label is 0 or 1 however it was written.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import chain
from numbers import Real
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import InvalidRow
from .encode import MOST_SPREAD, Matrix, Texts, Vector

Row = tuple[bytes, tuple[str | None, ...], float]
Hashes = npt.NDArray[np.uint64]

_LABELS: Final = {1: 1.0, 0: 0.0, -1: 0.0}
_TEXTS: Final = frozenset({str, type(None)})
_FLOAT: Final = np.dtype(float)
_TIMES: Final = (date, np.datetime64)
_MINUS_ZERO: Final = struct.Struct("d").pack(-0.0)


class Shape:
    """Which numbers and texts a row has: how many, or by which names where rows are dicts."""

    def __init__(
        self,
        numbers: int | list[str],
        texts: int | list[str],
        *,
        allow_missing: bool = True,
        payload: str = "",
        times: Iterable[int | str] = (),
    ) -> None:
        """Take how many there are, or their names in order; `payload` says what comes after them (`Payload`).

        `times` are the numbers that are points in time, by name or by place.
        """
        self.payload = payload
        self.times = frozenset(times)
        self.numbers = numbers if isinstance(numbers, int) else len(numbers)
        self.texts = texts if isinstance(texts, int) else len(texts)
        self.names = (numbers, texts) if isinstance(numbers, list) and isinstance(texts, list) else None
        self.allow_missing = allow_missing
        self._all = frozenset((*self.names[0], *self.names[1])) if self.names else frozenset()
        self._whole = len(self._all) if self.names else -1  # of a dict in which nothing is missing
        self._numbers_of, self._texts_of = map(_getter, self.names or ([], []))
        self._pack = struct.Struct(f"{self.numbers}d").pack
        self._unpack = struct.Struct(f"{self.numbers + ('weight' in payload)}d").unpack
        self._vector = (self.numbers,)
        self._time_places = self.places(self.times)

    @classmethod
    def of(cls, x: Any, c: Sequence[Any], *, allow_missing: bool, payload: str = "") -> Shape:
        """Return the shape of a first row."""
        kinds: dict[str, Any] = {"allow_missing": allow_missing, "payload": payload}
        if not isinstance(x, Mapping):
            return cls(len(x), len(c), times=_times(enumerate(x)), **kinds)
        there = {name: value for name, value in x.items() if value is not None}
        texts = sorted(name for name, value in there.items() if isinstance(value, str))
        return cls(sorted(there.keys() - set(texts)), texts, times=_times(there.items()), **kinds)

    def widened(self, x: Any) -> Shape:
        """Return a shape that also has what is new in this row."""
        if self.names is None or not isinstance(x, Mapping) or x.keys() <= self._all:
            return self
        new = {name: value for name, value in x.items() if name not in self._all}
        found = Shape.of(new, (), allow_missing=True)
        numbers, texts = found.names or ([], [])
        if not numbers and not texts:
            return self
        names, times = (sorted(self.names[0] + numbers), sorted(self.names[1] + texts)), self.times | found.times
        return Shape(*names, allow_missing=self.allow_missing, payload=self.payload, times=times)

    def places(self, numbers: Iterable[int | str]) -> frozenset[int]:
        """Return the places of numbers that are given by name or by place; what a row does not have has none."""
        order = range(self.numbers) if self.names is None else self.names[0]
        wanted = frozenset(numbers)
        return frozenset(place for place, name in enumerate(order) if name in wanted)

    def row(self, x: Any, c: Sequence[Any], y: float, weight: float = 1.0, label: str = "") -> Row:
        """Bring one row into the form that is added up, or say what is wrong with it."""
        packed = None
        if type(x) is np.ndarray:
            if x.dtype is _FLOAT and x.shape == self._vector and (self.allow_missing or not math.isnan(x.dot(x))):
                packed = x.tobytes()  # and x·x is NaN only if a number is
        elif type(x) is dict and len(x) == self._whole:
            packed, c = self._of_whole_dict(x)
        if packed is None:
            packed, c = self._with_care(x, c)
        if len(c) != self.texts:
            raise self._unlike(self.numbers, len(c))
        for text in c:
            if type(text) is not str and (text is not None or not self.allow_missing):
                raise _unusable(text, "text")
        if "weight" in self.payload:
            packed += np.array([weight]).tobytes()
        return packed, (*c, label) if "class" in self.payload else tuple(c), y

    def plain(self, row: Row) -> Row:
        """Bring a row that `row` returned into the form that is kept, in which equal rows are the same bytes."""
        packed = row[0]
        odd = b"\x80" in packed and _MINUS_ZERO in packed
        if odd or not math.isfinite(math.hypot(*self._unpack(packed))):
            return self.rows(*self.arrays([row]))[0]
        return row

    def rows(self, x: Matrix, y: Vector, c: Texts = ()) -> list[Row]:
        """Bring rows that `checked` returned into the form that is kept."""
        same = x + 0.0  # −0.0 becomes 0.0
        same[np.isnan(same)] = np.nan
        packed, width = same.tobytes(), same.itemsize * same.shape[1]
        texts = map(tuple, c) if len(c) else [()] * len(x)
        return [
            (packed[i * width : (i + 1) * width], some, target)
            for i, (some, target) in enumerate(zip(texts, y.tolist(), strict=True))
        ]

    def checked(
        self, x: Any, y: Any, c: Texts, target: Callable[[Any], float], weights: Vector | None, labels: Sequence[str]
    ) -> tuple[Matrix, Vector, Texts]:
        """Return rows as numbers, targets and texts with their payload, or say what is wrong with the first bad one."""
        targets = np.ones(len(x)) if labels else _targets(y, target)
        table = self.features(x, c)
        numbers, texts = table if table is not None else self._one_by_one(x, c)
        if weights is not None:
            numbers = np.column_stack([numbers, weights])
        if labels:
            texts = [(*row, label) for row, label in zip(texts or [()] * len(x), labels, strict=True)]
        return numbers, targets, texts

    def bare(self, x: Any, c: Texts) -> tuple[Matrix, Texts]:
        """Return numbers and texts of rows to predict, without a payload."""
        if not len(x):
            return np.empty((0, self.numbers)), ()
        return self.features(x, c) or self._one_by_one(x, c)

    def _one_by_one(self, x: Any, c: Texts) -> tuple[Matrix, Texts]:
        bare = Shape(*(self.names or (self.numbers, self.texts)), allow_missing=self.allow_missing, times=self.times)
        texts: Texts = c if len(c) else [()] * len(x)
        found = bare.arrays([bare.row(one, some, 0.0) for one, some in zip(x, texts, strict=True)])
        return found[0], found[2]

    def features(self, x: Any, c: Texts) -> tuple[Matrix, Texts] | None:
        """Return numbers and texts of a matrix without any fault; None if each row must be looked at."""
        table = self._table(x, c)
        return None if table is None else (table, c if self.texts else ())

    def _table(self, x: Any, c: Texts) -> Matrix | None:
        """Return the numbers if the rows are a matrix without any fault, which needs no look at each of them."""
        if isinstance(x[0], Mapping):
            return None
        try:
            numbers = np.asarray(x, float)
        except (TypeError, ValueError):
            return None
        kinds = set(map(type, chain.from_iterable(c)))
        good = numbers.shape == (len(x), self.numbers) and set(map(len, c)) <= {self.texts} and kinds <= _TEXTS
        missing = not self.allow_missing and (type(None) in kinds or np.isnan(numbers).any())
        return numbers if good and not missing and (len(c) or not self.texts) else None

    def arrays(self, rows: Sequence[Row]) -> tuple[Matrix, Vector, Texts]:
        """Return rows that were kept as numbers, targets and texts."""
        width = self.numbers + ("weight" in self.payload)
        x = np.frombuffer(b"".join([row[0] for row in rows])).reshape(len(rows), width)
        has_texts = self.texts or "class" in self.payload
        return x, np.array([row[2] for row in rows]), [row[1] for row in rows] if has_texts else ()

    def moved(self, rows: Sequence[Row], wider: Shape) -> list[Row]:
        """Return rows of this shape in a wider one: what they do not have is missing."""
        if self.names is None or wider is self:
            return list(rows)
        return [self._moved(row, wider, *self.names) for row in rows]

    def _moved(self, row: Row, wider: Shape, numbers: list[str], texts: list[str]) -> Row:
        values, y = np.frombuffer(row[0]).tolist(), row[2]
        there = dict(zip(numbers, values[: self.numbers], strict=True)) | dict(
            zip(texts, row[1][: self.texts], strict=True)
        )
        moved = wider.row(there, (), y, values[-1] if values else 1.0, row[1][-1] or "" if row[1] else "")
        return wider.plain(moved)

    def __reduce__(self) -> tuple[Callable[..., Shape], tuple[Any, ...]]:
        """Pickle what made it."""
        return _shape, (self.to_json(),)

    def to_json(self) -> dict[str, Any]:
        """Return the arguments that make this shape."""
        numbers, texts = self.names or (self.numbers, self.texts)
        kinds = {"allow_missing": self.allow_missing, "payload": self.payload, "times": sorted(self.times, key=str)}
        return {"numbers": numbers, "texts": texts, **kinds}

    def _of_dict(self, x: Mapping[str, Any]) -> tuple[list[Any], Sequence[Any]]:
        if self.names is None:
            raise InvalidRow("it is a dict, and the rows before were not.", remedy="Give its numbers in their order.")
        if not x.keys() <= self._all:
            new = sorted(name for name in x.keys() - self._all if x[name] is not None)
            if new:
                raise InvalidRow(
                    f"the feature {new[0]!r} was in none of the rows that calibrated the model.",
                    remedy="Leave it out, or begin anew with rows that have it.",
                )
        get = x.get
        return [get(name, math.nan) for name in self.names[0]], [get(name) for name in self.names[1]]

    def _of_whole_dict(self, x: dict[str, Any]) -> tuple[bytes | None, tuple[Any, ...]]:
        """Return a dict that has all names, and a number wherever one belongs; None for any other."""
        try:
            numbers = self._numbers_of(x)
            fine = self.allow_missing or not math.isnan(sum(numbers))
            return self._pack(*numbers) if fine else None, self._texts_of(x)
        except (KeyError, TypeError, OverflowError, struct.error):  # a name or number is missing, a text, 10**400, …
            return None, ()

    def _with_care(self, x: Any, c: Sequence[Any]) -> tuple[bytes, Sequence[Any]]:
        """Return a row in which something may be missing, of another type or wrong."""
        if isinstance(x, Mapping):
            numbers, c = self._of_dict(x)
        else:
            numbers = x.tolist() if isinstance(x, np.ndarray) else list(x)
        if len(numbers) != self.numbers:
            raise self._unlike(len(numbers), len(c))
        for place in self._time_places:
            if isinstance(numbers[place], _TIMES):
                numbers[place] = _seconds(numbers[place])
        numbers = [value if type(value) is float else _number(value) for value in numbers]
        if not self.allow_missing and any(map(math.isnan, numbers)):
            raise _unusable(None, "number")
        return self._pack(*numbers), c

    def _unlike(self, numbers: int, texts: int) -> InvalidRow:
        return InvalidRow(
            f"it has {numbers} numbers and {texts} texts.", remedy=f"Give {self.numbers} and {self.texts}."
        )


def _shape(saved: Mapping[str, Any]) -> Shape:
    return Shape(**saved)


def _getter(names: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return what gives the values of these names, in their order."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda x: tuple(x[name] for name in names)


def label(y: Any) -> float:
    """Return 1.0 for yes and 0.0 for no.

    >>> [label(y) for y in (True, -1, 0, np.float64(1.0))]
    [1.0, 0.0, 0.0, 1.0]
    """
    try:
        return _LABELS[y]
    except (KeyError, TypeError):
        raise InvalidRow(f"the label {y!r} is neither yes nor no.", remedy="Give 0 or 1, a boolean, or ±1.") from None


def class_name(y: Any) -> str:
    """Return the name under which a class is kept: JSON, so that 1, "1" and True are three.

    >>> [class_name(y) for y in ("red", np.int64(1), True)]
    ['"red"', '1', 'true']
    """
    y = y.item() if isinstance(y, np.generic) else y
    if not isinstance(y, (str, int, float, bool)) or (isinstance(y, float) and math.isnan(y)):
        raise InvalidRow(f"the class {y!r} is no name.", remedy="Give a text, a number or a boolean.")
    return json.dumps(y, ensure_ascii=False)


def weight(given: Any) -> float:
    """Return the weight of a row."""
    number = _number(given)
    if not 0.0 <= number < math.inf:
        raise InvalidRow(f"the weight is {given!r}.", remedy="Give a number of at least 0.")
    return number + 0.0


def value(y: Any) -> float:
    """Return the target of a regression."""
    number = _number(y)
    if not abs(number) <= MOST_SPREAD:
        raise InvalidRow(f"the target is {y!r}.", remedy=f"Give a number of at most {MOST_SPREAD:.0e}.")
    return number + 0.0


def _targets(y: Any, target: Callable[[Any], float]) -> Vector:
    """Return all targets; a plain array of labels at once."""
    if target is label and isinstance(y, np.ndarray) and y.dtype.kind in "biuf" and y.ndim == 1:
        yes: npt.NDArray[np.bool_] = y == 1
        if (yes | (y == 0) | (y == -1)).all():
            return yes.astype(float)
    return np.fromiter(map(target, y), float, len(y))


def _times(values: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Return which of these are points in time."""
    return [name for name, value in values if isinstance(value, _TIMES)]


def _seconds(given: Any) -> float:
    """Return a point in time as seconds since 1970; NaN for pandas' and numpy's "not a time".

    >>> _seconds(date(1970, 1, 2)), _seconds(np.datetime64("NaT"))
    (86400.0, nan)
    """
    if isinstance(given, np.datetime64):
        return float((given - np.datetime64(0, "s")) / np.timedelta64(1, "s"))
    if not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day)
    return float((given if given.tzinfo else given.replace(tzinfo=timezone.utc)).timestamp())


def _number(given: Any) -> float:
    if given is None:
        return math.nan
    if isinstance(given, str) or not isinstance(given, (Real, Decimal, np.generic)):
        raise _unusable(given, "number")
    try:
        return float(given)
    except OverflowError as error:
        raise InvalidRow("a whole number is larger than any float.") from error
    except (TypeError, ValueError) as error:  # a date of numpy's, a signalling NaN
        raise _unusable(given, "number") from error


def _unusable(given: Any, kind: str) -> InvalidRow:
    if given is None:
        return InvalidRow(f"a {kind} is missing.", remedy="Leave the row out, or set on_null='impute'.")
    return InvalidRow(f"{given!r} is not a {kind}.", remedy="Give what the rows before had, or None if it is missing.")


# ---- Which rows are reference rows. ----


def sample(x: Matrix, y: Vector, c: Texts, most: int) -> npt.NDArray[np.intp]:
    """Return the places of the reference rows: all, or a share of 2^−k that has about `most` of them at the most.

    A row without a key is known by its values and by how many equal ones there are, so hash(values, which of the equal
    ones) decides: the order of the rows changes nothing, and another row's coming or going changes no other's lot.

    >>> x = np.arange(64.0)[:, None]; y = np.zeros(64)
    >>> sorted(sample(x, y, (), 16)) == sorted(63 - sample(x[::-1], y, (), 16))
    True
    """
    if len(x) <= most:
        return np.arange(len(x))
    halvings = math.ceil(math.log2(len(x) / most))
    h = _hashes(x, y, c)
    order = np.argsort(h, kind="stable")
    ranked = h[order]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    which = np.arange(len(h)) - np.repeat(first, np.diff(np.append(first, len(h))))
    lot = _mix(ranked, which.astype(np.uint64))
    return np.sort(order[lot >> np.uint64(64 - halvings) == 0])


def _hashes(x: Matrix, y: Vector, c: Texts) -> Hashes:
    h = np.zeros(len(x), np.uint64)
    for column in (*x.T, y):
        h = _mix(h, np.where(np.isnan(column), np.nan, column + 0.0).view(np.uint64))
    for k in range(len(c[0]) if len(c) else 0):
        texts = {text: _text_hash(text) for text in {row[k] for row in c}}
        h = _mix(h, np.fromiter((texts[row[k]] for row in c), np.uint64, len(x)))
    return h


def _mix(h: Hashes, more: Hashes) -> Hashes:
    """One round of splitmix64."""
    h = (h ^ more) + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def _text_hash(text: str | None) -> int:
    if text is None:
        return 0
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
