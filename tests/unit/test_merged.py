"""Constants from several parts of the reference rows: the same bits however the rows are divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mempair_db.errors import InvalidRow
from mempair_db.pair import exact, merged
from mempair_db.pair.payload import Learnable
from mempair_db.pair.reference import Reference

Part = tuple[Any, Any, Any]
LABELS = ("blue", "green", "red")


def rows(n: int, loss: str, seed: int = 0) -> Part:
    random = np.random.default_rng(seed)
    x = np.column_stack(
        [
            random.normal(1.7e9, 1e4, n),  # a time: the first grid is far too coarse
            np.where(random.random(n) < 0.02, 999999.0, random.integers(0, 90, n)),
            random.lognormal(0, 2, n),
            np.where(random.random(n) < 0.1, np.nan, random.integers(0, 2, n)),
            np.full(n, 7.25),
        ]
    )
    x[3 % n, 2], x[5 % n, 2] = np.inf, -np.inf
    plan = random.choice(["basic", "pro", "Ω"], n)
    c = [[str(p), None if i % 11 == 0 else f"name {i // 3}"] for i, p in enumerate(plan)]
    score = (x[:, 1] % 90) / 20 - 2 + (plan == "pro")
    if loss == "classes":
        y = np.digitize(score + random.normal(size=n), [-1.0, 1.0]) - (random.random(n) < 0.01) * 9.0
        return x, c, np.maximum(y, -1.0)  # a few of a class without a place
    y = (score + random.normal(size=n) > 0).astype(float) if loss == "logistic" else score * 40
    return x, c, y


def divided(part: Part, places: np.ndarray[Any, Any], shards: int) -> list[Part]:
    x, c, y = part
    chosen = [np.flatnonzero(places == shard) for shard in range(shards)]
    return [(x[which], [c[i] for i in which.tolist()], y[which]) for which in chosen]


def referred(parts: list[Part], asked: list[tuple[str, Any]] | None = None, **how: Any) -> Reference:
    def ask(question: str, given: Any) -> list[Any]:
        weight = [x[:, 1] % 5 if how.get("weighted") else None for x, _, _ in parts]
        answers = [
            merged.answer(question, given, Learnable(x, y, c, w)) for (x, c, y), w in zip(parts, weight, strict=True)
        ]
        if asked is not None:
            asked.extend((question, one) for one in answers)
        return answers

    return merged.refer(ask, declared=[None, None], numbers=5, **how)


@pytest.mark.parametrize(
    "how",
    [
        {"loss": "logistic"},
        {"loss": "logistic", "curves": 3, "balance": True},
        {"loss": "logistic", "weighted": True},
        {"loss": "logistic", "ridge": 0.5},
        {"loss": "logistic", "curves": 4, "times": [0, 2]},
        {"loss": "squared", "weighted": True},
        {"loss": "huber", "curves": 2},
        {"loss": "classes", "labels": LABELS, "curves": 2},
        {"loss": "classes", "labels": LABELS, "weighted": True, "balance": True},
    ],
    ids=lambda how: " ".join(map(str, how.values())),
)
def test_any_division_of_the_reference_rows_gives_the_same_bits(how: dict[str, Any]) -> None:
    part = rows(900, how["loss"])
    alone = referred([part], **how)
    assert alone.weighted == bool(how.get("weighted") or how.get("balance"))
    assert len(alone.class_weights) == (len(how.get("labels", "ab")) if how.get("balance") else 0)
    assert len(set(alone.class_weights)) == len(alone.class_weights)  # no two classes have as many rows
    random = np.random.default_rng(1)
    for shards in (2, 3, 7):
        parts = divided(part, random.integers(0, shards, 900), shards)
        assert referred(parts, **how).to_bytes() == alone.to_bytes()
    empty = divided(part, np.zeros(900), 3)  # two shards without a reference row
    assert referred(empty, **how).to_bytes() == alone.to_bytes()


def test_the_grid_costs_no_quality() -> None:
    """Scales and levels are those of the rows themselves; a centre may lie one eighth of a scale further."""
    x, c, y = rows(3000, "logistic")
    by_cells = referred([(x, c, y)]).encoding
    by_rows = exact.refer(x, y, c, declared=[None, None]).encoding
    assert by_cells.texts == by_rows.texts
    for one, other in zip(by_cells.numbers, by_rows.numbers, strict=True):
        assert (one.scale, one.missing) == (other.scale, other.missing)
        assert abs(one.centre - other.centre) <= other.scale / 8
    assert by_cells.numbers[1] == by_rows.numbers[1]  # whole numbers are edges of the grid
    assert by_cells.numbers[4] == by_rows.numbers[4]


def test_rare_texts_and_exact_numbers_stay_where_they_are() -> None:
    asked: list[tuple[str, Any]] = []
    parts = divided(rows(600, "logistic"), np.arange(600) % 3, 3)
    referred(parts, asked)
    told = {name for question, answer in asked if question == "names" for found in answer for name in found.values()}
    assert told == {"basic", "pro", "Ω"}  # every "name i" has three rows
    for question, answer in asked:
        if question == "cells":
            assert all(places.dtype == counts.dtype == np.int64 for places, counts in answer)
    assert {question for question, _ in asked} == {"cells", "levels", "names", "sums"}


def test_no_reference_row_anywhere_is_an_error() -> None:
    nothing = divided(rows(5, "logistic"), np.full(5, 9), 2)
    with pytest.raises(InvalidRow, match="no row to choose the constants from"):
        referred(nothing)
