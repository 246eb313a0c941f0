"""An exact model under the same blows. Whatever happened, in the end its bytes are those of the rows that are there."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from mempair_db.database.exact import Exact
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums, nothing
from mempair_db.worker.loop import Worker
from tests.world import World

from .conftest import STRIKER, Story, ended

POINTS = [
    "leased",
    "read",
    "stepped",
    "queue emptied",
    "receipts written",
    "ledger written",
    "state written",
    "committed",
]
REFRESH_POINTS = ["retrain began", "reference chosen", "chunk replayed", "replayed", "state written", "committed"]
EXACT = """
select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'])
"""


@pytest.fixture
def exact(world: World) -> Story:
    world(
        "create table shop (id integer primary key, age float8, plan text, spend numeric, note text, churned boolean)"
    )
    world(EXACT)
    return Story(world.dsn, world.sql)


def mixed_batch(story: Story) -> None:
    """Inserts, deletions inside the reference rows, updates, a cancelled pair, NULLs, a new level.

    Without these reference rows the constants are the same, so that it is a batch and no refresh.
    """
    story.fill(3001, 3050)
    story("delete from shop where id in (23, 24)")
    story("update shop set age = age + 1 where id = 25", "update shop set plan = null where id = 26")
    story.fill(4000, 4000)
    story("delete from shop where id = 4000")
    story("insert into shop values (5000, 'infinity', 'new', 1, 'n', true), (5001, null, null, null, null, false)")


def check(story: Story) -> None:
    assert story.pending() == 0
    assert story.learned() == {
        key for (key,) in story.sql.execute("select id::text from shop where churned is not null")
    }
    story.check_exact()
    left = "select s.references_left = (select count(*) from mempair.reference_row) from mempair.state s"
    assert story.one(left)
    assert story.sql.execute("select * from mempair.verify_odometer('churn')").fetchall() == []


def stored(story: Story) -> bytes:
    return bytes(story.one("select sums from mempair.state"))


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_in_a_batch_leaves_all_of_it_or_nothing(exact: Story, point: str) -> None:
    exact.fill(1, 3000)
    exact.work()
    before = stored(exact)
    mixed_batch(exact)
    assert exact.start_worker(point).wait(timeout=120) == -signal.SIGKILL
    if point != "committed":
        assert stored(exact) == before
    exact.work()
    check(exact)


@pytest.mark.parametrize("table", ["learned_keys", "ledger", "state", "published", "receipt"])
def test_a_refused_statement_undoes_the_batch_and_is_what_the_failure_names(exact: Story, table: str) -> None:
    """Statements are sent without waiting for each: those after the one that fails must neither count nor hide it."""
    exact.fill(1, 3000)
    exact.work()
    mixed_batch(exact)
    before, waiting = stored(exact), exact.pending()
    exact(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'not %', tg_table_name; end $$",
        f"create trigger refuse before insert or update on mempair.{table} for each row execute function refuse()",
    )
    assert f"not {table}" in Worker(exact.dsn).run_once()["churn"]
    assert (stored(exact), exact.pending()) == (before, waiting)
    exact(f"drop trigger refuse on mempair.{table}")
    exact.work()
    check(exact)


@pytest.mark.parametrize("point", REFRESH_POINTS)
def test_a_refresh_killed_half_way_leaves_the_old_model_serving(exact: Story, point: str) -> None:
    exact.fill(1, 3000)
    exact.work()
    exact("select mempair.retrain('churn')", "delete from shop where id <= 5")
    before = stored(exact)
    assert exact.start_worker(point).wait(timeout=120) == -signal.SIGKILL
    if point != "committed":
        assert stored(exact) == before
        assert exact.one("select ready from mempair.published")
    exact.work()
    assert exact.one("select count(*) from mempair.receipt where kind = 'retrained'") == 5
    check(exact)


def test_four_racing_workers_with_one_killed_end_in_the_same_bytes(exact: Story) -> None:
    exact.fill(1, 2000)
    workers = [exact.start_worker(forever=True) for _ in range(3)]
    workers.append(exact.start_worker("ledger written", 3, forever=True))
    try:
        for i in range(60):
            exact.fill(10_000 + 20 * i, 10_019 + 20 * i)
            exact(f"delete from shop where id between {i * 30 + 1} and {i * 30 + 7}")
            exact(f"update shop set spend = spend + 1 where id % 50 = {i % 50}")
        deadline = time.monotonic() + 60
        while exact.pending() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        for worker in workers:
            with ended(worker):
                worker.terminate()
    exact.work()
    check(exact)


def test_a_server_that_crashes_in_the_middle_loses_nothing(exact: Story, superuser: Callable[[str], str]) -> None:
    exact.fill(1, 3000)
    exact.work()
    mixed_batch(exact)
    with ended(exact.start_worker(forever=True)), psycopg.connect(superuser(exact.dsn), autocommit=True) as admin:
        for _ in range(20):
            exact("update shop set spend = spend + 1 where id % 7 = 3")
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'mempair worker' and datname = current_database()"
            )
            time.sleep(0.05)
    exact.work()
    check(exact)


def test_a_refresh_whose_readers_are_ended_fails_and_does_not_wait_for_ever(
    exact: Story, superuser: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mempair_db.database.source.SMALL", 1)
    exact.fill(1, 3000)
    with psycopg.connect(superuser(exact.dsn), autocommit=True) as admin:

        def end_readers(*payload: Any) -> Any:
            admin.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where application_name = 'mempair reader' and datname = current_database()"
            )
            return fingerprints(*payload)

        with monkeypatch.context() as patched:
            patched.setattr("mempair_db.worker.refresh.fingerprints", end_readers)
            failed: dict[str, str] = {}
            worker = threading.Thread(target=lambda: failed.update(Worker(exact.dsn).run_once()), daemon=True)
            worker.start()
            worker.join(60)
            assert not worker.is_alive()
    assert "churn" in failed
    exact("update mempair.model set failure = null")
    exact.work()
    check(exact)


def test_a_refresh_for_which_the_role_has_no_other_connection_reads_on_its_own(
    exact: Story, superuser: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mempair_db.database.source.SMALL", 1)
    exact.fill(1, 3000)
    with psycopg.connect(superuser(exact.dsn), autocommit=True) as admin:
        admin.execute("create role only_one login password 'one' connection limit 1")
        try:
            exact("select mempair.grant_role('only_one', 'worker')", "grant select on shop to only_one")
            assert Worker(make_conninfo(exact.dsn, user="only_one", password="one")).run_once() == {}
        finally:
            admin.execute("drop owned by only_one")
            admin.execute("drop role only_one")
    check(exact)


def test_a_batch_that_comes_twice_is_applied_once(exact: Story) -> None:
    """A worker that commits its state first and empties the queue later, killed between the two."""
    exact.fill(1, 300)
    exact.work()
    exact.fill(301, 400)
    exact("delete from shop where id <= 20")
    died = subprocess.run([sys.executable, str(STRIKER), exact.dsn, "between", "1", "mutant"], check=False, timeout=120)
    assert died.returncode == -signal.SIGKILL
    exact.work()
    check(exact)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda part, reference: part + part,  # applied twice
        lambda part, reference: nothing(reference),  # a deletion that only the ledger saw
        lambda part, reference: replace(part, g=part.g + 1),  # off by the last bit
    ],
)
def test_these_tests_catch_a_worker_that_adds_anything_else(
    exact: Story, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[Sums, Reference], Sums]
) -> None:
    exact.fill(1, 300)
    exact.work()
    exact.fill(301, 320)
    exact.work()
    check(exact)
    honest = Exact.add
    monkeypatch.setattr(Exact, "add", lambda engine, part: honest(engine, mutant(part, engine.reference)))
    exact("delete from shop where id = 308")  # no reference row, whose deletion might have the table read anew
    exact.work()
    with pytest.raises(AssertionError):
        check(exact)
