"""ALTER TABLE while a model's table is read: nothing is lost, nobody waits for ever, and other models are served."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from mempair_db.database import faults, marks, source
from mempair_db.verify import snapshot
from mempair_db.verify.checks import verify
from mempair_db.worker.loop import Worker
from tests.world import SHOP, World

EXACT = "select mempair.create_model('churn', 'shop', target => 'churned', features => '{age,plan,spend}')"
REWRITE = "alter table shop add column dice float8 default random()"
PATIENCE = 60.0


@pytest.fixture
def exact(world: World) -> World:
    world(SHOP, EXACT)
    world.fill(1, 600)
    world.work()
    return world


@contextmanager
def running(dsn: str) -> Iterator[Worker]:
    """A worker at work."""
    worker = Worker(dsn, idle=0.02)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(PATIENCE)


@contextmanager
def changing(dsn: str, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody who is changing a table, until the end of the block."""
    with psycopg.connect(dsn) as connection:
        connection.execute(statement)
        yield connection


def eventually(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < until:
        time.sleep(0.05)
    return true()


def is_done(world: World) -> bool:
    waits = "select p.changes = 0 and m.retrain_requested is null from mempair.model m, mempair.pending(m.id) p"
    return bool(world.one(waits))


@pytest.mark.parametrize("retrain", [False, True], ids=["batch", "retrain"])
def test_a_table_that_is_rewritten_while_a_worker_wants_to_read_it_is_not_taken_for_empty(
    exact: World, retrain: bool
) -> None:
    with running(exact.dsn):
        exact.fill(601, 601)
        assert eventually(lambda: "601" in exact.learned())  # it has looked at the table's definition
        exact("select mempair.pause_model('churn')")
        exact.fill(602, 700)
        if retrain:
            exact("select mempair.retrain('churn')")
        with changing(exact.dsn, REWRITE):
            exact("select mempair.resume_model('churn')")
            time.sleep(1)
        assert eventually(lambda: is_done(exact))
    assert exact.learned() == exact.rows()
    exact.check_exact()
    assert exact.execute("select * from mempair.reconcile('churn')") == []


def test_while_one_table_is_locked_the_models_of_others_are_served(exact: World) -> None:
    exact("create table other (id integer primary key, a float8, y boolean)")
    exact("insert into other select i, i % 7, i % 2 = 0 from generate_series(1, 200) i")
    exact("select mempair.create_model('other', 'other', target => 'y', features => '{a}')")
    exact.work()
    exact.fill(601, 700)
    with changing(exact.dsn, "lock table shop in access exclusive mode"), running(exact.dsn):
        exact("delete from other where id = 7")
        assert eventually(lambda: "7" not in exact.learned("other"))
    exact.work()
    assert exact.learned("churn") == exact.rows()


def test_a_refresh_never_waits_for_somebody_who_waits_for_it(exact: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SMALL", 1)
    threads: list[threading.Thread] = []

    def change() -> None:
        with psycopg.connect(exact.dsn, autocommit=True) as other:
            other.execute("alter table shop add column more integer")

    def hook(point: str) -> None:
        if point == "reference chosen" and not threads:  # this one has read the table; its readers have not begun
            threads.append(threading.Thread(target=change, daemon=True))
            threads[0].start()
            waits = "select exists (select from pg_locks where not granted and relation = 'shop'::regclass)"
            with psycopg.connect(exact.dsn, autocommit=True) as other:
                assert eventually(lambda: other.execute(waits).fetchone() == (True,))

    monkeypatch.setattr(faults, "hook", hook)
    exact("select mempair.retrain('churn')")
    working = threading.Thread(target=exact.work, daemon=True)
    working.start()
    working.join(PATIENCE)
    threads[0].join(PATIENCE)
    assert not working.is_alive()
    assert not threads[0].is_alive()
    monkeypatch.undo()
    exact.check_exact()


def test_verify_of_a_table_that_is_being_rewritten_waits_and_finds_no_difference(exact: World) -> None:
    found: list[bool] = []
    with changing(exact.dsn, REWRITE):
        verifying = threading.Thread(target=lambda: found.append(verify(exact.dsn, 1).fine))
        verifying.start()
        time.sleep(1)
    verifying.join(PATIENCE)
    assert found == [True]


def test_verify_sees_what_waits_though_it_is_applied_and_erased_meanwhile(
    exact: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact("delete from shop where id in (5, 6)")
    whole = marks.each_learned

    def interrupted(*arguments: Any) -> Any:
        exact.work()
        return whole(*arguments)

    monkeypatch.setattr(snapshot, "each_learned", interrupted)
    assert verify(exact.dsn, 1).fine
    assert exact.learned() == exact.rows()
