"""The worker on a real server: what it learns, what it forgets, what it writes down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from threadpoolctl import threadpool_info, threadpool_limits

from mempair_db.database import faults, models
from mempair_db.database.connect import connect
from mempair_db.offline.progress import Advance
from mempair_db.worker import batch, changes, loop
from mempair_db.worker.batch import apply_batch
from mempair_db.worker.loop import Worker
from mempair_db.worker.retrain import retrain
from tests.world import CHURN, FILL, SHOP, World, same


def test_rows_wait_in_the_queue_until_there_are_enough_to_calibrate(shop: World) -> None:
    shop.fill(1, 199)
    shop.work()
    assert shop.learned() == set()
    assert shop.one("select status from mempair.model_status") == "calibrating"
    shop.fill(200, 200)
    shop.work()
    assert shop.learned() == shop.rows()
    assert shop.kinds()[:2] == [("calibrated", 200), ("learned", 200)]


def test_a_worker_that_is_called_again_looks_again_at_once(shop: World) -> None:
    worker = Worker(shop.dsn, idle=60.0)
    for last in (50, 100, 199):  # each time the queue only waits, and `run` would look less and less often
        shop.fill(last - 49 if last < 199 else 101, last)
        worker.run_once()
        assert shop.learned() == set()
    shop.fill(200, 200)
    worker.run_once()
    assert shop.learned() == shop.rows()


@pytest.mark.parametrize("kind", ["exact", "symmetric"])
def test_rows_that_are_too_wide_for_one_batch_calibrate_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(changes, "BATCH_BYTES", 1)  # the smallest batches: one chunk, of at most 500 rows
    model = CHURN if kind == "symmetric" else CHURN.replace("unlearner => 'symmetric', lambda => 0.01,", "")
    world(SHOP, model.replace("calibration_rows => 200", "calibration_rows => 900"))
    for first in range(1, 801, 200):
        world.fill(first, first + 199)
    world("delete from shop where id <= 100")
    world.work()
    assert world.one("select status, rows_learned from mempair.model_status") == ("calibrating", 0)
    world.fill(801, 1100)
    world.work()
    assert world.one("select rows_learned from mempair.model_status") == 1000
    assert world.learned() == world.rows()


def test_a_worker_waits_for_a_standby_to_be_promoted_ever_more_patiently(
    shop: World, caplog: pytest.LogCaptureFixture
) -> None:
    shop.fill(1, 300)
    addresses = [make_conninfo(shop.dsn, options="-c default_transaction_read_only=on")] * 4
    worker = Worker(lambda: addresses.pop() if addresses else shop.dsn, idle=0.02)
    thread = threading.Thread(target=worker.run)
    thread.start()
    deadline = time.monotonic() + 60
    while thread.is_alive() and shop.learned() != shop.rows() and time.monotonic() < deadline:
        time.sleep(0.05)
    worker.stop()
    thread.join()
    assert shop.learned() == shop.rows()
    waited = [record.getMessage() for record in caplog.records if "trying again" in record.getMessage()]
    assert len(waited) == 4
    assert all("read-only transaction" in each for each in waited)
    assert float(waited[-1].split()[-2]) > float(waited[0].split()[-2])


@pytest.mark.parametrize("kind", ["exact", "symmetric"])
def test_a_worker_shows_how_many_rows_of_a_table_it_has_read(world: World, kind: str) -> None:
    shown: list[tuple[str, int]] = []
    steps: list[int] = []

    @contextmanager
    def bars(what: str, total: int) -> Iterator[Advance]:
        shown.append((what, total))
        yield steps.append

    world(SHOP, CHURN if kind == "symmetric" else CHURN.replace("unlearner => 'symmetric', lambda => 0.01,", ""))
    world.fill(1, 900)
    world.work()
    world("insert into shop (id) values (1001), (1002)", "select mempair.retrain('churn')")  # which have no label
    Worker(world.dsn, bars=bars).run_once()
    assert shown == [("Reading the table of churn", 900)]
    assert sum(steps) == 900


def test_the_live_state_is_the_replay_of_the_learned_rows_bit_for_bit(shop: World) -> None:
    for first in range(1, 2001, 500):
        shop.fill(first, first + 499)
        shop.work()
    assert same(shop.pair().arrays, shop.replay())


def test_the_size_of_batches_does_not_change_a_bit(shop: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.fill(1, 300)
    shop.work()
    monkeypatch.setattr(changes, "BATCH_BYTES", 1)  # the smallest batches: one statement each
    for first in range(301, 3501, 800):
        shop.fill(first, first + 799)
    shop.work()
    assert len(shop.outcomes) > 3
    assert same(shop.pair().arrays, shop.replay())


def test_the_gate_opens_by_itself_and_predictions_follow_the_state(shop: World) -> None:
    shop.sql.execute("select mempair.alter_model('churn', gamma => 0.05)")
    shop.fill(1, 300)
    shop.work()
    with pytest.raises(psycopg.errors.Error) as error:
        shop.one("select mempair_predict('churn', s) from shop s where id = 1")
    assert error.value.sqlstate == "MP102"
    shop.fill(301, 3000)
    shop.work()
    assert "gate_opened" in dict(shop.kinds())
    assert shop.one("select status from mempair.model_status") == "ready"
    pair = shop.pair()
    for number, age, plan, spend in shop.sql.execute("select id, age, plan, spend::float8 from shop where id < 20"):
        expected = pair.predict_one([age, spend], [plan])
        assert shop.one("select mempair_predict('churn', s) from shop s where id = %s", number) == pytest.approx(
            expected, abs=1e-12
        )


def test_a_deletion_is_unlearned_with_noise_and_entered_in_the_ledger(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    before = shop.pair().arrays
    shop.sql.execute("delete from shop where id = 42")
    shop.work()
    after = shop.pair()
    assert shop.learned() == shop.rows()
    assert after.odometer.deletions == 1
    assert np.array_equal(after.arrays.anchor, after.arrays.theta)
    assert not np.array_equal(after.arrays.anchor, before.anchor)
    assert shop.one("select count(*) from mempair.curvature") == 0
    kind, rho, tag = shop.one(
        "select kind, rho, tag from mempair.ledger where kind <> 'purged' order by seq desc limit 1"
    )
    assert (kind, rho) == ("unlearned", after.odometer.spent)
    assert len(tag) == 32
    shop.check_ledger()


def test_the_receipt_opens_the_ledgers_tag(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.sql.execute("delete from shop where id = 42")
    shop.work()
    import hmac  # noqa: PLC0415

    receipt = shop.one("select mempair.receipt('churn', '42')")
    tag = shop.one("select tag from mempair.ledger where kind = 'unlearned'")
    assert hmac.digest(bytes.fromhex(receipt["deletions"][0]["salt"]), b"42", "sha256") == tag


def test_an_insert_and_its_delete_before_the_worker_ran_cancel_out_for_free(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.fill(5000, 5000)
    shop.sql.execute("delete from shop where id = 5000")
    shop.work()
    assert shop.pair().odometer.spent == 0
    assert shop.kinds()[-1] == ("cancelled", 1)
    assert same(shop.pair().arrays, shop.replay())


def test_deleting_a_row_that_was_never_learned_is_free(shop: World) -> None:
    shop.fill(1, 3000)
    shop.sql.execute("insert into shop values (9999, 'infinity', 'pro', 1, 'n', true)")
    shop.work()
    assert shop.one("select reason from mempair.rejected where row_key = '9999'") == "feature 'age' is infinite"
    shop.sql.execute("delete from shop where id = 9999")
    shop.work()
    assert shop.pair().odometer.spent == 0
    assert shop.one("select detail from mempair.ledger where kind = 'cancelled'") == "never learned"


def test_an_update_unlearns_the_old_row_and_learns_the_new_one(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.sql.execute("update shop set age = age + 1 where id = 7")
    shop.sql.execute("update shop set note = 'x' where id = 8")
    shop.work()
    assert (shop.outcomes[-1].learned, shop.outcomes[-1].unlearned) == (1, 1)
    assert shop.one("select tick from mempair.learned where row_key = '7'") == 3001
    assert shop.learned() == shop.rows()
    shop.check_ledger()


def test_several_updates_of_one_row_in_one_batch_cost_one_deletion(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    for _ in range(3):
        shop.sql.execute("update shop set age = age + 1 where id = 7")
    shop.work()
    assert (shop.outcomes[-1].learned, shop.outcomes[-1].unlearned) == (1, 1)


def test_rows_with_missing_values_are_rejected_by_key_and_reason_alone(shop: World) -> None:
    shop.fill(1, 300)
    shop.sql.execute("insert into shop values (9001, null, 'pro', 1, 'n', true), (9002, 30, null, 1, 'n', true)")
    shop.sql.execute("insert into shop values (9003, 30, 'pro', 1, 'n', null)")
    shop.work()
    assert shop.sql.execute("select row_key, reason from mempair.rejected order by row_key").fetchall() == [
        ("9001", "feature 'age' is missing"),
        ("9002", "feature 'plan' is missing"),
    ]
    assert shop.learned() == shop.rows() - {"9001", "9002"}


def test_when_the_budget_is_spent_the_model_is_retrained_exactly_and_no_deletion_is_lost(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.sql.execute("delete from shop where id <= 40")
    shop.fill(4000, 4100)
    shop.work()
    assert shop.learned() == shop.rows()
    kinds = [kind for kind, _ in shop.kinds()]
    assert sum(rows for kind, rows in shop.kinds() if kind == "unlearned") == 40
    assert kinds.index("exhausted") < kinds.index("retrained")
    pair = shop.pair()
    assert pair.epoch is not None
    assert pair.epoch.number == 2
    assert pair.odometer.spent == 0
    assert same(pair.arrays, shop.replay())
    assert shop.one("select count(*) from mempair.receipt") == 40
    shop.check_ledger()


def test_a_model_that_halts_keeps_its_deletions_waiting_until_it_is_retrained(shop: World) -> None:
    shop.sql.execute("update mempair.model set on_exhausted = 'halt'")
    shop.fill(1, 3000)
    shop.work()
    shop.sql.execute("delete from shop where id <= 40")
    shop.work()
    assert shop.one("select status from mempair.model_status") == "exhausted"
    with pytest.raises(psycopg.errors.Error, match="has halted") as error:
        shop.one("select mempair_predict('churn', s) from shop s where id = 100")
    assert error.value.sqlstate == "MP103"
    assert shop.one("select mempair_try_predict('churn', s) from shop s where id = 100") is None
    assert shop.one("select pending_deletions from mempair.model_status") > 0
    with connect(shop.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        assert retrain(connection, 1, "requested").retrained
    assert shop.one("select status from mempair.model_status") in ("ready", "learning")
    assert shop.learned() == shop.rows()


def test_a_retrain_that_is_told_to_stop_leaves_the_old_epoch_and_the_request(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    before = shop.pair().arrays
    shop.sql.execute("select mempair.retrain('churn')")
    shop.sql.execute("delete from shop where id = 7")
    with connect(shop.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        assert not retrain(connection, 1, "requested", give_up=lambda: True).worked
    assert same(shop.pair().arrays, before)
    assert shop.one("select status from mempair.model_status") == "retraining"
    shop.work()
    assert shop.one("select epoch from mempair.model") == 2
    assert shop.learned() == shop.rows()


def test_truncate_forgets_everything_and_begins_again(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.fill(4000, 4100)
    shop.sql.execute("truncate shop")
    shop.fill(1, 250)
    shop.work()
    assert shop.learned() == shop.rows()
    assert ("epoch", 3000) in shop.kinds()
    assert same(shop.pair().arrays, shop.replay())
    shop.check_ledger()


def test_a_batch_is_as_large_as_its_rows_allow_not_as_the_first_ones_suggest(
    shop: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "BATCH_BYTES", 1 << 20)
    shop.sql.execute("update mempair.model set paused = true")
    shop.fill(1, 500)
    shop.sql.execute(FILL.replace("(array['basic', 'plus', 'pro'])[1 + i %% 3]", "repeat('x', 180)"), [501, 10_000])
    with connect(shop.dsn) as connection:
        batch.prepare(connection)
        model = models.lease(connection, 1)
        assert model is not None
        parts = [changes.read(connection, model)]
        while not parts[-1].complete:
            parts.append(changes.read(connection, model, after=int(parts[-1].seq[-1])))
    assert 2_500 < len(parts[0]) < 5_500  # a megabyte, of 180 bytes and a little more each, in whole chunks
    assert sorted(int(key) for part in parts for key in part.keys) == list(range(1, 10_001))


def test_a_text_of_any_length_costs_the_queue_little_and_stays_itself(shop: World) -> None:
    long = FILL.replace("(array['basic', 'plus', 'pro'])[1 + i %% 3]", "repeat(chr(97 + i %% 2), 100000)")
    shop.sql.execute(long, [1, 300])
    assert shop.one("select pg_total_relation_size('mempair.change_1_a')") < 200_000
    shop.work()
    assert shop.learned() == shop.rows()
    shop.sql.execute("delete from shop where id <= 3")
    shop.work()
    assert shop.learned() == shop.rows()


def test_when_too_much_waits_the_table_is_read_instead_of_the_queue(
    shop: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "BACKLOG", 2_000)
    monkeypatch.setattr(loop, "BACKLOG_BYTES", 0)
    monkeypatch.setattr(loop, "LEARNED_ROW", 1)
    shop.fill(1, 300)
    shop.work()
    assert shop.one("select count(*) from mempair.ledger where kind = 'retrained'") == 0
    shop.fill(301, 3000)
    shop.sql.execute("delete from shop where id in (7, 2000)")
    shop.work()
    assert "2702 changes wait" in str(shop.one("select detail from mempair.ledger where kind = 'retrained'"))
    assert [(o.learned, o.unlearned, o.cancelled) for o in shop.outcomes if o.retrained] == [(2998, 1, 1)]
    assert shop.one("select count(*) from mempair.receipt where row_key = '2000' and kind = 'never learned'") == 1
    assert shop.learned() == shop.rows()
    assert shop.one("select status from mempair.model_status") == "ready"
    assert same(shop.pair().arrays, shop.replay())
    shop.check_ledger()


def test_a_long_queue_beside_many_more_learned_rows_is_worked_off() -> None:
    turn = loop.Turn(1, "m", "ready", None, None, None, "retrain", "symmetric", learned=0, waiting=999_999)
    assert not turn.why_retrain
    assert turn._replace(waiting=1_000_000).why_retrain
    assert turn._replace(waiting=1_000_000, on_exhausted="halt").why_retrain
    assert not turn._replace(waiting=1_000_000, on_exhausted="halt", learned=1).why_retrain
    assert not turn._replace(waiting=1_000_000, learned=1_000_000).why_retrain
    assert turn._replace(waiting=2_000_000, learned=1_000_000).why_retrain
    assert not turn._replace(waiting=2_000_000, learned=100_000_000).why_retrain


def test_a_retrain_with_too_few_rows_left_waits_for_more(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.sql.execute("delete from shop where id > 100")
    shop.work()
    assert shop.one("select status from mempair.model_status") == "calibrating"
    assert shop.learned() == set()
    assert shop.one("select pending_changes from mempair.model_status") == 100
    shop.fill(5000, 5200)
    shop.work()
    assert shop.learned() == shop.rows()


def test_rows_that_come_again_are_learned_once(shop: World) -> None:
    shop.fill(1, 300)
    shop.work()
    shop.sql.execute(
        "insert into mempair.change_1_a (op, rows, keys, x, c, y)"
        " select 1, 3, array_agg(s.row_key), array_agg(s.x), array_agg(s.c), array_agg(s.y)"
        " from mempair.source_1 s where s.row_key in ('7', '8', '9')"
    )
    shop.fill(301, 310)
    shop.work()
    assert shop.one("select count(*) from mempair.learned") == 310
    assert shop.sql.execute("select row_key, reason from mempair.rejected").fetchall() == [
        (key, "already learned") for key in "789"
    ]
    assert shop.learned() == shop.rows()


def test_a_row_that_came_again_after_a_deletion_that_escaped_capture_is_forgotten_by_a_retrain_only(
    shop: World, superuser: Callable[[str], str]
) -> None:
    shop.fill(1, 3000)
    shop.work()
    with psycopg.connect(superuser(shop.dsn), autocommit=True) as admin:
        admin.execute("set session_replication_role = replica")
        admin.execute("delete from shop where id = 7")
    shop.fill(3001, 3001)  # the first row of a batch is looked up, the others are not
    shop.fill(7, 7)
    shop.work()
    assert shop.one("select count(*) from mempair.learned where row_key = '7'") == 2
    finding = "rows that were learned twice: their deletion between was never captured"
    assert shop.sql.execute("select finding, rows from mempair.reconcile('churn')").fetchall() == [(finding, 1)]
    shop.sql.execute("delete from shop where id = 7")
    shop.work()
    assert "learned twice" in str(shop.one("select detail from mempair.ledger where kind = 'retrained'"))
    assert shop.learned() == shop.rows()
    assert shop.sql.execute("select * from mempair.reconcile('churn')").fetchall() == []
    shop.check_ledger()


def test_reconcile_repairs_what_was_learned_twice(shop: World, superuser: Callable[[str], str]) -> None:
    shop.fill(1, 3000)
    shop.work()
    with psycopg.connect(superuser(shop.dsn), autocommit=True) as admin:
        admin.execute("set session_replication_role = replica")
        admin.execute("delete from shop where id <= 3")
    shop.fill(3001, 3001)
    shop.fill(1, 3)
    shop.work()
    before = shop.sql.execute("select row_key, min(tick) from mempair.learned group by 1 order by 1").fetchall()
    shop.sql.execute("select mempair.reconcile('churn', repair => true)")
    assert shop.sql.execute("select row_key, tick from mempair.learned order by 1").fetchall() == before
    shop.work()
    assert shop.one("select count(*) from mempair.learned") == 3001
    assert "3 deletions escaped capture" in str(shop.one("select detail from mempair.ledger where kind = 'retrained'"))
    assert shop.learned() == shop.rows()


def test_a_late_commit_with_a_smaller_number_is_not_lost(shop: World) -> None:
    shop.fill(1, 300)
    shop.work()
    with psycopg.connect(shop.dsn) as late:
        late.execute(FILL, [900, 900])  # has its number, but has not committed
        shop.fill(301, 310)
        shop.work()
        late.commit()
    shop.work()
    assert shop.learned() == shop.rows()


def test_two_workers_on_one_model_apply_every_change_once(shop: World) -> None:
    shop.fill(1, 300)
    shop.work()
    workers = [Worker(shop.dsn, idle=0.01) for _ in range(3)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for first in range(301, 1501, 20):
        shop.fill(first, first + 19)
    for worker in workers:
        worker.stop()
    for thread in threads:
        thread.join(timeout=30)
    shop.work()
    assert shop.learned() == shop.rows()
    assert shop.one("select sum(rows) from mempair.ledger where kind = 'learned'") == 1500
    assert same(shop.pair().arrays, shop.replay())
    shop.check_ledger()


def test_while_another_transaction_has_the_model_a_batch_does_nothing(shop: World) -> None:
    shop.fill(1, 300)
    with psycopg.connect(shop.dsn) as other, connect(shop.dsn, autocommit=True) as connection:
        other.execute("select from mempair.state for update")
        batch.prepare(connection)
        assert not apply_batch(connection, 1).worked


def test_a_paused_model_captures_but_does_not_learn(shop: World) -> None:
    shop.fill(1, 300)
    shop.sql.execute("select mempair.pause_model('churn')")
    shop.work()
    assert shop.learned() == set()
    shop.sql.execute("select mempair.resume_model('churn')")
    shop.work()
    assert shop.learned() == shop.rows()


def test_after_a_deletion_the_queue_tables_are_physically_empty(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.sql.execute("delete from shop where id = 42")
    shop.work()
    assert shop.one("select pg_relation_size('mempair.change_1_a') + pg_relation_size('mempair.change_1_b')") == 0


def test_a_numeric_target_is_learned_as_a_regression(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table houses (id integer primary key, size float8, price float8)")
        connection.execute(
            "select mempair.create_model('price', 'houses', target => 'price', features => array['size'],"
            " lambda => 0.001, calibration_rows => 200, gamma => 1)"
        )
        connection.execute(
            "insert into houses select i, i % 100, 1000 + 50 * (i % 100) from generate_series(1, 5000) i"
        )
        Worker(database).run_once()
        worst = connection.execute(
            "select max(abs(mempair_predict('price', h) - price)) from houses h where size between 20 and 80"
        ).fetchone()
        assert worst is not None
        assert worst[0] < 500


def test_a_worker_keeps_linear_algebra_to_one_thread_while_it_works_and_no_longer(shop: World) -> None:
    seen: list[set[int]] = []

    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if "numpy" in library["filepath"]}

    shop.fill(1, 300)
    with threadpool_limits(limits=2, user_api="blas"):
        Worker(shop.dsn, report=lambda model, outcome: seen.append(threads())).run_once()
        assert seen
        assert all(found == {1} for found in seen)
        assert threads() == {2}


def test_a_retrain_joins_by_hashing_whatever_the_planner_believes_and_leaves_the_session_as_it_was(
    shop: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.sql.execute("delete from shop where id > 500")
    with connect(shop.dsn, autocommit=True) as connection:
        batch.prepare(connection)

        def allowed() -> tuple[str, ...]:
            names = ("enable_hashjoin", "enable_nestloop", "enable_mergejoin")
            return tuple(str(value) for (value,) in (connection.execute(f"show {n}").fetchone() or () for n in names))

        seen = [allowed()]
        monkeypatch.setattr(faults, "hook", lambda name: seen.append(allowed()) if name == "retrain began" else None)
        retrain(connection, 1, "many deletions")
        seen.append(allowed())
    assert seen == [("on", "on", "on"), ("on", "off", "off"), ("on", "on", "on")]
    assert shop.learned() == shop.rows()


def test_after_many_inserts_the_queue_tables_are_emptied_too_so_that_later_batches_stay_fast(shop: World) -> None:
    shop.fill(1, 3000)
    shop.work()
    shop.fill(3001, 6000)  # an ordinary batch, nothing to report
    shop.work()
    assert shop.one("select pg_relation_size('mempair.change_1_a') + pg_relation_size('mempair.change_1_b')") == 0
