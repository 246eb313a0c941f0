"""What is learned of each row is what the table says of it now: after statements that change rows in unusual ways, and
after those that change what is read of them without changing a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mempair_db.pair.fingerprint import fingerprints
from mempair_db.worker import changes
from tests.world import World

CREATE = [
    "create type plan_kind as enum ('basic', 'plus', 'pro')",
    "create table addr (id int primary key)",
    "insert into addr select generate_series(1, 2000)",
    "create table orders (id int primary key, ship int references addr on delete set null on update cascade,"
    " bill int references addr on delete set null on update cascade, amount float8, plan plan_kind, late boolean,"
    " twice float8 generated always as (amount * 2) stored)",
    "insert into orders select i, 1 + i % 2000, 1 + i * 7 % 2000, i % 50, (enum_range(null::plan_kind))[1 + i % 3],"
    " i * 7919 % 17 < 8 from generate_series(1, 1500) i",
    "select mempair.create_model('m', 'orders', target => 'late', features => '{ship,bill,amount,plan,twice}')",
]


def learned(world: World) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key, mark in world.execute("select row_key, fingerprint from mempair.learned where model_id = 1"):
        found.setdefault(key, []).append(mark)
    return found


def present(world: World) -> dict[str, list[int]]:
    """The fingerprints that the table's rows have now."""
    rows = world.execute("select row_key, x, c, y from mempair.source_1 where y is not null")
    x, y = np.array([row[1] for row in rows]) + 0.0, np.array([row[3] for row in rows])
    texts: Sequence[Any] = [tuple(row[2]) for row in rows] if rows and rows[0][2] is not None else ()
    marks = fingerprints(world.one("select secret from mempair.secret where model_id = 1"), x, y, texts)
    found: dict[str, list[int]] = {}
    for (key, *_), mark in zip(rows, marks.tolist(), strict=True):
        found.setdefault(key, []).append(mark)
    return found


def check(world: World) -> None:
    world.work()
    assert learned(world) == present(world)
    found = world.execute("select finding from mempair.reconcile('m')")
    assert found in ([], [("no unique index guards its key any more",)])


@pytest.fixture
def orders(world: World) -> World:
    world(*CREATE)
    check(world)
    assert len(learned(world)) == 1500
    return world


WAYS = {
    "a row changed twice by one deletion elsewhere": ["delete from addr where id <= 600"],
    "a row changed twice by one update elsewhere": ["update addr set id = id + 10000 where id % 2 = 0"],
    "deleted and inserted by one statement": [
        "with gone as (delete from orders where id <= 30 returning *) insert into orders (id, ship, amount, plan, late)"
        " select id, ship, amount + 1, 'pro', late from gone"
    ],
    "a trigger of the user that runs before ours": [
        "create function correct() returns trigger language plpgsql as"
        " $$ begin update orders set amount = 77 where id = new.id and amount <> 77; return null; end $$",
        "create trigger a after insert or update on orders for each row execute function correct()",
        "update orders set plan = 'basic' where id <= 20",
        "insert into orders (id, amount, plan, late) select i, i, 'pro', true from generate_series(5001, 5030) i",
    ],
    "no primary key any more": [
        "alter table orders drop constraint orders_pkey",
        "update orders set amount = amount + 1 where id <= 100",
        "update orders set amount = amount + 1 where id <= 50",
        "delete from orders where id = 7",
    ],
    "zeros of both signs": [
        "update orders set amount = 0 where id <= 10",
        "update orders set amount = '-0' where id <= 10",
        "delete from orders where id = 3",
    ],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("apart", [False, True], ids=["in one batch", "in several"])
def test_what_is_learned_is_what_the_table_says_after(orders: World, way: str, apart: bool) -> None:
    for statement in WAYS[way]:
        orders(statement)
        if apart:
            check(orders)
    check(orders)


def reasons(world: World) -> list[str]:
    """Why the table was read anew, other than at first and to find constants that fit its rows."""
    found = world.execute("select detail from mempair.ledger where kind = 'retrained' order by seq")
    return [detail for (detail,) in found if not re.search("constants|rows that were there", detail)]


def test_a_row_that_one_statement_changes_twice_is_forgotten_and_learned_once(orders: World) -> None:
    touched = orders.one("select count(*) from orders where ship <= 600 or bill <= 600")
    orders("delete from addr where id <= 600")
    assert orders.one("select changes from mempair.pending(1)") == 2 * touched
    check(orders)
    assert reasons(orders) == []  # no mismatch, so nothing was read anew
    assert orders.one("select count(*) from mempair.receipt") == 0  # nobody's row is gone


def test_a_deletion_whose_insertion_lies_far_back_in_the_queue_is_served_by_a_retrain(
    orders: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "BATCH_ROWS", 10)
    orders(
        "create function clean() returns trigger language plpgsql as"
        " $$ begin delete from orders where id > 9000; return null; end $$"
    )
    orders("create trigger a after insert on orders for each statement execute function clean()")
    # The trigger runs before ours, and all that it deletes is captured before anything that was inserted.
    orders("insert into orders (id, amount, plan, late) select i, i, 'pro', true from generate_series(8901, 9100) i")
    queued = "(select seq, op from mempair.change_1_a union all select seq, op from mempair.change_1_b) as q"
    assert orders.one(f"select array_agg(op order by seq) from {queued}") == [2, 2, 2, 1, 1, 1]
    check(orders)
    assert "lies too far back in the queue" in reasons(orders)[0]


SILENT = {
    "alter type plan_kind rename value 'plus' to 'medium'": "values of an enum were renamed",
    "alter table orders alter column twice set expression as (amount * 3)": "the expression of a generated column",
}


@pytest.mark.parametrize("statement", SILENT)
def test_statements_that_change_what_is_read_of_every_row_are_followed_by_a_retrain(
    orders: World, statement: str
) -> None:
    if "set expression" in statement and orders.sql.info.server_version < 170000:
        pytest.skip("SET EXPRESSION came with version 17")
    orders(statement)
    orders("delete from orders where id in (1, 4)")  # captured with values that were never learned
    check(orders)
    assert SILENT[statement] in reasons(orders)[0]
    orders("delete from orders where id = 7", "update orders set amount = 9 where id = 10")
    check(orders)
    assert len(reasons(orders)) == 1


def test_a_partition_with_its_columns_in_another_order_keeps_them_apart(world: World) -> None:
    world(
        "create table orders (id int primary key, a float8, b float8, late boolean) partition by range (id)",
        "create table low partition of orders for values from (0) to (1000)",
        "create table odd (late boolean, b float8, a float8, id int not null)",
        "insert into orders select i, i, -i, i % 3 = 0 from generate_series(1, 500) i",
        "insert into odd (id, a, b, late) select i, i, -i, i % 3 = 0 from generate_series(1000, 1300) i",
        "select mempair.create_model('m', 'orders', target => 'late', features => '{a,b}')",
    )
    check(world)
    world("alter table orders attach partition odd for values from (1000) to (2000)")
    check(world)
    world(
        "insert into odd (id, a, b, late) values (1500, 1, 2, true), (1501, 3, 4, false)",
        "update odd set a = 7 where id < 1010",
    )
    world(
        "delete from odd where id = 1100",
        "update orders set b = 5 where id > 1200",
        "insert into odd (id, a, late) values (1502, 1, true)",
    )
    check(world)
    assert len(reasons(world)) == 1
    world("drop table odd")
    check(world)
    assert "dropped or detached" in reasons(world)[1]
    assert len(learned(world)) == 500
