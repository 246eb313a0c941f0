"""What happens to one model's table before a retrain never reaches another model."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from mempair_db.database.connect import connect
from mempair_db.ledger.record import Outcome
from mempair_db.worker import batch
from mempair_db.worker.loop import Worker
from tests.conftest import Run
from tests.world import World

TABLE = "create table {} (id integer primary key, age float8, y boolean)"
ROWS = "insert into {} select i, i % 17, i % 3 = 0 from generate_series(1, 300) i"
MODEL = "select mempair.create_model('{0}', '{0}', target => 'y', features => '{{age}}')"


# What happens to a table, what the model's failure says of it, and what mends it.
TROUBLES = {
    "a column dropped with cascade": ("alter table bad drop column age cascade", "", "drop_model('bad')", ""),
    "rows that a policy hides": (
        "alter table bad enable row level security, force row level security",
        "",
        "no force row level security",
        "alter table bad no force row level security",
    ),
    "another owner": ("", "alter table bad owner to {role}", "owner", "grant select on bad to mempair_owner"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_table_that_cannot_be_read_for_a_retrain_fails_its_own_model_alone(
    world: World, superuser: Callable[[str], str], mempair: Run, trouble: str
) -> None:
    by_owner, by_superuser, remedy, mend = TROUBLES[trouble]
    role = f"role_{secrets.token_hex(6)}"
    for name in ("bad", "good"):
        world(TABLE.format(name), ROWS.format(name), MODEL.format(name))
    world.work()
    with psycopg.connect(superuser(world.dsn), autocommit=True) as admin:
        admin.execute(f"create role {role}")
        admin.execute(by_superuser.format(role=role))
        world(by_owner, "select mempair.retrain('bad')", "delete from good where id = 7")
        world.work()
        status, reason = world.one("select status, reason from mempair.model_status where model = 'bad'")
        assert status == "failed"
        assert remedy in reason
        assert world.one("select status, rows_learned from mempair.model_status where model = 'good'") == ("ready", 299)
        code, _, message = mempair("health", "--dsn", world.dsn)
        assert code == 1
        assert "bad" in message
        assert remedy in message
        if mend:
            admin.execute(mend)
            world("select mempair.resume_model('bad')")
            world.work()
            assert world.one("select status from mempair.model_status where model = 'bad'") == "ready"
        admin.execute(f"reassign owned by {role} to mempair_owner; drop owned by {role}; drop role {role}")


def test_a_model_that_is_paused_while_the_worker_is_busy_with_another_is_left_alone(world: World) -> None:
    for name in ("first", "second"):
        world(TABLE.format(name), ROWS.format(name), MODEL.format(name))
    world.work()
    with psycopg.connect(world.dsn) as busy:
        # The worker waits for this lock in the retrain of the first, and has looked at all models before.
        busy.execute("lock table mempair.reference_row in access exclusive mode")
        world("select mempair.retrain('first')", "delete from second where id <= 10")
        worker = threading.Thread(target=Worker(world.dsn).run_once)
        worker.start()
        waits = "select count(*) from pg_locks where not granted and relation = 'mempair.reference_row'::regclass"
        deadline = time.monotonic() + 30
        while not world.one(waits) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert world.one(waits) > 0
        world("select mempair.pause_model('second')")
    worker.join()
    assert world.one("select epoch from mempair.model_status where model = 'first'") == 2
    assert world.one(
        "select status, rows_learned, pending_deletions from mempair.model_status where model = 'second'"
    ) == (
        "paused",
        300,
        10,
    )


def test_a_database_that_ends_idle_transactions_does_not_end_a_batch(world: World) -> None:
    world(TABLE.format("good"), ROWS.format("good"), MODEL.format("good"))
    for limit in ("idle_in_transaction_session_timeout = 100", "statement_timeout = 1000"):
        world(f"do $$ begin execute format('alter database %I set {limit}', current_database()); end $$")
    world.work()
    world("delete from good where id = 7")
    world.work()
    assert world.one("select status, rows_learned from mempair.model_status") == ("ready", 299)


def test_a_model_that_fails_is_tried_again_after_growing_pauses_and_at_once_when_it_is_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world(TABLE.format("bad"), ROWS.format("bad"), MODEL.format("bad"))
    world.work()
    world("update mempair.state set sums = 'xx'", "delete from bad where id = 7")
    now, tries, apply = [0.0], [], batch.apply_batch

    def attempt(connection: psycopg.Connection[Any], model_id: int) -> Outcome:
        tries.append(now[0])
        return apply(connection, model_id)

    monkeypatch.setattr(batch, "apply_batch", attempt)
    monkeypatch.setattr("mempair_db.worker.loop.time.monotonic", lambda: now[0])
    worker = Worker(world.dsn)
    with connect(world.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        for second in (*range(520), 810, 811):
            now[0] = float(second)
            worker.round(connection)
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
        world("select mempair.resume_model('bad')")
        now[0] += 1
        worker.round(connection)
    assert tries[-1] == now[0]
