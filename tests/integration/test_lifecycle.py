"""The life of a model, from the first row to its third epoch, and what operators see of it."""

from __future__ import annotations

import io
import json
import logging
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from mempair_db.worker import logs
from mempair_db.worker.loop import Worker
from mempair_db.worker.metrics import Metrics

CREATE = "create table patients (id integer primary key, age float8, pressure float8, smoker boolean, ill boolean)"
DECLARE = """
select mempair.create_model('illness', 'patients', target => 'ill', features => array['age', 'pressure', 'smoker'],
                            epsilon => 1.0, delta => 1e-6, gamma => 0.1, lambda => 0.001)
"""


@pytest.fixture
def sql(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CREATE)
        connection.execute(DECLARE)
        yield connection


def patients(rng: np.random.Generator, first: int, count: int) -> list[tuple[Any, ...]]:
    """Old smokers under pressure are ill more often; nobody can tell for sure."""
    age, pressure, smoker = rng.normal(50, 15, count), rng.normal(120, 20, count), rng.random(count) < 0.3
    score = 0.08 * (age - 50) + 0.05 * (pressure - 120) + 1.5 * smoker - 0.5
    ill = rng.random(count) < 1 / (1 + np.exp(-score))
    numbers = range(first, first + count)
    return list(zip(numbers, age.tolist(), pressure.tolist(), smoker.tolist(), ill.tolist(), strict=True))


def insert(sql: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
    with sql.cursor() as cursor, cursor.copy("copy patients from stdin") as copy:
        for row in rows:
            copy.write_row(row)


def one(sql: psycopg.Connection[Any], statement: str) -> Any:
    row = sql.execute(statement).fetchone()
    assert row is not None
    return row[0]


def test_the_whole_story_of_a_model(sql: psycopg.Connection[Any], database: str) -> None:
    rng = np.random.default_rng(11)
    train, held_out = patients(rng, 1, 20_000), patients(rng, 1_000_001, 4_000)

    # In the beginning the model knows nothing and says so.
    with pytest.raises(psycopg.errors.DatabaseError) as error:
        one(sql, "select mempair_predict('illness', array[50, 120, 0])")
    assert error.value.sqlstate == "MP102"

    # Rows arrive, the worker learns them, and the gate opens by itself.
    for first in range(0, 20_000, 4_000):
        insert(sql, train[first : first + 4_000])
        Worker(database).run_once()
    assert one(sql, "select status from mempair.model_status") == "ready"

    # Fifty people are deleted, a few at a time. Each deletion is served at once, within the budget of its epoch.
    gone = rng.permutation(20_000)[:50]
    for few in np.split(gone, 10):
        sql.execute("delete from patients where id = any(%s)", [[int(i) + 1 for i in few]])
        Worker(database).run_once()
        assert one(sql, "select pending_deletions from mempair.model_status") == 0
        assert one(sql, "select spent <= cap from mempair.state")

    # The budget did not last for all of them: an exact retrain began a new epoch, with a full budget.
    kinds = [kind for (kind,) in sql.execute("select kind from mempair.ledger order by seq")]
    assert kinds.count("unlearned") == 50
    assert kinds.count("retrained") >= 1
    assert kinds.count("retrained") == kinds.count("exhausted") == one(sql, "select epoch from mempair.model") - 1
    assert one(sql, "select count(*) from mempair.learned") == 19_950
    assert sql.execute("select * from mempair.verify_odometer('illness')").fetchall() == []

    # Whatever noise is left, the model is about as good as one trained on the survivors alone.
    survivors = np.array([row[1:] for i, row in enumerate(train) if i not in set(gone.tolist())], float)
    scaler = StandardScaler().fit(survivors[:, :3])
    reference = LogisticRegression().fit(scaler.transform(survivors[:, :3]), survivors[:, 3])
    test = np.array([row[1:] for row in held_out], float)
    best = float(reference.score(scaler.transform(test[:, :3]), test[:, 3]))
    insert(sql, held_out)
    ours = float(
        one(
            sql, "select avg(((mempair_predict('illness', p) > 0.5) = ill)::integer) from patients p where id > 1000000"
        )
    )
    assert ours >= best - 0.02


def test_a_model_can_be_altered_and_says_so(sql: psycopg.Connection[Any], database: str) -> None:
    insert(sql, patients(np.random.default_rng(1), 1, 1_000))
    Worker(database).run_once()
    sql.execute("select mempair.alter_model('illness', on_exhausted => 'halt')")
    assert one(sql, "select epoch from mempair.model") == 1
    sql.execute("select mempair.alter_model('illness', epsilon => 4.0)")
    assert one(sql, "select status from mempair.model_status") == "retraining"
    old_cap = one(sql, "select cap from mempair.state")
    Worker(database).run_once()
    assert one(sql, "select epoch from mempair.model") == 2
    assert one(sql, "select cap from mempair.state") > old_cap
    details = [d for (d,) in sql.execute("select detail from mempair.ledger where kind = 'config' order by seq")]
    assert [detail.split(": ")[1] for detail in details] == ["on_exhausted=halt", "epsilon=4"]
    with pytest.raises(psycopg.errors.DatabaseError, match="gamma"):
        sql.execute("select mempair.alter_model('illness', gamma => -1)")
    assert sql.execute("select * from mempair.verify_odometer('illness')").fetchall() == []


def test_pause_resume_and_drop_are_in_the_ledger(sql: psycopg.Connection[Any], database: str) -> None:
    insert(sql, patients(np.random.default_rng(1), 1, 600))
    Worker(database).run_once()
    sql.execute("select mempair.pause_model('illness')")
    sql.execute("select mempair.resume_model('illness')")
    sql.execute("select mempair.drop_model('illness', keep_ledger => true)")
    details = [
        d.split(" by ")[0]
        for (d,) in sql.execute("select detail from mempair.odometer where kind = 'config' order by seq")
    ]
    assert details == ["paused", "resumed", "dropped"]


def test_the_metrics_tell_what_was_done_and_what_waits(sql: psycopg.Connection[Any], database: str) -> None:
    metrics = Metrics(0)
    sql.execute("select mempair.alter_model('illness', lambda => 0.1)")  # room for deletions at this size
    try:
        insert(sql, patients(np.random.default_rng(1), 1, 3_000))
        worker = Worker(database, metrics=metrics)
        worker.run_once()
        sql.execute("delete from patients where id = 7")
        worker.run_once()
        sql.execute("delete from patients where id = 8")
        metrics.lag(sql)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        metrics.close()
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(figures['mempair_events_total{kind="learned",model="illness"}']) == 3_000
    assert float(figures['mempair_events_total{kind="unlearned",model="illness"}']) == 1
    assert float(figures['mempair_rho_spent{model="illness"}']) == one(sql, "select spent from mempair.state")
    assert float(figures['mempair_pending_deletions{model="illness"}']) == 1
    assert float(figures['mempair_oldest_pending_deletion_seconds{model="illness"}']) > 0
    assert float(figures['mempair_lag_rows{model="illness"}']) == 1
    assert float(figures['mempair_lag_seconds{model="illness"}']) > 0
    assert float(figures['mempair_gate{model="illness"}']) == 1
    assert float(figures['mempair_regret_bound{model="illness"}']) > 0
    assert float(figures['mempair_batch_seconds_count{model="illness"}']) == 2


def test_the_lag_in_seconds_is_the_age_of_the_oldest_change_that_waits(
    sql: psycopg.Connection[Any], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("mempair_db.worker.lag.time.monotonic", lambda: now)
    metrics = Metrics(0)

    def lag() -> float:
        metrics.lag(sql)
        return float(metrics._gauges["lag_seconds"].labels("illness")._value.get())

    try:
        assert lag() == 0
        now = 10.0
        insert(sql, patients(np.random.default_rng(1), 1, 3_000))
        assert lag() == 10  # captured after the last look at the latest
        now = 30.0
        insert(sql, patients(np.random.default_rng(2), 3_001, 3_500))
        assert lag() == 30
        sql.execute("delete from mempair.change_1_a where keys <@ %s", [[str(i) for i in range(1, 3001)]])
        now = 31.0
        assert lag() == 21  # since the look at 10 s
        sql.execute("delete from mempair.change_1_a")
        assert lag() == 0
        now = 50.0
        assert lag() == 0
    finally:
        metrics.close()


def test_the_log_is_structured_and_holds_no_values(sql: psycopg.Connection[Any], database: str) -> None:
    logger, stream = logging.getLogger("mempair"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonLines())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        insert(sql, [*patients(np.random.default_rng(1), 1, 600), (777_777, 4242.4242, 1.0, True, True)])
        sql.execute("insert into patients values (888888, 'infinity', 4343.4343, true, true)")
        Worker(database).run_once()
        sql.execute("delete from patients where id = 777777")
        Worker(database).run_once()
    finally:
        logger.removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert lines[0]["model"] == "illness"
    assert lines[0]["learned"] == 601
    assert lines[0]["rejected"] == 1
    for secret in ("4242", "4343", "777777", "888888"):
        assert secret not in stream.getvalue()
