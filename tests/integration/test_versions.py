"""Versions: going back to what was published before, never to a person who has gone since. And two models compared."""

from __future__ import annotations

import psycopg
import pytest
from sklearn import metrics

from mempair_db.verify.checks import verify
from tests.conftest import Run
from tests.world import SHOP, World

EXACT = """
select mempair.create_model('{}', 'shop', target => 'churned', features => array['age', 'plan', 'spend'], gamma => 1{})
"""
SCORES = "select array_agg(mempair_predict('churn', s) order by id) from shop s where id <= 50"


@pytest.fixture(params=["", ", unlearner => 'symmetric', lambda => 0.01, calibration_rows => 200"])
def kept(world: World, request: pytest.FixtureRequest) -> World:
    """A model of 1,000 rows, whose version is kept, and that has learned 1,000 others since."""
    world(SHOP)
    world.fill(1, 1000)
    world(EXACT.format("churn", request.param))
    world.work()
    world.one("select mempair.keep_version('churn')")
    return world


def grow(world: World) -> None:
    world("insert into shop select i, i % 60, 'pro', i % 90, '', i % 60 > 20 from generate_series(2001, 2400) i")
    world.work()


def versions(world: World) -> list[tuple[int, bool]]:
    return world.execute("select version, published from mempair.versions('churn') order by 1")


def test_an_earlier_version_is_held_until_the_newest_is_published(kept: World) -> None:
    before = kept.one(SCORES)
    first = versions(kept)[-1][0]
    grow(kept)
    newest = kept.one(SCORES)
    assert newest != before
    assert kept.one("select mempair.publish('churn', %s)", first) == first
    assert kept.one(SCORES) == before
    kept("insert into shop values (3000, 30, 'pro', 3, '', true)")
    kept.work()
    assert kept.one(SCORES) == before  # what is learned meanwhile is not served
    assert kept.one("select version, held from mempair.model_status") == (first, True)
    assert "3000" in kept.learned()
    assert verify(kept.dsn, 1).fine
    served = next(check for check in verify(kept.dsn, 1).checks if check.check == "served")
    assert f"version {first} is held" in served.detail
    last = kept.one("select mempair.publish('churn')")
    assert last > first
    assert kept.one("select version, held from mempair.model_status") == (last, False)
    assert kept.one(SCORES) not in (before, newest)
    assert kept.one("select version = (select version from mempair.state) from mempair.published")
    published = "select detail from mempair.odometer where detail like 'published version%' order by seq"
    details = [row[0] for row in kept.execute(published)]
    assert f"published version {first} by" in details[-2]
    assert f"published version {last}, the newest" in details[-1]
    kept.check_ledger()
    assert kept.one("select mempair.publish('churn')") == last  # nothing to do


FORGETTING = {
    "deletion": "delete from shop where id = 7",
    "update": "update shop set age = age + 1 where id = 7",
    "truncate": "truncate shop",
    "retrain": "delete from shop where id = 7; select mempair.retrain('churn')",
    "escaped": """set session_replication_role = replica; delete from shop where id = 7; reset session_replication_role;
                  select mempair.retrain('churn')""",
}


FORGED = {
    "the version": "update mempair.version_1 set served = jsonb_set(served, '{intercept}', '50')"
    " where version = %(first)s",
    "another one": "insert into mempair.version_1 select version - 1, epoch, samples, kept_at,"
    " jsonb_set(served, '{intercept}', '50') from mempair.version_1 where version = %(first)s",
}


@pytest.mark.parametrize("which", FORGED)
def test_a_version_that_was_forged_and_published_is_found(kept: World, mempair: Run, which: str) -> None:
    first = versions(kept)[-1][0]
    grow(kept)
    kept.sql.execute(FORGED[which], {"first": first})
    kept.one("select mempair.publish('churn', %s)", first - (which == "another one"))
    says = "the ledger does not say that it was kept as it is"
    assert says in next(check.detail for check in verify(kept.dsn, 1).checks if not check.fine)
    ((_, _, problem),) = kept.execute("select * from mempair.verify_odometer()")
    assert says in problem
    if kept.one("select unlearner from mempair.model") == "exact":
        in_sql = {
            check: (fine, detail) for check, fine, detail in kept.execute("select * from mempair.verify_model('churn')")
        }
        assert (in_sql["served"][0], says in in_sql["served"][1]) == (False, True)
        code, out, _ = mempair("audit", "churn", "--dsn", kept.dsn)
        assert (code, "is held, and served instead" in out) == (5, True)


@pytest.mark.parametrize("fraud", ["held = 99", "intercept = 50"])
def test_what_is_served_as_a_held_version_is_that_version(kept: World, fraud: str) -> None:
    first = versions(kept)[-1][0]
    if fraud != "held = 99":
        grow(kept)
        kept.one("select mempair.publish('churn', %s)", first)
    kept(f"update mempair.published set {fraud}")
    assert not verify(kept.dsn, 1).fine
    ((_, _, problem),) = kept.execute("select * from mempair.verify_odometer()")
    assert "is held, and" in problem


@pytest.mark.parametrize("way", FORGETTING)
def test_a_rollback_never_brings_a_row_back(kept: World, way: str, superuser: object) -> None:
    first = versions(kept)[-1][0]
    grow(kept)
    kept.one("select mempair.publish('churn', %s)", first)
    before = kept.one(SCORES.replace("<= 50", "> 2300"))
    with psycopg.connect(superuser(kept.dsn), autocommit=True) as session:  # type: ignore[operator]
        for statement in FORGETTING[way].split(";"):
            session.execute(statement)
    kept.work()
    assert versions(kept) == []
    assert kept.one("select held from mempair.model_status") is False
    assert verify(kept.dsn, 1).fine
    with pytest.raises(psycopg.Error, match="must not bring them back") as refusal:
        kept.sql.execute("select mempair.publish('churn', %s)", [first])
    assert refusal.value.sqlstate == "MP107"
    if way != "truncate":
        assert kept.one(SCORES.replace("<= 50", "> 2300")) != before
    ended = kept.one("select count(*) from mempair.odometer where detail like 'version % is published no more%%'")
    assert ended == 1
    kept.check_ledger()


def test_what_is_erased_is_gone_from_the_disk(kept: World, superuser: object) -> None:
    kept.one("select mempair.keep_version('churn')")
    assert kept.one("select pg_relation_size('mempair.version_1')") > 0
    kept("delete from shop where id = 7")
    kept.work()
    assert kept.one("select pg_relation_size('mempair.version_1')") == 0
    assert kept.one("select versions, held from mempair.published") == (0, None)


def test_a_refresh_that_loses_no_row_leaves_the_versions(world: World) -> None:
    world(SHOP)
    world.fill(1, 1000)
    world(EXACT.format("churn", ""))
    world.work()
    before, first = world.one(SCORES), world.one("select mempair.keep_version('churn')")
    world("select mempair.alter_model('churn', curves => 3)")
    world.work()
    assert world.one(SCORES) != before
    world.one("select mempair.publish('churn', %s)", first)
    assert world.one(SCORES) == pytest.approx(before, rel=1e-12)  # of a model with other curves, served by one with 3
    assert world.one(
        "select array_agg(p.prediction order by row_key::int) from mempair.predict_all('churn') p"
        " where row_key::int <= 50"
    ) == pytest.approx(before)
    world.one("select mempair.publish('churn')")
    assert world.one(SCORES) != before


@pytest.mark.parametrize("change", ["delete from shop where id = 7", "update shop set age = age + 1 where id = 7"])
def test_a_refresh_erases_what_a_row_is_in_of_whose_end_no_trigger_told_among_versions(
    world: World, change: str
) -> None:
    world(SHOP)
    world.fill(1, 1000)
    world(EXACT.format("churn", ""))
    world.work()
    first = world.one("select mempair.keep_version('churn')")
    world("alter table shop disable trigger user")
    world(change)
    world("alter table shop enable trigger user")
    world("select mempair.retrain('churn')")
    world.work()
    with pytest.raises(psycopg.Error, match="version"):
        world.one("select mempair.publish('churn', %s)", first)


def test_versions_that_are_kept_are_few_and_others_are_named(kept: World) -> None:
    for i in range(25):
        kept(f"insert into shop values ({5000 + i}, 30, 'pro', 3, '', true)")
        kept.work()
        kept.one("select mempair.keep_version('churn')")
    assert len(versions(kept)) == 20
    with pytest.raises(psycopg.Error, match="the newest is") as refusal:
        kept.sql.execute("select mempair.publish('churn', 100000)")
    assert "Versions that can be: " in (refusal.value.diag.message_hint or "")
    with pytest.raises(psycopg.Error, match="was not kept"):
        kept.sql.execute("select mempair.publish('churn', 0)")
    kept("select mempair.drop_model('churn')")
    assert kept.one("select to_regclass('mempair.version_1')") is None


def test_two_models_of_one_table_are_compared_in_one_pass(world: World) -> None:
    world(SHOP)
    world.fill(1, 800)
    world("insert into shop (id, age, plan) values (9000, 3, 'pro')")  # unlabelled
    world(EXACT.format("churn", ""), EXACT.format("shadow", ", curves => 3, on_null => 'skip'"))
    world("insert into shop values (9001, null, 'pro', 3, '', true)")
    world.work()
    found = world.one("select * from mempair.compare('churn', 'shadow')")
    rows = world.execute(
        "select churned, mempair_predict('churn', s), mempair_predict('shadow', s) from shop s where id <= 800"
    )
    y, a, b = zip(*rows, strict=True)
    expected = (
        *(800, 1, metrics.log_loss(y, a), metrics.log_loss(y, b)),
        *(metrics.roc_auc_score(y, a), metrics.roc_auc_score(y, b)),
        sum((p >= 0.5) != (q >= 0.5) for p, q in zip(a, b, strict=True)) / 800,
    )
    assert found == pytest.approx(expected)
    assert world.one("select rows from mempair.compare('churn', 'shadow', 'id <= 10')") == 10
    world("select mempair.create_model('spend', 'shop', 'spend', 'age, plan', gamma => 10)")
    world("select mempair.create_model('spend2', 'shop', 'spend', 'age', gamma => 10)")
    world.work()
    rows, _, first, second, auc, _, apart = world.one("select * from mempair.compare('spend', 'spend2')")
    assert (rows, auc) == (802 - 1, None)
    assert first > 0
    assert second > 0
    assert apart > 0
    with pytest.raises(psycopg.Error, match="predict different things"):
        world.sql.execute("select * from mempair.compare('churn', 'spend')")
