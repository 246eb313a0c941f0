"""The life of a model: every phase it can reach, and that pausing, failing and asking for a retrain lose nothing."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from mempair_db.database.connect import connect
from mempair_db.database.models import TRANSITIONS
from mempair_db.worker import batch
from tests.world import World

TABLE = "create table shop (id integer primary key, age float8, plan text, spend numeric, note text, churned boolean)"
MODEL = "select mempair.create_model('churn', 'shop', target => 'churned', features => '{{age,plan,spend}}'{})"
EXACT = MODEL.format("")
CERTIFIED = MODEL.format(", unlearner => 'symmetric', lambda => 0.01, calibration_rows => 200, gamma => 0.3")
HALTS = MODEL.format(
    ", unlearner => 'symmetric', lambda => 0.01, calibration_rows => 200, gamma => 0.3, on_exhausted => 'halt'"
)
SLOW = MODEL.format(", unlearner => 'passive', calibration_rows => 20, gamma => 0.001, on_exhausted => 'halt'")


def phase(world: World) -> str:
    return str(world.one("select phase from mempair.model"))


def learning(world: World) -> None:
    world(TABLE, SLOW)
    world.fill(1, 30)
    world.work()


def ready(world: World) -> None:
    world(TABLE, MODEL.format(", gamma => 0.007"))
    world.fill(1, 300)
    world.work()


def ready_certified(world: World) -> None:
    world(TABLE, HALTS)
    world.fill(1, 3000)
    world.work()


def truncated(world: World) -> None:
    world("truncate shop")
    world.work()


def many_deletions(world: World) -> None:
    for first in range(1, 1000, 20):
        world(f"delete from shop where id between {first} and {first + 19}")
        world.work()
        if phase(world) == "exhausted":
            return


def exhausted(world: World) -> None:
    ready_certified(world)
    many_deletions(world)


def fill(rows: int) -> Callable[[World], None]:
    def then(world: World) -> None:
        world.fill(1, rows)
        world.work()

    return then


def run(*statements: str) -> Callable[[World], None]:
    def then(world: World) -> None:
        world(*statements)
        world.work()

    return then


RETRAIN = "select mempair.retrain('churn')"
EDGES: dict[tuple[str, str], tuple[Callable[[World], None], Callable[[World], None]]] = {
    ("calibrating", "learning"): (run(TABLE, SLOW), fill(30)),
    ("calibrating", "ready"): (run(TABLE, EXACT), fill(300)),
    ("learning", "ready"): (learning, run("select mempair.alter_model('churn', gamma => 100)")),
    ("ready", "learning"): (ready, run("delete from shop where id > 160")),
    ("learning", "exhausted"): (learning, run("delete from shop where id = 1")),
    ("ready", "exhausted"): (ready_certified, many_deletions),
    ("learning", "calibrating"): (learning, truncated),
    ("ready", "calibrating"): (ready, truncated),
    ("exhausted", "calibrating"): (exhausted, run("delete from shop where id > 100", RETRAIN)),
}


def test_every_transition_has_a_test() -> None:
    assert set(EDGES) == set(TRANSITIONS)


@pytest.mark.parametrize("edge", EDGES, ids=" to ".join)
def test_a_model_goes(world: World, edge: tuple[str, str]) -> None:
    before, then = EDGES[edge]
    before(world)
    assert phase(world) == edge[0]
    then(world)
    assert phase(world) == edge[1]
    assert world.sql.execute("select * from mempair.verify_odometer('churn')").fetchall() == []


@pytest.mark.parametrize("kind", [EXACT, CERTIFIED])
def test_pausing_loses_neither_the_request_for_a_retrain_nor_a_failure(world: World, kind: str) -> None:
    world(TABLE, kind)
    world.fill(1, 3000)
    world.work()
    world("select mempair.retrain('churn', 'because')", "select mempair.pause_model('churn')")
    world.work()
    assert world.one("select status, retrain_requested from mempair.model_status") == ("paused", "because")
    world("select mempair.alter_model('churn', gamma => 0.4)")
    assert world.one("select paused from mempair.model")  # altering a paused model does not unpause it
    world("select mempair.resume_model('churn')")
    world.work()
    assert world.one("select retrain_requested is null, epoch from mempair.model") == (True, 2)


def test_altering_pausing_and_resuming_leave_no_symmetric_step_with_passive_noise(world: World) -> None:
    """The promise of the epoch holds until the retrain: half the noise for a symmetric step would double epsilon."""
    world(TABLE, CERTIFIED)
    world.fill(1, 3000)
    world.work()
    world(
        "select mempair.alter_model('churn', unlearner => 'passive')",
        "select mempair.pause_model('churn')",
        "select mempair.resume_model('churn')",
    )
    assert world.one("select retrain_requested from mempair.model") is not None
    world("update mempair.model set retrain_requested = null")  # even if somebody takes the request away
    assert world.pair().parameters.unlearner == "symmetric"
    price = world.pair().price(3000)
    world("delete from shop where id = 7")
    world.work()
    assert world.one("select unlearner from mempair.receipt where row_key = '7'") == "symmetric"
    assert world.one("select rho from mempair.ledger where kind = 'unlearned'") == price


def test_what_the_epoch_promised_does_not_follow_the_models_row(world: World) -> None:
    world(TABLE, CERTIFIED)
    world.fill(1, 3000)
    world.work()
    price = world.pair().price(3000)
    world("update mempair.model set epsilon = 15, gamma = 3, m = 1")
    assert world.pair().price(3000) == price
    world("delete from shop where id = 7")
    world.work()
    assert world.one("select epsilon from mempair.receipt where row_key = '7'") == 1.0


def test_a_live_model_changes_its_unlearner_and_serves_the_old_one_until_the_new_one_is_ready(world: World) -> None:
    world(TABLE, CERTIFIED)
    world.fill(1, 3000)
    world.work()
    predict = "select mempair_predict('churn', s) from shop s where id = 9"
    before = world.one(predict)
    world("select mempair.alter_model('churn', unlearner => 'exact')")
    assert world.one(predict) == before
    world.work()
    assert world.one("select unlearner, status from mempair.model_status") == ("exact", "ready")
    assert world.one("select mempair.capacity('churn')") == float("inf")
    world.check_exact()
    world("delete from shop where id = 7")
    world.work()
    world.check_exact()
    world("select mempair.alter_model('churn', unlearner => 'passive')")
    world.work()
    assert world.one("select unlearner, status from mempair.model_status") == ("passive", "ready")
    assert world.one("select sums is null from mempair.state")
    assert world.one("select count(*) from mempair.learned where tick is null") == 0
    assert world.sql.execute("select * from mempair.verify_odometer('churn')").fetchall() == []


@pytest.mark.parametrize("kind", [EXACT, CERTIFIED])
def test_rows_that_a_truncate_took_have_receipts(world: World, kind: str) -> None:
    world(TABLE, kind)
    world.fill(1, 300)
    world.work()
    world("truncate shop")
    world.work()
    assert world.one("select count(*) from mempair.receipt where kind = 'retrained'") == 300
    document = world.one("select mempair.receipt('churn', '42')")
    assert document["deletions"][0]["retrained_since"] is not None
    assert world.sql.execute("select * from mempair.verify_odometer('churn')").fetchall() == []
    world.fill(1, 300)
    world.work()
    assert world.learned() == world.rows()


def test_one_models_trouble_stays_its_own(world: World) -> None:
    world(TABLE, EXACT, EXACT.replace("'churn'", "'other'"))
    world.fill(1, 300)
    world.work()
    world("update mempair.state set sums = 'xx' where model_id = 1", "delete from shop where id = 7")
    world.work()
    assert world.one("select status from mempair.model_status where model = 'churn'") == "failed"
    assert "ValueError" in world.one("select reason from mempair.model_status where model = 'churn'")
    assert world.one("select status, rows_learned from mempair.model_status where model = 'other'") == ("ready", 299)
    world("select mempair.retrain('churn')")
    world.work()
    assert world.one("select status, rows_learned from mempair.model_status where model = 'churn'") == ("ready", 299)


@pytest.mark.parametrize("serves", [True, False])
def test_a_deletion_that_changes_the_constants_waits_for_a_refresh_and_the_policy_says_who_predicts(
    world: World, serves: bool
) -> None:
    world(TABLE, MODEL.format(f", serve_during_refresh => {str(serves).lower()}"))
    world.fill(1, 300)
    world.work()
    before = world.one("select constants::text from mempair.model")
    world("delete from shop where id % 3 = 0 and id < 240")  # a level that loses so many rows changes the constants
    with connect(world.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        batch.apply_batch(connection, 1)
    assert "constants" in world.one("select retrain_requested from mempair.model")
    predicted = world.one("select mempair_try_predict('churn', s) from shop s where id = 1")
    assert (predicted is not None) == serves
    assert world.one("select predicts, needed from mempair.model_status") == (serves, None)
    if not serves:
        with pytest.raises(psycopg.Error, match="not ready: its table is to be read anew: a reference row went"):
            world("select mempair_predict('churn', s) from shop s")
    assert world.one("select pending_deletions from mempair.model_status") == 79
    world.work()
    assert world.one("select mempair_predict('churn', s) is not null from shop s where id = 1")
    assert world.one("select constants::text from mempair.model") != before
    detail = world.one("select detail from mempair.ledger where kind = 'retrained' order by seq desc limit 1")
    assert "; deletions: 79 by this retrain, the oldest after" in detail
    document = world.one("select mempair.receipt('churn', '3')")
    assert document["deletions"][0]["requested"] < document["deletions"][0]["executed"]
    world.check_exact()


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_a_reference_row_is_found_by_any_key_that_a_time_can_be(world: World, kind: str) -> None:
    world(
        f"create table hours (at {kind} primary key, x float8, y boolean)",
        f"""insert into hours select t::{kind}, random(), random() < 0.5 from unnest(array['infinity', '-infinity',
            '4713-02-01 12:00 BC', '0044-03-15 BC', '12345-06-07 01:02:03', '294276-12-30']) t""",
        f"""insert into hours select '2026-01-01'::{kind} + i * interval '1 day', random(), i % 3 = 0
            from generate_series(1, 60) i""",
        "select mempair.create_model('late', 'hours', target => 'y', features => '{x}', calibration_rows => 20)",
    )
    world.work()
    world("delete from hours where at = '2026-01-09'")
    world.work()
    assert world.one("select status, rows_learned from mempair.model_status") == ("ready", 65)
    assert world.one("select count(*) from mempair.reference_row") == 65
    world.check_exact()


def test_a_certified_model_that_becomes_exact_keeps_nothing_of_what_it_was(world: World) -> None:
    world(TABLE, CERTIFIED)
    world.fill(1, 3000)
    world.work()
    assert world.one("select count(*) from mempair.curvature") > 0
    world("select mempair.alter_model('churn', unlearner => 'exact')", "delete from shop where id <= 100")
    world.work()
    assert world.one("select count(*) from mempair.curvature") == 0
    world.check_exact()


def test_a_status_counts_the_rows_that_an_exact_model_has_forgotten(world: World) -> None:
    world("create table t (id integer primary key, a float8, y boolean)")
    world("insert into t select i, i % 17, i % 3 = 0 from generate_series(1, 300) i")
    world("select mempair.create_model('m', 't', target => 'y', features => array['a'])")
    world.work()
    assert world.one("select deletions from mempair.model_status") == 0
    world("delete from t where id in (5, 6, 7)")
    world.work()
    assert world.one("select deletions from mempair.model_status") == 3
