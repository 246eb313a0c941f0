"""Frauds and escapes, each done with the owner's rights, and `mempair verify` which computes the model anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from mempair_db.database import models
from mempair_db.database.connect import connect
from mempair_db.database.exact import Exact, total
from mempair_db.pair.sums import Sums
from mempair_db.verify.checks import Report, verify
from mempair_db.worker import batch
from tests.conftest import Run
from tests.world import SHOP, World

EXACT = """
select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'],
                            calibration_rows => 200, gamma => 0.3)
"""


@pytest.fixture
def shop(world: World) -> World:
    world(SHOP, EXACT)
    world.fill(1, 2000)
    world.work()
    return world


def check(world: World) -> Report:
    return verify(world.dsn, 1)


def wrong(world: World) -> dict[str, str]:
    return {found.check: found.detail for found in check(world).checks if not found.fine}


def stored(world: World) -> Exact:
    with connect(world.dsn) as connection:
        batch.prepare(connection)
        model = models.look(connection, 1)
        assert model is not None
        return model.exact


def terms(world: World, number: int) -> Sums:
    """What one row of the table adds to the sums."""
    with connect(world.dsn) as connection:
        batch.prepare(connection)
        model = models.look(connection, 1)
        assert model is not None
        rows = "select x, c, y from mempair.source_1 where row_key = %s"
        x, c, y = connection.cursor(binary=True).execute(rows, [str(number)]).fetchall()[0]
        reference = model.exact.reference
        assert reference is not None
        terms = {"loss": "logistic"}
        return total(reference, terms, np.array([x]), np.array([y]), [tuple(c)])


def overwrite(world: World, new: Sums) -> None:
    world.sql.execute("update mempair.state set sums = %s, rows_learned = %s", [new.to_bytes(), new.n])


def silently(world: World, superuser: Callable[[str], str], statement: str) -> None:
    """Change the table where no trigger sees it."""
    with psycopg.connect(superuser(world.dsn)) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute(statement)


def test_an_honest_model_is_what_its_rows_make_of_it_before_and_after_what_waits(shop: World) -> None:
    report = check(shop)
    assert report.fine, report
    assert {found.check for found in report.checks} == {"schema", "constants", "sums", "served", "learned", "keys"}
    shop("delete from shop where id <= 30", "update shop set age = age + 1 where id between 100 and 140")
    shop.fill(3001, 3100)
    shop("delete from shop where id = 3001", "insert into shop values (5000, null, null, 'NaN', 'n', true)")
    report = check(shop)
    assert report.fine, report
    assert report.waiting > 0
    shop.work()
    report = check(shop)
    assert report.fine, report
    assert (report.rows, report.waiting) == (1970 + 99 + 1, 0)


def test_a_truncate_that_waits_leaves_what_came_after_it(shop: World) -> None:
    shop("truncate shop")
    shop.fill(1, 50)
    assert wrong(shop) == {}
    shop.work()
    assert wrong(shop) == {}


def test_a_model_that_has_learned_nothing_yet_is_fine(world: World, mempair: Run) -> None:
    world(SHOP, EXACT)
    world.fill(1, 50)
    world.work()
    assert wrong(world) == {}
    name = world.one("select name from mempair.model")
    code, out, err = mempair("verify", name, "--dsn", world.dsn)
    assert code == 0
    assert f"{name} has learned nothing yet, and holds nothing: its 50 rows wait." in out + err


def test_a_deleted_row_kept_in_the_sums_is_caught(shop: World) -> None:
    kept = terms(shop, 1500)
    shop("delete from shop where id = 1500")
    shop.work()
    assert wrong(shop) == {}
    honest = stored(shop).sums
    assert honest is not None
    overwrite(shop, honest + kept)
    found = wrong(shop)
    assert "n: +1" in found["sums"]
    assert "one row that is not in the table is in the sums" in found["sums"]


def test_a_row_subtracted_twice_is_caught_and_named(shop: World) -> None:
    honest = stored(shop).sums
    assert honest is not None
    overwrite(shop, honest - terms(shop, 1234))
    found = wrong(shop)
    assert "n: -1" in found["sums"]
    assert "the terms of row 1234 are missing from the sums" in found["sums"]


def test_replaced_weights_are_caught_while_the_sums_are_honest(shop: World) -> None:
    shop("update mempair.published set weights = (select array_agg(-w) from unnest(weights) w)")
    assert list(wrong(shop)) == ["served"]
    assert "weights" in wrong(shop)["served"]


@pytest.mark.parametrize(
    "fraud",
    [
        "intercept = intercept + 0.1",
        "ready = not ready",
        "samples = samples + 1",
        "link = 'identity'",
        "level_weights = array_append(level_weights, 1.0)",
        "centers = array_fill(0.5::float8, array[cardinality(centers)])",
        "scales = array_fill(2.0::float8, array[cardinality(scales)])",
        """places = jsonb_set(places, '{0,levels,basic}', '3')""",
    ],
)
def test_anything_else_that_is_served_and_does_not_follow_is_caught(shop: World, fraud: str) -> None:
    was_ready = shop.one("select ready from mempair.published")
    shop(f"update mempair.published set {fraud}")
    if fraud.startswith("ready") and was_ready:
        assert wrong(shop) == {}  # a model that refuses to predict harms nobody
    else:
        assert list(wrong(shop)) == ["served"]


def test_changed_constants_are_caught(shop: World) -> None:
    shop("update mempair.model set constants = jsonb_set(constants, '{encoding,numbers,0,0}', '47.125')")
    assert "numbers" in wrong(shop)["constants"]


def test_constants_that_do_not_fit_the_sums_are_a_finding_and_no_crash(
    shop: World, mempair: Run, tmp_path: Path
) -> None:
    shop("update mempair.model set constants = jsonb_set(constants, '{encoding,numbers,0,2}', '[128]')")
    ((check, fine, detail),) = shop.execute("select * from mempair.verify_model('churn')")
    assert (check, fine) == ("constants", False)
    assert "do not fit together" in detail
    assert mempair("export", "churn", "--out", str(tmp_path / "e"), "--dsn", shop.dsn)[0] == 5
    code, _, err = mempair("verify", "churn", "--dsn", shop.dsn)
    assert code == 5
    assert "churn differs from its table: constants" in " ".join(err.split())
    assert mempair("verify", "churn", "--repair", "--dsn", shop.dsn)[0] == 0
    shop.work()
    assert wrong(shop) == {}


def test_something_else_that_lies_among_the_constants_is_caught(shop: World) -> None:
    shop("""update mempair.model set constants = constants || '{"note": [47.125, 1]}'""")
    assert wrong(shop)["constants"] == "something lies among them that is no constant"


@pytest.mark.parametrize("eased", [True, False])
def test_a_ridge_that_was_eased_without_need_is_caught_and_so_is_one_that_was_not(world: World, eased: bool) -> None:
    label = "sin(i) > 0" if not eased else "i * 7919 % 100 < 50"  # decided by the number, or by nothing
    world(
        "create table t (id integer primary key, a float8, b text, y boolean)",
        f"insert into t select i, sin(i), 'b' || i % 3, {label} from generate_series(1, 900) i",
        "select mempair.create_model('churn', 't', target => 'y', features => '{a,b}')",
    )
    world.work()
    assert world.one("select coalesce(constants ->> 'eased', 'false') from mempair.model") == str(not eased).lower()
    change = "constants || '{\"eased\": true}'" if eased else "constants - 'eased'"
    world(f"update mempair.model set constants = {change}")
    found = wrong(world)
    assert f"eased is {'true' if eased else 'null'}, should be {'null' if eased else 'true'}" in found["constants"]


def test_other_reference_rows_are_caught_where_the_constants_do_not_follow_from_them(shop: World) -> None:
    shop(
        "delete from mempair.reference_row r using shop s where s.id::text = r.row_key and s.churned and s.id % 3 <> 0"
    )
    assert "do not follow from" in wrong(shop)["constants"]


def test_a_reference_row_that_nobody_has_is_caught(shop: World) -> None:
    shop("insert into mempair.reference_row values (1, '77777', 42)")
    assert "77777" in wrong(shop)["constants"]


def test_reference_rows_that_the_state_does_not_count_are_caught(shop: World) -> None:
    shop("update mempair.state set references_left = references_left + 1")
    assert "the state counts" in wrong(shop)["constants"]


def test_a_key_that_no_deletion_would_find_is_caught(shop: World) -> None:
    shop(
        "update mempair.learned_keys set bucket = (bucket + 1) % 1024"
        " where id = (select min(id) from mempair.learned_keys)"
    )
    assert "no deletion would find them" in wrong(shop)["learned"]


def test_a_learned_key_that_was_planted_is_caught(shop: World) -> None:
    shop("insert into mempair.learned_keys (model_id, bucket, keys, prints) values (1, 3, '{99999}', '{1}')")
    assert "99999" in wrong(shop)["learned"]


def test_the_key_of_a_row_that_is_gone_is_found_in_whatever_table_holds_it(shop: World) -> None:
    shop("insert into mempair.rejected (model_id, row_key, reason) values (1, '88888', 'planted')")
    shop("create table mempair.later (model_id integer, row_key text)", "insert into mempair.later values (1, '77777')")
    assert "77777 in later.row_key, 88888 in rejected.row_key" in wrong(shop)["keys"]
    ((_, fine, detail),) = shop.execute("select * from mempair.verify_model('churn') where \"check\" = 'keys'")
    assert (fine, "2 keys of rows that are gone: 77777 in later.row_key" in detail) == (False, True)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("update shop set age = age + 9 where id = 321", "1 in the table with other values than were learned"),
        ("delete from shop where id = 321", "1 learned but not in the table"),
        ("insert into shop values (99321, 30, 'basic', 5, 'n', true)", "1 in the table but not learned"),
    ],
)
def test_a_change_that_escaped_the_triggers_is_named(
    shop: World, superuser: Callable[[str], str], statement: str, sentence: str
) -> None:
    silently(shop, superuser, statement)
    found = wrong(shop)
    assert sentence in found["learned"]
    assert "321" in found["learned"]
    assert "sums" in found


def test_an_escaped_update_of_a_column_that_is_no_feature_is_no_difference(
    shop: World, superuser: Callable[[str], str]
) -> None:
    silently(shop, superuser, "update shop set note = 'other' where id = 321")
    assert wrong(shop) == {}


def test_an_update_from_minus_zero_to_zero_is_no_difference(shop: World) -> None:
    shop("update shop set age = '-0' where id = 5", "select mempair.retrain('churn')")
    shop.work()
    shop("update shop set age = 0 where id = 5")
    shop.work()
    assert wrong(shop) == {}


def test_of_a_certified_model_what_is_served_and_what_was_learned_are_compared(
    world: World, superuser: Callable[[str], str]
) -> None:
    world(SHOP, EXACT.replace("gamma", "unlearner => 'symmetric', lambda => 0.01, gamma"))
    world.fill(1, 2000)
    world.work()
    world("delete from shop where id = 7")
    assert wrong(world) == {}
    world.work()
    assert wrong(world) == {}
    honest = world.one("select constants::text from mempair.model")
    world("update mempair.model set constants = jsonb_set(constants, '{constants,G}', '47.125')")
    assert "do not follow" in wrong(world)["constants"]
    world.sql.execute("update mempair.model set constants = %s", [honest])
    silently(world, superuser, "update shop set age = age + 9 where id = 321")
    assert "321" in wrong(world)["learned"]
    world("update mempair.published set intercept = -intercept")
    assert "intercept" in wrong(world)["served"]


def test_a_large_table_is_read_on_several_connections_under_one_snapshot(
    shop: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mempair_db.database.source.SMALL", 1)
    assert check(shop).fine
    shop("delete from shop where id = 3")
    assert check(shop).fine


def test_the_command_says_what_differs_exits_with_5_and_repairs(
    shop: World, superuser: Callable[[str], str], mempair: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = mempair("verify", "churn", "--json", "--dsn", shop.dsn)
    assert (code, json.loads(out)["fine"]) == (0, True)
    silently(shop, superuser, "update shop set age = age + 9 where id = 321")
    code, out, err = mempair("verify", "churn", "--dsn", shop.dsn)
    assert code == 5
    assert "321" in out
    assert "--repair" in err
    code, out, _ = mempair("verify", "churn", "--json", "--dsn", shop.dsn)
    assert code == 5
    by_name: dict[str, Any] = {found["check"]: found for found in json.loads(out)["checks"]}
    assert not by_name["sums"]["fine"]
    assert mempair("verify", "churn", "--repair", "--dsn", shop.dsn)[0] == 0
    shop.work()
    assert mempair("verify", "churn", "--dsn", shop.dsn)[0] == 0
    assert shop.one("select count(*) from mempair.ledger where detail like %s", "%verify found differences%") > 0


def test_a_regression_with_curves_is_verified_too(world: World) -> None:
    world(
        "create table house (id integer primary key, area float8, town text, price float8)",
        "insert into house select i, case when i % 9 > 0 then i * 7919 % 83 end, 't' || i % 4,"
        " i * 7919 % 83 * 3 + i % 7 from generate_series(1, 1500) i",
        "select mempair.create_model('price', 'house', target => 'price', features => array['area', 'town'],"
        " loss => 'squared', calibration_rows => 200)",
    )
    world.work()
    world("delete from house where id % 50 = 0")
    assert wrong(world) == {}
    world.work()
    assert wrong(world) == {}


@pytest.mark.parametrize("size", [1e-300, 2.0**60, 1e36, 1e150])
def test_constants_of_any_size_are_the_same_after_jsonb_wrote_them_in_its_way(world: World, size: float) -> None:
    world(
        "create table clock (id int primary key, at float8, late boolean)",
        "select mempair.create_model('late', 'clock', target => 'late', features => '{at}', calibration_rows => 50)",
    )
    rows = "insert into clock select i, %s * (random() - 0.3), random() < 0.5 from generate_series(1, 200) i"
    world.sql.execute(rows, [size])
    world.work()
    assert wrong(world) == {}
    assert world.one("select bool_and(fine) from mempair.verify_model('late')")


@pytest.mark.parametrize("unlearner", ["exact", "symmetric"])
def test_reconcile_finds_an_update_that_escaped_and_a_retrain_puts_it_right(
    world: World, superuser: Callable[[str], str], mempair: Callable[..., tuple[int, str, str]], unlearner: str
) -> None:
    certified = "unlearner => 'symmetric', lambda => 0.01, gamma"
    world(SHOP, EXACT if unlearner == "exact" else EXACT.replace("gamma", certified))
    world.fill(1, 800)
    world.work()
    assert mempair("reconcile", "churn", "--dsn", world.dsn)[0] == 0
    silently(world, superuser, "update shop set age = age + 9 where id in (321, 322)")
    code, out, _ = mempair("reconcile", "churn", "--dsn", world.dsn)
    assert code == 5
    assert "updated and never captured: 321, 322" in out
    assert mempair("reconcile", "churn", "--repair", "--dsn", world.dsn)[0] == 0
    world.work()
    assert mempair("reconcile", "churn", "--dsn", world.dsn)[0] == 0
    assert wrong(world) == {}
