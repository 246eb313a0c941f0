"""`mempair demo` tells a story that is true, and can be told again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import psycopg
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from mempair_db.demo import beside
from mempair_db.demo.customers import TABLE, Customer, insert, invent
from mempair_db.demo.screen import Screen
from mempair_db.demo.story import MODEL, Story
from mempair_db.worker.loop import Worker

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def tell(home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mempair_db", "demo"],
        env=os.environ | {"MEMPAIR_HOME": str(home), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures(text: str, label: str) -> list[float]:
    """The numbers of the line that begins so."""
    (line,) = re.findall(rf"^ *{re.escape(label)}(.*)$", text, re.MULTILINE)
    return [float(number) for number in line.split()]


def status(home: Path) -> dict[str, tuple[object, ...]]:
    """What `mempair status` says of each model: rows, deletions, needed, clock, whether it predicts."""
    command, env = [sys.executable, "-m", "mempair_db", "status", "--json"], os.environ | {"MEMPAIR_HOME": str(home)}
    found = json.loads(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
    names = ("rows_learned", "deletions", "needed", "clock", "predicts")
    return {row["model"]: tuple(row[name] for name in names) for row in found}


def test_the_demo_tells_its_story_on_the_embedded_server_twice(server_home: Path) -> None:
    text = tell(server_home)
    assert text.count("The same, byte for byte.") == 2
    assert "They differ" not in text
    plain, ours = (
        figures(text, name) for name in ("plain logistic regression, converged", "demo_churn, by mempair_predict")
    )
    assert ours == pytest.approx(plain, abs=0.01)
    moved, retrained, apart = (
        figures(text, name)[0]
        for name in ("by this deletion", "by training anew without customer 42", "difference between these two models")
    )
    assert 0 < moved == retrained < 0.005
    assert apart == 0
    assert re.search(r"^ *10\d +2 +0 %", text, re.MULTILINE), "the budget ran out and the worker retrained"
    for model in ("demo_churn", "demo_certified"):
        assert re.search(rf"^ *{model} +unlearned ", text, re.MULTILINE)
    assert "bit for bit, the one computed from the remaining rows" in " ".join(text.split())
    assert re.search("mempair(_db)? verify demo_churn", text)
    shown = re.findall(r"^ *10\d +[12] .*?([.\d]+) +([.\d]+) *$", text, re.MULTILINE)
    assert status(server_home) == {  # 42, five hundred, and those that spent the certified budget
        "demo_churn": (4000 - 501 - len(shown), 501 + len(shown), None, None, True),
        "demo_certified": (4000 - 501 - len(shown), 0, None, 4000 - 501 - len(shown), True),
    }
    exact = [moved, *(float(move) for _, move in shown)]
    assert f"{min(exact):.4f} to {max(exact):.4f}, as by a retrain".replace("0.", ".") in README
    assert "The same, byte for byte." in tell(server_home)


def test_what_the_demo_computes_on_the_spot_notices_a_wrong_bit(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console  # noqa: PLC0415 - one that writes to the captured stdout

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create schema mempair_demo")
        connection.execute(TABLE)
        connection.execute(MODEL)
        insert(connection, invent(1, 500))
        story = Story(connection, Worker(database), Screen(Console()))
        story.work()
        story.compare()
        assert "The same" in capsys.readouterr().out
        connection.execute("update mempair.state set sums = set_bit(sums, 100, 1 - get_bit(sums, 100))")
        story.compare()
        assert "They differ" in capsys.readouterr().out


def test_the_regression_beside_it_is_the_one_everybody_knows() -> None:
    rows, asked = list(invent(1, 2_000)), list(invent(5_001, 500))
    scores = beside.logistic_regression(rows, asked)

    def design(some: list[Customer]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        plans = [[row.plan == plan for plan in beside.PLANS] for row in some]
        return np.hstack([beside.numbers(some), np.array(plans, float)])

    centre, scale = beside.numbers(rows).mean(axis=0), beside.numbers(rows).std(axis=0)
    X, Z = design(rows), design(asked)
    for matrix in (X, Z):
        matrix[:, :4] = (matrix[:, :4] - centre) / scale
    peer = LogisticRegression(C=1e6, max_iter=1_000).fit(X, beside.labels(rows)).predict_proba(Z)[:, 1]
    assert np.abs(scores - peer).max() < 1e-3
    truth = beside.labels(asked)
    loss, right, area = beside.quality(scores, truth)
    assert loss == pytest.approx(log_loss(truth, scores))
    assert area == pytest.approx(roc_auc_score(truth, scores))
    assert right == pytest.approx(((scores > 0.5) == truth).mean())
