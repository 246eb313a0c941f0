"""Statements that change what a model reads, or which rows are its own, and that no trigger sees, are noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql as sqls

from mempair_db.worker.loop import Worker


@pytest.fixture
def sql(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "create type plan_kind as enum ('basic', 'plus', 'pro');"
            "create domain kind as plan_kind;"
            "create table t (id int primary key, side float8, area float8 generated always as (side * side) stored,"
            " plan kind, y boolean, note text);"
            "insert into t (id, side, plan, y) select i, i, 'plus', i % 2 = 0 from generate_series(1, 20) i;"
            "select mempair.create_model('m', 't', target => 'y', features => '{area,plan}')"
        )
        yield connection


def changes(sql: psycopg.Connection[Any]) -> str | None:
    row = sql.execute("select mempair.schema_changes(1)").fetchone()
    assert row is not None
    return None if row[0] is None else str(row[0])


def noticed(sql: psycopg.Connection[Any], statement: str) -> str:
    """What is noticed of a statement; it stays so until a retrain takes the table as it is now."""
    assert changes(sql) is None
    sql.execute(statement)
    reason = changes(sql)
    assert reason is not None
    assert changes(sql) == reason
    sql.execute("select mempair.adopt_schema(1)")
    assert changes(sql) is None
    return reason


HARMLESS = [
    "alter table t rename plan to tier",
    "alter table t rename to u",
    "alter type plan_kind rename to other_kind",
    "alter type plan_kind add value 'gold' before 'basic'",
    "alter type plan_kind add value 'last'",
    "alter table t add column more int",
    "alter table t drop column note",
    "create index on t (side)",
    "vacuum full t",
    "alter table t alter column side set not null",
]


@pytest.mark.parametrize("statement", HARMLESS)
def test_what_changes_nothing_is_not_noticed(sql: psycopg.Connection[Any], statement: str) -> None:
    sql.execute(statement)
    assert changes(sql) is None


def test_a_renamed_enum_value_is_noticed(sql: psycopg.Connection[Any]) -> None:
    assert noticed(sql, "alter type plan_kind rename value 'plus' to 'medium'") == "values of an enum were renamed"


def test_enum_values_that_swap_their_names_are_noticed(sql: psycopg.Connection[Any]) -> None:
    swap = (
        "alter type plan_kind rename value 'plus' to 'x'; alter type plan_kind rename value 'pro' to 'plus';"
        "alter type plan_kind rename value 'x' to 'pro'"
    )
    assert "renamed" in noticed(sql, swap)


def test_another_expression_of_a_generated_column_is_noticed(sql: psycopg.Connection[Any]) -> None:
    if sql.info.server_version < 170000:
        pytest.skip("SET EXPRESSION came with version 17")
    reason = noticed(sql, "alter table t alter column area set expression as (side * 2)")
    assert reason == "the expression of a generated column was changed"


def lasting(sql: psycopg.Connection[Any]) -> str:
    """What reconcile goes on saying, though a retrain has taken the table as it is."""
    found = sql.execute("select string_agg(finding, '; ') from mempair.reconcile('m') where rows is null").fetchone()
    return str(found and found[0])


def test_a_table_that_becomes_unlogged_is_noticed(sql: psycopg.Connection[Any]) -> None:
    assert "unlogged" in noticed(sql, "alter table t set unlogged")
    assert "unlogged" in lasting(sql)
    sql.execute("alter table t set logged")
    assert lasting(sql) == "None"
    assert changes(sql) is None


def test_tables_that_inherit_are_noticed(sql: psycopg.Connection[Any]) -> None:
    assert "inherit" in noticed(sql, "create table child () inherits (t)")
    assert "inherit" in lasting(sql)


def test_a_primary_key_that_goes_is_noticed(sql: psycopg.Connection[Any]) -> None:
    assert "unique" in noticed(sql, "alter table t drop constraint t_pkey")
    assert "unique" in lasting(sql)


def test_a_table_that_becomes_a_partition_is_noticed(sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        "create table above (id int, side float8, area float8 generated always as (side * side) stored, plan kind,"
        " y boolean, note text) partition by range (id)"
    )
    assert "is a partition" in noticed(sql, "alter table above attach partition t default")
    assert "is a partition" in lasting(sql)


def test_a_dropped_column_is_noticed_and_writes_go_on(sql: psycopg.Connection[Any]) -> None:
    sql.execute("alter table t drop column plan cascade")
    sql.execute("insert into t (id, side, y) values (100, 1, true)")
    assert "dropped" in (changes(sql) or "")


def test_a_virtual_column_is_refused_and_beside_the_features_no_obstacle(sql: psycopg.Connection[Any]) -> None:
    if sql.info.server_version < 180000:
        pytest.skip("virtual generated columns came with version 18")
    sql.execute(
        "create table v (id int primary key, a float8, twice float8 generated always as (a * 2) virtual, y boolean);"
        "insert into v (id, a, y) values (1, 1, true)"
    )
    for arguments in ("target => 'y', features => '{a,twice}'", "target => 'twice', features => '{a}'"):
        with pytest.raises(psycopg.Error, match=r"'twice' of table public\.v is generated") as refusal:
            sql.execute(f"select mempair.create_model('v', 'v', {arguments})")
        assert refusal.value.sqlstate == "MP004"
        assert "stored" in (refusal.value.diag.message_hint or "")
    sql.execute("select mempair.create_model('v', 'v', target => 'y', features => '{a}')")
    sql.execute("insert into v (id, a, y) values (2, 2, true), (3, 3, false)")
    sql.execute("insert into v (id, a, y) values (4, 4, false)")
    sql.execute("update v set a = a + 1")
    sql.execute("delete from v where id = 4")
    row = sql.execute("select changes from mempair.pending(currval('mempair.model_id_seq')::integer)").fetchone()
    assert row == (2 + 1 + 8 + 1,)


PARTS = """
create table p (id numeric primary key, x float8, c text, y boolean) partition by range (id);
create table low partition of p for values from (0) to (100);
create table odd (y boolean, gone int, c text, id numeric not null, x float8);
alter table odd drop column gone;
insert into odd (id, x, c, y) select i, i, 'o', true from generate_series(100, 109) i;
"""
ODD = "alter table p attach partition odd for values from (100) to (200)"
PART_MODEL = "select mempair.create_model('p', 'p', target => 'y', features => '{x,c}')"
QUEUED = """
select q.op, k.*, (select array_agg(v) from unnest(q.x[k.i:k.i]) v), (select array_agg(v) from unnest(q.c[k.i:k.i]) v)
from (select * from mempair.change_2_a union all select * from mempair.change_2_b) q,
     unnest(q.keys) with ordinality as k(key, i) order by 1, 2
"""


def queued(sql: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    found = sql.execute(QUEUED).fetchall()
    sql.execute("truncate mempair.change_2_a, mempair.change_2_b")
    return [(op, key, x, c) for op, key, _, x, c in found]


def part_changes(sql: psycopg.Connection[Any]) -> str | None:
    row = sql.execute("select mempair.schema_changes(2)").fetchone()
    return row and row[0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_columns_of_a_partition_in_another_order_never_swap(sql: psycopg.Connection[Any], when: str) -> None:
    sql.execute(PARTS)
    if when == "before":
        sql.execute(ODD)
    sql.execute(PART_MODEL)
    if when == "after":
        sql.execute(ODD)
        assert part_changes(sql) == "partition public.odd was attached"
        sql.execute("select mempair.adopt_schema(2)")
        assert sql.execute("select finding from mempair.reconcile('p', repair => true)").fetchall() == [
            ("rows that were never captured",)
        ]
    assert part_changes(sql) is None
    queued(sql)
    sql.execute("insert into odd (id, x, c, y) values (150, 7, 'new', true), (151, 8, 'new', false)")
    assert queued(sql) == [(1, "150", [7.0], ["new"]), (1, "151", [8.0], ["new"])]
    sql.execute("alter table p rename c to category; alter table odd rename to stranger")
    sql.execute("alter table p add column more int; insert into p values (152, 9, 'through', true)")
    sql.execute("update stranger set x = x + 1 where id = 150")
    sql.execute("delete from stranger where id = 151")
    assert queued(sql) == [
        (1, "150", [8.0], ["new"]),
        (1, "152", [9.0], ["through"]),
        (2, "150", [7.0], ["new"]),
        (2, "151", [8.0], ["new"]),
    ]
    sql.execute("truncate stranger")
    assert len(queued(sql)) == 12


def test_a_partition_made_empty_needs_no_retrain_and_is_captured_at_once(sql: psycopg.Connection[Any]) -> None:
    sql.execute(PARTS)
    sql.execute(PART_MODEL)
    sql.execute("create table later partition of p for values from (200) to (300)")
    assert part_changes(sql) is None
    sql.execute("insert into later values (250, 1, 'l', true)")
    assert queued(sql) == [(1, "250", [1.0], ["l"])]


def attach_a_full_partition(sql: psycopg.Connection[Any]) -> None:
    sql.execute(PARTS)
    sql.execute(PART_MODEL)
    sql.execute("create table later (like p including all)")
    sql.execute("insert into later values (250, 1, 'l', true)")
    sql.execute("alter table p attach partition later for values from (200) to (300)")


def test_a_partition_that_a_retrain_meets_first_is_captured_all_the_same(sql: psycopg.Connection[Any]) -> None:
    attach_a_full_partition(sql)
    sql.execute("select mempair.adopt_schema(2)")  # of a retrain for another reason
    assert part_changes(sql) == "partition public.later was attached"
    queued(sql)
    sql.execute("delete from later where id = 250")
    assert queued(sql) == [(2, "250", [1.0], ["l"])]
    sql.execute("select mempair.adopt_schema(2)")
    assert part_changes(sql) is None


def test_a_partition_that_is_being_written_to_is_read_once_it_has_its_triggers(
    sql: psycopg.Connection[Any], database: str
) -> None:
    attach_a_full_partition(sql)
    with psycopg.connect(database) as writer:
        writer.execute("insert into later values (251, 2, 'l', true)")
        assert part_changes(sql) is None
    assert part_changes(sql) == "partition public.later was attached"


@pytest.mark.parametrize("how", ["drop table low", "alter table p detach partition low"])
def test_a_partition_that_goes_is_noticed(sql: psycopg.Connection[Any], how: str) -> None:
    sql.execute(PARTS)
    sql.execute(PART_MODEL)
    sql.execute("insert into p values (1, 1, 'a', true)")
    sql.execute(how)
    assert part_changes(sql) == "1 partitions were dropped or detached"


def test_a_detached_partition_is_its_own_master(sql: psycopg.Connection[Any]) -> None:
    sql.execute(PARTS + ODD)
    sql.execute(PART_MODEL)
    queued(sql)
    sql.execute("alter table p detach partition low; alter table p detach partition odd")
    for table in ("low", "odd"):
        sql.execute(f"alter table {table} drop column x; alter table {table} add column more int")
        sql.execute(f"insert into {table} (id, c, y) values (10, 'a', true), (11, 'b', true)")
        sql.execute(f"update {table} set c = 'c'")
        sql.execute(f"delete from {table} where id = 10")
        sql.execute(f"truncate {table}")
    assert queued(sql) == []


def test_truncating_a_partition_under_an_old_snapshot_is_noticed(sql: psycopg.Connection[Any], database: str) -> None:
    sql.execute(PARTS)
    sql.execute(PART_MODEL)
    sql.execute("insert into p values (1, 1, 'a', true)")
    with psycopg.connect(database) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 1 from p")
        sql.execute("insert into p values (2, 2, 'b', true)")  # the other does not see it, and removes it
        queued(sql)
        other.execute("truncate low")
        other.commit()
    assert queued(sql) == []
    assert "low was truncated" in (part_changes(sql) or "")
    sql.execute("select mempair.adopt_schema(2)")
    assert part_changes(sql) is None


def test_no_setting_of_a_user_keeps_a_truncation_from_being_captured(sql: psycopg.Connection[Any]) -> None:
    sql.execute(PARTS)
    sql.execute(PART_MODEL)
    sql.execute("insert into p values (1, 1, 'a', true)")
    queued(sql)
    sql.execute("set mempair.truncating_2 = 'on'; set session mempair.truncating = 'on'")
    sql.execute("truncate low")
    assert queued(sql) == [(2, "1", [1.0], ["a"])]


def test_a_table_that_a_subscription_fills_is_refused(
    sql: psycopg.Connection[Any], database: str, superuser: Callable[[str], str]
) -> None:
    with psycopg.connect(superuser(database), autocommit=True) as admin:
        name = sqls.Identifier(f"sub_{admin.info.dbname}")
        admin.execute("create table filled (id int primary key, x float8, y boolean)")
        admin.execute("alter table filled owner to mempair_owner")
        admin.execute(
            sqls.SQL(
                "create subscription {} connection 'dbname=nowhere' publication p"
                " with (connect = false, slot_name = none)"
            ).format(name)
        )
        try:
            # What the first synchronisation would write.
            admin.execute("set allow_system_table_mods = on")
            admin.execute(
                "insert into pg_subscription_rel (srsubid, srrelid, srsubstate)"
                " select oid, 'filled'::regclass, 'r' from pg_subscription where subdbid = (select oid from pg_database"
                " where datname = current_database())"
            )
            create = "select mempair.create_model('f', 'filled', target => 'y', features => '{x}')"
            with pytest.raises(psycopg.Error, match="logical replication") as refusal:
                sql.execute(create)
            assert refusal.value.sqlstate == "MP003"
        finally:
            admin.execute("delete from pg_subscription_rel")
            admin.execute(sqls.SQL("alter subscription {} disable").format(name))
            admin.execute(sqls.SQL("drop subscription {}").format(name))


def test_reconcile_says_that_policies_hide_rows_instead_of_calling_them_deleted(sql: psycopg.Connection[Any]) -> None:
    sql.execute("alter table t enable row level security; alter table t force row level security")
    for repair in ("false", "true"):
        with pytest.raises(psycopg.Error, match=r"policies of table public\.t hide rows") as refusal:
            sql.execute(f"select * from mempair.reconcile('m', repair => {repair})")
        assert refusal.value.sqlstate == "MP003"


def test_publishing_all_tables_is_no_obstacle(
    sql: psycopg.Connection[Any], database: str, superuser: Callable[[str], str]
) -> None:
    with psycopg.connect(superuser(database), autocommit=True) as admin:
        admin.execute("create publication everything for all tables")
    sql.execute("insert into t (id, side, plan, y) values (100, 1, 'pro', true)")
    for half in "ab":
        sql.execute(f"delete from mempair.change_1_{half}")
    sql.execute(PARTS)
    sql.execute(PART_MODEL)
    sql.execute("truncate p")
    sql.execute("select mempair.adopt_schema(2)")
    Worker(database).run_once()
    sql.execute("select mempair.drop_model('m'), mempair.drop_model('p')")
