"""The examples run, and do what they say."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import mempair_db
from mempair_db import Client
from mempair_db.examples import credit, embeddings, regression, retention
from mempair_db.worker.loop import Worker
from tests.world import World


@pytest.fixture(params=[False, True], ids=["alone", "beside a worker"])
def served(world: World, request: pytest.FixtureRequest) -> Iterator[World]:
    worker = Worker(world.dsn)
    thread = threading.Thread(target=worker.run)
    if request.param:
        thread.start()
    yield world
    worker.stop()
    if request.param:
        thread.join()


def test_the_notebook_runs_from_the_first_cell_to_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMPAIR_DSN", world.dsn)
    done = runpy.run_path(str(Path(mempair_db.__file__).parent / "examples" / "churn.py"))
    assert "ready" in capsys.readouterr().out
    assert done["figures"]["log_loss"] < done["figures"]["base_log_loss"]
    assert done["risk"] > 0.4
    assert done["reasons"]["calls"] > 0
    assert done["receipt"]["key"] == "42"
    assert "42" not in world.learned()


def test_a_regression_with_curves_beats_straight_lines(world: World) -> None:
    found = regression.run(Client(world.dsn))
    assert found["r2"] > 0.9
    assert found["error_with_curves"] < found["error_of_straight_lines"]
    assert 800 < found["rent_of_80_square_metres"] < 1200


def test_a_month_is_forgotten_with_its_partition(world: World) -> None:
    retention.run(Client(world.dsn))
    found = retention.run(Client(world.dsn))  # it can be run again
    assert (found["left"], found["of_january"]) == (800, 0)
    assert found["receipt"] is not None


def test_a_loan_has_one_of_three_ends(served: World) -> None:
    found = credit.run(Client(served.dsn))
    assert found["log_loss"] < found["base_log_loss"] - 0.1
    assert found["safe"] == "in time"
    assert next(iter(found["risky"])) == "lost"
    assert sum(found["risky"].values()) == pytest.approx(1.0)
    assert found["reasons"]["amount"] > 0
    assert found["receipt"]["key"] == "42"
    assert "42" not in served.learned()


def test_complaints_are_told_by_their_embeddings(served: World) -> None:
    found = embeddings.run(Client(served.dsn))
    assert found["auc"] > 0.85
    assert found["unread"] == 10
    assert found["asked"] > 0.8
    assert found["receipt"]["key"] == "42"
    assert "42" not in served.learned()
