"""Rows that come and go where no trigger sees them one by one: what follows is a model without them, and receipts."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from mempair_db.database.install import install
from mempair_db.embedded.server import Server
from mempair_db.ledger import keys, receipts
from tests.world import World, opened

PARTS = """
create table p (id int primary key, x float8, y boolean) partition by range (id);
create table low partition of p for values from (0) to (100);
create table high partition of p for values from (100) to (1000);
insert into p select i, i % 17, i % 3 = 0 from generate_series(1, 400) i;
"""
MODEL = "select mempair.create_model('{0}', '{0}', target => 'y', features => '{{x}}'{1})"
KINDS = {"exact": "", "certified": ", unlearner => 'symmetric', lambda => 0.01, calibration_rows => 200, gamma => 100"}
KEY = keys.SigningKey.new("db.example.org")


def old_snapshot(world: World) -> None:
    with psycopg.connect(world.dsn) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 1 from p")
        world("insert into p values (50000 % 97, 1, true) on conflict do nothing")
        other.execute("truncate low")


def hidden_rows(world: World) -> None:
    world("alter table low enable row level security, force row level security", "truncate low")


def behind_the_triggers(world: World) -> None:
    world("alter table low disable trigger user; delete from low; alter table low enable trigger user")
    world("select mempair.reconcile('p', repair => true)")


WAYS = {
    "truncate under an old snapshot": old_snapshot,
    "truncate of rows that a policy hides": hidden_rows,
    "drop table": lambda world: world("drop table low"),
    "detach": lambda world: world("alter table p detach partition low"),
    "truncate of the table, and a retrain": lambda world: world("truncate p", "select mempair.retrain('p')"),
    "a deletion behind the triggers": behind_the_triggers,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_rows_that_went_unseen_are_forgotten_and_have_receipts(world: World, way: str, kind: str) -> None:
    world(PARTS, MODEL.format("p", KINDS[kind]))
    world.work()
    assert world.one("select rows_learned from mempair.model_status") == 400
    WAYS[way](world)
    world.work()
    assert world.learned() == {key for (key,) in world.execute("select id::text from p")}
    gone = 99 if "table, and" not in way else 400
    assert world.one("select count(distinct row_key) from mempair.receipt where kind = 'retrained'") == gone
    with psycopg.connect(world.dsn) as connection:
        document = receipts.issue(connection, "p", "42", KEY)
    assert document is not None
    receipts.check(document, [KEY.public], "42")
    assert world.execute("select * from mempair.verify_odometer('p')") == []
    assert world.execute("select finding from mempair.reconcile('p')") == []


def test_a_table_that_became_a_partition_is_read_anew_and_what_escapes_is_said(world: World) -> None:
    world("create table t (id int primary key, x float8, y boolean)")
    world("insert into t select i, i % 17, i % 3 = 0 from generate_series(1, 300) i", MODEL.format("t", ""))
    world.work()
    world("create table above (id int, x float8, y boolean) partition by range (id)")
    world("alter table above attach partition t default", "delete from above where id <= 10")
    world.work()
    assert world.one("select rows_learned from mempair.model_status") == 290
    world("delete from above where id <= 20")  # on the table above: no trigger of the partition fires
    world.work()
    found = dict(world.execute("select finding, rows from mempair.reconcile('t')"))
    assert found.pop("deletions that were never captured") == 10
    assert any("is a partition" in finding for finding in found)


def test_an_unlogged_table_that_a_crash_has_emptied_is_forgotten(server_home: Path) -> None:
    server = Server(server_home, settings={"fsync": "off"})
    dsn = server.start()
    install(dsn)
    with opened(dsn) as world:
        world("create table t (id int primary key, x float8, y boolean)")
        world("insert into t select i, i % 17, i % 3 = 0 from generate_series(1, 300) i", MODEL.format("t", ""))
        world("alter table t set unlogged", "checkpoint")
        world.work()
        assert "unlogged" in str(world.execute("select finding from mempair.reconcile('t')"))
    server.stop("immediate")
    with opened(server.start()) as world:
        assert world.one("select count(*) from t") == 0
        assert ("deletions that were never captured", 300) in world.execute(
            "select finding, rows from mempair.reconcile('t')"
        )
        world("select mempair.reconcile('t', repair => true)")
        world.work()
        assert world.learned() == set()
        assert world.one("select count(*) from mempair.receipt") == 300
