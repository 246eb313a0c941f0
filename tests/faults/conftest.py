"""A table with a model, workers that are real processes, and the invariants that must survive anything."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from mempair_db.database import models
from mempair_db.database.connect import connect
from mempair_db.pair import events
from mempair_db.pair import state as states
from mempair_db.pair.state import State
from mempair_db.worker import batch
from mempair_db.worker.loop import Worker

STRIKER = Path(__file__).with_name("striker.py")

CREATE = """
create table shop (id integer primary key, age float8, spend float8, churned boolean);
select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'spend'],
                            lambda => 0.01, calibration_rows => 200, gamma => 0.3);
"""
FILL = """
insert into shop select i, 20 + i * 7919 %% 50, i * 739 %% 1000 / 10.0, (i * 7919 %% 50) + (i * 31 %% 17) < 32
from generate_series(%s::integer, %s::integer) i
"""
# What the table's own triggers count, whatever ours do.
COUNT = """
create table counted (events bigint);
create function count_new() returns trigger language plpgsql as
$$ begin insert into counted select count(*) from new_rows; return null; end $$;
create function count_old() returns trigger language plpgsql as
$$ begin insert into counted select count(*) from old_rows; return null; end $$;
create trigger count_insert after insert on shop referencing new table as new_rows
for each statement execute function count_new();
create trigger count_delete after delete on shop referencing old table as old_rows
for each statement execute function count_old();
create trigger count_update_new after update on shop referencing new table as new_rows
for each statement execute function count_new();
create trigger count_update_old after update on shop referencing old table as old_rows
for each statement execute function count_old();
"""
# How many captured events each ledger entry accounts for: a cancelled deletion took its insert along.
ACCOUNTED = """
select coalesce(sum(case when kind in ('learned', 'rejected', 'unlearned') then rows
                         when detail = 'cancelled' then 2 when detail = 'never learned' then 1 else 0 end), 0)
from mempair.ledger
"""


class Story:
    """One table, one model, and everything that must be true of them at any moment."""

    def __init__(self, dsn: str, sql: psycopg.Connection[Any]) -> None:
        self.dsn = dsn
        self.sql = sql

    def fill(self, first: int, last: int) -> None:
        self.sql.execute(FILL, [first, last])

    def work(self) -> None:
        Worker(self.dsn).run_once()

    def one(self, statement: str) -> Any:
        row = self.sql.execute(statement).fetchone()
        assert row is not None
        return row[0]

    def start_worker(self, point: str = "", hit: int = 1, *, forever: bool = False) -> subprocess.Popen[bytes]:
        """Start a worker process that kills itself with SIGKILL the `hit`-th time it comes to `point`."""
        mode = "forever" if forever else "once"
        return subprocess.Popen([sys.executable, str(STRIKER), self.dsn, point, str(hit), mode])

    def state(self) -> State | None:
        with connect(self.dsn) as connection:
            batch.prepare(connection)
            model = models.lease(connection, 1)
            assert model is not None
            return states.copy(model.pair.arrays) if model.pair.epoch else None

    def replay_since(self, checkpoint: State) -> State:
        """Replay the rows learned after the checkpoint, on top of it."""
        with connect(self.dsn) as connection:
            batch.prepare(connection)
            model = models.lease(connection, 1)
            assert model is not None
            assert model.pair.epoch is not None
            epoch = model.pair.epoch
        rows = np.array(
            self.sql.execute(
                "select age, spend, case when churned then 1.0 else -1.0 end::float8 from shop s"
                " join mempair.learned l on l.row_key = s.id::text where l.tick > %s order by l.tick",
                [int(checkpoint.tally["clock"][0])],
            ).fetchall()
        ).reshape(-1, 3)
        state = states.copy(checkpoint)
        events.learn(
            state, epoch.constants, epoch.encoding.encode(rows[:, :2]), epoch.encoding.encode_target(rows[:, 2])
        )
        return state

    def check(self, captured: int | None = None) -> None:
        """Raise AssertionError unless captured = accounted + pending, ledger = counters, and budget within its cap.

        What was captured is what the table's own triggers counted.
        """
        if captured is None:
            captured = self.one("select coalesce(sum(events), 0) from counted")
        assert self.one(ACCOUNTED) + self.pending() == captured
        assert self.sql.execute("select * from mempair.verify_odometer('churn')").fetchall() == []
        spent, cap, clock, learned = self.sql.execute(
            "select spent, coalesce(cap, 0), clock,"
            " (select coalesce(sum(rows), 0) from mempair.ledger where kind = 'learned') from mempair.state"
        ).fetchone() or (1, 0, 0, 0)
        assert spent <= cap
        assert clock == learned

    def check_done(self, captured: int | None = None) -> None:
        """Check that, besides, nothing is left to do and the model knows exactly the rows of the table."""
        self.check(captured)
        assert self.pending() == 0
        learned = {key for (key,) in self.sql.execute("select row_key from mempair.learned")}
        assert learned == {key for (key,) in self.sql.execute("select id::text from shop where age < 'infinity'")}

    def pending(self) -> int:
        return int(self.one("select pending_changes from mempair.model_status"))


@pytest.fixture
def story(database: str) -> Iterator[Story]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CREATE)
        connection.execute(COUNT)
        yield Story(database, connection)


def same(one: State | None, other: State | None) -> bool:
    if one is None or other is None:
        return one is other
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """See that a process ends with the test."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
