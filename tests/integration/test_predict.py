"""Predictions in SQL, from weights that the test publishes itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

TABLES = """
create table customers (id int primary key, age int, spend float8, plan text, churned boolean, income float8);
insert into customers values
    (1, 40, 1.5, 'basic', true, 100), (2, 20, -2, 'pro', false, 200), (3, 30, 0, 'gold', true, 300);
select mempair.create_model('churn', 'customers', target => 'churned', features => '{age,spend,plan}',
                            on_null => 'skip');
select mempair.create_model('income', 'customers', target => 'income', features => '{age,spend}', on_null => 'impute');
"""
PUBLISH = """
update mempair.published set weights = %(weights)s, intercept = %(intercept)s, centers = %(centers)s,
       scales = %(scales)s, missing_weights = %(missing)s, knots = '{}', knot_weights = '{}', places = %(places)s,
       level_weights = %(levels)s, radius = %(radius)s, shift = 0, ready = true,
       version = version + 1 where model_id = %(model)s
"""
ALL_FORMS = [
    "mempair_predict",
    "mempair_try_predict",
    "mempair.predict",
    "mempair.try_predict",
    "mempair.predict_proba",
]


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES)
        yield connection


def publish(
    connection: psycopg.Connection,
    model: int,
    weights: Sequence[float],
    intercept: float,
    levels: dict[str, float] | None = None,
    missing: Sequence[float] | None = None,
    radius: float | None = None,
) -> None:
    """Publish weights of numbers (multiples of 1/16, up to 256) and of one text's levels, the last one "any other"."""
    levels = levels or {}
    null = len(levels) if missing is not None else None
    places = [{"levels": {level: i for i, level in enumerate(levels, 1)}, "other": len(levels), "null": null}]
    values = {
        "model": model,
        "weights": [weight / 16 for weight in weights],
        "intercept": intercept,
        "centers": [0.0 for _ in weights],
        "scales": [64.0 for _ in weights],
        "missing": missing,
        "places": Jsonb(places if levels else []),
        "levels": list(levels.values()),
        "radius": radius,
    }
    connection.execute(PUBLISH, values)


def churn(connection: psycopg.Connection) -> None:
    publish(connection, 1, [0.1, 0.2], -3.0, {"basic": 0.5, "pro": -0.5, "any other": 0.25})


def income(connection: psycopg.Connection) -> None:
    publish(connection, 2, [2.0, 10.0], 7.0, missing=[70.0, 40.0])


def logistic(margin: float) -> float:
    return 1 / (1 + math.exp(-margin))


def value(connection: psycopg.Connection, query: str, *parameters: object) -> Any:
    row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return row[0]


EXPECTED = [logistic(-3 + 4 + 0.3 + 0.5), logistic(-3 + 2 - 0.4 - 0.5), logistic(-3 + 3 + 0.25)]


@pytest.mark.parametrize("form", ALL_FORMS)
def test_a_row_is_predicted_as_computed_by_hand(connection: psycopg.Connection, form: str) -> None:
    churn(connection)
    rows = connection.execute(f"select {form}('churn', c) from customers c order by id").fetchall()
    assert [row[0] for row in rows] == pytest.approx(EXPECTED, rel=1e-15)


def test_a_regression_predicts_the_value(connection: psycopg.Connection) -> None:
    income(connection)
    query = "select mempair_predict('income', c) from customers c order by id"
    assert connection.execute(query).fetchall() == [(102.0,), (27.0,), (67.0,)]
    assert value(connection, "select mempair_predict('income', array[40, 1.5])") == 102.0


def test_whole_tables_are_predicted_like_single_rows(connection: psycopg.Connection) -> None:
    churn(connection)
    income(connection)
    connection.execute("insert into customers (id, age) values (4, 10)")
    for model in ("churn", "income"):
        together = connection.execute("select * from mempair.predict_all(%s) order by row_key", [model]).fetchall()
        single = "select id::text, mempair_try_predict(%s, c) from customers c order by id"
        assert together == connection.execute(single, [model]).fetchall()


def test_before_the_gate_opens_the_error_says_how_far_the_model_is(connection: psycopg.Connection) -> None:
    connection.execute("update mempair.published set samples = 12, needed = 340")
    calls = [
        "select mempair_predict('churn', c) from customers c",
        "select mempair.predict('income', array[1, 2])",
        "select mempair.predict_proba('churn', c) from customers c",
        "select * from mempair.predict_all('churn')",
    ]
    for call in calls:
        with pytest.raises(psycopg.Error, match="is not ready: it has learned 12 rows and needs about 340") as refusal:
            connection.execute(call)
        assert refusal.value.sqlstate == "MP102"
    assert value(connection, "select mempair_try_predict('churn', c) from customers c limit 1") is None
    assert value(connection, "select mempair_try_predict('income', array[1, 2])") is None


def test_a_prepared_statement_sees_a_new_model_at_once(connection: psycopg.Connection) -> None:
    connection.execute("prepare ask as select mempair_predict('income', c) from customers c where id = 1")
    connection.execute("prepare ask_array as select mempair_predict('income', array[40, 1.5])")
    for intercept in range(12):
        publish(connection, 2, [2.0, 10.0], float(intercept))
        assert value(connection, "execute ask") == 95.0 + intercept
        assert value(connection, "execute ask_array") == 95.0 + intercept


def test_one_statement_sees_one_model(connection: psycopg.Connection, database: str) -> None:
    income(connection)
    with psycopg.connect(database) as reader:
        reader.execute("set transaction isolation level repeatable read")
        assert value(reader, "select mempair_predict('income', array[0, 0])") == 7.0
        publish(connection, 2, [2.0, 10.0], 8.0)
        assert value(reader, "select mempair_predict('income', array[0, 0])") == 7.0
        reader.rollback()
        assert value(reader, "select mempair_predict('income', array[0, 0])") == 8.0


def test_scans_with_predictions_run_in_parallel(connection: psycopg.Connection) -> None:
    churn(connection)
    income(connection)
    connection.execute(
        "insert into customers select i, 1, 1, 'basic' from generate_series(10, 3000) i; analyze customers"
    )
    connection.execute("set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0")
    for call in ("mempair_predict('churn', c)", "mempair_try_predict('income', array[c.age, c.spend])"):
        query = f"select sum({call}) from customers c"
        plan = "\n".join(row[0] for row in connection.execute("explain " + query))
        assert "Gather" in plan
        parallel = value(connection, query)
        connection.execute("set max_parallel_workers_per_gather = 0")
        assert value(connection, query) == pytest.approx(parallel, rel=1e-9)
        connection.execute("reset max_parallel_workers_per_gather")


MISSING = [("age = null", "age"), ("spend = null", "spend"), ("spend = 'NaN'", "spend"), ("plan = null", "plan")]


@pytest.mark.parametrize(("change", "feature"), MISSING)
def test_a_missing_feature_is_named_or_gives_null(connection: psycopg.Connection, change: str, feature: str) -> None:
    churn(connection)
    connection.execute(f"update customers set {change} where id = 1")
    with pytest.raises(psycopg.Error, match=f"feature '{feature}' is missing") as refusal:
        connection.execute("select mempair_predict('churn', c) from customers c where id = 1")
    assert refusal.value.sqlstate == "MP104"
    assert "on_null => 'impute'" in (refusal.value.diag.message_hint or "")
    assert value(connection, "select mempair_try_predict('churn', c) from customers c where id = 1") is None
    assert value(connection, "select prediction from mempair.predict_all('churn') where row_key = '1'") is None


@pytest.mark.parametrize("missing", ["null", "'NaN'"])
def test_a_missing_feature_has_a_weight_where_the_model_imputes(connection: psycopg.Connection, missing: str) -> None:
    income(connection)
    connection.execute(f"update customers set spend = {missing} where id = 1")
    for form in ("mempair_predict", "mempair_try_predict"):
        assert value(connection, f"select {form}('income', c) from customers c where id = 1") == 127.0
        assert value(connection, f"select {form}('income', array[40, {missing}::float8])") == 127.0
    assert value(connection, "select prediction from mempair.predict_all('income') where row_key = '1'") == 127.0


@pytest.mark.parametrize("far", ["'Infinity'", "1e308", "257"])
def test_a_number_far_outside_counts_as_the_outermost_one_learned(connection: psycopg.Connection, far: str) -> None:
    income(connection)
    for sign, expected in (("", 7 + 80 + 2560.0), ("-", 7 + 80 - 2560.0)):
        number = f"{sign}({far}::float8)"
        connection.execute(f"update customers set spend = {number} where id = 1")
        assert value(connection, "select mempair_predict('income', c) from customers c where id = 1") == expected
        assert value(connection, f"select mempair_predict('income', array[40, {number}])") == expected
        query = "select prediction from mempair.predict_all('income') where row_key = '1'"
        assert value(connection, query) == expected


def test_a_missing_text_has_its_own_place(connection: psycopg.Connection) -> None:
    connection.execute("""
        select mempair.create_model('third', 'customers', target => 'income', features => '{plan}', on_null => 'impute')
    """)
    publish(connection, 3, [], 1.0, {"basic": 10.0, "any other": 20.0}, missing=[])
    connection.execute("update customers set plan = null where id = 2")
    rows = connection.execute("select mempair_predict('third', c) from customers c order by id").fetchall()
    assert rows == [(11.0,), (21.0,), (21.0,)]


def test_a_certified_model_divides_by_the_norm_where_that_exceeds_its_radius(connection: psycopg.Connection) -> None:
    # 64 counts as 1 in the norm, and the intercept as 1: for (64, 0) it is √2, for (128, 64) it is √6.
    publish(connection, 2, [1.0, 1.0], 2.0, missing=[0.0, 0.0], radius=2.0)
    connection.execute("update mempair.published set shift = 100 where model_id = 2")
    connection.execute("update customers set age = 128 where id = 2; update customers set age = 64 where id = 1")
    connection.execute("update customers set spend = 64 * (id - 1)")
    expected = pytest.approx([100 + (2 + 64) / 2, 100 + (2 + 128 + 64) / math.sqrt(6)])
    for form in ("c", "array[c.age, c.spend]::float8[]"):
        rows = connection.execute(f"select mempair_predict('income', {form}) from customers c where id < 3 order by id")
        assert [row[0] for row in rows] == expected
    rows = connection.execute("select prediction from mempair.predict_all('income') order by row_key limit 2")
    assert [row[0] for row in rows] == expected


def test_a_model_published_before_numbers_were_clamped_serves_until_it_is_read_anew(
    connection: psycopg.Connection,
) -> None:
    for model, weights in ((1, [0.1, 0.2]), (2, [2.0, 10.0])):
        connection.execute(
            "update mempair.published set weights = %s, centers = '{35, 4}', intercept = -3, ready = true,"
            " levels = '{1:basic,1:pro,1}', level_weights = '{0.5,-0.5,0.25}' where model_id = %s",
            [weights, model],
        )
    rows = connection.execute("select mempair_predict('churn', c) from customers c order by id").fetchall()
    assert [row[0] for row in rows] == pytest.approx(EXPECTED, rel=1e-15)
    rows = connection.execute("select prediction from mempair.predict_all('churn') order by row_key").fetchall()
    assert [row[0] for row in rows] == pytest.approx(EXPECTED, rel=1e-15)
    assert value(connection, "select mempair_predict('income', array[1000, null])") == 2037.0
    connection.execute("update customers set spend = null where id = 1")
    assert value(connection, "select mempair_try_predict('churn', c) from customers c where id = 1") is None


def test_no_row_gives_no_prediction(connection: psycopg.Connection) -> None:
    churn(connection)
    income(connection)
    assert value(connection, "select mempair_predict('churn', null::customers)") is None
    assert value(connection, "select mempair_predict('income', null::float8[])") is None
    left_join = "select mempair_predict('churn', c) from (values (99)) as v(id) left join customers c using (id)"
    assert value(connection, left_join) is None


def test_a_row_made_of_json_is_predicted(connection: psycopg.Connection) -> None:
    churn(connection)
    query = "select mempair_predict('churn', jsonb_populate_record(null::customers, %s))"
    assert value(connection, query, '{"age": 40, "spend": 1.5, "plan": "basic"}') == pytest.approx(EXPECTED[0])


BAD_ARRAYS = ["array[1]", "array[1, 2, 3]", "'{}'::float8[]", "array[array[1, 2], array[3, 4]]", "array[array[1, 2]]"]


@pytest.mark.parametrize("array", BAD_ARRAYS)
def test_an_array_of_the_wrong_shape_is_refused_with_the_right_one(connection: psycopg.Connection, array: str) -> None:
    income(connection)
    with pytest.raises(psycopg.Error, match="'income' has 2 numeric features") as refusal:
        connection.execute(f"select mempair_predict('income', {array})")
    assert refusal.value.sqlstate == "MP104"
    assert "age, spend" in (refusal.value.diag.message_hint or "")
    assert value(connection, f"select mempair_try_predict('income', {array})") is None


def test_an_array_with_another_lower_bound_is_the_same_array(connection: psycopg.Connection) -> None:
    income(connection)
    assert value(connection, "select mempair_predict('income', '[5:6]={40,1.5}'::float8[])") == 102.0


def test_an_array_of_numbers_is_no_row_of_a_model_with_texts(connection: psycopg.Connection) -> None:
    churn(connection)
    with pytest.raises(psycopg.Error, match="text features") as refusal:
        connection.execute("select mempair_predict('churn', array[1, 2])")
    assert refusal.value.sqlstate == "MP104"
    assert "jsonb_populate_record" in (refusal.value.diag.message_hint or "")
    assert value(connection, "select mempair_try_predict('churn', array[1, 2])") is None


def test_unknown_models_and_rows_of_other_tables_are_told_apart(connection: psycopg.Connection) -> None:
    connection.execute("""
        create table others (id int primary key, age int, churned boolean);
        insert into others values (1, 2, true);
        select mempair.create_model('other', 'others', target => 'churned', features => '{age}');
    """)
    for call in ("c", "array[1, 2]"):
        for form in ALL_FORMS:
            with pytest.raises(psycopg.Error, match="no model 'chum'") as refusal:
                connection.execute(f"select {form}('chum', {call}) from customers c")
            assert refusal.value.sqlstate == "MP101"
    with pytest.raises(
        psycopg.Error, match=r"'other' reads rows of public\.others, not of public\.customers"
    ) as refusal:
        connection.execute("select mempair_predict('other', c) from customers c")
    assert refusal.value.sqlstate == "MP104"


def test_a_regression_has_no_probability(connection: psycopg.Connection) -> None:
    income(connection)
    for call in ("c", "array[1, 2]"):
        with pytest.raises(psycopg.Error, match="predicts a number") as refusal:
            connection.execute(f"select mempair.predict_proba('income', {call}) from customers c")
        assert refusal.value.sqlstate == "MP106"


def test_extreme_margins_are_probabilities_too(connection: psycopg.Connection) -> None:
    for intercept, expected in [(1e308, 1.0), (-1e308, 0.0), (800.0, 1.0), (-800.0, 0.0)]:
        publish(connection, 1, [0.0, 0.0], intercept, {"any other": 0.0})
        assert value(connection, "select mempair_predict('churn', c) from customers c limit 1") == pytest.approx(
            expected
        )


def test_renames_do_not_disturb_predictions(connection: psycopg.Connection) -> None:
    churn(connection)
    connection.execute("""
        alter table customers rename age to years;
        alter table customers rename to clients;
        create schema crm;
        alter table clients set schema crm;
        alter table crm.clients add column t text default 'a column with a short name';
    """)
    rows = connection.execute("select mempair_predict('churn', c) from crm.clients c order by id").fetchall()
    assert [row[0] for row in rows] == pytest.approx(EXPECTED)
    rows = connection.execute("select prediction from mempair.predict_all('churn') order by row_key").fetchall()
    assert [row[0] for row in rows] == pytest.approx(EXPECTED)


def test_rows_of_a_partition_are_rows_of_the_table(connection: psycopg.Connection) -> None:
    connection.execute("""
        create table parts (id int primary key, x float8, y boolean) partition by range (id);
        create table part partition of parts for values from (0) to (10);
        insert into parts values (1, 2, true);
        select mempair.create_model('parts', 'parts', target => 'y', features => '{x}');
    """)
    publish(connection, 3, [1.0], 0.0)
    assert value(connection, "select mempair_predict('parts', p) from part p") == pytest.approx(logistic(2))
    assert value(connection, "select prediction from mempair.predict_all('parts')") == pytest.approx(logistic(2))


def test_hundreds_of_features_are_predicted(connection: psycopg.Connection) -> None:
    d = 784
    columns = ", ".join(f"f{i} float8 default {i % 7}" for i in range(d))
    connection.execute(f"create table images (id int primary key, y boolean, {columns})")
    connection.execute("insert into images values (1, true)")
    names = [f"f{i}" for i in range(d)]
    connection.execute("select mempair.create_model('digits', 'images', target => 'y', features => %s)", [names])
    weights = [math.sin(i) / 100 for i in range(d)]
    publish(connection, 3, weights, 0.5)
    expected = pytest.approx(logistic(0.5 + sum(w * (i % 7) for i, w in enumerate(weights))))
    assert value(connection, "select mempair_predict('digits', i) from images i") == expected
    array = [float(i % 7) for i in range(d)]
    assert value(connection, "select mempair_predict('digits', %s::float8[])", array) == expected
    assert value(connection, "select prediction from mempair.predict_all('digits')") == expected


@pytest.fixture
def stranger(
    database: str, connection: psycopg.Connection, superuser: Callable[[str], str]
) -> Iterator[psycopg.Connection]:
    """A session of a role that has been granted nothing yet."""
    with psycopg.connect(superuser(database), autocommit=True) as session:
        session.execute("create role stranger")
        try:
            session.execute("set role stranger")
            yield session
        finally:
            session.execute("reset role")
            session.execute("drop owned by stranger; drop role stranger")


def test_predicting_is_granted_function_by_function_and_shows_no_weights(
    connection: psycopg.Connection, stranger: psycopg.Connection
) -> None:
    churn(connection)
    row = 'jsonb_populate_record(null::customers, \'{"age": 40, "spend": 1.5, "plan": "basic"}\')'
    query = f"select mempair_predict('churn', {row})"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute(query)
    connection.execute("grant execute on function mempair_predict(text, customers) to stranger")
    assert value(stranger, query) == pytest.approx(EXPECTED[0])
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute("select * from mempair.published")


def test_whole_tables_are_only_predicted_for_those_who_may_read_them(
    connection: psycopg.Connection, stranger: psycopg.Connection
) -> None:
    churn(connection)
    query = "select count(*) from mempair.predict_all('churn')"
    connection.execute("grant usage on schema mempair to stranger")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute(query)
    connection.execute("grant execute on function mempair.predict_all(text) to stranger")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"table public\.customers"):
        stranger.execute(query)
    connection.execute("grant select on customers to stranger")
    assert value(stranger, query) == 3
    connection.execute("alter table customers enable row level security")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row security"):
        stranger.execute(query)
