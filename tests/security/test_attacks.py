"""Attacks by people who may use the database, each of which must fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from mempair_db import errors
from mempair_db.database.install import install
from mempair_db.worker.loop import Worker


@pytest.fixture
def shared(learned: Any, superuser: Any) -> Any:
    """A database where anybody may create objects in public and temporary tables, as before PostgreSQL 15."""
    with psycopg.connect(superuser(learned.dsn), autocommit=True) as connection:
        connection.execute("grant create, usage on schema public to public")
    return learned


@pytest.fixture
def stranger(shared: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shared.as_("stranger"), autocommit=True) as connection:
        yield connection


SHADOWS = """
create table public.spoils (who text, what text);
grant insert, select on public.spoils to public;
create function public.steal(what text) returns void language sql as
$$ insert into public.spoils values (current_user, what) $$;
grant execute on function public.steal to public;
"""

FUNCTIONS = {
    "abs(numeric)": "numeric",
    "abs(float8)": "float8",
    "array_position(text[], text)": "integer",
    "cardinality(float8[])": "integer",
    "cardinality(text[])": "integer",
    "unnest(text[])": "text",
    "unnest(text[], bigint[])": "text",
    "coalesce_(text)": "text",
    "convert_to(text, text)": "bytea",
    "date_part(text, timestamptz)": "float8",
    "exp(float8)": "float8",
    "format(text, integer)": "text",
    "format(text, text)": "text",
    "format(text, regclass)": "text",
    "int8send(bigint)": "bytea",
    "length(text)": "integer",
    "nextval(text)": "bigint",
    "quote_literal(text)": "text",
    "sha256(bytea)": "bytea",
    "sqrt(float8)": "float8",
    "to_char(timestamp, text)": "text",
    "now()": "timestamptz",
    "clock_timestamp()": "timestamptz",
}
OPERATORS = [
    ("=", "text", "text"),
    ("=", "integer", "integer"),
    ("=", "integer", "smallint"),
    ("=", "smallint", "integer"),
    ("=", "text", "varchar"),
    ("<>", "text", "text"),
    ("*", "float8", "float8"),
    ("-", "float8", "float8"),
    ("||", "text", "text"),
    ("||", "text", "integer"),
    ("||", "bigint", "text"),
    ("||", "bytea", "bytea"),
]


def plant(connection: psycopg.Connection[Any]) -> None:
    """Functions, operators and tables that would be found before ours on a careless path."""
    connection.execute(SHADOWS)
    for signature, result in FUNCTIONS.items():
        connection.execute(
            f"create function public.{signature} returns {result} language plpgsql as"
            f" $$ begin perform public.steal('{signature}'); return null; end $$"
        )
        connection.execute(f"grant execute on function public.{signature} to public")
    for i, (name, left, right) in enumerate(OPERATORS):
        connection.execute(
            f"create function public.operator_{i}({left}, {right}) returns boolean language plpgsql as"
            f" $$ begin perform public.steal('operator {name}'); return true; end $$"
        )
        connection.execute(
            f"create operator public.{name} (leftarg = {left}, rightarg = {right}, function = public.operator_{i})"
        )


def test_shadowed_functions_and_operators_are_never_called(shared: Any, stranger: psycopg.Connection[Any]) -> None:
    plant(stranger)
    with psycopg.connect(shared.dsn, autocommit=True) as owner:
        owner.execute("set search_path = public, pg_catalog")
        owner.execute("insert into customers values (5001, 30, 'a', '', true)")
        owner.execute("update customers set age = 31 where id > 5000")  # "=" would be theirs, in our own statement
        owner.execute("delete from customers where id > 5000")
        owner.execute("select mempair.create_model('second', 'public.customers', 'age', array['plan'], lambda => 0.01)")
        owner.execute("select mempair.pause_model('second'), mempair.resume_model('second')")
        owner.execute("select mempair.verify_odometer(), mempair.receipt('churn', '1'), mempair.capacity('churn')")
        owner.execute("select * from mempair.model_status, mempair.odometer")
        owner.execute("select mempair.drop_model('second')")
        stolen = owner.execute("select distinct * from public.spoils").fetchall()
        assert stolen == []
    with psycopg.connect(shared.as_("reader"), autocommit=True) as reader:
        reader.execute("set search_path = public, pg_catalog")
        reader.execute("select mempair_predict('churn', c) from public.customers c")
        reader.execute("select mempair.predict_all('churn')")
        reader.execute("select * from mempair.model_status")
    Worker(shared.as_("worker")).run_once()
    Worker(shared.dsn).run_once()
    spoils = stranger.execute("select * from public.spoils").fetchall()
    assert [row for row in spoils if row[0] != shared.names["stranger"]] == []


def test_shadows_that_were_there_before_the_installation_are_never_called(
    empty_database: str, roles: dict[str, str], superuser: Any
) -> None:
    with psycopg.connect(superuser(empty_database), autocommit=True) as connection:
        connection.execute("grant create, usage on schema public to public")
        statement = "alter role {} in database {} set search_path = public, pg_catalog"
        owner, name = conninfo_to_dict(empty_database)["user"], connection.info.dbname
        connection.execute(sql.SQL(statement).format(sql.Identifier(str(owner)), sql.Identifier(name)))
        connection.execute(sql.SQL("set session authorization {}").format(sql.Identifier(roles["stranger"])))
        plant(connection)
    install(empty_database)
    install(empty_database)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("create table t (id integer primary key, a numeric, b date, c text, y boolean)")
        connection.execute("select mempair.create_model('m', 't', target => 'y', features => array['a', 'b', 'c'])")
        connection.execute("insert into t values (1, 1.5, '2026-01-01', 'x', true), (2, 1e300, 'infinity', 'y', false)")
        connection.execute("select mempair.attest_state('m')")
        connection.execute("select * from mempair.verify_odometer()")
        connection.execute("select mempair_try_predict('m', t) from t")
        assert connection.execute("select * from public.spoils").fetchall() == []


def test_a_worker_whose_path_puts_others_first_refuses_to_start(shared: Any, stranger: psycopg.Connection[Any]) -> None:
    plant(stranger)
    with psycopg.connect(shared.as_("worker"), autocommit=True) as worker:
        statement = "alter role current_user in database {} set search_path = public, pg_catalog"
        worker.execute(sql.SQL(statement).format(sql.Identifier(worker.info.dbname)))
    with pytest.raises(errors.UnsafeSearchPath, match="reset search_path"):
        Worker(shared.as_("worker")).run_once()
    assert stranger.execute("select * from public.spoils").fetchall() == []


def test_temporary_tables_and_types_shadow_nothing(shared: Any) -> None:
    with psycopg.connect(shared.as_("reader"), autocommit=True) as reader:
        for name in ("model", "published", "queue", "ledger", "state", "pg_class", "pg_proc"):
            reader.execute(f"create temporary table {name} (model_id integer, id integer, name text, ready boolean)")
        reader.execute("create type pg_temp.float8 as (x integer)")
        reader.execute("set search_path = pg_temp, public")
        expected = reader.execute(
            "select count(pg_catalog.float8(mempair_predict('churn', c))) from public.customers c"
        ).fetchone()
        assert expected == (999,)
        reader.execute("select * from mempair.predict_all('churn')")


def test_our_trigger_functions_cannot_be_attached_to_another_table(stranger: psycopg.Connection[Any]) -> None:
    stranger.execute("create table public.mine (id integer, age float8, plan text, secret text, churned boolean)")
    for operation in ("insert", "delete", "update", "truncate"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(
                f"create trigger forged after {operation} on public.mine"
                f" execute function mempair.capture_1_{operation}()"
            )


def test_forged_events_cannot_be_written_or_sequenced(shared: Any, refused: Any) -> None:
    for kind in ("reader", "auditor", "stranger"):
        refused(shared.as_(kind), "insert into mempair.change_1_a (op, rows, keys) values (2, 1, '{7}')")
        refused(shared.as_(kind), "select nextval('mempair.change_1_seq')")
        refused(shared.as_(kind), "select mempair.capture_1_delete()")
        refused(shared.as_(kind), "select nextval('mempair.change_1_turn')")
        refused(shared.as_(kind), "select mempair.rotate_queue(1)")


NAMES = [
    "x'); drop table mempair.ledger; --",
    'x"; drop table mempair.ledger; --',
    "$$; drop table mempair.ledger; $$",
    "%s %I %L %1$s",
    "\\x00 \\' \n\t",
    "ключ 漢字 🗝",
    "pg_temp",
]


def test_hostile_names_of_models_tables_columns_categories_and_keys_are_only_names(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:

        def run(statement: str, **parts: Any) -> Any:
            # Composed, not parameters: psycopg would look for placeholders in the names.
            return owner.execute(sql.SQL(statement).format(**parts)).fetchone() if parts else owner.execute(statement)

        for i, name in enumerate(NAMES):
            names = {prefix: f"{prefix}{name}"[:50] for prefix in ("table", "key", "text", "label")}
            parts: dict[str, Any] = {key: sql.Identifier(value) for key, value in names.items()} | {"name": name}
            owner.execute(
                sql.SQL("create table {table} ({key} text primary key, {text} text, {label} text)").format(**parts)
            )
            owner.execute(
                sql.SQL(
                    "insert into {table} select {name} || i, {name} || i % 3, {name} from generate_series(1, 60) i"
                ).format(**parts)
            )
            run(
                "select mempair.create_model({name}, {source}::text::regclass, {label}, array[{text}],"
                " positive => {name}, lambda => 0.01,"
                " calibration_rows => 50, gamma => 100, categories => {categories}, subject => {key})",
                name=name,
                source=parts["table"].as_string(owner),
                categories=json.dumps({names["text"]: [name + "1", name + "2"]}),
                **{key: names[key] for key in ("label", "text", "key")},
            )
            Worker(database).run_once()
            owner.execute(sql.SQL("delete from {table} where {key} = {name} || 7").format(**parts))
            run("select mempair.retrain({name})", name=name)
            Worker(database).run_once()
            (receipt,) = run("select mempair.receipt({name}, {name} || 7)", name=name)
            assert receipt["deletions"][0]["row"] == name + "7"
            assert run("select count(mempair_predict({name}, t)) from {table} t", **parts) == (59,)
            run("select mempair.pause_model({name}), mempair.resume_model({name})", name=name)
            assert run("select count(*) from mempair.model where {yes}", yes=True) == (i + 1,)
        assert owner.execute("select * from mempair.verify_odometer()").fetchall() == []
        for name in NAMES:
            run("select mempair.drop_model({name})", name=name)


def test_row_security_cannot_be_gone_around(learned: Any, refused: Any) -> None:
    """A role that may see some rows gets at the others neither through the queue nor through predictions."""
    reader = learned.names["reader"]
    with psycopg.connect(learned.dsn, autocommit=True) as owner:
        owner.execute("alter table customers enable row level security")
        owner.execute(sql.SQL("create policy mine on customers to {} using (id <= 10)").format(sql.Identifier(reader)))
        owner.execute("insert into customers values (5001, 30, 'a', 'secret', true)")
    address = learned.as_("reader")
    refused(address, "select * from mempair.change_1_a")
    refused(address, "select * from mempair.source_1")
    refused(address, "select * from mempair.predict_all('churn')")
    with psycopg.connect(address) as connection:
        rows = connection.execute("select mempair_predict('churn', c) from customers c").fetchall()
        assert len(rows) == 9


def test_a_policy_that_hides_rows_from_a_retrain_is_an_error_not_half_a_model(learned: Any) -> None:
    with psycopg.connect(learned.dsn, autocommit=True) as owner:
        owner.execute("alter table customers enable row level security")
        owner.execute("alter table customers force row level security")
        owner.execute("create policy few on customers using (id <= 10)")
        owner.execute("select mempair.retrain('churn')")
        before = owner.execute("select epoch, clock from mempair.state").fetchone()
        Worker(learned.as_("worker")).run_once()
        assert "row-level security" in str(owner.execute("select failure from mempair.model").fetchone())
        assert owner.execute("select epoch, clock from mempair.state").fetchone() == before


ARRAYS = [
    "'{}'",
    "'{1}'",
    "'{1,2,3}'",
    "'{{1,2},{3,4}}'",
    "'{{1,2}}'",
    "'{NULL,1}'",
    "'{NaN,1}'",
    "array_fill(1::float8, array[1000000])",
    "array_fill(1::float8, array[2, 1000])",
]


def test_malformed_and_oversize_arrays_get_an_error_and_nothing_else(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("create table points (id integer primary key, a float8, b float8, y boolean)")
        owner.execute(
            "select mempair.create_model('p', 'points', target => 'y', features => array['a', 'b'], lambda => 0.01,"
            " calibration_rows => 200, gamma => 100, on_null => 'skip')"
        )
        owner.execute("insert into points select i, i % 10, i % 7, i % 10 > 4 from generate_series(1, 500) i")
        Worker(database).run_once()
        for array in ARRAYS:
            with pytest.raises(psycopg.Error) as error:
                owner.execute(f"select mempair_predict('p', {array}::float8[])")
            assert error.value.sqlstate == "MP104", array
            assert len(str(error.value)) < 700
            assert owner.execute(f"select mempair_try_predict('p', {array}::float8[])").fetchone() == (None,)
        shifted = owner.execute("select mempair_predict('p', '[5:6]={1,2}'::float8[])").fetchone()
        assert shifted == owner.execute("select mempair_predict('p', '{1,2}'::float8[])").fetchone()
        extremes = owner.execute("select mempair_predict('p', '{1e308,-1e308}'::float8[])").fetchone()
        assert extremes is not None
        for text in ("{1,2", "{a,b}", "1,2"):
            with pytest.raises(psycopg.errors.DataError):
                owner.execute(f"select mempair_predict('p', '{text}'::float8[])")


def test_messages_to_others_contain_no_values(learned: Any) -> None:
    """Errors about rows name the feature, never what it holds."""
    with psycopg.connect(learned.dsn, autocommit=True) as owner:
        owner.execute("select mempair.alter_model('churn', on_null => 'skip')")
    Worker(learned.dsn).run_once()
    with psycopg.connect(learned.as_("reader")) as connection, pytest.raises(psycopg.Error) as error:
        connection.execute(
            "select mempair_predict('churn', jsonb_populate_record(null::customers,"
            ' \'{"id": 1, "age": null, "plan": "a", "secret": "do not tell"}\'))'
        )
    assert error.value.sqlstate == "MP104"
    assert "do not tell" not in str(error.value) + str(error.value.diag.message_detail)
