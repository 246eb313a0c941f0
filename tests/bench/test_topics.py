"""Every topic of `mempair bench` runs and has the shape it documents; how long things take is not tested."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mempair_db.bench import (
    capacity,
    data,
    fidelity,
    fleet,
    growth,
    peers,
    plots,
    quality,
    regret,
    report,
    scale,
    system,
    worker,
)
from mempair_db.errors import InvalidParameter

OFFLINE: dict[str, Callable[..., report.Result]] = {
    "regret": regret.run,
    "capacity": capacity.run,
    "fidelity": fidelity.run,
    "peers": peers.run,
    "quality": quality.run,
}


@pytest.fixture(scope="module")
def results() -> dict[str, report.Result]:
    return {name: run(quick=True) for name, run in OFFLINE.items()}


def columns(result: report.Result, table: int = 0) -> set[str]:
    return set(result["tables"][table]["rows"][0])


@pytest.mark.parametrize("name", OFFLINE)
def test_a_result_can_be_printed_written_and_drawn(
    name: str, results: dict[str, report.Result], tmp_path: Path
) -> None:
    result = results[name]
    assert (result["bench"], result["quick"]) == (name, True)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    text = io.StringIO()
    report.render(result, Console(file=text, width=250))
    assert "quick" in text.getvalue()
    files = plots.write(result, tmp_path / "pictures")
    assert len(files) == 2 * len(result.get("plots", ()))
    assert all(file.stat().st_size > 1_000 for file in files)


def test_every_learner_is_compared_on_every_stream_with_the_same_comparator(results: dict[str, report.Result]) -> None:
    *streams, grids = results["regret"]["tables"]
    names = [learner.name for learner in regret.learners()]
    assert {"AdaGrad", "SGD", "Online Newton Step", "paper, per step", "paper, mini-batch"} < set(names)
    for table in streams:
        assert [row["learner"] for row in table["rows"]] == names
        assert "live bound" in table["title"]
        for row in table["rows"]:
            assert row["lowest"] <= row["regret"] <= row["highest"]
    assert all("dynamic" in row for row in streams[-1]["rows"])  # the rotating stream
    assert [row["learner"] for row in grids["rows"]] == names


def test_the_live_bound_holds_for_the_learner_that_is_shipped(results: dict[str, report.Result]) -> None:
    for table in results["regret"]["tables"][:-1]:
        bound = float(table["title"].split("live bound ")[1].split(";")[0].replace(",", ""))
        assert table["rows"][0]["regret"] <= bound + 0.1


def test_every_promise_reading_and_unlearner_has_a_figure(results: dict[str, report.Result]) -> None:
    result = results["capacity"]
    assert {"symmetric, together", "symmetric, per record", "passive, together", "passive, per record"} < columns(
        result
    )
    patterns = [row["pattern"] for row in result["tables"][1]["rows"]]
    assert set(patterns) == {"random", "one class", "oldest", "newest", "highest loss"}
    rows = result["tables"][-1]["rows"]
    assert {row["set"] for row in rows} >= {"drifting", "rotating"}
    assert {"measured", "capacity", "regret_capacity", "paper_capacity"} < set(rows[0])
    assert {row["ε"] for row in rows} == {1.0, 4.0, 8.0}


def test_the_anchored_mode_stays_within_its_bound_and_its_epsilon(results: dict[str, report.Result]) -> None:
    result = results["fidelity"]
    assert [row["mode"] for row in result["tables"][0]["rows"]] == list(fidelity.MODES)
    assert all(goal["met"] for goal in result["goals"])
    told = {row["worlds"]: row["holds"] for row in result["tables"][1]["rows"]}
    assert told["Algorithm 1 as printed"] == "refuted"


def test_every_peer_has_every_figure(results: dict[str, report.Result]) -> None:
    for row in results["peers"]["tables"][0]["rows"]:
        assert 0.3 < row["accuracy"] <= 1.0
        assert row["ms per deletion"] > 0
        assert row["MB held"] > 0
    methods = " ".join(row["method"] for row in results["peers"]["tables"][0]["rows"])
    assert all(word in methods for word in ("Memory Pair", "certified", "full retrain", "shards", "exact statistics"))


def test_one_set_alone_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(name: str, folder: Path | None) -> None:
        raise RuntimeError(name)  # before anything is measured

    monkeypatch.setattr(data, "load", stop)
    with pytest.raises(RuntimeError, match=r"^wine$"):
        quality.run(quick=True, only="wine")
    with pytest.raises(InvalidParameter, match=r"no set 'iris'.*wine"):
        quality.run(quick=True, only="iris")


def test_an_exact_model_is_measured_beside_others_after_deletions_and_in_order(
    results: dict[str, report.Result],
) -> None:
    shuffled, deleted, small, ordered = (table["rows"] for table in results["quality"]["tables"])
    assert [row["model"] for row in shuffled] == [
        "exact",
        "straight",
        "logistic regression",
        "anchored",
        "boosting",
    ]
    assert all(row["log loss"] < 0.69 and row["AUC"] > 0.9 for row in shuffled)
    assert [row["same bytes"] for row in deleted] == [True] * 4
    assert deleted[0]["largest move"] == 0.0 < deleted[-1]["largest move"]
    assert [row["table"] for row in small] == ["plain", "rare yes", "absurd", "gaps", "many levels", "clock"]
    assert all(row["exact"] < 2 * row["base rate"] for row in small)
    assert [row["order"] for row in ordered] == ["file", "by number"]
    assert all(0.0 < row[name] < row["base rate"] for row in ordered for name in ("exact", "refit", "river"))


def test_scale_measures_kernel_and_pipeline(server_dsn: str) -> None:
    result = scale.run(quick=True, dsn=server_dsn)
    by_events, by_features, pipeline = (table["rows"] for table in result["tables"])
    assert by_events[0]["bytes of state"] == by_events[-1]["bytes of state"]
    assert by_features[1]["kB of state"] > by_features[0]["kB of state"]
    assert all(row["µs per row, worker"] > 0 for row in pipeline)


def test_a_loaded_system_ends_with_every_invariant_kept(server_dsn: str) -> None:
    result: dict[str, Any] = system.run(quick=True, dsn=server_dsn)
    assert [row["statement"] for row in result["tables"][0]["rows"]] == ["delete", "insert", "predict", "update"]
    assert all(goal["met"] for goal in result["goals"])


def test_a_fleet_is_measured_and_can_be_printed(server_dsn: str) -> None:
    result = fleet.run(quick=True, dsn=server_dsn)
    assert [row["Dask workers"] for row in result["tables"][0]["rows"]] == [1]
    assert all(goal["met"] for goal in result["goals"])
    report.render(result, Console(file=io.StringIO()))


def test_growth_is_measured_and_mass_deletions_share_entries(server_dsn: str) -> None:
    result = growth.run(quick=True, dsn=server_dsn)
    mixed, tables, waiting = (table["rows"] for table in result["tables"])
    assert mixed[-1]["events"] >= 4_000
    assert {"ledger", "receipt", "queue", "learned_keys"} <= {row["table"] for row in tables}
    assert [row["receipts"] for row in waiting] == [900, 1_800]
    (deleted,) = worker.run(quick=True, dsn=server_dsn)["tables"][1]["rows"]
    assert deleted["deleted at once"] == 1_000
    assert deleted["ledger entries for each time"] < 20
