"""A person's request in SQL: what is known about one key, and who answers for it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.world import World

TABLES = """
create table people (id integer primary key, age float8, plan text, left_us boolean);
insert into people select i, i * 7919 % 50, 'p' || i % 3, i % 2 = 0 from generate_series(1, 300) i;
create table "Or'ders<b>" (id text primary key, person integer, amount float8, late boolean);
insert into "Or'ders<b>" select 'o' || i, i % 100, i * 31 % 17, i % 3 = 0 from generate_series(1, 300) i;
select mempair.create_model('leaves', 'people', target => 'left_us', features => '{age,plan}');
select mempair.create_model('late', '"Or''ders<b>"', target => 'late', features => '{amount}', subject => 'person');
"""


@pytest.fixture
def people(world: World) -> World:
    world(TABLES)
    world.work()
    return world


def known(world: World, key: str) -> dict[str, tuple[Any, ...]]:
    """By model: in the table, learned, waiting, receipts."""
    rows = world.execute("select model, in_table, learned, deletions_waiting, receipts from mempair.request(%s)", key)
    return {name: tuple(rest) for name, *rest in rows}


def test_a_request_follows_a_row_from_the_table_to_its_receipt(people: World) -> None:
    assert known(people, "7") == {"leaves": (1, 1, 0, 0), "late": (3, 3, 0, 0)}
    people("delete from people where id = 7")
    assert known(people, "7")["leaves"] == (0, 1, 1, 0)
    people.work()
    assert known(people, "7") == {"leaves": (0, 0, 0, 1), "late": (3, 3, 0, 0)}
    people('delete from "Or\'ders<b>" where person = 7')
    assert known(people, "7")["late"] == (0, 0, 3, 0)
    people.work()
    assert known(people, "7")["late"] == (0, 0, 0, 3)


@pytest.mark.parametrize("key", ["no number", "99999999999999999999", "'; drop table people; --", "", "x" * 5_000])
def test_a_key_that_no_row_can_have_is_answered_too(people: World, key: str) -> None:
    assert [row[1:] for row in known(people, key).values()] == [(0, 0, 0), (0, 0, 0)]


def test_a_table_that_is_gone_does_not_hide_the_other_models(people: World) -> None:
    people('drop table "Or\'ders<b>" cascade')
    assert known(people, "7")["leaves"] == (1, 1, 0, 0)
    assert known(people, "7")["late"][0] is None


def test_the_controller_is_named_in_receipts(people: World) -> None:
    people(
        "select mempair.configure('controller', 'Example Ltd, privacy@example.org')", "delete from people where id = 7"
    )
    people.work()
    document = people.one("select mempair.receipt('leaves', '7')")
    assert document["controller"] == "Example Ltd, privacy@example.org"
    people("select mempair.configure('controller', null)")
    assert people.one("select mempair.receipt('leaves', '7')")["controller"] is None


def test_the_deadline_is_a_month_unless_it_was_set(people: World) -> None:
    assert people.one("select mempair.deadline()").days == 30
    people("select mempair.configure('deadline', '72 hours')")
    assert people.one("select mempair.deadline()").total_seconds() == 72 * 3600
    for name, value in (("deadline", "soon"), ("deadline", "-1 day"), ("color", "red")):
        with pytest.raises(psycopg.Error) as error:
            people.execute("select mempair.configure(%s, %s)", name, value)
        assert error.value.sqlstate == "MP001"


@pytest.mark.parametrize("key", ['["1", "a"]', '["1","a"]', '[1, "a"]', ' ["1" ,"a"]'.strip()])
def test_a_key_of_several_columns_is_written_as_json_however_it_is_spaced(world: World, key: str) -> None:
    world(
        "create table parts (a integer, b text, x float8, y boolean, primary key (a, b))",
        "insert into parts select i, 'a', i, i % 2 = 0 from generate_series(1, 300) i",
        "select mempair.create_model('parts', 'parts', target => 'y', features => 'x')",
    )
    world.work()
    assert known(world, key) == {"parts": (1, 1, 0, 0)}
    world("delete from parts where a = 1")
    world.work()
    assert known(world, key) == {"parts": (0, 0, 0, 1)}
    assert world.one("select mempair.receipt('parts', %s) ->> 'key'", key) == '["1", "a"]'
