"""The enemy of the exact pair: what is left of a row, anywhere in the database, after its deletion was applied."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from mempair_db.database import models
from mempair_db.measure.stored import CONSTANTS, COUNTED, GATE, KEY, NOISED, PUBLIC, ROWS, STORED
from mempair_db.verify.checks import verify
from mempair_db.worker import batch, reference
from mempair_db.worker.loop import Worker
from tests.world import World

EXACT = """
select mempair.create_model('churn', 'people', target => 'churned', features => array['age', 'plan', 'spend'],
                            calibration_rows => 200, gamma => 10, subject => 'person', on_null => 'skip')
"""
PEOPLE = (
    "create table people (id text primary key, age float8, plan text, spend float8, person text, churned boolean,"
    " home text, weight float8 default 1)",
    "insert into people select 'k' || i, 20 + i * 7919 % 50, (array['basic', 'plus', 'pro'])[1 + i % 3],"
    " i::bigint * 104729 % 1000 / 10.0, 'p' || i, (i * 7919 % 50) + (i * 31 % 17) < 32,"
    " case when i <= 3 then 'far ' || i else (array['in', 'out'])[1 + i * 7919 % 50 / 30] end, 1 + i % 3"
    " from generate_series(1, 900) i",
)
KINDS = {
    "logistic": EXACT,
    "weights": EXACT.replace("gamma", "weight => 'weight', class_weight => 'balanced', gamma"),
    "squared": EXACT.replace("'spend']", "'weight']").replace("'churned'", "'spend'"),
    "classes": EXACT.replace("'churned'", "'home'"),
}
KEY_OF_ONE, PERSON, NUMBERS, LEVEL = "key-of-one-person", "name-of-one-person", (76.515625, 987.12345), "level-of-one"
MARKS = (KEY_OF_ONE, PERSON, *map(str, NUMBERS), LEVEL)


@pytest.fixture
def people(world: World) -> World:
    world(*PEOPLE, EXACT)
    world.work()
    return world


def add_one(world: World, key: str = KEY_OF_ONE) -> None:
    row = [key, NUMBERS[0], LEVEL, NUMBERS[1], PERSON, True]
    world.execute("insert into people values (%s, %s, %s, %s, %s, %s, 'in')", *row)


def traces(dsn: str) -> set[str]:
    """Search every table of ours, and what ANALYZE keeps of them, for one person's key, name and values."""
    with psycopg.connect(dsn) as connection:
        places = {
            f"mempair.{table}": f'select t::text from mempair."{table}" t'
            for (table,) in connection.execute(
                "select relname from pg_class where relnamespace = 'mempair'::regnamespace and relkind in ('r', 'm')"
            )
        }
        places["statistics"] = (
            "select s.tablename || '.' || s.attname || ' ' || concat(s.most_common_vals, s.histogram_bounds,"
            " s.most_common_elems) from pg_stats s where s.schemaname = 'mempair'"
        )
        places["comments"] = "select description from pg_description"
        places["functions"] = (
            "select prosrc || prosqlbody::text from pg_proc where pronamespace = 'mempair'::regnamespace"
        )
        return {
            f"{mark} in {place}" + (f" ({text.split()[0]})" if place == "statistics" else "")
            for place, statement in places.items()
            for (text,) in connection.execute(statement)
            for mark in MARKS
            if text and mark in text
        }


def test_the_search_finds_what_is_there(people: World, superuser: Callable[[str], str]) -> None:
    add_one(people)
    found = {hit.split(" in ")[0] for hit in traces(superuser(people.dsn)) if "mempair.change_1" in hit}
    assert found == set(MARKS) - {PERSON}  # whose row it is, is captured with its deletion
    people.work()
    assert f"{KEY_OF_ONE} in mempair.learned_keys" in traces(superuser(people.dsn))


def test_nothing_of_a_deleted_row_is_in_any_table_or_in_what_analyze_keeps(
    people: World, superuser: Callable[[str], str]
) -> None:
    # Given a row that ANALYZE has seen on each of its ways,
    add_one(people)
    add_one(people, KEY_OF_ONE + " that is refused")
    people("update people set age = null where id like '%refused'")
    people("analyze")
    people.work()
    people("analyze")
    assert f"{KEY_OF_ONE} in mempair.rejected" in traces(superuser(people.dsn))
    # When it is deleted, and its receipt fetched,
    people(f"delete from people where id like '{KEY_OF_ONE}%'", "analyze")
    people.work()
    people("analyze mempair.receipt")
    assert people.one("select mempair.receipt('churn', %s, consume => true)", PERSON)
    people.work()
    # Then nothing of it is anywhere. (What ANALYZE keeps of the table itself is its owner's.)
    assert traces(superuser(people.dsn)) == set()


def test_analyze_takes_nothing_from_a_column_that_could_tell(people: World) -> None:
    watched = people.execute(
        "select c.relname, a.attname, t.typname from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " join pg_type t on t.oid = a.atttypid where c.relnamespace = 'mempair'::regnamespace and c.relkind = 'r'"
        " and a.attnum > 0 and not a.attisdropped and coalesce(a.attstattarget, -1) <> 0"
    )
    counted = {"int2", "int4", "int8", "bool", "timestamptz", "regclass", "interval", "uuid"}
    assert {found for found in watched if found[2] not in counted} == set()
    telling = {
        (table, column)
        for table, columns in STORED.items()
        for column, kind in columns.items()
        if kind in (KEY, ROWS, NOISED, CONSTANTS) and column not in ("bucket", "needed")
    }
    assert telling & {(table, column) for table, column, _ in watched} == set()


def everything(world: World) -> dict[str, Any]:
    """Return all that is stored and is neither random nor a time, table by table."""
    found = {}
    with psycopg.connect(world.dsn, row_factory=dict_row) as connection:
        for table, columns in STORED.items():
            rows = connection.execute(f'select * from mempair."{table}"').fetchall()
            for column, kind in columns.items():
                if kind in (PUBLIC, CONSTANTS, KEY, ROWS, NOISED, GATE) and column not in SERVER:
                    texts = (PASSING.sub("…", repr(row[column])) for row in rows)
                    found[f"{table}.{column}"] = sorted(texts)
    return found


PASSING = re.compile(r"[0-9a-f]{64}|the oldest after [\d.]+ s")
"""Salted digests, and how long a deletion waited."""

SERVER = (
    "id",
    "model_id",
    "source",
    "prints",
    "fingerprint",
    "partitions",
    "schema",
    "pid",
    "row_key",
    "keys",
    "ticks",
)
"""Counted by the server, keyed by a secret of the model, or in whatever order: keys are compared below."""


def history(world: World, model: str, row: tuple[Any, ...], *, before: bool) -> dict[str, Any]:
    """Learn, among others, one row with these values, and forget it; return what is stored."""
    world(*PEOPLE)
    insert = "insert into people values ('one', %s, %s, %s, 'p', %s, %s, %s)"
    if before:
        world.execute(insert, *row)
    world(model)
    world.work()
    if not before:
        world.execute(insert, *row)
        world.work()
    world("delete from people where id = 'one'")
    world.work()
    world("delete from mempair.receipt")
    assert verify(world.dsn, world.one("select id from mempair.model")).fine
    keys = sorted(world.learned())
    references = sorted(key for (key,) in world.execute("select row_key from mempair.reference_row"))
    found = everything(world) | {"learned": keys, "references": references}
    world("select mempair.drop_model('churn')", "drop table people")
    return found


@pytest.mark.parametrize("before", [False, True], ids=["outside R", "in R"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_histories_that_differ_in_a_deleted_row_store_the_same(world: World, kind: str, before: bool) -> None:
    rows = ((25.0, "basic", 7.5, True, "in", 1.0), (-1e300, LEVEL, 3e9, False, "home-of-one", 16.0))
    one, other = (history(world, KINDS[kind], row, before=before) for row in rows)
    different = {name for name in one if one[name] != other[name]}
    if (
        one["state.epoch"] != other["state.epoch"]
    ):  # whether the constants had to be chosen anew is entered, and how often
        counts = ("model.epoch", "published.epoch", "published.version", "loss_count.epoch", "state.")
        different = {name for name in different if not name.startswith(("ledger.", *counts))} | (
            {"state.sums"} & different
        )
    assert different == set()


def test_a_reference_row_whose_update_waits_is_no_longer_one(people: World) -> None:
    people("update people set age = age + 1 where id = 'k7'")  # captured, and not applied yet
    with psycopg.connect(people.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        model = models.lease(connection, people.one("select id from mempair.model"))
        assert model is not None
        left = reference.without(connection, model, ["k9"])
    assert left.dropped == ["k7", "k9"]
    assert len(left.x) == 898


@pytest.mark.parametrize("gone", ["delete from people", "truncate people", "drop table people cascade"])
def test_of_a_table_that_is_gone_nothing_is_left_in_any_column_that_rows_decide(world: World, gone: str) -> None:
    # Given a model in use, with versions and predictions that were counted,
    world(*PEOPLE, KINDS["classes"])
    world.work()
    assert (
        world.one("select others_refreshed from mempair.state") == 0
    )  # there are 3; which deletions change nothing in
    world("select mempair.keep_version('churn')")
    add_one(world)
    world.work()
    assert world.one("select count(*) from mempair.version_1") > 0
    # When all its rows go, then no column that is made of rows has anything in it, whatever the table.
    world(gone)
    world.work()
    world("delete from mempair.receipt")
    left = {
        f"{table}.{column}"
        for table, columns in STORED.items()
        for column, kind in columns.items()
        if kind in (ROWS, NOISED, CONSTANTS, KEY, COUNTED) and (table, column) != ("published", "needed")
        if world.one(f'select count("{column}") from mempair."{table}"')
    }
    assert left == set()
    assert world.one("select count(*) from mempair.version_1") == 0
    assert world.one("select others_refreshed is null and rows_refreshed is null from mempair.state")
    assert world.one("select needed from mempair.published") == 200
    # The ledger, which stays, has no constants.
    entered = world.execute("select detail from mempair.ledger where kind = 'calibrated'")
    assert {detail for (detail,) in entered} == {"exact"}


def test_an_error_tells_no_value_of_a_row(people: World, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def broken(*_: Any, **__: Any) -> None:
        people.execute("select %s::integer", f"{KEY_OF_ONE} {NUMBERS[0]}")

    def lost(*_: Any, **__: Any) -> None:
        raise KeyError(KEY_OF_ONE)

    for failing in (broken, lost):
        monkeypatch.setattr("mempair_db.worker.batch.apply_batch", failing)
        add_one(people)
        Worker(people.dsn).run_once()
        status, reason = people.one("select status, reason from mempair.model_status")
        people("delete from people where id = 'key-of-one-person'")
        assert status == "failed"
        assert not any(mark in json.dumps(reason) + caplog.text for mark in MARKS)
    assert "KeyError" in reason
