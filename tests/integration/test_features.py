"""Features that are more than a column, and weights: learned, forgotten and verified like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import numpy as np
import psycopg
import pytest
from sklearn.linear_model import LinearRegression

from mempair_db.database import models
from mempair_db.database.connect import connect
from mempair_db.offline.export import export
from mempair_db.pair import exact
from mempair_db.verify.checks import verify
from mempair_db.worker import batch, reference
from tests.conftest import Run
from tests.world import EVERY_ROW, World, opened

TABLE = """
create table visits (id integer primary key, at timestamptz, day date, city text, plan text, region text, age integer,
                     spend float8, small real[], big float8[], heavy numeric, back boolean);
insert into visits
select i, timestamptz '2026-01-01 00:00Z' + i * interval '5 hours', date '2026-01-01' + i, 'city ' || i * 7919 % 400,
       (array['basic', 'pro'])[1 + i % 2], (array['north', 'south', null])[1 + i % 3], 20 + i * 31 % 50,
       i * 104729 % 1000 / 7.0, array[i % 5, -i % 7, 0.5]::real[], array[i % 11, null], 0.25 + i % 4,
       i * 7919 % 10 + i % 2 * 4 > 7
from generate_series(1, 400) i;
"""
FEATURES = """array['at:cyclical', 'day', 'city:hash:16', 'plan * region', 'age * spend', 'small', 'big:2']"""
CREATE = f"""
select mempair.create_model('back', 'visits', target => 'back', features => {FEATURES}, gamma => 10, weight => 'heavy')
"""


@pytest.fixture
def visits(world: World) -> World:
    world(TABLE, CREATE)
    world.work()
    return world


def verified(world: World, tmp_path: Path | None = None) -> None:
    report = verify(world.dsn, 1)
    assert report.fine, report
    checks = world.execute("select \"check\", fine, detail from mempair.verify_model('back')")
    assert all(fine is not False for _, fine, _ in checks), checks
    if tmp_path is not None:
        export(world.dsn, tmp_path / "export", rows=True)
        with duckdb.connect() as duck:
            duck.execute(f"set file_search_path = '{tmp_path / 'export'}'")
            duck.execute((tmp_path / "export" / "verify.sql").read_text(encoding="utf-8"))


def test_every_kind_of_feature_is_learned_forgotten_and_verified(visits: World, tmp_path: Path) -> None:
    numbers, texts = visits.one("select numeric_features, text_features from mempair.model")
    assert numbers[:3] == ["at:cyclical", "at hour sin", "at hour cos"]
    assert numbers[-5:] == ["small[1]", "small[2]", "small[3]", "big:2[1]", "big:2[2]"]
    assert texts == ["city:hash:16", "plan * region"]
    visits(
        "delete from visits where id % 9 = 0",
        "update visits set small = '{9,9,9}', heavy = 3 where id = 1",
        "insert into visits select 1000 + id, at, day, city, plan, region, age, spend, small, big, heavy, back"
        " from visits where id < 60",
    )
    visits.work()
    visits.check_exact()
    verified(visits, tmp_path)
    assert visits.one("select count(*) from visits v where mempair_predict('back', v) is null") == 0
    added, predicted = visits.one(
        "select (select sum(contribution) from mempair.explain('back', v)), mempair_predict('back', v)"
        " from visits v limit 1"
    )
    assert 1 / (1 + np.exp(-added)) == pytest.approx(predicted)


def test_what_cannot_be_learned_is_refused_with_its_reason_and_no_insert_fails(visits: World) -> None:
    before = visits.one("select rows_learned from mempair.state")
    visits(
        "insert into visits (id, small, big, heavy, back) values"
        " (2001, '{1,2}', '{1,2}', 1, true), (2002, '{{1,2,3}}', '{1,2}', 1, true), (2003, '{}', '{1,2}', 1, true),"
        " (2004, '{1,2,3}', '{1,2}', null, true), (2005, '{1,2,3}', '{1,2}', -1, true),"
        " (2006, '{1,2,3}', '{1,2}', 'NaN', true), (2007, null, null, 1, true),"
        " (2008, '{1,NaN,-Infinity}', '[5:6]={1,2}', 99, false)"
    )
    visits.work()
    refused = dict(visits.execute("select row_key, reason from mempair.rejected"))
    assert refused == dict.fromkeys(("2001", "2002", "2003"), "feature 'small' has another length") | dict.fromkeys(
        ("2004", "2005", "2006"), "weight missing, negative or infinite"
    )
    assert visits.one("select rows_learned from mempair.state") == before + 2
    visits("delete from visits where id > 2000")
    visits.work()
    assert visits.one("select rows_learned from mempair.state") == before
    verified(visits)


def test_renamed_columns_change_nothing(visits: World) -> None:
    visits(
        "alter table visits rename column plan to tariff",
        'alter table visits rename column region to "where it ""is"',
        "alter table visits rename column heavy to counts",
        "select mempair.rewrite_functions()",
        "delete from visits where id < 50",
    )
    visits.work()
    visits.check_exact()
    verified(visits)
    with pytest.raises(psycopg.Error, match="depend"):
        visits.execute("alter table visits drop column counts")
    visits("alter table visits drop column counts cascade", "insert into visits (id, back) values (3000, true)")


def test_a_weight_counts_as_so_many_rows(world: World) -> None:
    world(
        "create table once (id integer primary key, x float8, y float8, w integer)",
        "insert into once select i, i % 10, i % 10 * 2 + i % 3, 1 + i % 3 from generate_series(1, 300) i",
        "create table often (id integer generated always as identity primary key, x float8, y float8)",
        "insert into often (x, y) select x, y from once, generate_series(1, w)",
        "select mempair.create_model('weighted', 'once', target => 'y', features => '{x}', weight => 'w', gamma => 10)",
        "select mempair.create_model('repeated', 'often', target => 'y', features => '{x}', gamma => 10)",
    )
    world.work()
    predicted = world.one("select mempair_predict('weighted', array[7.0]), mempair_predict('repeated', array[7.0])")
    assert predicted[0] == pytest.approx(predicted[1], rel=1e-3)


def test_balanced_classes_count_alike(world: World) -> None:
    world(
        "create table rare (id integer primary key, x float8, y boolean)",
        "insert into rare select i, i % 7, i % 20 = 0 from generate_series(1, 1000) i",
        "select mempair.create_model('rare', 'rare', target => 'y', features => '{x}', class_weight => 'balanced')",
    )
    world.work()
    assert world.one("select avg(mempair_predict('rare', r)) from rare r") == pytest.approx(0.5, abs=0.05)
    assert world.one("select constants -> 'class_weights' from mempair.model") == [8, 160]
    world("delete from rare where id % 20 = 0 and id > 500")
    world.work()
    world.check_exact()
    assert verify(world.dsn, 1).fine


REFUSED = [
    ("at:weekly", "'at:weekly' asks for 'weekly'", "at:cyclical"),
    ("plan:cyclical", "has no hour", "Dates"),
    ("age:hash:16", "only a text can be hashed", "alone"),
    ("city:hash:1", "1 buckets", "2 to 512"),
    ("age:3", "has no length", "alone"),
    ("plan * spend", "crosses types", "multiplied"),
    ("none", "not known: no row has one", "none:384"),
    ("back * age", "both target and feature", "take it out"),
]


def test_features_that_make_no_sense_are_refused(world: World) -> None:
    world(TABLE, "alter table visits add column none real[]")
    for feature, message, hint in REFUSED:
        with pytest.raises(psycopg.Error, match=message) as refused:
            world.execute(
                "select mempair.create_model('m', 'visits', target => 'back', features => array[%s])", feature
            )
        assert hint in str(refused.value.diag.message_hint), feature


def test_features_in_json_say_how_they_are_read(world: World) -> None:
    world(TABLE)
    world(
        "select mempair.create_model('m', 'visits', target => 'back',"
        """ features => '{"age": null, "day": "cyclical", "city": "hash:8"}')"""
    )
    parts = world.one("select parts from mempair.model")
    assert {(part["feature"], part["as"]) for part in parts} == {
        ("age", "number"),
        ("day:cyclical", "cyclical"),
        ("city:hash:8", "hash"),
    }


# ---- pgvector. ----


@pytest.fixture
def vectors(database: str, superuser: Callable[[str], str]) -> Iterator[World]:
    with psycopg.connect(superuser(database), autocommit=True) as connection:
        if not connection.execute("select from pg_available_extensions where name = 'vector'").fetchall():
            pytest.skip("this PostgreSQL has no pgvector")
        connection.execute("create extension vector")
    with opened(database) as world:
        world(
            "create table notes (id integer primary key, meaning vector(4), half halfvec, loose vector, good boolean)",
            "insert into notes select i, array[i % 3, i % 5, i % 7, 1]::vector, array[i % 4, 0.5]::real[]::halfvec,"
            " array[i % 2, 2, 3]::vector, i % 3 = 1 from generate_series(1, 300) i",
            "select mempair.create_model('good', 'notes', target => 'good', gamma => 10,"
            " features => array['meaning', 'half', 'loose:3'])",
        )
        world.work()
        yield world


def test_vectors_of_pgvector_are_features(vectors: World) -> None:
    assert vectors.one("select cardinality(numeric_features) from mempair.model") == 4 + 2 + 3
    right = vectors.one(
        "select avg((mempair_predict('good', n) > 0.5)::text::boolean::integer) from notes n where good"
    )
    assert right is not None
    vectors(
        "insert into notes values (1001, '[1,2,3,4]', '[1,2]', '[1,2]', true), (1002, null, null, null, true)",
        "delete from notes where id % 10 = 0",
    )
    vectors.work()
    assert vectors.execute("select row_key, reason from mempair.rejected") == [
        ("1001", "feature 'loose:3' has another length")
    ]
    vectors.check_exact()
    assert verify(vectors.dsn, 1).fine
    assert all(fine is not False for (fine,) in vectors.execute("select fine from mempair.verify_model('good')"))


def test_somebody_elses_vector_is_refused(world: World) -> None:
    world("create type vector as (x real)", "create table t (id integer primary key, v vector, y boolean)")
    with pytest.raises(psycopg.Error, match="cannot be a feature"):
        world("select mempair.create_model('m', 't', target => 'y', features => '{v}')")


# ---- The shape of a feature. ----


def test_a_curve_says_what_explain_says_and_can_be_drawn(world: World, mempair: Run, tmp_path: Path) -> None:
    world(
        "create table bends (id integer primary key, x float8, plan text, y float8)",
        "insert into bends select i, i % 40, (array['a', 'b'])[1 + i % 2], abs(i % 40 - 20)"
        " from generate_series(1, 800) i",
        "select mempair.create_model('bend', 'bends', target => 'y', features => '{x,plan}', curves => 8, gamma => 10)",
    )
    world.work()
    shape = {
        x: y for x, y in world.execute("select x, contribution from mempair.curve('bend', 'x', 9)") if x is not None
    }
    at = next(x for x in shape if 5 < x < 35)
    world.sql.execute("insert into bends values (9000, %s, 'a', 1)", [at])
    explained = world.one(
        "select contribution from bends b, mempair.explain('bend', b) where id = 9000 and feature = 'x'"
    )
    assert shape[at] == pytest.approx(explained)
    low, middle, high = (min(shape.items(), key=lambda item: abs(item[0] - place))[1] for place in (2, 20, 38))
    assert middle < low - 8
    assert middle < high - 8
    levels = [level for (level,) in world.execute("select level from mempair.curve('bend', 'plan')")]
    assert levels[:3] == ["a", "b", "any other"]
    code, _, _ = mempair("model", "curve", "bend", "x", "--out", str(tmp_path / "x.svg"), "--dsn", world.dsn)
    assert code == 0
    assert ElementTree.parse(tmp_path / "x.svg").getroot().tag.endswith("svg")
    with pytest.raises(psycopg.Error, match="no feature 'z'"):
        world("select * from mempair.curve('bend', 'z')")


def test_a_regression_is_least_squares(world: World) -> None:
    # Given a temperature of four years: a season, a day's course, the weather before
    rng = np.random.default_rng(0)
    hours = np.arange(3000) * 11.7
    cloud, season = rng.random(3000), np.cos(2 * np.pi * hours / 8766)
    before = 10 - 9 * season + rng.normal(size=3000)
    y = 0.6 * before + 4 - 3 * season - 4 * cloud + 1.2 * rng.normal(size=3000)
    world("create table weather (id integer primary key, season float8, cloud float8, before float8, y float8)")
    with world.sql.cursor().copy("copy weather from stdin") as copy:
        for i, row in enumerate(np.column_stack([season, cloud, before, y])[:2000].tolist()):
            copy.write_row((i, *row))
    world(
        "select mempair.create_model('warm', 'weather', target => 'y', features => '{season,cloud,before}',"
        " ridge => 1e-6)"
    )
    world.work()
    new = np.column_stack([season, cloud, before])[2000:]
    predicted = np.array([world.one("select mempair_predict('warm', %s::float8[])", row) for row in new.tolist()])
    # Then rows that it has never seen are foretold as least squares does
    best = LinearRegression().fit(np.column_stack([season, cloud, before])[:2000], y[:2000]).predict(new)
    errors = [float(np.sqrt(np.mean((p - y[2000:]) ** 2))) for p in (predicted, best)]
    assert errors[0] == pytest.approx(errors[1], rel=0.01)
    # And the weights are those of numpy's least squares over the same encoded rows
    with connect(world.dsn) as connection:
        batch.prepare(connection)
        model = models.lease(connection, 1)
        assert model is not None
        engine = model.exact
        assert engine.reference is not None
        rows = reference.read(connection, model, *EVERY_ROW)
    X, _, _ = engine.reference.encoding.encode(rows.x)
    target = engine.reference.encoding.encode_target(rows.y)
    penalty = np.sqrt(np.diag(exact.penalties(engine.reference, 1e-6)))
    solved = np.linalg.lstsq(
        np.vstack([X / 1024, penalty]), np.append(target / 1024, np.zeros(len(penalty))), rcond=None
    )
    assert engine.weights()[0] == pytest.approx(solved[0], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("target", ["good", "kind"])
def test_a_row_with_an_array_of_another_length_is_predicted_by_nobody(world: World, target: str) -> None:
    world(
        "create table notes (id integer primary key, v float8[], good boolean, kind text)",
        "insert into notes select i, array[i % 3, i % 5], i % 3 = 1, 'kind ' || i % 3 from generate_series(1, 300) i",
        f"select mempair.create_model('m', 'notes', target => '{target}', features => 'v', gamma => 10)",
    )
    world.work()
    world("insert into notes values (301, '{1,2,3}', true, 'kind 1'), (302, null, true, 'kind 1')")
    world.work()
    for function in ("predict_class", "predict_proba") if target == "kind" else ("predict", "predict_class"):
        with pytest.raises(psycopg.Error, match="has another length"):
            world.execute(f"select mempair_{function}('m', n) from notes n where id = 301")
        assert world.execute(f"select mempair_{function}('m', n) from notes n where id = 302")
    with pytest.raises(psycopg.Error, match="has another length"):
        world.execute("select e.* from notes n, mempair.explain('m', n) e where id = 301")
    assert world.execute("select mempair_try_predict('m', n) from notes n where id = 301") == [(None,)]
    everybody = "mempair.predict_class_all('m')" if target == "kind" else "mempair.predict_all('m')"
    assert world.execute(f"select * from {everybody} p where p.row_key = '301'")[0][1] is None
    assert world.execute("select rows, unpredicted from mempair.evaluate('m')") == [(301, 1)]
    assert world.execute("select rows, unpredicted from mempair.compare('m', 'm')") == [(301, 1)]
