"""Declaring models: what is accepted, what is refused and how, and what is made of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.world import World

CUSTOMERS = """
create table customers (
    id bigint generated always as identity primary key,
    age integer, tenure numeric(6, 1), plan text, monthly_spend float8, churned boolean, note text
);
"""
SESSION = """
select mempair.create_model('churn', 'public.customers',
         target   => 'churned',
         features => array['age', 'tenure', 'plan', 'monthly_spend'],
         epsilon  => 1.0, delta => 1e-6, gamma => 0.1)
"""
HOSTILE = ['a"b', "a'b", 'x"; drop table customers; --', "Ünïcödé ⚡", "a.b", "with space", "select", "%s %I $$", "\\"]


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CUSTOMERS)
        yield connection


def one(connection: psycopg.Connection, query: str, *parameters: object) -> Any:
    row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


def test_the_session_of_the_documentation_works_as_written(connection: psycopg.Connection) -> None:
    connection.execute(SESSION)
    connection.execute(
        "insert into customers (age, tenure, plan, monthly_spend, churned) values (42, 1.5, 'pro', 9.99, true)"
    )
    connection.execute("delete from customers where id = 1")
    assert connection.execute("select op, keys, x, c, y from mempair.change_1_a order by seq").fetchall() == [
        (1, ["1"], None, None, None),  # what comes is only named
        (2, ["1"], [[42.0, 1.5, 9.99]], [["pro"]], [1.0]),
    ]
    assert connection.execute("select * from mempair.odometer where model = 'churn'").fetchall() == []
    status = one(connection, "select status, pending_changes, pending_deletions from mempair.model_status")
    assert status == ("calibrating", 2, 1)
    assert one(connection, "select mempair.receipt('churn', '42')") is None


def test_features_are_sorted_by_kind_and_the_loss_follows_from_the_target(connection: psycopg.Connection) -> None:
    connection.execute(SESSION)
    connection.execute(
        "select mempair.create_model('spend', 'customers', target => 'monthly_spend', features => '{plan,churned}')"
    )
    connection.execute(
        "select mempair.create_model('pro', 'customers', target => 'plan', positive => 'pro', features => '{age}')"
    )
    columns = "select name, numeric_features, text_features, loss, positive, phase from mempair.model order by id"
    assert connection.execute(columns).fetchall() == [
        ("churn", ["age", "tenure", "monthly_spend"], ["plan"], "logistic", None, "calibrating"),
        ("spend", ["churned"], ["plan"], "squared", None, "calibrating"),
        ("pro", ["age"], [], "logistic", "pro", "calibrating"),
    ]


GOOD: dict[str, object] = {"model_name": "churn", "source": "customers", "target": "churned", "features": ["age"]}
REFUSED: list[tuple[str, dict[str, object], str, str]] = [
    ("MP001", {"model_name": ""}, "model_name", "1 to 63"),
    ("MP001", {"model_name": "x" * 64}, "model_name", "1 to 63"),
    ("MP001", {"model_name": None}, "model_name", "1 to 63"),
    ("MP001", {"epsilon": 0}, "epsilon cannot be 0", "above 0"),
    ("MP001", {"epsilon": math.nan}, "epsilon", "above 0"),
    ("MP001", {"epsilon": math.inf}, "epsilon", "above 0"),
    ("MP001", {"unlearner": "exact", "epsilon": 1.0}, "epsilon cannot be 1", "symmetric and passive"),
    ("MP001", {"unlearner": "exact", "m": 5}, "m cannot be 5", "any number of deletions"),
    ("MP001", {"unlearner": "passive", "loss": "squared"}, "loss", "huber"),
    ("MP001", {"unlearner": "passive", "curves": 4}, "curves", "exact"),
    ("MP001", {"ridge": 0}, "ridge", "from 1e-6"),
    ("MP001", {"unlearner": "symmetric", "ridge": 3.0}, "ridge cannot be 3", "have lambda"),
    ("MP001", {"source": "wide", "features": ["v:1024"], "unlearner": "exact"}, "would be 1025 numbers", "symmetric"),
    ("MP001", {"source": "wide", "features": ["v:100"], "curves": 16}, "would be 1701 numbers", "fewer curves"),
    ("MP001", {"source": "wide", "features": ["v:1024"], "curves": 1}, "curves cannot be 1", "exact unlearner"),
    ("MP001", {"epsilon": 20.5}, "epsilon", "at most 20"),
    ("MP001", {"delta": 0}, "delta", "between 1e-300 and 1"),
    ("MP001", {"delta": 1e-301}, "delta", "between 1e-300 and 1"),
    ("MP001", {"delta": 1}, "delta", "between 1e-300 and 1"),
    ("MP001", {"gamma": -1}, "gamma", "from 1e-9"),
    ("MP001", {"gamma": 1e10}, "gamma", "to 1e9"),
    ("MP001", {"lambda": 0}, "lambda", "from 1e-8"),
    ("MP001", {"lambda": 1e5}, "lambda", "to 1e4"),
    ("MP001", {"m": 0}, "m cannot be 0", "at least 1"),
    ("MP001", {"tau": 0}, "tau", "1 to 100"),
    ("MP001", {"tau": 101}, "tau", "1 to 100"),
    ("MP001", {"kappa": 0}, "kappa", "from 1e-6"),
    ("MP001", {"clip": 0}, "clip", "from 1e-6"),
    ("MP001", {"calibration_rows": 1}, "calibration_rows", "from 10"),
    ("MP001", {"calibration_rows": 100_001}, "calibration_rows", "to 100000"),
    ("MP001", {"on_null": "guess"}, "on_null", "skip"),
    ("MP001", {"on_exhausted": "panic"}, "on_exhausted", "retrain"),
    ("MP001", {"on_exhausted": "halt"}, "on_exhausted cannot be 'halt'", "no budget that could be spent: leave it out"),
    ("MP001", {"unlearner": "magic"}, "unlearner", "symmetric"),
    ("MP001", {"loss": "hinge"}, "loss", "huber"),
    ("MP001", {"loss": "huber"}, "loss", "numbers"),
    ("MP001", {"features": []}, "features is empty", "at least one"),
    ("MP001", {"features": None}, "features is empty", "at least one"),
    ("MP001", {"features": ["age", "age"]}, "'age' is named twice", "once"),
    ("MP001", {"features": ["age", "churned"]}, "'churned' is both", "take it out"),
    ("MP001", {"target": None}, "target", "column name"),
    ("MP001", {"target": "plan", "unlearner": "symmetric"}, "'plan' is text", "positive =>"),
    ("MP001", {"target": "plan", "loss": "classes", "positive": "pro"}, "for several classes", "positive asks"),
    ("MP001", {"loss": "classes"}, "'churned' is boolean", "Leave out"),
    ("MP001", {"loss": "classes", "unlearner": "symmetric"}, "loss cannot be 'classes'", "exact unlearner only"),
    ("MP001", {"class_weight": "heavy"}, "class_weight cannot be 'heavy'", "'balanced'"),
    ("MP001", {"target": "tenure", "class_weight": "balanced", "loss": "squared"}, "class_weight", "not to numbers"),
    ("MP001", {"weight": "tenure", "unlearner": "symmetric"}, "weight cannot be 'tenure'", "exact unlearner"),
    ("MP004", {"weight": "plan"}, "weight 'plan' has type text", "a number from 0 to 16"),
    ("MP005", {"weight": "tenur"}, "no column 'tenur'", "tenure"),
    ("MP001", {"positive": "perhaps"}, "not a value of type boolean", "churned"),
    ("MP001", {"target": "tenure", "positive": "many"}, "not a value of type numeric", "tenure"),
    ("MP001", {"target": "tenure", "loss": "logistic"}, "positive is missing", "yes"),
    ("MP001", {"categories": "[]"}, "categories", "object"),
    ("MP001", {"categories": '{"age": ["1"]}'}, "'age', which is not a text feature", "text features"),
    ("MP001", {"features": ["plan"], "categories": '{"plan": []}'}, "categories of 'plan'", "pro"),
    ("MP001", {"features": ["plan"], "categories": '{"plan": ["a", "a"]}'}, "categories of 'plan'", "pro"),
    ("MP001", {"features": ["plan"], "categories": '{"plan": [1]}'}, "categories of 'plan'", "pro"),
    ("MP002", {"source": "keyless"}, "keyless has no primary key", "key => "),
    ("MP002", {"key": ["note"]}, "'note' of table public.customers may be null", "set not null"),
    ("MP002", {"source": "keyless", "key": ["id"]}, "no unique index", "create unique index"),
    ("MP002", {"source": "partly_unique", "key": ["id"]}, "no unique index", "create unique index"),
    ("MP003", {"source": "some_view"}, "is a view", "table behind it"),
    ("MP003", {"source": "some_materialized_view"}, "is a materialized view", "table behind it"),
    ("MP003", {"source": "customers_pkey"}, "is a index", "table behind it"),
    ("MP003", {"source": "passing"}, "temporary", "ordinary"),
    ("MP003", {"source": "child"}, "inheritance", "partitioning"),
    ("MP003", {"source": "parent"}, "inheritance", "partitioning"),
    ("MP003", {"source": "parts_1"}, "is a partition", "public.parts"),
    ("MP003", {"source": "fleeting"}, "unlogged", "set logged"),
    ("MP003", {"source": "half_logged"}, "partition public.half_logged_1 is not logged", "ordinary"),
    ("MP001", {"features": ["plan"], "categories": json.dumps({"plan": ["x" * 201]})}, "200 bytes", "digest"),
    (
        "MP001",
        {"features": ["plan"], "categories": json.dumps({"plan": [str(i) for i in range(10_001)]})},
        "more than 10000 categories",
        "frequent",
    ),
    ("MP003", {"source": "mempair.model"}, "system table", "your own"),
    ("MP003", {"source": "pg_catalog.pg_class"}, "system table", "your own"),
    ("MP004", {"features": ["blob"], "source": "kinds"}, "'blob' has type bytea", "generated always"),
    ("MP004", {"features": ["price"], "source": "kinds"}, "'price' has type money", "generated always"),
    ("MP004", {"features": ["list"], "source": "kinds"}, "'list' has type integer[]", "generated always"),
    ("MP004", {"target": "blob", "features": ["id"], "source": "kinds"}, "'blob' has type bytea", "target is"),
    ("MP004", {"target": "day", "features": ["id"], "source": "kinds"}, "'day' has type date", "target is"),
    ("MP004", {"key": ["ratio"], "features": ["id"], "source": "kinds"}, "'ratio' has type double", "key =>"),
    ("MP005", {"features": ["agee"]}, "no column 'agee'", "Did you mean 'age'?"),
    ("MP005", {"features": ["AGE"]}, "no column 'AGE'", "Did you mean 'age'?"),
    ("MP005", {"features": ["monthly"]}, "no column 'monthly'", "Did you mean 'monthly_spend'?"),
    ("MP005", {"features": ["zzz"]}, "no column 'zzz'", "case-sensitive"),
    ("MP005", {"features": [None]}, "no column NULL", "It has "),
    ("MP005", {"features": ["ctid"]}, "no column 'ctid'", ""),
    ("MP005", {"target": "churn"}, "no column 'churn'", "Did you mean 'churned'?"),
    ("MP005", {"key": ["no"]}, "no column 'no'", ""),
    ("42P01", {"source": "nowhere"}, "nowhere", ""),
]
TABLES = """
create table keyless (id int not null, age int, churned boolean);
create table partly_unique (id int not null, age int, churned boolean);
create unique index on partly_unique (id) where churned;
create view some_view as select * from customers;
create materialized view some_materialized_view as select * from customers;
create temporary table passing (like customers including all);
create table parent (like customers including all);
create table child (primary key (id)) inherits (parent);
create table parts (like customers including all) partition by range (id);
create table parts_1 partition of parts for values from (0) to (100);
create unlogged table fleeting (like customers including all);
create table half_logged (like customers including all) partition by range (id);
create unlogged table half_logged_1 partition of half_logged for values from (0) to (100);
create table wide (id int primary key, v float8[], plan text, churned boolean);
create table kinds (id bigint primary key, blob bytea, price money, list integer[], day date, churned boolean,
                    ratio float8 not null unique);
"""


def create(connection: psycopg.Connection, arguments: dict[str, object]) -> int:
    names = sql.SQL(", ").join(sql.SQL("{} => {}").format(sql.Identifier(k), sql.Placeholder(k)) for k in arguments)
    row = connection.execute(sql.SQL("select mempair.create_model({})").format(names), arguments).fetchone()
    assert row is not None
    return int(row[0])


def test_what_cannot_work_is_refused_with_the_reason_and_the_remedy(connection: psycopg.Connection) -> None:
    connection.execute(TABLES)
    for code, arguments, message, hint in REFUSED:
        with pytest.raises(psycopg.Error) as refusal:
            create(connection, GOOD | arguments)
        what = (arguments, refusal.value.diag.message_primary, refusal.value.diag.message_hint)
        assert refusal.value.sqlstate == code, what
        assert message in (refusal.value.diag.message_primary or ""), what
        assert hint in (refusal.value.diag.message_hint or ""), what
    left_behind = "select count(*) from pg_class where relname ~ '^change_' or relname ~ '^mempair_'"
    assert one(connection, left_behind) == 0
    assert one(connection, "select count(*) from mempair.model") == 0
    assert one(connection, "select count(*) from pg_trigger where tgname ~ '^mempair_'") == 0


@pytest.mark.parametrize(
    ("features", "unlearner"),
    [
        (["v:1023"], "exact"),
        (["v:1024"], "symmetric"),
        (["v:510", "plan:hash:512"], "exact"),
        (["v:511", "plan:hash:512"], "symmetric"),
    ],
)
def test_a_model_too_wide_for_a_matrix_gets_the_certified_unlearner_and_a_notice(
    connection: psycopg.Connection, features: list[str], unlearner: str
) -> None:
    connection.execute(TABLES)
    said: list[str] = []
    connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    create(connection, {**GOOD, "source": "wide", "features": features})
    assert one(connection, "select unlearner from mempair.model") == unlearner
    assert any("it gets the certified one" in notice for notice in said) == (unlearner == "symmetric")
    if unlearner == "symmetric":
        with pytest.raises(psycopg.Error, match="and the exact unlearner takes 1024 at most"):
            connection.execute("select mempair.alter_model('churn', unlearner => 'exact')")


def test_a_second_model_of_the_same_name_is_refused(connection: psycopg.Connection) -> None:
    connection.execute(SESSION)
    with pytest.raises(psycopg.Error, match="already a model 'churn'") as refusal:
        connection.execute(SESSION)
    assert refusal.value.sqlstate == "MP006"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_only_names(connection: psycopg.Connection, name: str) -> None:
    fill = {"table": sql.Identifier(name), "column": sql.Identifier(name + "1"), "label": sql.Identifier(name + "2")}
    connection.execute(
        sql.SQL(
            "create schema {table};create table {table}.{table} ({table} text primary key, {column} int, {label} text)"
        ).format(**fill)
    )
    relation = sql.Identifier(name, name).as_string(connection)
    create(connection, {"model_name": name, "source": relation, "target": name + "2", "positive": name,
                        "features": [name + "1"], "categories": "{}"})  # fmt: skip
    create(connection, {"model_name": name + "text", "source": relation, "target": name + "1", "features": [name + "2"],
                        "categories": json.dumps({name + "2": [name]})})  # fmt: skip
    escaped = {"table": sql.Identifier(name.replace("%", "%%"))}  # in a query that has parameters
    insert = sql.SQL("insert into {table}.{table} values (%s, 1, %s)").format(**escaped)
    connection.execute(insert, [name, name])
    assert one(connection, "select keys, x, y from mempair.change_1_a") == ([name], [[1.0]], [1.0])
    assert one(connection, "select keys, c, y from mempair.change_2_a") == ([name], [[name]], [1.0])
    publish = (
        "update mempair.published set ready = true, weights = %s, intercept = 1, levels = %s, level_weights = '{2}'"
    )
    connection.execute(publish + " where model_id = 1", [[1.0], ["-"]])
    connection.execute(publish + " where model_id = 2", [[], ["1:" + name]])
    predict = sql.SQL("select mempair_predict(%s, t) from {table}.{table} t").format(**escaped)
    assert connection.execute(predict, [name]).fetchone() == (1 / (1 + math.exp(-2)),)
    assert connection.execute(predict, [name + "text"]).fetchone() == (3.0,)
    assert one(connection, "select prediction from mempair.predict_all(%s)", name + "text") == 3.0
    connection.execute("select mempair.drop_model(%s)", [name])
    connection.execute("select mempair.drop_model(%s)", [name + "text"])
    assert one(connection, "select count(*) from pg_trigger where tgname ~ '^mempair_'") == 0
    assert one(connection, "select count(*) from customers") == 0


NUMBERS = [
    ("boolean", "true", 1.0),
    ("boolean", "false", 0.0),
    ("smallint", "-7", -7.0),
    ("integer", "2147483647", 2147483647.0),
    ("bigint", "9007199254740993", 9007199254740992.0),
    ("real", "0.1", 0.10000000149011612),
    ("float8", "-0.0", -0.0),
    ("float8", "Infinity", math.inf),
    ("float8", "NaN", math.nan),
    ("numeric(8, 2)", "12.34", 12.34),
    ("numeric", "12.34", 12.34),
    ("numeric", "1e400", math.inf),
    ("numeric", "-1e400", -math.inf),
    ("numeric", "1e-400", 0.0),
    ("numeric", "NaN", math.nan),
    ("numeric", "-Infinity", -math.inf),
    ("numeric(1000, 2)", "1e350", math.inf),
    ("date", "1970-01-11", 10.0),
    ("date", "infinity", math.inf),
    ("date", "-infinity", -math.inf),
    ("date", "5874897-12-31", 2145042905.0),
    ("timestamp", "1970-01-01 00:01:00.5", 60.5),
    ("timestamp", "infinity", math.inf),
    ("timestamptz", "1970-01-01 00:01:00+01", -3540.0),
    ("timestamptz", "-infinity", -math.inf),
    ("time", "00:01:01", 61.0),
    ("timetz", "00:01:01+00", 61.0),
    ("interval", "1 day 2 seconds", 86402.0),
    ("positive_integer", "5", 5.0),
]
TEXTS = [
    ("text", "pro", "pro"),
    ("varchar(10)", "pro", "pro"),
    ("char(10)", "pro", "pro"),
    ("name", "pro", "pro"),
    ("plan_kind", "pro", "pro"),
    ("short_text", "pro", "pro"),
]
TYPES = """
create domain positive_integer as integer check (value > 0);
create domain shorter as varchar(20);
create domain short_text as shorter;
create type plan_kind as enum ('basic', 'pro');
"""


def test_every_kind_of_feature_becomes_a_number_or_a_text(connection: psycopg.Connection) -> None:
    connection.execute(TYPES)
    columns = [*NUMBERS, *TEXTS]
    definitions = ", ".join(f"f{i} {kind}" for i, (kind, _, _) in enumerate(columns))
    connection.execute(f"create table wide (id int primary key, y boolean, {definitions})")
    create(connection, {"model_name": "wide", "source": "wide", "target": "y",
                        "features": [f"f{i}" for i in range(len(columns))]})  # fmt: skip
    values = ", ".join(f"'{text}'" for _, text, _ in columns)
    connection.execute(f"insert into wide values (1, true, {values})")
    connection.execute("insert into wide values (2, false)")
    full, empty = connection.execute("select x, c, y from mempair.source_1 order by row_key").fetchall()
    assert list(map(repr, full[0])) == [repr(number) for _, _, number in NUMBERS]
    assert full[1:] == ([text for _, _, text in TEXTS], 1.0)
    assert all(map(math.isnan, empty[0]))
    assert empty[1:] == ([None] * len(TEXTS), -1.0)


TARGETS = [
    ("boolean", None, {"true": 1.0, "false": -1.0}),
    ("boolean", "false", {"true": -1.0, "false": 1.0}),
    ("text", "a'b", {"a''b": 1.0, "x": -1.0}),
    ("char(5)", "yes", {"yes": 1.0, "no": -1.0}),
    ("plan_kind", "pro", {"pro": 1.0, "basic": -1.0}),
    ("integer", "3", {"3": 1.0, "4": -1.0}),
    ("date", "2020-01-01", {"2020-01-01": 1.0, "2020-01-02": -1.0}),
    ("integer", None, {"3": 3.0, "-4": -4.0}),
    ("numeric", None, {"2.5": 2.5}),
    ("float8", None, {"2.5": 2.5, "NaN": None}),
]


@pytest.mark.parametrize(("kind", "positive", "labels"), TARGETS)
def test_targets_become_labels(
    connection: psycopg.Connection, kind: str, positive: str | None, labels: dict[str, float | None]
) -> None:
    connection.execute(TYPES + f"create table t (id int generated always as identity primary key, x int, y {kind})")
    create(connection, {"model_name": "t", "source": "t", "target": "y", "features": ["x"], "positive": positive})
    for text in labels:
        connection.execute(f"insert into t (x, y) values (1, '{text}')")
    connection.execute("insert into t (x, y) values (1, null)")
    connection.execute("delete from t")
    captured = connection.execute("select unnest(y) from mempair.change_1_a where op = 2").fetchall()
    assert captured == [(label,) for label in labels.values() if label is not None]


KEYS = [
    ("id uuid", "id", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("id text", "id", "'it''s \"me\"'", 'it\'s "me"'),
    ("id char(5)", "id", "'ab'", "ab"),
    ("id numeric", "id", "1.500", "1.5"),
    ("id date", "id", "'2020-02-03'", "2020-02-03"),
    ("id date", "id", "'infinity'", "infinity"),
    ("id timestamp", "id", "'2020-02-03 04:05:06.7'", "2020-02-03T04:05:06.7"),
    ("id timestamptz", "id", "'2020-02-03 04:05:06+02'", "2020-02-03T02:05:06Z"),
    ("id bytea", "id", "'\\xDEAD'", "dead"),
    ("id inet", "id", "'10.0.0.1'", "10.0.0.1/32"),
    ("a int, b text", "a, b", "1, 'x\"y'", '["1", "x\\"y"]'),
    ("a date, b timestamptz", "b, a", "'2020-02-03', '2020-01-01+00'", '["2020-01-01T00:00:00Z", "2020-02-03"]'),
]


@pytest.mark.parametrize(("columns", "key", "value", "text"), KEYS)
def test_keys_are_the_same_text_whatever_the_session_is_set_to(
    connection: psycopg.Connection, columns: str, key: str, value: str, text: str
) -> None:
    connection.execute(f"create table t ({columns}, x int, y boolean, primary key ({key}))")
    create(connection, {"model_name": "t", "source": "t", "target": "y", "features": ["x"]})
    connection.execute(f"insert into t values ({value}, 1, true)")
    connection.execute("set datestyle = 'German'; set timezone = 'Asia/Kolkata'; set bytea_output = escape")
    connection.execute("set intervalstyle = 'iso_8601'; set extra_float_digits = -5")
    connection.execute("delete from t")
    assert connection.execute("select op, keys[1] from mempair.change_1_a order by seq").fetchall() == [
        (1, text),
        (2, text),
    ]


def test_a_named_unique_index_serves_as_key(connection: psycopg.Connection) -> None:
    connection.execute("create table t (a int not null, b int not null, x int, y boolean, unique (b, a) include (x))")
    create(connection, {"model_name": "t", "source": "t", "target": "y", "features": ["x"], "key": ["a", "b"]})
    connection.execute("insert into t values (1, 2, 3, true)")
    assert one(connection, "select keys[1] from mempair.change_1_a") == '["1", "2"]'


def test_existing_rows_are_learned_unless_asked_not_to(connection: psycopg.Connection) -> None:
    connection.execute("insert into customers (age, churned) values (1, true), (2, null), (3, false)")
    create(connection, GOOD | {"unlearner": "passive"})
    create(connection, GOOD | {"model_name": "later", "backfill": False})
    create(connection, GOOD | {"model_name": "now"})  # exact: its constants come from the whole table, read once
    asked = "select name, retrain_requested from mempair.model where retrain_requested is not null"
    assert connection.execute(asked).fetchall() == [("now", "the rows that were there")]
    assert one(connection, "select count(*) from mempair.change_3_a") == 0
    backfilled = "select op, rows, keys, x, y, captured_at from mempair.change_1_a order by seq"
    assert connection.execute(backfilled).fetchall() == [
        (1, 2, ["1", "3"], None, None, None),
    ]
    assert one(connection, "select count(*) from mempair.change_2_a") == 0


def test_the_backfill_loses_and_doubles_nothing_of_concurrent_writes(database: str) -> None:
    with psycopg.connect(database) as writer, psycopg.connect(database) as creator:
        writer.execute(CUSTOMERS)
        writer.commit()
        writer.execute("insert into customers (age, churned) values (1, true)")
        creator.execute("set lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):  # it waits for the writer
            create(creator, GOOD | {"unlearner": "passive"})
        creator.rollback()
        writer.commit()
        create(creator, GOOD | {"unlearner": "passive"})
        writer.execute("set lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):  # and the writer waits for it
            writer.execute("insert into customers (age, churned) values (2, true)")
        writer.rollback()
        creator.commit()
        writer.execute("insert into customers (age, churned) values (3, true)")
        writer.commit()
        assert writer.execute("select op, keys from mempair.change_1_a order by seq").fetchall() == [
            (1, ["1"]),
            (1, ["2"]),
        ]


def test_a_policy_that_hides_rows_is_an_error_not_half_a_model(
    connection: psycopg.Connection, superuser: Callable[[str], str], database: str
) -> None:
    connection.execute(
        "alter table customers enable row level security; alter table customers force row level security"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        create(connection, GOOD)


def test_pause_and_resume(connection: psycopg.Connection) -> None:
    create(connection, GOOD)
    status = "select status from mempair.model_status"
    connection.execute("select mempair.pause_model('churn')")
    assert one(connection, status) == "paused"
    connection.execute("insert into customers (age, churned) values (1, true)")
    assert one(connection, "select pending_changes from mempair.model_status") == 1
    connection.execute("select mempair.resume_model('churn')")
    assert one(connection, status) == "calibrating"


def test_an_unknown_model_is_named_with_the_nearest_one(connection: psycopg.Connection) -> None:
    create(connection, GOOD)
    for call in ("drop_model", "pause_model", "resume_model", "capacity", "predict_all"):
        with pytest.raises(psycopg.Error, match="no model 'chrn'") as refusal:
            connection.execute(f"select mempair.{call}('chrn')")
        assert refusal.value.sqlstate == "MP101"
        assert refusal.value.diag.message_hint == "Did you mean 'churn'?"


OBJECTS = """
select c.oid::regclass::text from pg_class c where relnamespace = 'mempair'::regnamespace
union all select p.oid::regprocedure::text from pg_proc p
          where proname ~ 'mempair' or pronamespace = 'mempair'::regnamespace
union all select tgname from pg_trigger where not tgisinternal order by 1
"""


def test_drop_model_leaves_nothing_and_the_name_is_free_again(connection: psycopg.Connection) -> None:
    before = connection.execute(OBJECTS).fetchall()
    create(connection, GOOD)
    create(connection, GOOD | {"model_name": "second"})
    one_model = connection.execute(OBJECTS).fetchall()
    connection.execute("insert into customers (age, churned) values (1, true)")
    connection.execute("select mempair.drop_model('churn')")
    with pytest.raises(psycopg.Error, match="no model 'churn'"):
        connection.execute("select mempair_predict('churn', c) from customers c")
    connection.execute("insert into customers (age, churned) values (1, true)")
    assert one(connection, "select count(*) from mempair.change_2_a") == 2
    connection.execute("select mempair.drop_model('second')")
    assert connection.execute(OBJECTS).fetchall() == before
    for table in ("model", "state", "published", "learned", "rejected", "receipt", "ledger", "former_model"):
        assert one(connection, f"select count(*) from mempair.{table}") == 0
    create(connection, GOOD)
    assert len(one_model) > len(before)


def test_only_the_owner_of_the_schema_creates_models(database: str, superuser: Callable[[str], str]) -> None:
    with psycopg.connect(superuser(database), autocommit=True) as admin:
        admin.execute("create table t (id integer primary key, x float8, y boolean)")
        create = "select mempair.create_model('m', 't', target => 'y', features => array['x'])"
        with pytest.raises(psycopg.errors.DatabaseError, match="owns schema mempair") as error:
            admin.execute(create)
        assert error.value.sqlstate == "MP003"
        assert "set role" in str(error.value.diag.message_hint)
        admin.execute("alter table t owner to mempair_owner")
        admin.execute("set role mempair_owner")
        admin.execute(create)
        admin.execute("reset role")
        assert admin.execute("select pending_changes from mempair.model_status").fetchone() == (0,)


def test_a_warning_names_no_value_that_few_rows_have(world: World) -> None:
    """Servers log warnings, and a log outlives the rows."""
    world("create table t (id integer primary key, name text, label boolean)")
    world(
        "insert into t select i, case when i < 4 then 'Ada' else 'plain' end, i % 2 = 0 from generate_series(1, 60) i"
    )
    said: list[str] = []
    world.sql.add_notice_handler(lambda notice: said.append(f"{notice.message_primary} {notice.message_hint}"))
    world("""select mempair.create_model('m', 't', 'label', 'name', categories => '{"name": ["none"]}')""")
    (warning,) = [one for one in said if one.startswith("categories of")]
    assert warning.endswith("Values that are there: plain. Capitals count.")
    assert not [one for one in said if "Ada" in one]
