"""Capture: which statements make which events, in which order, and that it never gets in the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from mempair_db.database.models import DELETE, INSERT, TRUNCATE

# By a key of this type a row cannot always be found, so what came is shown; test_named has rows that are only named.
TABLE = """
create table customers (id numeric primary key, age float8, plan text, churned boolean, note text);
select mempair.create_model('churn', 'customers', target => 'churned', features => '{age,plan}');
"""
# A queue's chunks, row by row.
EVENTS = """
select q.op, q.keys[i], (select array_agg(v) from unnest(q.x[i:i]) v),
       (select array_agg(v) from unnest(q.c[i:i]) v), q.y[i]
from (select * from mempair.change_1_a union all select * from mempair.change_1_b) as q, generate_series(1, q.rows) i
order by q.seq, i
"""
Event = tuple[int, str, list[float], list[str], float]


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def events(connection: psycopg.Connection, model: int = 1) -> list[Any]:
    return connection.execute(EVENTS.replace("_1_", f"_{model}_")).fetchall()


def forget_events(connection: psycopg.Connection) -> None:
    connection.execute("truncate mempair.change_1_a, mempair.change_1_b")


def learn(key: int, age: float, plan: str = "basic", label: float = 1.0) -> Event:
    return (INSERT, str(key), [age], [plan], label)


def unlearn(key: int, age: float, plan: str = "basic", label: float = 1.0) -> Event:
    return (DELETE, str(key), [age], [plan], label)


TRUNCATED = (TRUNCATE, None, None, None, None)
ROWS = "insert into customers values (1, 10, 'basic', true), (2, 20, 'basic', true), (3, 30, 'basic', true)"


def test_inserts_are_captured_in_the_order_of_the_statement(connection: psycopg.Connection) -> None:
    connection.execute("insert into customers values (5, 50, 'pro', false)")
    connection.execute(ROWS)
    assert events(connection) == [learn(5, 50, "pro", -1.0), learn(1, 10), learn(2, 20), learn(3, 30)]


def test_copy_and_insert_select_are_captured(connection: psycopg.Connection) -> None:
    with connection.cursor().copy("copy customers (id, age, plan, churned) from stdin") as copy:
        copy.write_row((1, 10, "basic", True))
        copy.write_row((2, 20, "basic", True))
    connection.execute("insert into customers select id + 10, age, plan, churned from customers order by id desc")
    assert events(connection) == [learn(1, 10), learn(2, 20), learn(12, 20), learn(11, 10)]


def test_an_update_of_a_feature_unlearns_the_old_and_learns_the_new(connection: psycopg.Connection) -> None:
    connection.execute(ROWS)
    forget_events(connection)
    connection.execute("update customers set age = age + 1 where id < 3")
    got = events(connection)
    assert sorted(got[:2]) == [unlearn(1, 10), unlearn(2, 20)]
    assert sorted(got[2:]) == [learn(1, 11), learn(2, 21)]


@pytest.mark.parametrize(
    "update",
    [
        "update customers set note = 'seen'",
        "update customers set age = age",
        "update customers set age = 99 where false",
        "update customers set id = id",
    ],
)
def test_an_update_that_changes_nothing_the_model_sees_makes_no_event(
    connection: psycopg.Connection, update: str
) -> None:
    connection.execute(ROWS)
    forget_events(connection)
    connection.execute(update)
    assert events(connection) == []


def test_only_changed_rows_of_an_update_make_events(connection: psycopg.Connection) -> None:
    connection.execute(ROWS)
    forget_events(connection)
    connection.execute("update customers set plan = case id when 2 then 'pro' else plan end, note = 'seen'")
    assert events(connection) == [unlearn(2, 20), learn(2, 20, "pro")]


def test_keys_that_swap_are_all_unlearned_before_any_is_learned(connection: psycopg.Connection) -> None:
    connection.execute("alter table customers drop constraint customers_pkey, add primary key (id) deferrable")
    connection.execute("insert into customers values (1, 10, 'basic', true), (2, 20, 'basic', true)")
    forget_events(connection)
    connection.execute("update customers set id = 3 - id")
    got = events(connection)
    assert sorted(got[:2]) == [unlearn(1, 10), unlearn(2, 20)]
    assert sorted(got[2:]) == [learn(1, 20), learn(2, 10)]


def test_a_label_that_comes_learns_and_one_that_goes_unlearns(connection: psycopg.Connection) -> None:
    connection.execute("insert into customers values (1, 10, 'basic', null)")
    connection.execute("update customers set age = 11")
    assert events(connection) == []
    connection.execute("update customers set churned = true")
    connection.execute("update customers set churned = false")
    connection.execute("update customers set churned = null")
    connection.execute("delete from customers")
    assert events(connection) == [
        learn(1, 11),
        unlearn(1, 11),
        learn(1, 11, label=-1.0),
        unlearn(1, 11, label=-1.0),
    ]


def test_deletes_carry_the_row_and_the_time(connection: psycopg.Connection) -> None:
    connection.execute(ROWS)
    forget_events(connection)
    connection.execute("delete from customers where id >= 2")
    assert events(connection) == [unlearn(2, 20), unlearn(3, 30)]
    found = connection.execute(
        "select captured_at between now() - interval '1 minute' and now() from mempair.change_1_a"
    )
    assert found.fetchall() == [(True,), (True,)]


def test_truncate_is_one_event(connection: psycopg.Connection) -> None:
    connection.execute(ROWS)
    forget_events(connection)
    connection.execute("truncate customers")
    assert events(connection) == [TRUNCATED]


def test_an_upsert_learns_what_it_inserts_and_relearns_what_it_updates(connection: psycopg.Connection) -> None:
    connection.execute("insert into customers values (1, 10, 'basic', true)")
    connection.execute(ROWS + " on conflict (id) do nothing")
    forget_events(connection)
    connection.execute(
        "insert into customers values (3, 31, 'basic', true), (4, 40, 'basic', true) "
        "on conflict (id) do update set age = excluded.age"
    )
    assert sorted(events(connection)) == [learn(3, 31), learn(4, 40), unlearn(3, 30)]


def test_merge_is_captured(connection: psycopg.Connection) -> None:
    if connection.info.server_version < 150000:
        pytest.skip("MERGE came with version 15")
    connection.execute(ROWS)
    forget_events(connection)
    connection.execute("""
        merge into customers c using (values (1, 11.0), (2, null), (9, 90)) as v(id, age) on c.id = v.id
        when matched and v.age is null then delete
        when matched then update set age = v.age
        when not matched then insert values (v.id, v.age, 'basic', true)
    """)
    assert sorted(events(connection)) == [learn(1, 11), learn(9, 90), unlearn(1, 10), unlearn(2, 20)]


def test_data_modifying_ctes_are_captured(connection: psycopg.Connection) -> None:
    connection.execute(ROWS)
    forget_events(connection)
    connection.execute("""
        with gone as (delete from customers where id = 1 returning *)
        insert into customers select id + 100, age, plan, churned from gone
    """)
    assert sorted(events(connection)) == [learn(101, 10), unlearn(1, 10)]


def test_a_cascade_from_a_parent_is_captured(connection: psycopg.Connection) -> None:
    connection.execute("create table country (id int primary key); insert into country values (1), (2)")
    connection.execute("alter table customers add country int references country on delete cascade")
    connection.execute("insert into customers values (1, 10, 'basic', true, null, 1), (2, 20, 'basic', true, null, 2)")
    forget_events(connection)
    connection.execute("delete from country where id = 1")
    assert events(connection) == [unlearn(1, 10)]
    connection.execute("truncate country cascade")
    assert events(connection)[1:] == [TRUNCATED]


def test_what_is_rolled_back_was_never_captured(connection: psycopg.Connection) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute(ROWS)
    with connection.transaction():
        connection.execute("insert into customers values (1, 10, 'basic', true)")
        with connection.transaction(force_rollback=True):
            connection.execute("insert into customers values (2, 20, 'basic', true)")
    assert events(connection) == [learn(1, 10)]


def test_statements_without_rows_make_no_events(connection: psycopg.Connection) -> None:
    connection.execute("insert into customers select * from customers")
    connection.execute("delete from customers")
    assert events(connection) == []


def test_identity_and_generated_columns_are_captured_as_stored(connection: psycopg.Connection) -> None:
    connection.execute("""
        create table boxes (id int generated always as identity primary key, side float8,
                            area float8 generated always as (side * side) stored, heavy boolean);
        select mempair.create_model('heavy', 'boxes', target => 'heavy', features => '{area}');
        insert into boxes (side, heavy) values (3, true);
        update boxes set side = 4;
    """)
    assert events(connection, 2) == [(1, "1", None, None, None), (2, "1", [9.0], None, 1.0), (1, "1", None, None, None)]
    assert connection.execute("select x from mempair.source_2").fetchall() == [([16.0],)]


def test_two_models_on_one_table_capture_each_for_itself(connection: psycopg.Connection) -> None:
    connection.execute("select mempair.create_model('age', 'customers', target => 'age', features => '{churned}')")
    connection.execute("insert into customers values (1, 10, 'basic', true), (2, 20, 'basic', null)")
    assert events(connection) == [learn(1, 10)]
    assert repr(events(connection, 2)) == repr([(1, "1", [1.0], None, 10.0), (1, "2", [math.nan], None, 20.0)])


def test_renaming_columns_table_and_schema_changes_nothing(connection: psycopg.Connection) -> None:
    connection.execute("insert into customers values (1, 10, 'basic', true)")
    connection.execute("""
        alter table customers rename age to years;
        alter table customers rename id to number;
        alter table customers rename churned to "has gone";
        alter table customers rename to clients;
        create schema crm;
        alter table clients set schema crm;
    """)
    connection.execute("insert into crm.clients values (2, 20, 'basic', true)")
    connection.execute("update crm.clients set years = 21 where number = 2")
    connection.execute("delete from crm.clients")
    assert events(connection) == [
        learn(1, 10),
        learn(2, 20),
        unlearn(2, 20),
        learn(2, 21),
        unlearn(1, 10),
        unlearn(2, 21),
    ]


def test_columns_come_and_go_under_a_model(connection: psycopg.Connection) -> None:
    connection.execute("insert into customers values (1, 10, 'basic', true)")
    connection.execute("alter table customers drop column note, add column first_seen date default current_date")
    connection.execute("insert into customers values (2, 20, 'basic', true)")
    connection.execute("update customers set age = 11 where id = 1")
    assert events(connection) == [learn(1, 10), learn(2, 20), unlearn(1, 10), learn(1, 11)]


def test_a_used_column_cannot_be_dropped_or_retyped_by_accident(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        connection.execute("alter table customers drop column age")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("alter table customers alter column age type text")


@pytest.mark.parametrize(
    "cascade",
    [
        "alter table customers drop column age cascade",
        "drop function mempair.y_1 cascade",
        "drop table mempair.change_1_b cascade",
    ],
)
def test_a_cascade_ends_capture_but_never_a_users_write(connection: psycopg.Connection, cascade: str) -> None:
    connection.execute(cascade)
    connection.execute("insert into customers (id, plan, churned) values (1, 'basic', true)")
    connection.execute("update customers set plan = 'pro'")
    connection.execute("delete from customers")
    connection.execute("truncate customers")
    assert connection.execute("select count(*) from mempair.change_1_a").fetchone() == (0,)
    connection.execute("select mempair.drop_model('churn')")
    connection.execute("insert into customers (id) values (1)")


WILD = ["null", "'NaN'", "'Infinity'", "'-Infinity'", "1e308", "-1e308", "1e-320", "'-0'"]
WILD_ELSEWHERE = [
    ("b", "1e131071"),
    ("b", "-1e-16000"),
    ("d", "infinity"),
    ("d", "4713-01-01 BC"),
    ("d", "5874897-12-31"),
    ("m", "24:00:00"),
    ("t", "-infinity"),
    ("t", "294276-12-31"),
    ("i", "178000000 years"),
    ("c", "x" * 100_000),
]


def test_wild_values_never_break_a_statement(connection: psycopg.Connection) -> None:
    connection.execute("""
        create table wild (id int generated always as identity primary key, a float8, b numeric, d date,
                           t timestamptz, m time, i interval, c text, y float8);
        select mempair.create_model('wild', 'wild', target => 'y',
                                    features => 'a,b,d,t,i,c,d:cyclical,t:cyclical,m:cyclical,a * b,c:hash:8');
    """)
    for value in WILD:
        connection.execute(f"insert into wild (a, y) values ({value}, {value})")
    for column, value in WILD_ELSEWHERE:
        connection.execute(f"insert into wild ({column}, y) values (%s, 1)", [value])
    connection.execute("update wild set a = 1, b = 2")
    connection.execute("delete from wild")
    captured = connection.execute("select op, sum(rows) from mempair.change_2_a group by op order by op").fetchall()
    assert captured == [(1, 32), (2, 32)]


def test_a_role_that_may_only_insert_can_insert(
    connection: psycopg.Connection, database: str, superuser: Callable[[str], str]
) -> None:
    with psycopg.connect(superuser(database), autocommit=True) as admin:
        admin.execute("create role only_inserts")
        try:
            admin.execute("grant insert on customers to only_inserts")
            admin.execute("set role only_inserts")
            admin.execute(ROWS)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                admin.execute("select * from mempair.change_1_a")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                admin.execute("select mempair.x_1(null)")
        finally:
            admin.execute("reset role")
            admin.execute("revoke all on customers from only_inserts")
            admin.execute("drop role only_inserts")
    assert len(events(connection)) == 3


def test_names_in_the_users_search_path_do_not_shadow_ours(connection: psycopg.Connection) -> None:
    connection.execute("""
        create schema evil;
        create function evil.lie(text, text) returns boolean language sql as 'select false';
        create operator evil.= (leftarg = text, rightarg = text, function = evil.lie);
        create function evil.clock_timestamp() returns timestamptz language sql as 'select null::timestamptz';
        create temporary table queue (model_id int, active int);
        set search_path = evil, public, pg_catalog;
    """)
    connection.execute(ROWS)
    connection.execute("update customers set note = 'x'")
    connection.execute("delete from customers where id OPERATOR(pg_catalog.=) 1")
    assert events(connection) == [learn(1, 10), learn(2, 20), learn(3, 30), unlearn(1, 10)]
    assert connection.execute("select count(captured_at) from mempair.change_1_a").fetchone() == (1,)


PARTITIONED = """
drop table customers cascade;
create table customers (id numeric, age float8, plan text, churned boolean, primary key (id)) partition by range (id);
create table low partition of customers for values from (0) to (100);
create table high partition of customers for values from (100) to (1000) partition by range (id);
create table high_1 partition of high for values from (100) to (500);
create table high_2 partition of high for values from (500) to (1000);
select mempair.drop_model('churn');
select mempair.create_model('churn', 'customers', target => 'churned', features => '{age,plan}');
"""


def test_every_level_of_a_partitioned_table_captures_once(connection: psycopg.Connection) -> None:
    connection.execute(PARTITIONED)
    connection.execute("insert into customers values (1, 10, 'basic', true), (200, 20, 'basic', true)")
    connection.execute("insert into low values (2, 30, 'basic', true)")
    connection.execute("insert into high values (600, 40, 'basic', true)")
    connection.execute("insert into high_1 values (300, 50, 'basic', true)")
    with connection.cursor().copy("copy high_2 from stdin") as copy:
        copy.write_row((700, 60, "basic", True))
    expected = [learn(1, 10), learn(200, 20), learn(2, 30), learn(600, 40), learn(300, 50), learn(700, 60)]
    assert events(connection, 2) == expected
    connection.execute("truncate mempair.change_2_a")
    connection.execute("update customers set id = id + 200 where id = 1")  # moves to another partition
    connection.execute("delete from high_1 where id = 300")
    assert events(connection, 2) == [unlearn(1, 10), learn(201, 10), unlearn(300, 50)]


def test_truncating_a_partition_forgets_its_rows_and_truncating_the_table_is_one_event(
    connection: psycopg.Connection,
) -> None:
    connection.execute(PARTITIONED)
    connection.execute("insert into customers select i, 10, 'basic', true from generate_series(1, 900, 100) i")
    connection.execute("truncate mempair.change_2_a")
    connection.execute("truncate high_1")
    assert events(connection, 2) == [unlearn(key, 10) for key in (101, 201, 301, 401)]
    connection.execute("truncate mempair.change_2_a")
    connection.execute("truncate high")
    assert events(connection, 2) == [unlearn(key, 10) for key in (501, 601, 701, 801)]
    connection.execute("truncate mempair.change_2_a")
    with connection.transaction():
        connection.execute("truncate customers")
        connection.execute("insert into customers values (5, 10, 'basic', true)")
        connection.execute("truncate low")
    assert events(connection, 2) == [TRUNCATED, learn(5, 10), unlearn(5, 10)]


def test_the_plan_of_a_small_update_does_not_slow_a_large_one(connection: psycopg.Connection) -> None:
    connection.execute("insert into customers select i, i, 'basic', true from generate_series(1, 30000) i")
    for key in range(1, 8):
        connection.execute("update customers set age = age + 1 where id = %s", [key])
    connection.execute("set statement_timeout = '20s'")  # a nested loop over 30,000 rows takes minutes
    connection.execute("update customers set age = age + 1")


def test_swapped_queue_tables_keep_everything_and_only_the_drained_one_is_erased(
    connection: psycopg.Connection, database: str
) -> None:
    def call(function: str) -> object:
        row = connection.execute(f"select mempair.{function}(1)").fetchone()
        return row and row[0]

    connection.execute(ROWS)
    call("rotate_queue")
    connection.execute("insert into customers values (4, 40, 'basic', true)")
    assert call("erase_queue") is None  # three rows wait in it
    assert [event[1] for event in events(connection)] == ["1", "2", "3", "4"]
    connection.execute("delete from mempair.change_1_a")
    size = "select pg_relation_size('mempair.change_1_a')"
    assert connection.execute(size).fetchone() != (0,)
    with psycopg.connect(database) as late:
        late.execute("insert into mempair.change_1_a (op, rows) values (1, 1)")  # a writer that chose before the swap
        assert call("erase_queue") is None
        late.rollback()
    assert call("erase_queue") == "a"
    assert connection.execute(size).fetchone() == (0,)
    assert [event[1] for event in events(connection)] == ["4"]
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.errors.InvalidTransactionState), connection.transaction():
        call("erase_queue")


def test_status_counts_what_waits(connection: psycopg.Connection) -> None:
    connection.execute(ROWS)
    connection.execute("select mempair.rotate_queue(1)")
    connection.execute("delete from customers where id = 1")
    status = "select pending_changes, pending_deletions, oldest_pending_deletion <= now() from mempair.model_status"
    assert connection.execute(status).fetchone() == (4, 1, True)


def test_a_rows_events_keep_their_order_among_many_writers(connection: psycopg.Connection, database: str) -> None:
    def write(client: int) -> None:
        with psycopg.connect(database, autocommit=True) as writer:
            for i in range(60):
                key = client * 1000 + i % 7
                writer.execute("insert into customers values (%s, 1, 'basic', true)", [key])
                writer.execute("delete from customers where id = %s", [key])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    present: set[str] = set()
    for op, key, *_ in events(connection):
        assert (key in present) == (op == 2)
        present ^= {key}
    assert present == set()
