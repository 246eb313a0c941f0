"""Rows are predicted before they are learned, counted by day, and compared with the last refresh: drift is seen."""

from __future__ import annotations

import re
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from mempair_db.pair import progressive
from mempair_db.worker.loop import Worker
from mempair_db.worker.metrics import Metrics
from tests.conftest import Run
from tests.world import World

TABLE = "create table visits (id integer primary key, x float8, z float8, bought boolean, paid float8)"
ROWS = """
insert into visits
select i, x, random(), case when {} then random() < 1 / (1 + exp(-2 * x)) else random() < 1 / (1 + exp(2 * x)) end,
       10 * x + {}
from (select i, random() * 4 - 2 as x from generate_series({}, {}) i) as r
"""
MODEL = "select mempair.create_model('m', 'visits', '{}', 'x, z')"


@pytest.fixture(params=["bought", "paid"])
def visits(world: World, request: pytest.FixtureRequest) -> World:
    world(TABLE, ROWS.format("true", "20 * random()", 1, 30000), MODEL.format(request.param))
    world.work()
    return world


def drift(world: World) -> Any:
    return world.one("select loss_this_week, loss_at_refresh, drifts from mempair.model_status")


def test_rows_like_before_are_no_drift_and_others_are(visits: World, mempair: Run) -> None:
    assert drift(visits) == (None, None, None)  # nothing has come since the refresh
    visits(ROWS.format("true", "20 * random()", 120001, 122000))
    visits.work()
    week, then, drifts = drift(visits)
    assert drifts is False
    assert week == pytest.approx(then, rel=0.4)
    assert "worse" not in mempair("health", "--dsn", visits.dsn)[2]
    visits(ROWS.format("false", "60 * random()", 130001, 130600))  # too few for a refresh, which would answer it
    visits.work()
    week, then, drifts = drift(visits)
    assert drifts is True, (week, then)
    code, _, said = mempair("health", "--dsn", visits.dsn)
    assert code == 1
    assert "model m predicts new rows worse than rows at the last refresh" in said
    metrics = Metrics(0)
    Worker(visits.dsn, metrics=metrics)
    metrics.drift(visits.sql)
    page = urlopen(f"http://127.0.0.1:{metrics.port}/metrics").read().decode()
    metrics.close()
    assert re.search(r'mempair_drifts\{model="m"\} 1.0', page)
    shown = re.search(r'mempair_loss_this_week\{model="m"\} ([\d.]+)', page)
    assert shown
    assert float(shown[1]) == pytest.approx(week)


def test_what_is_counted_is_what_the_model_did_on_rows_it_had_not_learned(world: World) -> None:
    world(TABLE, ROWS.format("true", "0", 1, 3000), MODEL.format("bought"))
    world.work()
    world(ROWS.format("true", "0", 5001, 6500))
    p = world.execute("select bought, mempair_predict('m', v) from visits v where id > 5000")
    loss = np.mean([-np.log(q if yes else 1 - q) for yes, q in p])
    right = np.mean([(q >= 0.5) == yes for yes, q in p])
    world.work()
    day, rows, counted, accuracy, noise = world.one(
        "select day, rows, loss, accuracy, noise_of_loss from mempair.progressive where model = 'm'"
    )
    assert day is not None
    assert abs(rows - 1500) < 4 * 8 * 4  # 16 cells of sigma 8
    assert counted == pytest.approx(loss, abs=0.03 + 4 * noise)
    assert accuracy == pytest.approx(right, abs=0.1)


def test_no_row_counts_twice_and_a_deletion_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progressive, "noise", lambda: np.zeros(progressive.CELLS, np.int64))
    world(TABLE, ROWS.format("true", "0", 1, 3000), MODEL.format("bought"))
    world.work()
    total = "select coalesce(sum(n), 0)::int from mempair.loss_count l, unnest(l.counts) n where kind = '{}'"
    assert world.one(total.format("refresh")) == 3000
    world(ROWS.format("true", "0", 5001, 5300))
    world.work()
    assert world.one(total.format("progressive")) == 300
    world("update visits set x = x / 2 where id > 5200")
    world.work()
    assert world.one(total.format("progressive")) == 300  # an update is no new row
    before = world.execute("select * from mempair.loss_count order by kind")
    world("delete from visits where id > 5100")
    world.work()
    assert world.execute("select * from mempair.loss_count order by kind") == before
    world("update mempair.loss_count set day = day - 100 where kind = 'progressive'")
    world(ROWS.format("true", "0", 6001, 6001))
    world.work()
    assert world.one(total.format("progressive")) == 1  # old days go
    world("select mempair.drop_model('m')")
    assert world.one("select count(*) from mempair.loss_count") == 0


def test_a_certified_model_keeps_its_promise_and_counts_nothing(shop: World) -> None:
    shop.fill(1, 600)
    shop.work()
    shop.fill(601, 700)
    shop.work()
    assert shop.one("select count(*) from mempair.loss_count") == 0
