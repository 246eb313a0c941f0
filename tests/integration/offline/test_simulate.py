from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from mempair_db.cli import app
from mempair_db.errors import InvalidParameter, UnknownColumn
from mempair_db.measure import exact_trial
from mempair_db.measure.advice import advise, varying
from mempair_db.measure.capacity import noise_scale, unlearn
from mempair_db.measure.exact_trial import trials
from mempair_db.measure.scores import Targets
from mempair_db.measure.simulate import PATTERNS, Scenario, Simulator, scenarios, simulate
from mempair_db.offline.table import Table, load
from mempair_db.pages.advice import render
from mempair_db.pair import exact
from mempair_db.pair.exact_model import ExactPair
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.odometer import Odometer

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


def test_dates_of_a_file_are_points_in_time_for_the_exact_pair(table: Table) -> None:
    assert table.times == [table.numbers.index("joined")]
    left = exact_trial._Left(table, np.arange(len(table)))
    pair, _ = exact_trial._taught(Simulator(table.imputed(), 1e-6), table, left)
    assert pair.parameters.times == table.times


def test_yes_and_no_in_a_file_are_texts(csv: Path, table: Table) -> None:
    named = load(str(csv), "left", positive="yes")
    assert (named.y == table.y).all()
    assert 0 < (named.y > 0).mean() < 1


def test_rows_with_missing_values_can_be_learned_as_such(csv: Path, tmp_path: Path) -> None:
    lines = csv.read_text().splitlines()
    lines[7] = lines[7].replace(",b,", ",,").replace(",a,", ",,").replace(",c,", ",,")
    (tmp_path / "odd.csv").write_text("\n".join(lines) + "\n")
    whole = load(str(tmp_path / "odd.csv"), "left", on_null="impute")
    assert (len(whole), whole.skipped) == (ROWS, 0)
    assert np.isnan(whole.x[:, 2]).sum() == 30
    assert sum(row == (None,) for row in whole.c) == 1
    filled = whole.imputed()
    assert np.isfinite(filled.x).all()
    assert filled.c[6] == ("",)
    [trial] = trials(whole, scenarios(), seed=1)
    assert trial.measured is not None
    assert trial.measured.equal
    assert "seconds a refresh" in trial.row()
    with pytest.raises(InvalidParameter, match="skip or impute"):
        load(str(csv), "left", on_null="drop")


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
        ({"target": "gone"}, UnknownColumn, "^[^ ]* has no column 'gone'"),
        ({"target": "plan"}, InvalidParameter, "--positive"),
        (
            {"target": "left", "positive": "Yes"},
            InvalidParameter,
            "No row has left = 'Yes', .* Values that are there: no, yes",
        ),
        ({"source": "nowhere.csv", "target": "left"}, InvalidParameter, "no file"),
        ({"source": __file__, "target": "left"}, InvalidParameter, "neither CSV nor Parquet"),
    ],
)
def test_a_source_that_cannot_be_used_says_why(
    csv: Path, arguments: dict[str, str], error: type[Exception], message: str
) -> None:
    options = {"source": str(csv), **arguments}
    with pytest.raises(error, match=message):
        load(options["source"], options["target"], positive=options.get("positive"))


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


@pytest.mark.parametrize("pattern", PATTERNS)
def test_exact_is_recommended_on_an_ordinary_table(table: Table, pattern: str) -> None:
    wanted = scenarios(lam=[0.1], gamma=[0.3], pattern=[pattern], a_day=[5.0])
    exact = trials(table, wanted)
    advice = advise(simulate(table, wanted, draws=2), 0.01, exact)
    assert advice.sql() == "unlearner => 'exact'"
    assert "equal in every byte" in advice.reason
    (measured,) = (trial.measured for trial in exact)
    assert measured is not None
    assert measured.equal
    assert measured.after.auc is not None
    assert measured.after.auc > 0.9
    assert measured.deletion > 0
    assert measured.refresh > 0


def test_after_the_deletions_exact_predicts_as_if_the_rows_had_never_come(table: Table) -> None:
    (trial,) = trials(table, scenarios(a_day=[5.0]))
    simulator = Simulator(table, 1e-6)
    gone = simulator.train[simulator.month(Scenario(a_day=5.0), np.random.default_rng(0))]
    left = np.setdiff1d(simulator.train, gone)
    assert len(left) == len(simulator.train) - 150
    never = ExactPair(times=table.times)
    never.learn_many(table.x[left], table.y[left], [table.c[i] for i in left])
    predicted = never.predict_many(table.x[simulator.test], [table.c[i] for i in simulator.test])
    assert trial.measured is not None
    assert trial.measured.after == simulator.targets.scores([predicted])
    assert never.reference is not None
    assert trial.width == never.reference.d


def test_an_exact_pair_that_keeps_what_it_should_forget_is_not_recommended(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Keeps(ExactPair):
        def unlearn_many(self, x: Any, y: Any, c: Any = (), weights: Any = None) -> None:
            """Forget nothing."""

    monkeypatch.setattr(exact_trial, "ExactPair", Keeps)
    wanted = scenarios(lam=[0.1], gamma=[0.01], unlearner=["passive"])
    exact = trials(table, wanted)
    advice = advise(simulate(table, wanted, draws=2), 0.5, exact)
    assert exact[0].row()["bytes equal"] is False
    assert not advice.exact
    assert "bug" in advice.reason


def test_an_exact_regression_is_judged_by_the_variance_it_explains() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1_000, 2))
    y = 50.0 + 3.0 * x[:, 0] + rng.normal(size=1_000)
    found = Table(x, [()] * 1_000, y, ["a", "b"], [], True, 0)
    held_out = np.arange(1_000) % 5 == 4
    X = np.column_stack([x, np.ones(1_000)])
    errors = y[held_out] - X[held_out] @ np.linalg.lstsq(X[~held_out], y[~held_out])[0]
    wanted = scenarios(lam=[0.1])
    exact = trials(found, wanted)
    assert exact[0].row()["before"] == pytest.approx(1.0 - (errors**2).mean() / y[held_out].var(), abs=0.003)
    assert advise(simulate(found, wanted, draws=2), 0.01, exact).exact


@pytest.mark.parametrize("regression", [True, False])
@pytest.mark.parametrize("eased", [True, False])
def test_a_text_that_decides_is_advised_a_smaller_ridge_unless_the_default_is_eased(
    monkeypatch: pytest.MonkeyPatch, eased: bool, regression: bool
) -> None:
    if not eased:
        monkeypatch.setattr(exact, "HELD_BACK", math.inf)
        monkeypatch.setattr(exact, "SQUARES_HELD_BACK", math.inf)
    rng = np.random.default_rng(7)
    breeds = rng.integers(0, 60, size=3_000)
    y = rng.normal(size=60)[breeds] if regression else np.where(breeds % 3 == 0, 1.0, -1.0)
    age = rng.normal(size=(3_000, 1))
    pets = Table(age, [(f"b{b}",) for b in breeds.tolist()], y, ["age"], ["breed"], regression, 0)
    wanted = scenarios(lam=[0.1], gamma=[0.3])
    tried = trials(pets, wanted)
    advised = "unlearner => 'exact'" if eased else "unlearner => 'exact', ridge => 1"
    assert advise(simulate(pets, wanted, draws=2), 0.01, tried).sql() == advised
    assert tried[0].row()["ridge"] == (10.0 if eased else 1.0)


def test_published_models_get_passive(table: Table) -> None:
    wanted = scenarios(gamma=[0.003, 0.03, 0.3], lam=[0.01, 0.1], unlearner=["symmetric", "passive"])
    advice = advise(simulate(table, wanted, draws=3), 0.1, trials(table, wanted), published=True)
    assert "published models" in advice.reason
    assert advice.sql().endswith("unlearner => 'passive'")


def test_a_table_too_wide_for_the_exact_pair_gets_a_certified_one() -> None:
    rng = np.random.default_rng(6)
    x = np.hstack([rng.normal(size=(2_000, 1)), np.zeros((2_000, 1_030))])
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    wide = Table(x, [()] * 2_000, y, [f"x{i}" for i in range(1_031)], [], False, 0)
    wanted = scenarios(lam=[0.1], gamma=[0.01], unlearner=["passive"])
    advice = advise(simulate(wide, wanted, draws=2), 0.5, trials(wide, wanted))
    assert "1,032 numbers wide" in advice.reason
    assert not advice.exact
    assert advice.best is not None


@pytest.mark.parametrize("published", [False, True])
def test_a_target_of_pure_noise_is_not_recommended(published: bool) -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(3_000, 4)), rng.choice([-1.0, 1.0], 3_000, p=[0.8, 0.2])
    noise = Table(x, [()] * 3_000, y, list("abcd"), [], False, 0)
    wanted = scenarios(gamma=[0.01, 0.3], lam=[0.01, 0.1], unlearner=["symmetric", "passive"])
    advice = advise(simulate(noise, wanted, draws=3), 0.5, trials(noise, wanted), published=published)
    assert not advice.found
    assert advice.sql() == ""
    assert "better than the base rate" in advice.reason


def test_a_chosen_parameter_that_was_also_given_is_shown_once(table: Table) -> None:
    (chosen,) = simulate(table, scenarios(gamma=[0.1]), draws=2)
    assert simulate(table, scenarios(gamma=[0.1], lam=[None, chosen.lam]), draws=2) == [chosen]


def test_the_same_seed_gives_the_same_advice_and_another_other_noise(table: Table) -> None:
    wanted = scenarios(gamma=[0.03, 0.1, 0.3], lam=[None, 0.01, 0.1], unlearner=["symmetric", "passive"], a_day=[5.0])
    runs = [simulate(table, wanted, draws=3) for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert runs[0] != simulate(table, wanted, draws=3, seed=1)
    exact = [trials(table, wanted) for _ in range(2)]
    for published in (False, True):
        (said,) = {advise(run, 0.1, tried, published=published).sql() for run in runs for tried in exact}
        assert said
    (one,), (other,) = exact
    assert one.measured is not None
    assert other.measured is not None
    assert (one.measured.before, one.measured.after) == (other.measured.before, other.measured.after)


def test_the_simulated_noise_is_as_long_as_a_models(table: Table) -> None:
    simulator, rng = Simulator(table, 1e-6), np.random.default_rng(0)
    parameters = simulator._parameters(Scenario(lam=0.1, m=1))
    stream, learned, _ = simulator._learn(parameters)
    pair = CertifiedPair(parameters)
    pair.restore(stream.epoch, learned, Odometer(stream.epoch.cap))
    chosen = np.array([5])
    sigma = noise_scale(stream, len(stream), max(1, stream.epoch.cap // pair.price(len(stream))))
    ours = [simulator._forget(pair, stream, chosen, rng).theta for _ in range(400)]
    real = [unlearn(stream, learned, stream.X[chosen], stream.y[chosen], sigma).theta for _ in range(400)]
    assert np.linalg.norm(np.std(ours, axis=0)) == pytest.approx(np.linalg.norm(np.std(real, axis=0)), rel=0.1)


def test_the_base_rate_is_that_of_the_learned_rows() -> None:
    targets = Targets.of(np.array([1.0, -1.0, -1.0, -1.0]), np.array([1.0, -1.0]), regression=False)
    scores = targets.scores([np.array([0.9, 0.1, 0.1, 0.1])])
    assert scores.base == pytest.approx(np.log(2.0))
    assert scores.loss == pytest.approx(-np.log(0.9))
    assert (scores.auc, scores.fit) == (1.0, 1.0)


def test_too_many_scenarios_and_unknown_patterns_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="scenarios"):
        scenarios(gamma=[0.1] * 501)
    with pytest.raises(InvalidParameter, match="newest"):
        scenarios(pattern=["oldest"])


def test_the_page_has_three_plots_with_tables(table: Table) -> None:
    found = simulate(table, scenarios(gamma=[0.05, 0.2], lam=[0.03, 0.1], unlearner=["symmetric", "passive"]), draws=2)
    exact = trials(table, scenarios())
    page = render("people.csv", found, advise(found, 0.1, exact), exact)
    assert "unlearner =&gt; &#39;exact&#39;" in page
    assert "bytes equal" in page
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
    assert found["advice"]["parameters"] == "unlearner => 'exact'"
    (exact,) = found["exact"]
    assert exact["deletions"] == 600
    assert exact["bytes equal"] is True
    assert exact["log loss"] < exact["base rate"]
    assert found["advice"]["need"] == "20 deletions a day, at most 0.2 lost"
    assert "3000 rows, 0 left out" in run.stderr  # as create_model: a missing value is learned as such
    assert (tmp_path / "s.html").exists()


def test_the_command_line_says_the_same_again(csv: Path) -> None:
    options = ["--gamma", "0.03,0.3", "--lambda", "0.01,0.1", "--most-loss", "0.1", "--published"]
    runs = [CliRunner().invoke(app, ["simulate", str(csv), "--target", "left", *options]) for _ in range(3)]
    assert {run.exit_code for run in runs} == {0}
    (said,) = {run.stdout.splitlines()[-1] for run in runs}
    assert said.endswith("unlearner => 'passive'")
