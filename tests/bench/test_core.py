"""`mempair bench core` runs and says what it measured; how long things take is not tested."""

from __future__ import annotations

import importlib
import io
import json
import math
from typing import Any

import pytest
from rich.console import Console

from mempair_db.bench import core, report
from mempair_db.errors import ExtraMissing


@pytest.fixture(scope="module")
def result() -> report.Result:
    return core.run(quick=True)


def test_every_dimension_has_a_figure_for_every_contestant(result: report.Result) -> None:
    times = result["tables"][0]["rows"]
    assert [row["d"] for row in times] == [10, 100, 784]
    for row in times:
        assert set(row) == {
            "d",
            "insert",
            "learn_one",
            "delete",
            "unlearn_one",
            "river",
            "sklearn one",
            "sklearn array",
            "river/insert",
            "insert/array",
        }
        assert all(math.isfinite(value) and value > 0 for value in row.values())
        assert row["river/insert"] == pytest.approx(row["river"] / row["insert"])
        assert row["insert/array"] == pytest.approx(row["insert"] / row["sklearn array"])


def test_the_goals_are_stated_with_what_was_measured(result: report.Result) -> None:
    most = [5.0] * 3 + [1.5, 1.5, 2.0, 1.0] + [1.0] * 12
    assert [(goal["least"], goal["most"]) for goal in result["goals"]] == [(10.0, None)] * 3 + [(None, x) for x in most]
    for goal in result["goals"]:
        enough = goal["measured"] >= goal["least"] if goal["least"] else goal["measured"] <= goal["most"]
        assert goal["met"] is enough


def test_the_state_is_as_large_after_many_events_as_after_few(result: report.Result) -> None:
    few, many = result["tables"][1]["rows"]
    assert many["events"] > few["events"]
    assert many["bytes of state"] == few["bytes of state"]


def test_the_exact_pair_is_measured_beside_its_peers(result: report.Result) -> None:
    rows = result["tables"][2]["rows"]
    assert [row["d"] for row in rows] == [10, 100, 784]
    for row in rows:
        assert all(math.isfinite(value) and value > 0 for value in row.values())
        assert row["learn/array"] == pytest.approx(row["learn"] / row["sklearn array"])
        assert row["learn/product"] == pytest.approx(row["learn"] / row["X.T @ X"])


def test_it_says_where_the_figures_come_from(result: report.Result) -> None:
    assert result["quick"] is True
    assert result["machine"]["cores"] >= 1
    assert {"numpy", "numba", "river", "scikit-learn"} <= set(result["machine"]["packages"])


def test_it_can_be_printed_and_written_as_json(result: report.Result) -> None:
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    text = io.StringIO()
    core.render(result, Console(file=text, width=200))
    for word in ("river", "sklearn array", "784", "met", "quick"):
        assert word in text.getvalue()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ExtraMissing, match=r"river\.linear_model is not installed.*mempair_db\[bench\]"):
        core.run(quick=True)


def test_contestants_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def contestant(name: str, seconds: list[float]) -> report.Contestant:
        def turn() -> float:
            order.append(name)
            return seconds[order.count(name) - 1]

        return turn

    medians = report.side_by_side({"a": contestant("a", [9, 1, 2, 3]), "b": contestant("b", [9, 5, 4, 6])}, repeats=3)
    assert order == ["a", "b"] * 4
    assert medians == {"a": 2, "b": 5}
