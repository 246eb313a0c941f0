"""The constants of an exact model whose reference rows lie in several places: from integers that add up.

`refer` needs of the reference rows R, beside the sums that `settle` adds up in rounds, how each number is spread and
how often each text occurs. Every place answers the same questions about its own part of R:

    cells    how many numbers lie in each cell of a grid; the grid is chosen anew until it is fine where the numbers are
    levels   how often each text occurs, under a keyed hash of it
    names    the texts behind some hashes: only of those that have `RAREST` rows in all parts together
    classes  how many rows of the part each class has, to balance them
    sums     the sums of the part under some constants

The answers of all parts are added before anything is decided by them. So the constants are a function of R as a set,
the same bits however R is divided. A number counts as the lower edge of its cell, which is at most a 512th of the
numbers' spread.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from ..errors import InvalidRow
from .encode import RAREST, Encoding, Matrix, Texts, Vector, fit
from .exact import RIDGE, begin, settle, sums
from .payload import Learnable
from .reference import Reference
from .sums import Sums
from .weights import balanced, counted

Integers = npt.NDArray[np.int64]
Ask = Callable[[str, Any], Sequence[Any]]
"""Puts a question to every part; returns the answers."""

CELLS: Final = 1_024  # of a grid between two order statistics, at least half as many are used
ENOUGH: Final = 256
FARTHEST: Final = 500  # a number beyond 2^500 counts as that
ROUNDS: Final = 12
FINEST: Final = 2.0**-48  # of a number's size: a grid is not refined beyond


def answer(question: str, given: Any, rows: Learnable) -> Any:
    """Answer a question about one part of the reference rows."""
    if question == "cells":
        return _cells(given, rows.x, rows.y)
    if question == "levels":
        return [
            Counter(None if row[k] is None else hashed(given, row[k]) for row in rows.c) for k in range(_width(rows.c))
        ]
    if question == "names":
        salt, wanted = given
        seen = [{row[k] for row in rows.c if row[k] is not None} for k in range(_width(rows.c))]
        return [{h: v for v in values if (h := hashed(salt, v)) in wanted[k]} for k, values in enumerate(seen)]
    if question == "classes":
        return counted(rows.y, given)
    if question == "sums":
        return sums(given, rows.x, rows.y, rows.c, weight=rows.weight)
    raise ValueError(f"no such question: {question}")


def refer(
    ask: Ask,
    *,
    loss: str = "logistic",
    labels: Sequence[str] = (),
    weighted: bool = False,
    balance: bool = False,
    curves: int = 0,
    times: Collection[int] = (),
    clip: float = 1.0,
    declared: Sequence[Sequence[str] | None] = (),
    ridge: float = RIDGE,
    numbers: int,
) -> Reference:
    """Choose the constants from all parts of the reference rows; `numbers` is how many columns x has.

    The classes that have a place, `labels`, are those of all rows, not of the reference rows: the caller has counted.
    """
    regression = loss in ("squared", "huber")
    columns = _columns(ask, numbers + regression)
    texts = _texts(ask, declared)
    x = np.array(columns[:numbers]).reshape(numbers, -1).T if numbers else np.zeros((len(columns[0]), 0))
    y = columns[-1] if regression else np.zeros(len(x))
    encoding = _fitted(x, texts, y, regression=regression, curves=curves, declared=declared)

    def total(reference: Reference) -> Sums:
        return cast(Sums, _added(ask("sums", reference)))

    start = begin(
        encoding,
        loss=loss,
        labels=labels,
        clip=clip,
        weighted=weighted or balance,
        class_weights=balanced(_added(ask("classes", len(labels) or 2))) if balance else (),
    )
    return settle(start, total, ridge, times)


def _added(parts: Sequence[Any]) -> Any:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


def _fitted(x: Matrix, texts: list[list[str | None]], y: Vector, **how: Any) -> Encoding:
    """Fit to columns that are sorted each for itself: `fit` looks at one after the other."""
    n = len(x)
    padded = [[*column, *(f"\0{i}" for i in range(n - len(column)))] for column in texts]  # each rarer than RAREST
    return fit(x, list(zip(*padded, strict=True)) if padded else (), y, **how)


def _columns(ask: Ask, count: int) -> list[Vector]:
    """Return each number's column, sorted, its numbers rounded down to the edges of a fine grid."""
    edges = [_first_grid() for _ in range(max(count, 1))]
    for _ in range(ROUNDS):
        counts = [np.zeros(len(grid) + 3, np.int64) for grid in edges]
        for part in ask("cells", edges):
            for total, (places, found) in zip(counts, part, strict=True):
                total[places] += found
        if not counts[0].sum():
            raise InvalidRow("there is no row to choose the constants from.")
        finer = [_refined(grid, seen) for grid, seen in zip(edges, counts, strict=True)]
        if all(new is old for new, old in zip(finer, edges, strict=True)):
            break
        edges = finer
    return [
        np.repeat(np.concatenate([grid, [-np.inf, np.inf, np.nan]]), seen)
        for grid, seen in zip(edges, counts, strict=True)
    ]


def _first_grid() -> Vector:
    powers = 2.0 ** np.arange(-FARTHEST, FARTHEST + 1)
    return np.concatenate([-powers[::-1], [0.0], powers])


def _cells(edges: Sequence[Vector], x: Matrix, y: Vector) -> list[tuple[Integers, Integers]]:
    """Count in which cell each number lies: the edges' cells, then below all (infinite), above all, missing."""
    counted = []
    for j, grid in enumerate(edges):
        values = x[:, j] if j < x.shape[1] else y
        places = np.maximum(np.searchsorted(grid, values, side="right") - 1, 0)
        places[np.isneginf(values)], places[np.isposinf(values)] = len(grid), len(grid) + 1
        places[np.isnan(values)] = len(grid) + 2
        found, counts = np.unique(places, return_counts=True)
        counted.append((found.astype(np.int64), counts.astype(np.int64)))
    return counted


def _refined(grid: Vector, counts: Integers) -> Vector:
    """Return a grid that is fine wherever `fit` looks, or the same one if it is already."""
    finite = counts[: len(grid)]
    n = int(finite.sum())
    if n == 0:
        return grid
    upto = np.cumsum(finite)
    finer, again = [], False
    for cut in (0, n // 1000 + 1, n // 100 + 1, n // 20 + 1, n // 4):
        at = min(cut, (n - 1) // 2)
        low, high = (int(np.searchsorted(upto, place, side="right")) for place in (at, n - 1 - at))
        begin, end = grid[low], grid[min(high + 1, len(grid) - 1)]
        again |= high - low < ENOUGH and bool(end - begin > FINEST * max(abs(begin), abs(end)))
        finer.append(_between(begin, end))
    return np.unique(np.concatenate(finer)) if again else grid


def _between(begin: float, end: float) -> Vector:
    """Multiples of a power of two from `begin` to `end`."""
    if not end > begin:
        return np.array([begin])
    step = 2.0 ** np.floor(np.log2((end - begin) / CELLS))
    return np.asarray(np.arange(np.floor(begin / step), np.ceil(end / step) + 1) * step)


def _texts(ask: Ask, declared: Sequence[Sequence[str] | None]) -> list[list[str | None]]:
    """Return each text's column as far as it matters: levels that are not rare, and NULLs."""
    if not declared:
        return []
    salt = secrets.token_bytes(16)
    counts: list[Counter[bytes | None]] = [Counter() for _ in declared]
    for part in ask("levels", salt):
        for total, found in zip(counts, part, strict=False):  # a part without rows has no columns
            total.update(found)
    wanted = [
        set() if names is not None else {h for h, count in seen.items() if h is not None and count >= RAREST}
        for names, seen in zip(declared, counts, strict=True)
    ]
    names: list[dict[bytes, str]] = [{} for _ in declared]
    for part in ask("names", (salt, wanted)) if any(wanted) else ():
        for known, found in zip(names, part, strict=False):
            known.update(found)
    return [
        [v for h, v in known.items() for _ in range(seen[h])] + [None] * seen[None]
        for known, seen in zip(names, counts, strict=True)
    ]


def hashed(salt: bytes, value: str | None) -> bytes:
    """Return what stands for a text in an answer."""
    return hashlib.blake2b((value or "").encode(), key=salt, digest_size=12).digest()


def _width(c: Texts) -> int:
    return len(c[0]) if len(c) else 0
