"""`mempair.verify_model`: the same sums in SQL as in numpy, and the frauds it sees without any Python."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pytest

from mempair_db.database import models
from mempair_db.database.connect import connect
from mempair_db.offline.export import export
from mempair_db.pair import exact
from mempair_db.worker import batch
from tests.conftest import Run
from tests.world import SHOP, World

RANDOM = "create table t (id integer primary key, a float8, b float8, c text, d text, y float8, label boolean)"
DECLARED: dict[str, str] = {
    "logistic": "target => 'label'",
    "logistic without missing rows": "target => 'label', on_null => 'skip'",
    "curves": "target => 'label', curves => 4",
    "a small ridge": "target => 'label', ridge => 0.5",
    "squared": "target => 'y', loss => 'squared'",
    "squared with curves": "target => 'y', loss => 'squared', curves => 3",
    "huber": "target => 'y', loss => 'huber'",
}


def fill(world: World, first: int, last: int, seed: int) -> None:
    """Rows with everything that is odd: NULL, NaN, infinities, huge and tiny numbers, levels nobody knows, quotes."""
    rng = np.random.default_rng(seed)
    odd: list[Any] = [None, float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 1e-300, 0.0]
    levels = ["basic", "pro's", 'g"old', "", None, "ä ö", "[1]"]
    with world.sql.cursor().copy("copy t from stdin") as copy:
        for number in range(first, last):
            a, b = (
                odd[rng.integers(len(odd))] if rng.random() < 0.05 else float(rng.normal() * 10.0**scale)
                for scale in (0, 3)
            )
            c = levels[rng.integers(len(levels))]
            d = f"level {int(rng.exponential(8))}"
            y = float(rng.normal() + (b if b is not None and abs(b) < 1e6 else 0.0) / 1000)
            copy.write_row((number, a, b, c, d, y, bool(y > 0)))


def computed(world: World) -> tuple[list[int], list[int]]:
    """The sums in SQL, and those that the worker stored."""
    in_sql = world.one("select mempair.computed_sums(this) from mempair.model this")
    with connect(world.dsn) as connection:
        batch.prepare(connection)
        model = models.look(connection, 1)
        assert model is not None
        assert model.exact.sums is not None
        stored = np.frombuffer(model.exact.sums.to_bytes(), "<i8").tolist()
    return in_sql, stored


def found(world: World) -> dict[str, tuple[bool | None, str]]:
    rows = world.sql.execute("select * from mempair.verify_model('m')").fetchall()
    return {check: (fine, detail) for check, fine, detail in rows}


@pytest.mark.parametrize("options", DECLARED.values(), ids=DECLARED)
def test_sql_and_numpy_give_the_same_sums(world: World, options: str) -> None:
    world(RANDOM)
    fill(world, 0, 600, seed=1)
    world(
        "select mempair.create_model('m', 't', features => array['a', 'b', 'c', 'd'], calibration_rows => 300,"
        f" gamma => 10, {options})"
    )
    world.work()
    fill(world, 600, 800, seed=2)
    world("delete from t where id % 7 = 0")
    world.work()
    in_sql, stored = computed(world)
    assert len(in_sql) > 200
    assert in_sql == stored
    fill(world, 800, 900, seed=3)
    world("update t set a = a + 1 where id % 11 = 0 and a < 1e9", "delete from t where id % 13 = 0")
    assert computed(world)[0] == stored  # with what waits taken back
    verdicts = found(world)
    assert [check for check, (fine, _) in verdicts.items() if fine is False] == []
    assert verdicts["sums"][0] is True
    assert verdicts["served"][0] is True
    assert verdicts["learned"][0] is True
    assert verdicts["constants"][0] is None  # reference rows are on their way out
    world.work()
    assert found(world)["constants"][0] is True, found(world)["constants"]


NEARLY_ONE = "create table t (id integer primary key, a bigint, b float8, label boolean)"


def fill_nearly_one(world: World) -> None:
    """Two columns whose numbers differ by less than a double of their size tells, or by 1e180."""
    world(NEARLY_ONE)
    world(
        "insert into t select i, 9223372036854775807 - i * 7, case when i % 10 = 0 then 1e200 else 1e20 end, i % 3 = 0"
        " from generate_series(1, 2000) i"
    )
    world("select mempair.create_model('m', 't', features => array['a', 'b'], target => 'label')")
    world.work()


def test_numbers_that_a_double_hardly_tells_apart_are_the_same_in_sql(world: World) -> None:
    fill_nearly_one(world)
    in_sql, stored = computed(world)
    assert in_sql == stored
    assert {fine for fine, _ in found(world).values()} == {True}
    exact_ones = "select mempair.quantise(x, 1e20, 1) from unnest(array[1e20, 1e200, -1e200, 'Infinity', 1.7e308]) x"
    assert [q for (q,) in world.sql.execute(exact_ones).fetchall()] == [0, 4096, -4096, 4096, 4096]


@pytest.mark.parametrize("unit", ["1e-300", "1e-100", "1e100", "1e147"])
def test_a_target_of_any_unit_can_be_judged(world: World, unit: str) -> None:
    world(
        "create table t (id integer primary key, a float8, y float8)",
        f"insert into t select i, i, (i % 7 + i) * {unit} from generate_series(1, 800) i",
        "select mempair.create_model('m', 't', features => array['a'], target => 'y', loss => 'squared')",
    )
    world.work()
    rows, r2, mae, rmse = world.sql.execute("select rows, r2, mae, rmse from mempair.evaluate('m')").fetchall()[0]
    assert rows == 800
    assert {fine for fine, _ in found(world).values()} == {True}
    if unit != "1e-300":  # a deviation below 1e-150 tells nothing
        assert r2 > 0.99
        assert 0 < mae / float(unit) <= rmse / float(unit) < 10


def test_targets_that_have_no_square_are_refused_and_named(world: World) -> None:
    world(
        "create table t (id integer primary key, a float8, y float8)",
        "insert into t select i, i, case when i <= 30 then 1e300 else i end from generate_series(1, 800) i",
        "select mempair.create_model('m', 't', features => array['a'], target => 'y', loss => 'squared')",
    )
    world.work()
    assert world.one("select distinct reason from mempair.errors") == "target beyond 1e+150"
    assert world.one("select rows_refused from mempair.model_status") == 30
    assert {fine for fine, _ in found(world).values()} == {True}
    world("delete from t where id <= 15", "insert into t values (801, 5, -1e200)")
    world.work()
    assert world.one("select rows_refused from mempair.model_status") == 16
    assert {fine for fine, _ in found(world).values()} == {True}


def test_targets_beyond_the_clamp_are_counted_in_sql_and_in_duckdb(world: World, tmp_path: Path) -> None:
    world(
        "create table t (id integer primary key, a float8, y float8)",
        "insert into t select i, sin(i), cos(i) from generate_series(1, 2000) i",
        "select mempair.create_model('m', 't', features => array['a'], target => 'y')",
    )
    world.work()
    world("insert into t select i, sin(i), cos(i) * 1e6 from generate_series(2001, 2100) i")  # too few for a refresh
    world.work()
    in_sql, stored = computed(world)
    assert in_sql == stored
    assert stored[1] == 100
    export(world.dsn, tmp_path / "e", rows=True)
    with duckdb.connect(str(tmp_path / "e" / "mempair.duckdb")) as duck:
        assert duck.execute("select distinct fine from verification").fetchall() == [(True,)]


@pytest.fixture
def honest(world: World) -> World:
    world(RANDOM)
    fill(world, 0, 800, seed=4)
    world("select mempair.create_model('m', 't', features => array['a', 'b', 'c'], target => 'label', gamma => 10)")
    world.work()
    return world


def test_a_row_that_escaped_is_in_the_difference(honest: World) -> None:
    honest("alter table t disable trigger user", "update t set b = b + 500 where id = 10 and b < 1e6")
    honest("update t set b = 77 where id = 11", "alter table t enable trigger user")
    fine, detail = found(honest)["sums"]
    assert fine is False
    assert "g[b]" in detail


PLANTED = {
    "{encoding,numbers,0,0}": ("0.75", "centre or scale of a"),
    "{encoding,numbers,1,1}": ("4096", "centre or scale of b"),
    "{encoding,numbers,1,3}": ("false", "whether b can be missing"),
    "{encoding,numbers,0,2}": ("[128]", "the knots of a"),
    "{encoding,texts,0,0,0}": ('"somebody"', "the levels of c"),
    "{encoding,target,0}": ("47.5", "centre or scale of the target"),
    "{outside}": ("77", "the shares of odd rows"),
    "{w0,0,1}": ("-3", "1 of "),
    "{h}": ("7", "the grid of the reference weights"),
    "{note}": ("[47.5]", "something lies among them that is no constant"),
}


def test_planted_constants_are_seen_in_sql(world: World) -> None:
    world(RANDOM)
    fill(world, 0, 500, seed=4)
    world(
        "select mempair.create_model('m', 't', features => array['a', 'b', 'c'], target => 'label', gamma => 10,"
        " curves => 2, ridge => 0.5)"
    )
    world.work()
    assert found(world)["constants"][0] is True
    # Near the mean, where a deleted person's value would hide, but not on the grid
    centre, scale = world.one("select constants #> '{encoding,numbers,1}' from mempair.model")[:2]
    plants = [*PLANTED.items(), ("{encoding,numbers,1,0}", (str(centre + scale / 100), "centre or scale of b"))]
    for path, (value, what) in plants:
        with world.sql.transaction(force_rollback=True):
            world.sql.execute(
                "update mempair.model set constants = jsonb_set(constants, %s::text[], %s::jsonb)", [path, value]
            )
            ((fine, detail),) = world.execute("select c.* from mempair.model this, mempair.verify_constants(this) c")
        assert (fine, what in detail) == (False, True), (path, detail)


@pytest.mark.parametrize("options", ["target => 'd'", "target => 'label', weight => 'w', class_weight => 'balanced'"])
def test_of_classes_and_weights_the_encoding_is_chosen_again_and_the_rest_is_named(world: World, options: str) -> None:
    world(RANDOM)
    fill(world, 0, 400, seed=4)
    world("alter table t add w float8", "update t set w = 1 + id % 3, d = chr(97 + id % 3)")
    world(f"select mempair.create_model('m', 't', features => array['a', 'b', 'c'], gamma => 10, {options})")
    world.work()
    fine, detail = found(world)["constants"]
    assert fine is True
    assert "NOT chosen again in SQL" in detail
    assert '"mempair verify" does' in detail
    world("update mempair.model set constants = jsonb_set(constants, '{encoding,numbers,0,0}', '0.77')")
    fine, detail = found(world)["constants"]
    assert (fine, "centre or scale of a" in detail) == (False, True)


def test_weights_that_do_not_solve_the_equation_are_seen_without_a_solver(honest: World) -> None:
    honest("update mempair.published set weights = (select array_agg(-w) from unnest(weights) w)")
    verdicts = found(honest)
    assert verdicts["sums"][0] is True
    assert verdicts["served"][0] is False


@pytest.mark.parametrize(
    "fraud",
    [
        "centers[1] = centers[1] + 1",
        "scales[1] = scales[1] * 2",
        "knots[1] = knots[1] - 128",
        "missing_weights[1] = missing_weights[1] + 0.01",
        "places = jsonb_set(places, '{0,levels,planted}', '1')",
        "places = jsonb_set(places, '{0,other}', '1')",
        "places = jsonb_set(places, array['0', 'null'], '1')",
        "link = 'identity'",
        "link = 'classes'",
        "samples = samples + 1",
        "version = version + 1",
    ],
)
@pytest.mark.parametrize("nulls", [False, True])
def test_where_predictions_look_for_a_weight_follows_from_the_constants(world: World, nulls: bool, fraud: str) -> None:
    world(RANDOM)
    fill(world, 0, 300, seed=1)
    world(
        f"update t set a = {'case when id % 9 > 0 then sin(id) end' if nulls else 'sin(id)'}",
        "select mempair.create_model('m', 't', features => array['a', 'c'], target => 'label', gamma => 10)",
    )
    world.work()
    assert found(world)["served"][0] is True
    world(f"update mempair.published set {fraud}")
    assert found(world)["served"][0] is False


@pytest.mark.parametrize(
    "fraud",
    [
        "update mempair.published_class set class = case class when 'a' then 'b' when 'b' then 'a' else class end",
        "update mempair.published_class set class = 'somebody' where place = 2",
        "delete from mempair.published_class where place = 3",
    ],
)
def test_the_classes_that_are_served_are_those_of_the_constants(
    world: World, mempair: Run, tmp_path: Path, fraud: str
) -> None:
    world(RANDOM)
    fill(world, 0, 300, seed=1)
    world(
        "update t set d = chr(97 + id % 3)",
        "select mempair.create_model('m', 't', features => array['a', 'c'], target => 'd', gamma => 10)",
    )
    world.work()
    world.work()
    assert found(world)["served"][0] is True
    assert mempair("audit", "m", "--dsn", world.dsn)[0] == 0
    world(fraud)
    assert found(world)["served"][0] is False
    code, out, _ = mempair("audit", "m", "--dsn", world.dsn)
    assert (code, "classes" in out) == (5, True)


@pytest.mark.parametrize("labels", [["a", "b", "somebody"], ["b", "a", "c"]])
def test_a_class_that_no_row_has_is_no_constant(world: World, tmp_path: Path, labels: list[str]) -> None:
    world(RANDOM)
    fill(world, 0, 300, seed=1)
    world(
        "update t set d = chr(97 + id % 3)",
        "select mempair.create_model('m', 't', features => array['a', 'c'], target => 'd', gamma => 10)",
    )
    world.work()
    assert found(world)["constants"][0] is True
    world.sql.execute(
        "update mempair.model set constants = constants || jsonb_build_object('labels', %s::text[])", [labels]
    )
    sums = world.one("select mempair.computed_sums(this) from mempair.model this")
    world.sql.execute("update mempair.state set sums = %s", [np.array(sums, "<i8").tobytes()])
    assert found(world)["sums"][0] is True
    fine, detail = found(world)["constants"]
    assert (fine, "the classes" in detail) == (False, True)
    export(world.dsn, tmp_path / "e", rows=True)
    with duckdb.connect(str(tmp_path / "e" / "mempair.duckdb")) as duck:
        ((fine, detail),) = duck.execute("select fine, detail from verification where checked = 'constants'").fetchall()
    assert (fine, "classes have fewer than 5 rows, or are not in order" in detail) == (False, True)


def test_levels_that_were_declared_are_those_of_the_constants(world: World) -> None:
    world(RANDOM)
    fill(world, 0, 300, seed=1)
    world(
        "select mempair.create_model('m', 't', features => array['a', 'c'], target => 'label', gamma => 10,"
        """ categories => '{"c": ["ä ö", "basic", "nobody"]}')"""
    )
    world.work()
    assert found(world)["constants"][0] is True
    world("update mempair.model set constants = jsonb_set(constants, '{encoding,texts,0,0,1}', '\"somebody\"')")
    assert "the levels of c" in found(world)["constants"][1]


def test_what_two_models_of_a_table_serve_cannot_be_exchanged(honest: World) -> None:
    honest("select mempair.create_model('other', 't', features => array['a', 'b', 'c'], target => 'y', gamma => 10)")
    honest.work()
    honest(
        "create temporary table swapped as select * from mempair.published",
        "update swapped set model_id = 3 - model_id",
        "delete from mempair.published",
        "insert into mempair.published select * from swapped",
    )
    assert found(honest)["served"][0] is False


def test_more_sums_than_a_select_can_have_columns_come_in_parts(world: World) -> None:
    world("create table wide (id integer primary key, c text, d text, label boolean)")
    world(
        "insert into wide select i, 'c' || i % 50, 'd' || i % 31, i % 3 = 0 from generate_series(1, 1500) i",
        "select mempair.create_model('m', 'wide', features => array['c', 'd'], target => 'label', gamma => 10)",
    )
    world.work()
    in_sql, stored = computed(world)
    assert len(in_sql) > 3200
    assert in_sql == stored


def test_a_certified_model_is_refused_with_a_hint(world: World) -> None:
    options = "features => array['age'], unlearner => 'passive', calibration_rows => 100"
    world(SHOP, f"select mempair.create_model('m', 'shop', target => 'churned', {options})")
    for learned in (False, True):
        if learned:
            world.fill(1, 300)
            world.work()
        with pytest.raises(psycopg.DatabaseError, match="model 'm' is certified, not exact") as refused:
            found(world)
        assert "mempair audit" in str(refused.value.diag.message_hint)


def test_a_model_without_constants_is_refused_with_the_reason(world: World) -> None:
    world(SHOP, "select mempair.create_model('m', 'shop', target => 'churned', features => array['age'])")
    refuse_what_is_not_there_yet(world)
    world.fill(1, 300)
    world.work()
    assert all(fine for fine, _ in found(world).values())
    world("truncate shop")
    world.work()
    refuse_what_is_not_there_yet(world)


def refuse_what_is_not_there_yet(world: World) -> None:
    with pytest.raises(psycopg.DatabaseError, match="model 'm' has learned nothing yet") as refused:
        found(world)
    assert "once 100 rows with a target are there and a worker runs" in str(refused.value.diag.message_hint)


def test_a_step_that_was_cut_is_the_solution_too_and_a_shortened_one_is_not(world: World) -> None:
    # Given a model that was sure of a no, and a few yeses since
    world("create table t (id integer primary key, a float8, label boolean)")
    world("insert into t select i, sin(i), i = 7 from generate_series(1, 3000) i")
    world("select mempair.create_model('m', 't', target => 'label', features => array['a'])")
    world.work()
    world("insert into t select i, 1.5 + sin(i) / 10, i % 10 = 0 from generate_series(3001, 3050) i")
    world.work()
    with connect(world.dsn) as connection:
        batch.prepare(connection)
        model = models.look(connection, 1)
        assert model is not None
        engine = model.exact
        assert engine.reference is not None
        assert engine.sums is not None
    # Then the step was cut, and SQL knows it for the solution
    full = exact.solve(engine.reference, engine.sums, engine.terms["ridge"], reach=np.inf)
    assert exact.moved(engine.reference, engine.sums, full)[0] > 1.0
    assert found(world)["served"][0] is True
    # And a liar who makes the step shorter still is found
    world("update mempair.published set weights = array(select w * 0.9 from unnest(weights) w) where model_id = 1")
    assert found(world)["served"][0] is False


def test_texts_of_many_levels_share_the_width_and_the_constants_are_found_again(world: World) -> None:
    names = [f"t{i}" for i in range(8)]
    world(f"create table t (id integer primary key, {', '.join(f'{name} text' for name in names)}, label boolean)")
    world(
        f"insert into t select i, {', '.join(f'(i % {150 + i})::text' for i in range(8))}, i % 2 = 0"
        " from generate_series(1, 1600) i",
        f"select mempair.create_model('m', 't', target => 'label', features => array{names}, gamma => 10)",
    )
    world.work()
    texts = "jsonb_array_elements(constants #> '{encoding,texts}')"
    kept = world.execute(f"select jsonb_array_length(t -> 0) from mempair.model, {texts} t")
    assert kept == [(75,)] * 8  # 300 and 150 of each would be too wide
    assert world.one("select mempair.wrong_encoding(this) from mempair.model this") is None


@pytest.mark.parametrize("loss", [None, "squared", "huber"])
def test_an_eased_ridge_is_the_same_in_sql_and_in_duckdb(
    world: World, tmp_path: Path, mempair: Run, loss: str | None
) -> None:
    world(
        "create table t (id integer primary key, a float8, c text, label boolean, value float8)",
        "insert into t select i, sin(i), 'kind ' || i * i % 37, (i * i % 37) % 2 = 0, i * i % 37 + sin(i) "
        "from generate_series(1, 2000) i",
    )
    world.execute(
        "select mempair.create_model('m', 't', target => %s, features => array['a', 'c'], loss => %s)",
        "value" if loss else "label",
        loss,
    )
    world.work()
    assert world.one("select (constants ->> 'eased')::boolean from mempair.model") is True
    assert {fine for fine, _ in found(world).values()} == {True}
    assert "NOT judged again in SQL" in found(world)["constants"][1]
    assert mempair("verify", "m", "--dsn", world.dsn)[0] == 0
    export(world.dsn, tmp_path / "e", rows=True)
    with duckdb.connect(str(tmp_path / "e" / "mempair.duckdb")) as duck:
        assert duck.execute("select distinct fine from verification").fetchall() == [(True,)]
    world("delete from t where id % 10 = 0")
    world.work()
    assert {fine for fine, _ in found(world).values()} == {True}
    with world.sql.transaction(force_rollback=True):  # what was solved with a tenth of the ridge was not with the whole
        world("update mempair.model set constants = constants - 'eased'")
        wrong = [check for check, (fine, _) in found(world).items() if fine is False]
        assert wrong == (["served"] if loss == "squared" else ["served", "constants"])  # which has no reference weights


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_numbers_that_are_clamped_farther_out_are_the_same_in_sql_and_in_duckdb(
    world: World, tmp_path: Path, mempair: Run, loss: str
) -> None:
    world(
        "create table t (id integer primary key, a float8, b float8, c text, value float8)",
        "insert into t select i, exp(3 * sin(i) * cos(i * i % 101)) * case when i % 50 = 0 then 9 else 1 end, "
        "case when i % 9 > 0 then i * 7919 % 100 end, 'c' || i % 3, "
        "0 from generate_series(1, 2000) i",
        "update t set value = a + sin(id * 7)",
    )
    world.execute(
        "select mempair.create_model('m', 't', target => 'value', features => array['a', 'b', 'c'], loss => %s)", loss
    )
    world.work()
    assert world.one("select (constants ->> 'wide')::boolean from mempair.model") is True
    assert world.one("select max(abs(mempair_predict('m', t) - value)) from t") < 20
    assert {fine for fine, _ in found(world).values()} == {True}
    assert "how far out numbers are clamped" in found(world)["constants"][1]
    assert mempair("verify", "m", "--dsn", world.dsn)[0] == 0
    export(world.dsn, tmp_path / "e", rows=True)
    with duckdb.connect(str(tmp_path / "e" / "mempair.duckdb")) as duck:
        assert duck.execute("select distinct fine from verification").fetchall() == [(True,)]
    world("delete from t where id % 7 = 0")
    world.work()
    assert {fine for fine, _ in found(world).values()} == {True}
    with world.sql.transaction(force_rollback=True):  # scales that are four times too large
        world("update mempair.model set constants = constants - 'wide'")
        assert found(world)["constants"] == (False, "do not follow from the 1715 reference rows: centre or scale of a")


def test_a_wide_model_is_verified_in_duckdb_by_a_short_script(world: World, tmp_path: Path) -> None:
    """Each of the 34,000 sums of 256 buckets was an expression of its own, which took DuckDB 2 GB to read."""
    world(
        "create table t (id integer primary key, city text, kind text, label boolean)",
        "insert into t select i, md5((i % 700)::text), 'kind ' || i % 3, i % 7 < 3 from generate_series(1, 3000) i",
        "select mempair.create_model('two', 't', target => 'label', features => 'city:hash:256')",
        "select mempair.create_model('three', 't', target => 'kind', features => 'city:hash:90')",
    )
    world.work()
    export(world.dsn, tmp_path / "e", rows=True)
    assert (tmp_path / "e" / "verify.sql").stat().st_size < 500_000
    with duckdb.connect(str(tmp_path / "e" / "mempair.duckdb")) as duck:
        assert duck.execute("select distinct fine from verification").fetchall() == [(True,)]
        sums = duck.execute("select max(place) from sums group by model_id order by 1").fetchall()
    assert all(count > 30_000 for (count,) in sums)


def test_who_verifies_a_wide_model_in_sql_is_told_how_long_it_takes_and_what_is_faster(world: World) -> None:
    world(
        "create table t (id integer primary key, city text, label boolean)",
        "insert into t select i, md5((i % 700)::text), i % 7 < 3 from generate_series(1, 200) i",
        "select mempair.create_model('wide', 't', target => 'label', features => 'city:hash:256')",
        "select mempair.create_model('narrow', 't', target => 'label', features => 'city')",
    )
    world.work()
    said: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        said.append(f"{notice.message_primary} {notice.message_hint}")
        world.sql.cancel()  # what it takes is not the question

    world.sql.add_notice_handler(listen)
    world("select * from mempair.verify_model('narrow')")
    assert said == []
    for rows in (200, 5_000, 100_000, 1_000_000):
        world(f"update mempair.state set rows_learned = {rows}")
        with contextlib.suppress(psycopg.errors.QueryCanceled):
            world("select * from mempair.verify_model('wide')")
    told = [re.search("takes about (.*) The same check.*: mempair verify wide$", one) for one in said]
    assert [found and found[1] for found in told] == ["a minute", "19 minutes", "3 hours"]


def test_points_in_time_that_do_not_bend_are_seen_in_sql_and_in_duckdb(
    world: World, tmp_path: Path, mempair: Run
) -> None:
    world(
        "create domain birthday as date",
        "create table t (id integer primary key, a float8, at timestamptz, born birthday, noon time, label boolean)",
        "insert into t select i, sin(i), timestamptz '2026-01-01Z' + i * interval '7 minutes',"
        " date '1950-01-01' + i * 7,"
        " time '00:00' + i % 97 * interval '9 minutes', i * 7919 % 500 < 100 + i * 0.6 from generate_series(1, 500) i",
        "select mempair.create_model('m', 't', target => 'label',"
        " features => array['a', 'noon', 'born', 'at:cyclical'])",
    )
    world.work()
    names, times, numbers = world.one(
        "select numeric_features, times, constants #> '{encoding,numbers}' from mempair.model"
    )
    bends = {name: len(number[2]) for name, number in zip(names, numbers, strict=True)}
    assert times == [1 + names.index("born"), 1 + names.index("at:cyclical")] == [3, 4]
    assert (bends["a"], bends["noon"], bends["born"], bends["at:cyclical"]) == (4, 4, 0, 0)
    assert {verdict for verdict, _ in found(world).values()} == {True}, found(world)
    assert mempair("verify", "m", "--dsn", world.dsn)[0] == 0
    world.check_exact()
    honest = world.one("select promise::text from mempair.model")
    assert "whether points in time bend" in found(world)["constants"][1]
    # Who says that they are not points in time has other constants.
    for number, (said, wrong) in enumerate({"[3, 4]": None, "[]": "born"}.items()):
        world("update mempair.model set promise = jsonb_set(promise, '{times}', '" + said + "')")
        good, detail = found(world)["constants"]
        assert (good, f"the knots of {wrong}" in detail) == (wrong is None, wrong is not None), detail
        export(world.dsn, tmp_path / str(number), rows=True)
        with duckdb.connect(str(tmp_path / str(number) / "mempair.duckdb"), read_only=True) as duck:
            ((good, detail),) = duck.execute(
                "select fine, detail from verification where checked = 'constants'"
            ).fetchall()
        assert (good, f'a knot of "{wrong}"' in detail) == (wrong is None, wrong is not None), detail
    world.sql.execute("update mempair.model set promise = %s", [honest])
    world("delete from t where id % 7 = 0", "update t set at = at + interval '1 year', born = null where id % 11 = 0")
    world.work()
    world.check_exact()
    assert {verdict for verdict, _ in found(world).values()} == {True}
    assert world.one("select count(*) from t where mempair_predict('m', t) is null") == 0
