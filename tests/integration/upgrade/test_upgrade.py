"""A database of release 0.1.0 with live models, brought up to date: nothing is lost, nothing of the user's goes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from mempair_db.database.install import install
from mempair_db.ledger import keys, receipts
from mempair_db.worker.loop import Worker
from tests.programs import program
from tests.snapshot import migrate, snapshot
from tests.world import World, fresh_database, opened

DUMP = Path(__file__).parent / "released-0.1.0.sql"
ROLES = ("released_worker", "released_reader", "released_auditor")
PREDICTIONS = """
select id::text as key, mempair_predict('churn', c) from customers c where plan is not null
union all select street || number, mempair_predict('price', h) from houses h order by 1
"""
# The same models, as somebody would declare them today.
TABLES = """
create table customers (id integer primary key, person text, age integer, plan text, spend numeric(10, 2),
                        churned boolean);
create table houses (street text, number integer, area float8, rooms integer, price float8,
                     primary key (street, number));
select mempair.create_model('churn', 'customers', target => 'churned', features => '{age,plan,spend}',
                            unlearner => 'symmetric', subject => 'person', lambda => 0.05, on_null => 'impute');
select mempair.create_model('price', 'houses', target => 'price', features => '{area,rooms}', unlearner => 'symmetric');
select mempair.grant_role('released_worker', 'worker');
select mempair.grant_role('released_reader', 'reader');
select mempair.grant_role('released_auditor', 'auditor');
create view busy as select model, status, pending_deletions, rho_spent from mempair.model_status where model_id > 0;
create view spent as select model, max(rho_spent) as rho from mempair.odometer group by model;
"""


INTO = {
    "customers": "insert into customers (id, person, age, plan, spend, churned) values (%s, %s, %s, 'pro', 3, true)",
    "houses": "insert into houses (street, number, area, rooms, price) values (%s, %s, %s, 3, 200)",
}


@pytest.fixture
def released(server_dsn: str, empty_database: str) -> Iterator[World]:
    """A database as release 0.1.0 left it."""
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        for role in ROLES:
            # Another test, or another process that runs tests, may have been first.
            with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                connection.execute(sql.SQL("create role {} login password 'released'").format(sql.Identifier(role)))
    command = [
        program("psql", server_dsn),
        "-X",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-o",
        os.devnull,
        "-f",
        str(DUMP),
        "-d",
        empty_database,
    ]
    subprocess.run(command, check=True)
    with opened(empty_database) as world:
        yield world


def as_role(world: World, role: str) -> psycopg.Connection:
    return psycopg.connect(make_conninfo(world.dsn, user=role, password="released"), autocommit=True)


def schema_of(dsn: str) -> list[tuple[str, ...]]:
    """The snapshot, but for the order of a queue's columns: what is changed in place gets new ones at its end."""
    return [
        (*row[:2], re.sub(r" \d+$", "", row[2]), row[3]) if row[0] == "column" and "mempair.change_" in row[1] else row
        for row in snapshot(dsn)
    ]


def test_an_upgraded_schema_is_the_one_of_a_fresh_install(released: World, server_dsn: str) -> None:
    install(released.dsn)
    with fresh_database(server_dsn, "template0") as dsn:
        install(dsn)
        with psycopg.connect(dsn) as connection:
            connection.execute(TABLES)
        assert schema_of(released.dsn) == schema_of(dsn)


def test_a_users_views_survive_and_answer(released: World) -> None:
    before = released.execute("select * from spent order by 1")
    install(released.dsn)
    assert released.execute("select * from spent order by 1") == before
    assert released.execute("select model, status, pending_deletions from busy order by 1") == [
        ("churn", "retraining", 2),
        ("price", "retraining", 1),
    ]


def test_models_serve_what_they_had_published_until_they_are_read_anew(released: World) -> None:
    before = released.execute(PREDICTIONS)
    install(released.dsn)
    assert released.execute(PREDICTIONS) == before
    released.work()
    assert released.execute("select model, status, pending_changes from mempair.model_status order by 1") == [
        ("churn", "ready", 0),
        ("price", "ready", 0),
    ]
    after = released.execute(PREDICTIONS)
    assert [key for key, _ in after] == [key for key, _ in before]
    assert after != before


def test_nothing_that_waited_is_lost(released: World) -> None:
    install(released.dsn)
    assert released.execute(
        "select model, pending_changes, pending_deletions from mempair.model_status order by 1"
    ) == [
        ("churn", 5, 2),
        ("price", 1, 1),
    ]
    released.work()
    assert released.learned("churn") == {key for (key,) in released.execute("select id::text from customers")}
    expected = {key for (key,) in released.execute("select jsonb_build_array(street, number::text)::text from houses")}
    assert released.learned("price") == expected
    for name, key in (("churn", "person 10"), ("price", '["street 5", "5"]')):
        (deletion,) = released.one("select mempair.receipt(%s, %s)", name, key)["deletions"]
        assert deletion["kind"] in ("unlearned", "retrained")


def test_receipts_and_ledger_of_the_release_hold(released: World) -> None:
    entries = released.execute("select model_id, seq, body, hash from mempair.ledger order by 1, 2")
    key = keys.SigningKey.new("db.example.org")
    install(released.dsn)
    released.work()
    for name in ("churn", "price"):
        assert released.execute("select * from mempair.verify_odometer(%s)", name) == []
    kept = released.execute("select model_id, seq, body, hash from mempair.ledger order by 1, 2")
    assert set(entries) <= set(kept)
    with psycopg.connect(released.dsn) as connection:
        document = receipts.issue(connection, "churn", "person 5", key)
    assert document is not None
    receipts.check(document, [key.public], "person 5")
    assert document["deletions"][0]["version"] == "0.1.0"


def test_roles_keep_what_they_were_granted(released: World) -> None:
    install(released.dsn)
    Worker(make_conninfo(released.dsn, user="released_worker", password="released")).run_once()
    assert released.one("select count(*) from mempair.model_status where status = 'ready'") == 2
    with as_role(released, "released_reader") as reader:
        reader.execute("select mempair_predict('price', array[50.0, 2]), (select count(*) from mempair.odometer)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("select * from mempair.published")
    with as_role(released, "released_auditor") as auditor:
        assert auditor.execute("select * from mempair.verify_odometer('churn')").fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            auditor.execute("select mempair_predict('price', array[50.0, 2])")


def test_capture_goes_on_without_a_worker_in_between(released: World) -> None:
    install(released.dsn)
    released("insert into customers values (2000, 'late', 40, 'pro', 3, true)", "delete from customers where id = 40")
    released("truncate houses")
    assert released.execute(
        "select model, pending_changes, pending_deletions from mempair.model_status order by 1"
    ) == [
        ("churn", 7, 3),
        ("price", 2, 2),
    ]
    released.work()
    assert released.learned("churn") == {key for (key,) in released.execute("select id::text from customers")}
    assert released.learned("price") == set()


def test_writers_beside_an_upgrade_wait_and_none_fails(released: World) -> None:
    stop = threading.Event()

    def write(client: int) -> int:
        written = 0
        with psycopg.connect(released.dsn) as connection:
            while not stop.is_set() or written < 20:
                person = (10_000 * client + written, "late", 40)
                house = ("beside", 10_000 * client + written, 90.0)
                with connection.transaction():  # in both orders: who waits for both would end one
                    for table in ("customers", "houses") if written % 2 else ("houses", "customers"):
                        connection.execute(INTO[table], person if table == "customers" else house)
                written += 1
                time.sleep(0.005)
        return written

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, client) for client in (1, 2, 3)]
        try:
            install(released.dsn)
        finally:
            stop.set()
        written = sum(writer.result() for writer in writers)
    assert released.one("select count(*) from customers where person = 'late'") == written
    released.work()
    assert released.learned("churn") == {key for (key,) in released.execute("select id::text from customers")}
    expected = {key for (key,) in released.execute("select jsonb_build_array(street, number::text)::text from houses")}
    assert released.learned("price") == expected


def test_an_upgrade_beside_a_transaction_that_goes_on_writing_changes_nothing_and_says_so(released: World) -> None:
    before = snapshot(released.dsn)
    with psycopg.connect(released.dsn) as writer:
        writer.execute("delete from customers where id = 40")
        with pytest.raises(psycopg.errors.LockNotAvailable, match="customers is being written") as refused:
            install(released.dsn)
        assert snapshot(released.dsn) == before
    assert "Repeat it" in str(refused.value.diag.message_hint)
    install(released.dsn)
    released.work()
    assert "40" not in released.learned("churn")


def test_calls_are_not_ambiguous_between_old_and_new_functions(released: World) -> None:
    install(released.dsn)
    released("select mempair.create_model('plain', 'customers', target => 'churned', features => '{age}')")
    released("select mempair.alter_model('plain', gamma => 0.2)")
    assert released.one("select unlearner from mempair.model where name = 'plain'") == "exact"


def test_an_upgrade_that_would_take_something_of_the_users_along_does_nothing(released: World) -> None:
    released(
        "create function tune() returns void language sql begin atomic select mempair.alter_model('churn', 1.0); end"
    )
    before = snapshot(released.dsn)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="alter_model") as refused:
        install(released.dsn)
    assert "tune" in str(refused.value.diag.message_detail)
    assert snapshot(released.dsn) == before


# What a database had before learned keys came in buckets.
BEFORE_BUCKETS = """
create function mempair.pending(
    model_id integer, out changes bigint, out deletions bigint, out oldest_deletion timestamptz
) language sql stable as $$ select 0, 0, null::timestamptz $$;
create view mempair.model_status as
select m.name as model, m.source, m.status, m.reason, s.epoch, s.clock, s.rows_learned, p.samples, p.needed,
       waiting.changes as pending_changes, waiting.deletions as pending_deletions,
       waiting.oldest_deletion as oldest_pending_deletion, s.spent as rho_spent, s.cap as rho_cap, s.deletions,
       p.published_at as last_published, m.id as model_id
from mempair.model m
join mempair.state s on s.model_id = m.id
join mempair.published p on p.model_id = m.id
cross join lateral mempair.pending(m.id) as waiting;
create view mine as select s.* from mempair.model_status s;
"""


def test_a_users_view_survives_every_migration(empty_database: str, database: str) -> None:
    migrate(empty_database, "mempair_0001")
    with psycopg.connect(empty_database) as connection:
        connection.execute(BEFORE_BUCKETS)
    install(empty_database)
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("select model, pending_changes from mine").fetchall() == []
        connection.execute("drop view mine")
    assert snapshot(empty_database) == snapshot(database)
