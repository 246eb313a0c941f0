"""What a worker costs when there is nothing to do, when a writer dawdles, and when there are two of it."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg

from mempair_db.database.connect import connect
from mempair_db.worker import batch
from mempair_db.worker.loop import Worker
from tests.world import World

TABLE = "create table shop (id integer primary key, age float8, plan text, spend numeric, note text, churned boolean)"
MODEL = "select mempair.create_model('{}', 'shop', target => 'churned', features => '{{age,plan}}')"


class Counting(psycopg.Cursor[Any]):
    """A cursor that counts the statements of all of them."""

    statements = 0

    def execute(self, *arguments: Any, **options: Any) -> Counting:
        Counting.statements += 1
        super().execute(*arguments, **options)
        return self


def test_an_idle_worker_of_fifty_models_asks_one_question_and_locks_and_writes_nothing(world: World) -> None:
    world(TABLE, "create table empty (like shop including all)")
    with world.sql.transaction():
        for i in range(50):
            world(MODEL.format(f"m{i}").replace("'shop'", "'shop'" if i < 5 else "'empty'"))
    world.fill(1, 300)
    world.work()
    marks = "select array_agg(xmin::text || ctid::text order by model_id) from mempair.state"
    before = world.one(marks)
    changes = "select sum(n_tup_upd + n_tup_ins + n_tup_del) from pg_stat_xact_user_tables where schemaname = 'mempair'"
    with psycopg.connect(world.dsn, autocommit=True, cursor_factory=Counting) as connection:
        batch.prepare(connection)
        worker = Worker(world.dsn)
        worker.round(connection)  # what is only looked at now and then
        for _ in range(20):
            with connection.transaction():
                Counting.statements = 0
                assert not worker.round(connection)
                assert Counting.statements == 1
                assert connection.execute(changes).fetchone() == (0,)
                assert connection.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)
    assert world.one(marks) == before


def test_a_look_at_a_queue_that_is_drained_but_not_erased_writes_nothing(world: World) -> None:
    world(TABLE, MODEL.format("churn"))
    world.fill(1, 300)
    world.work()
    world.fill(301, 305)  # too few to be erased at once
    world.work()
    assert world.one("select pg_relation_size('mempair.change_1_a') + pg_relation_size('mempair.change_1_b')") > 0
    with connect(world.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        worker = Worker(world.dsn)
        worker.round(connection)
        for _ in range(5):
            with connection.transaction():
                assert not worker.round(connection)
                assert connection.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)
        world.fill(306, 306)
        assert worker.round(connection)
    assert "306" in world.learned()


def test_a_writer_that_is_idle_in_its_transaction_does_not_make_the_queues_swap_again_and_again(world: World) -> None:
    world(TABLE, MODEL.format("churn"))
    world.fill(1, 300)
    world.work()
    with psycopg.connect(world.dsn) as idler:
        idler.execute("insert into shop values (9000, 1, 'pro', 1, 'n', true)")
        world("delete from shop where id = 7")
        worker = Worker(world.dsn, idle=0.02)
        thread = threading.Thread(target=worker.run)
        thread.start()
        time.sleep(2.0)
        swaps = int(world.one("select last_value from mempair.change_1_turn"))
        for _ in range(20):
            time.sleep(0.1)
        again = int(world.one("select last_value from mempair.change_1_turn"))
        worker.stop()
        thread.join()
        idler.rollback()
    assert again - swaps <= 2
    world.work()
    assert world.one("select oldest_unpurged is null from mempair.model_status")


def test_two_workers_serve_one_request_for_a_retrain_once(world: World) -> None:
    world(TABLE, MODEL.format("churn"))
    world.fill(1, 300)
    world.work()
    workers = [Worker(world.dsn, idle=0.01) for _ in range(2)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for _ in range(5):
        world("select mempair.retrain('churn')")
        deadline = time.monotonic() + 30
        while world.one("select retrain_requested is not null from mempair.model") and time.monotonic() < deadline:
            time.sleep(0.01)
    for worker, thread in zip(workers, threads, strict=True):
        worker.stop()
        thread.join()
    assert world.one("select count(*) from mempair.ledger where kind = 'retrained'") == 6


def test_two_workers_make_one_retrain_for_every_exhaustion(world: World) -> None:
    world(TABLE)
    world(
        "select mempair.create_model('churn', 'shop', target => 'churned', features => '{age,plan}', epsilon => 0.5,"
        " lambda => 0.01, calibration_rows => 200, gamma => 100, m => 5)"
    )
    world.fill(1, 400)
    workers = [Worker(world.dsn, idle=0.01) for _ in range(2)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    settled = "select pending_changes = 0 and status = 'ready' from mempair.model_status"
    for first in range(0, 72, 12):
        deadline = time.monotonic() + 60
        while not world.one(settled) and time.monotonic() < deadline:
            time.sleep(0.02)
        world(f"delete from shop where id > {first} and id <= {first + 12}")
        time.sleep(0.02)
    deadline = time.monotonic() + 60
    while not world.one(settled) and time.monotonic() < deadline:
        time.sleep(0.02)
    for worker, thread in zip(workers, threads, strict=True):
        worker.stop()
        thread.join()
    exhausted, retrained = (
        world.one("select count(*) from mempair.ledger where kind = %s", kind) for kind in ("exhausted", "retrained")
    )
    assert exhausted == retrained >= 3
    assert world.learned() == world.rows()


def test_what_waits_is_counted_exactly(world: World) -> None:
    world(TABLE, MODEL.format("churn"))
    world.fill(1, 300)
    world.work()
    world.fill(1001, 121_000)
    world("update shop set age = age + 1 where id > 1000 and id <= 6000", "delete from shop where id <= 100")
    assert world.one("select pending_changes, pending_deletions from mempair.model_status") == (130_100, 5_100)


def test_keys_learned_in_many_small_batches_are_joined(world: World) -> None:
    world(TABLE, MODEL.format("churn"))
    world.fill(1, 300)
    world.work()
    before = world.learned()
    # As if 40 batches had each brought a row per bucket.
    world(
        "insert into mempair.learned_keys (model_id, bucket, keys, prints) select 1, 5, array['k' || i], array[i]"
        " from generate_series(1, 40) i"
    )
    with connect(world.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        Worker(world.dsn).round(connection)
    assert world.one("select count(*) from mempair.learned_keys where bucket = 5") == 1
    assert world.learned() == before | {f"k{i}" for i in range(1, 41)}
    assert world.one("select fingerprint from mempair.learned where row_key = 'k7'") == 7
