"""A model that explains and judges itself: contributions, coefficients, and figures like those of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from sklearn import metrics

from mempair_db.verify.checks import verify
from tests.world import World, opened

TABLE = """
create table homes (id int primary key, rooms float8, age int, area text, "Größe" float8, sold boolean, price float8);
insert into homes
select i, case when i % 9 > 0 then i * 7919 % 13 end, i * 31 % 60,
       (array['north', 'south', null, 'it''s'])[1 + i % 4], sin(i) * 50,
       sin(i) + (i * 7919 % 13) / 6.0 + (i % 4) / 3.0 > 1.2,
       100 + (i * 7919 % 13) * 10 + 30 * sin(i) + i % 7
from generate_series(1, 1200) i
"""
MODEL = """
select mempair.create_model('homes', 'homes', '{}', '{{rooms,age,area,Größe}}', gamma => 10, calibration_rows => 300{})
"""
KINDS = ["", ", curves => 3", ", unlearner => 'passive', lambda => 0.01"]


@pytest.fixture
def homes(database: str) -> Iterator[World]:
    with opened(database) as world:
        world(TABLE)
        yield world


def create(world: World, target: str, more: str = "") -> None:
    world(MODEL.format(target, more))
    world.work()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["sold", "price"])
def test_contributions_add_up_to_the_score(homes: World, kind: str, target: str) -> None:
    create(homes, target, kind)
    homes("insert into homes values (5000, 'Infinity', -100, 'never seen', null), (5001, 'NaN', null, null, 1e308)")
    for number in (1, 2, 9, 5000, 5001):
        rows = homes.sql.execute(
            "select e.* from homes h, mempair.explain('homes', h) e where h.id = %s", [number]
        ).fetchall()
        assert [row[0] for row in rows] == ["intercept", "rooms", "age", "Größe", "area"]
        served = homes.one("select mempair_predict('homes', h) from homes h where id = %s", number)
        score = sum(row[2] for row in rows)
        said = 1.0 / (1.0 + math.exp(-score)) if target == "sold" else score
        assert said == pytest.approx(served, rel=1e-9, abs=1e-9)
    assert (
        homes.one("select value from homes h, mempair.explain('homes', h) e where h.id = 2 and feature = 'age'") == "2"
    )


def test_only_rows_of_the_table_are_explained(homes: World) -> None:
    create(homes, "sold")
    with pytest.raises(psycopg.Error, match=r"reads rows of public\.homes, not of") as refusal:
        homes.sql.execute("select * from mempair.explain('homes', row(1, 2))")
    assert refusal.value.sqlstate == "MP104"


@pytest.mark.parametrize("kind", ["", ", curves => 3"])
def test_a_prediction_can_be_computed_by_hand_from_the_coefficients(homes: World, kind: str) -> None:
    create(homes, "price", kind)
    found: dict[Any, Any] = {}
    for feature, what, level, weight, lowest, highest in homes.sql.execute(
        "select feature, kind, level, weight, lowest, highest from mempair.coefficients('homes')"
    ):
        found.setdefault((feature, what), []).append((level, weight, lowest, highest))
    for number in (1, 9, 700):
        rooms, age, area, size = homes.one('select rooms, age, area, "Größe" from homes where id = %s', number)
        score = found[None, "intercept"][0][1]
        for name, x in (("rooms", rooms), ("age", age), ("Größe", size)):
            [(_, weight, lowest, highest)] = found[name, "number"]
            if x is None:
                score += found[name, "missing"][0][1]
                continue
            assert lowest < x < highest
            centre = (lowest + highest) / 2
            score += weight * (x - centre)
            score += sum(w * max(x - float(at), 0.0) for at, w, _, _ in found.get((name, "knot"), []))
        levels = {level: weight for level, weight, _, _ in found["area", "level"]}
        assert set(levels) == {"north", "south", "it's"}
        score += levels[area] if area is not None else found["area", "missing"][0][1]
        served = homes.one("select mempair_predict('homes', h) from homes h where id = %s", number)
        assert score == pytest.approx(served, abs=0.05)  # a served number is quantised


INTERVALS = """
select coalesce(feature, ''), kind, coalesce(level, ''), weight, standard_error, lower_95, upper_95
from mempair.coefficients('homes')
"""


@pytest.mark.parametrize("kind", [", curves => 0", ", curves => 3"])
@pytest.mark.parametrize("target", ["sold", "price"])
def test_every_coefficient_has_an_interval_that_follows_from_the_sums(homes: World, kind: str, target: str) -> None:
    create(homes, target, kind)
    for *_, error, low, high in homes.execute(INTERVALS):
        assert high - low == pytest.approx(2 * 1.959964 * error)
        assert error >= 0
    found = {row[:3]: row[3:] for row in homes.execute(INTERVALS)}
    if target == "price" and "0" in kind:  # 10 for a room, up to what is quantised; age tells nothing
        assert found["rooms", "number", ""][2] < 10 < found["rooms", "number", ""][3]
        assert found["age", "number", ""][2] < 0 < found["age", "number", ""][3]
    before = homes.execute(INTERVALS)
    homes("delete from homes where id between 100 and 160")
    homes.work()
    after = homes.execute(INTERVALS)
    assert after != before
    homes("select mempair.retrain('homes')")
    homes.work()
    assert verify(homes.dsn, 1).fine
    homes("update mempair.state set uncertainty[2][1] = uncertainty[2][1] * 1.5")
    assert "follow from the state: uncertainty" in str(verify(homes.dsn, 1).checks)


@pytest.mark.parametrize("kind", [", unlearner => 'passive', lambda => 0.01", ", loss => 'huber'"])
def test_what_has_no_standard_error_says_none(homes: World, kind: str) -> None:
    create(homes, "price", kind)
    assert {row[4:] for row in homes.execute(INTERVALS)} == {(None, None, None)}
    homes("select mempair.alter_model('homes', unlearner => 'exact')")
    homes.work()
    assert all(row[4] is not None for row in homes.execute(INTERVALS)) == ("passive" in kind)


def test_a_classifier_is_judged_as_by_scikit_learn(homes: World) -> None:
    create(homes, "sold")
    homes("insert into homes (id, rooms) values (7000, 1)")  # unlabelled: it does not count
    for condition in (None, "id % 3 = 0 -- every third"):
        where = "true" if condition is None else "id % 3 = 0"
        rows = homes.sql.execute(
            f"select sold, mempair_predict('homes', h) from homes h where sold is not null and {where}"
        ).fetchall()
        y, p = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
        figures = homes.one(
            "select rows, unpredicted, log_loss, base_log_loss, accuracy, auc, brier"
            " from mempair.evaluate('homes', %s)",
            condition,
        )
        base = np.full(len(y), y.mean())
        assert figures == pytest.approx(
            (
                len(y),
                0,
                metrics.log_loss(y, p),
                metrics.log_loss(y, base),
                ((p >= 0.5) == y).mean(),
                metrics.roc_auc_score(y, p),
                metrics.brier_score_loss(y, p),
            )
        )
    calibration = homes.one("select calibration from mempair.evaluate('homes')")
    assert sum(decile["rows"] for decile in calibration) == 1200
    assert calibration[0]["observed"] < calibration[9]["observed"]


def test_rows_that_are_not_learned_or_not_labelled_are_judged_by_themselves(homes: World) -> None:
    create(homes, "sold")
    homes("insert into homes (id, rooms, age) select i, 1, 1 from generate_series(7001, 7020) i")
    homes.work()
    homes("insert into homes select i, 1, 1, 'north', 1, i % 2 = 0 from generate_series(8001, 8010) i")
    assert homes.one("select rows from mempair.evaluate('homes')") == 1210
    rows, loss, confusion = homes.one(
        "select rows, log_loss, confusion from mempair.evaluate('homes', which => 'unlearned')"
    )
    assert rows == 10
    assert loss > 0
    assert sorted((cell["actual"], cell["rows"]) for cell in confusion) == [(False, 5), (True, 5)]
    rows, loss, calibration = homes.one(
        "select rows, log_loss, calibration from mempair.evaluate('homes', which => 'unlabelled')"
    )
    assert (rows, loss) == (20, None)
    assert sum(decile["rows"] for decile in calibration) == 20
    assert homes.one("select rows from mempair.evaluate('homes', 'id < 8006', 'unlearned')") == 5
    with pytest.raises(psycopg.Error, match="parameter which cannot be 'some'"):
        homes.sql.execute("select * from mempair.evaluate('homes', which => 'some')")


def test_ties_count_half_and_one_class_has_no_auc(homes: World) -> None:
    create(homes, "sold", ", curves => 0")
    # With one weight left many rows have the same score.
    homes("update mempair.published set weights = '{0,0,0}', missing_weights = '{0,0,0}'")
    rows = homes.sql.execute("select sold, mempair_predict('homes', h) from homes h").fetchall()
    assert len({row[1] for row in rows}) <= 5
    expected = metrics.roc_auc_score([row[0] for row in rows], [row[1] for row in rows])
    assert homes.one("select auc from mempair.evaluate('homes')") == pytest.approx(expected)
    assert homes.one("select auc, base_log_loss from mempair.evaluate('homes', 'sold')") == (None, 0)
    assert homes.one("select rows, log_loss from mempair.evaluate('homes', 'false')") == (0, None)


def test_a_regression_is_judged_as_by_scikit_learn(homes: World) -> None:
    create(homes, "price", ", on_null => 'skip'")
    rows = homes.sql.execute("select price, mempair_try_predict('homes', h) from homes h").fetchall()
    y, p = np.array([row for row in rows if row[1] is not None]).T
    figures = homes.one("select rows, unpredicted, r2, mae, rmse from mempair.evaluate('homes')")
    assert figures == pytest.approx(
        (
            len(y),
            len(rows) - len(y),
            metrics.r2_score(y, p),
            metrics.mean_absolute_error(y, p),
            math.sqrt(((y - p) ** 2).mean()),
        )
    )
    assert figures[2] > 0.9


def test_whoever_judges_a_model_does_so_with_his_own_rights(homes: World, superuser: Any) -> None:
    create(homes, "sold")
    with psycopg.connect(superuser(homes.dsn), autocommit=True) as session:
        session.execute("create role judge_of_homes")
        try:
            session.execute("grant usage on schema mempair to judge_of_homes")
            session.execute("grant execute on function mempair.evaluate(text, text, text) to judge_of_homes")
            session.execute("set role judge_of_homes")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("select * from mempair.evaluate('homes', 'true')")
        finally:
            session.execute("reset role")
            session.execute("drop owned by judge_of_homes; drop role judge_of_homes")


def test_targets_as_large_as_a_double_can_be_judged(world: World) -> None:
    world(
        "create table t (id integer primary key, x float8, y float8)",
        "insert into t select i, i % 7, i % 7 * 1e140 from generate_series(1, 400) i",
        "insert into t select i, i % 7, 1.7e308 * (-1) ^ i from generate_series(401, 500) i",
    )
    for name in ("m", "n"):
        world(f"select mempair.create_model('{name}', 't', target => 'y', features => 'x')")
    world.work()
    rows, deciles = world.execute("select rows, calibration from mempair.evaluate('m')")[0]
    assert rows == 500
    assert len(deciles) == 10
    assert world.one("select r2 from mempair.evaluate('m', 'id <= 400')") > 0.9
    assert world.one("select first_loss from mempair.compare('m', 'n', 'id <= 400')") < 1e140
