from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from mempair_db.cli import app
from mempair_db.errors import InvalidParameter, UnknownColumn
from mempair_db.measure.advice import advise, varying
from mempair_db.measure.simulate import PATTERNS, scenarios, simulate
from mempair_db.offline.table import Table, load
from mempair_db.pages.advice import render

ROWS = 3_000


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 2))
    left = x[:, 0] + 0.5 * x[:, 1] + 0.5 * rng.normal(size=ROWS) > 0
    file = tmp_path_factory.mktemp("simulate") / "people.csv"
    lines = ["age,joined,plan,spend,left"]
    for i in range(ROWS):
        spend = "" if i % 100 == 0 else f"{x[i, 1]:.6f}"
        lines.append(f"{x[i, 0]:.6f},2024-01-{1 + i % 28:02d},{'abc'[i % 3]},{spend},{'yes' if left[i] else 'no'}")
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def table(csv: Path) -> Table:
    return load(str(csv), "left")


def test_csv_and_parquet_give_the_same_rows(csv: Path, table: Table, tmp_path: Path) -> None:
    duckdb.sql(f"copy (from read_csv_auto('{csv}')) to '{tmp_path / 'p.parquet'}' (format parquet)")
    same = load(str(tmp_path / "p.parquet"), "left")
    assert np.array_equal(same.x, table.x)
    assert same.c == table.c
    assert (table.numbers, table.texts, table.skipped) == (["age", "joined", "spend"], ["plan"], 30)
    assert set(table.y.tolist()) == {-1.0, 1.0}


def test_a_table_of_the_database_gives_its_rows(shop: Any) -> None:
    found = load("public.customers", "left_us", features=["age", "plan"], dsn=shop.dsn)
    assert (len(found), found.numbers, found.texts, found.regression) == (2_500, ["age"], ["plan"], False)


def test_a_number_with_many_values_is_a_regression(csv: Path) -> None:
    found = load(str(csv), "spend", features=["age", "plan"])
    assert found.regression
    (result,) = simulate(found, scenarios(gamma=[0.1]), draws=2)
    assert result.untouched <= 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": "gone"}, UnknownColumn, "has no column 'gone'"),
        ({"target": "plan"}, InvalidParameter, "--positive"),
        ({"source": "nowhere.csv", "target": "left"}, InvalidParameter, "no file"),
        ({"source": __file__, "target": "left"}, InvalidParameter, "neither CSV nor Parquet"),
    ],
)
def test_a_source_that_cannot_be_used_says_why(
    csv: Path, arguments: dict[str, str], error: type[Exception], message: str
) -> None:
    options = {"source": str(csv), **arguments}
    with pytest.raises(error, match=message):
        load(options["source"], options["target"])


def test_more_epsilon_and_more_gamma_serve_more_deletions(table: Table) -> None:
    found = simulate(table, scenarios(epsilon=[0.5, 1.0, 2.0], gamma=[0.05, 0.2], lam=[0.03]), draws=2)
    by = {(r.scenario.epsilon, r.scenario.gamma): r for r in found}
    assert by[0.5, 0.2].an_epoch < by[1.0, 0.2].an_epoch < by[2.0, 0.2].an_epoch
    assert by[1.0, 0.05].capacity < by[1.0, 0.2].capacity
    assert by[2.0, 0.2].retrains < by[0.5, 0.2].retrains


def test_passive_serves_twice_as_many(table: Table) -> None:
    active, passive = simulate(table, scenarios(unlearner=["symmetric", "passive"], lam=[0.03]), draws=2)
    assert passive.capacity == pytest.approx(2 * active.capacity)


def test_a_fixed_m_is_what_an_epoch_serves(table: Table) -> None:
    (found,) = simulate(table, scenarios(m=[2], lam=[0.1], gamma=[0.3]), draws=2)
    assert found.an_epoch == 2


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_of_deletions_runs(table: Table, pattern: str) -> None:
    (found,) = simulate(table, scenarios(pattern=[pattern], lam=[0.1], gamma=[0.3]), draws=2)
    assert 0.2 < found.fit <= 1.0
    assert found.retrains > 0


def test_the_advice_keeps_the_need_with_the_fewest_retrains(table: Table) -> None:
    found = simulate(table, scenarios(gamma=[0.003, 0.03, 0.3], lam=[0.01, 0.1], a_day=[5.0]), draws=3)
    advice = advise(found, 0.05)
    assert advice.best is not None
    top = max(r.untouched for r in found)
    assert top - advice.best.fit <= 0.05
    assert not [r for r in found if top - r.fit + 2 * r.error <= 0.05 and r.retrains < advice.best.retrains - 1e-3]
    assert "lambda =>" in advice.sql()


def test_a_need_that_nothing_meets_says_what_to_do(table: Table) -> None:
    found = simulate(table, scenarios(gamma=[0.5], lam=[0.1], a_day=[50.0]), draws=2)
    advice = advise(found, -1.0)
    assert advice.best is None
    assert "larger epsilon" in " ".join(advice.reason.split())


def test_too_many_scenarios_and_unknown_patterns_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="scenarios"):
        scenarios(gamma=[0.1] * 501)
    with pytest.raises(InvalidParameter, match="newest"):
        scenarios(pattern=["oldest"])


def test_the_page_has_three_plots_with_tables(table: Table) -> None:
    found = simulate(table, scenarios(gamma=[0.05, 0.2], lam=[0.03, 0.1], unlearner=["symmetric", "passive"]), draws=2)
    page = render("people.csv", found, advise(found, 0.1))
    assert page.count("<figure>") == page.count("<figcaption>") == 3
    assert "<script" not in page


def test_columns_that_never_change_are_said_once() -> None:
    assert varying([{"a": 1, "b": 2}]) == ([{"a": 1, "b": 2}], {})


def test_the_command_line_answers_a_need_as_json(csv: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke(
        app,
        [
            *("simulate", str(csv), "--target", "left", "--gamma", "0.05,0.3", "--lambda", "auto,0.1"),
            *(
                "--deletions-per-day",
                "20",
                "--most-loss",
                "0.2",
                "--draws",
                "2",
                "--json",
                "--out",
                str(tmp_path / "s.html"),
            ),
        ],
    )
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert len(found["results"]) == 8
    assert found["advice"]["need"] == "20 deletions a day, at most 0.2 lost"
    assert "30 left out" in run.stderr
    assert (tmp_path / "s.html").exists()
