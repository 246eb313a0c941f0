"""What capture says of a statement comes to the difference it made: nothing twice, nothing stale, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

# Every waiting row with the sign of its event: what came counts +1, what went −1.
EVENTS = """
select case q.op when 1 then 1 else -1 end, q.keys[i], (select array_agg(v) from unnest(q.x[i:i]) v)::text,
       (select array_agg(v) from unnest(q.c[i:i]) v)::text, q.y[i]
from (select * from mempair.change_1_a union all select * from mempair.change_1_b) q, generate_series(1, q.rows) i
"""
ROWS = "select row_key, x::text, c::text, y from mempair.source_1 where y is not null"
CREATE = """
create table addr (id int primary key);
create table orders (id numeric primary key, ship int, bill int, amount float8, late boolean, note text);
"""
MODEL = "select mempair.create_model('late', 'orders', target => 'late', features => '{ship,bill,amount}')"


@pytest.fixture
def sql(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CREATE)
        yield connection


def rows(sql: psycopg.Connection[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(sql.execute(ROWS).fetchall())


def net(sql: psycopg.Connection[Any]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for sign, *row in sql.execute(EVENTS):
        found[tuple(row)] += sign
    return +found if all(found.values()) else Counter({row: count for row, count in found.items() if count})


def events(sql: psycopg.Connection[Any]) -> int:
    return int(sql.execute("select changes from mempair.pending(1)").fetchone()[0])  # type: ignore[index]


def forget(sql: psycopg.Connection[Any]) -> None:
    sql.execute("truncate mempair.change_1_a, mempair.change_1_b")


def difference(sql: psycopg.Connection[Any], *statements: str) -> tuple[Counter[Any], Counter[Any]]:
    """Return what the statements did to the rows, and what capture says they did."""
    before = rows(sql)
    forget(sql)
    for statement in statements:
        sql.execute(statement)
    after = rows(sql)
    did = Counter({row: after[row] - before[row] for row in {*before, *after} if after[row] != before[row]})
    said: Counter[Any] = Counter()
    for sign, *row in sql.execute(EVENTS):
        said[tuple(row)] += sign
    return did, Counter({row: count for row, count in said.items() if count})


def test_a_statement_that_changes_a_row_twice_says_what_was_there_first_and_what_is_there_last(
    sql: psycopg.Connection[Any],
) -> None:
    sql.execute("alter table orders add foreign key (ship) references addr on delete set null on update cascade")
    sql.execute("alter table orders add foreign key (bill) references addr on delete set null on update cascade")
    sql.execute("insert into addr select generate_series(1, 2000)")
    sql.execute(MODEL)
    sql.execute(
        "insert into orders select i, 1 + i % 2000, 1 + i * 7 % 2000, i, i % 3 = 0 from generate_series(1, 4000) i"
    )
    did, said = difference(sql, "delete from addr where id <= 600")
    assert did == said
    assert events(sql) == sum(map(abs, did.values()))  # no version between the first and the last is spoken of
    did, said = difference(sql, "update addr set id = id + 10000 where id % 2 = 0")
    assert did == said
    assert events(sql) == sum(map(abs, did.values()))


WAYS = {
    "delete and insert in one statement": [
        "with gone as (delete from orders where id <= 3 returning *)"
        " insert into orders select id, ship, bill, amount + 1, late, note from gone"
    ],
    "update beside delete": ["with u as (update orders set amount = 7 where id = 1) delete from orders where id = 2"],
    "the same rows again": ["update orders set amount = amount + 1", "update orders set amount = amount - 1"],
    "keys that move, and others that change": ["update orders set id = id + id % 2 * 100, amount = amount + id % 3"],
    "labels that come and go": ["update orders set late = nullif(late, id % 2 = 0)", "update orders set late = id < 9"],
    "keys that swap": ["update orders set id = 1 - id where id in (0, 1)"],
    "upsert": ["insert into orders values (1, 5, 5, 5, true) on conflict (id) do update set amount = 99"],
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_happens_to_rows_capture_says_the_difference(sql: psycopg.Connection[Any], way: str) -> None:
    sql.execute("alter table orders drop constraint orders_pkey, add primary key (id)")
    sql.execute(MODEL)
    sql.execute("insert into orders select i, i, i, i, i % 3 = 0 from generate_series(1, 50) i")
    did, said = difference(sql, *WAYS[way])
    assert did == said


TRIGGERS = """
create function correct() returns trigger language plpgsql as
$$ begin update orders set amount = amount + 1000 where id = new.id and amount < 1000; return null; end $$;
create trigger a_correct after insert or update on orders for each row execute function correct();
create function clean() returns trigger language plpgsql as
$$ begin delete from orders where amount > 1040; return null; end $$;
create trigger a_clean after insert or update on orders for each statement execute function clean();
"""


def test_triggers_of_the_user_that_run_before_ours_change_nothing(sql: psycopg.Connection[Any]) -> None:
    sql.execute(MODEL)
    sql.execute(TRIGGERS)
    did, said = difference(sql, "insert into orders select i, i, i, i, i % 3 = 0 from generate_series(1, 50) i")
    assert did == said
    assert len(did) == 40
    did, said = difference(sql, "update orders set amount = 5 where id < 10")
    assert did == said


def test_a_row_that_a_trigger_keeps_out_of_its_new_partition_only_goes(sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        "drop table orders; create table orders (id int primary key, ship int, bill int, amount float8, late boolean)"
        " partition by range (id)"
    )
    sql.execute("create table low partition of orders for values from (0) to (100)")
    sql.execute("create table high partition of orders for values from (100) to (200)")
    sql.execute(MODEL)
    sql.execute("create function refuse() returns trigger language plpgsql as $$ begin return null; end $$")
    sql.execute("create trigger refuse before insert on high for each row execute function refuse()")
    sql.execute("insert into orders select i, i, i, i, i % 3 = 0 from generate_series(1, 50) i")
    for where in ("id = 1", "id between 2 and 5"):
        did, said = difference(sql, f"update orders set id = id + 100 where {where}")
        assert set(did.values()) == {-1}
        assert did == said


def test_a_table_that_lost_its_primary_key_is_captured_row_by_row(sql: psycopg.Connection[Any]) -> None:
    sql.execute(MODEL)
    sql.execute("alter table orders drop constraint orders_pkey")
    insert = "insert into orders select i % 5, i, i, i % 2, true from generate_series(1, 50) i"
    for statements in (
        [insert, insert],
        ["update orders set amount = 1 - amount"],
        ["delete from orders where bill < 9"],
    ):
        did, said = difference(sql, *statements)
        assert did == said
    assert sql.execute("select mempair.schema_changes(1)").fetchone() == ("no unique index guards its key any more",)


def test_equal_rows_that_change_together_are_all_spoken_of(sql: psycopg.Connection[Any]) -> None:
    sql.execute(MODEL)
    sql.execute("alter table orders drop constraint orders_pkey")
    sql.execute("insert into orders select 1, 1, 1, 1, true from generate_series(1, 700)")
    did, said = difference(sql, "update orders set amount = 2")
    assert sorted(did.values()) == [-700, 700]
    assert did == said


def test_a_column_with_the_name_of_our_alias_is_a_column(sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        "create table t (id numeric primary key, mempair_row float8, t text, r boolean, new_rows int, e int);"
        "insert into t values (1, 1, 'a', true, 1, 1);"
        "select mempair.create_model('m', 't', target => 'r', features => '{mempair_row,t,new_rows,e}')"
    )
    did, said = difference(
        sql,
        "insert into t values (2, 2, 'b', false, 2, 2), (3, 3, null, true, 3, 3), (4, 3, null, true, 3, 3)",
        "update t set mempair_row = 4 where id = 1",
        "delete from t where id = 3",
    )
    assert did == said
    assert sorted(did.values()) == [-1, 1, 1, 1]
    assert sql.execute("select * from mempair.reconcile('m')").fetchall() == []


def test_keys_and_subjects_of_any_length_are_kept_as_digests(sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        "create table t (id text primary key, x int, y boolean, who text);"
        "select mempair.create_model('m', 't', target => 'y', features => '{x}', subject => 'who')"
    )
    sql.execute(
        "insert into t select repeat(chr(97 + i), 1500), i, true, repeat('w', 5000) from generate_series(1, 3) i"
    )
    sql.execute("insert into t values ('short', 1, true, 'me')")
    sql.execute("delete from t where x = 2")
    keys = [key for (key,) in sql.execute("select unnest(keys) from mempair.change_1_a")]
    assert len(set(keys)) == 4
    assert max(map(len, keys)) == len("sha256:") + 64
    subjects = sql.execute("select subjects from mempair.change_1_a where op = 2").fetchone()
    assert subjects == sql.execute("select array[mempair.short_key(repeat('w', 5000))]").fetchone()
    assert net(sql) == rows(sql)
