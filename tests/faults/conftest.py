"""Workers that are real processes, and the invariants that must survive anything."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mempair_db.pair import state as states
from mempair_db.pair.state import State
from tests.world import World

STRIKER = Path(__file__).with_name("striker.py")

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


class Story(World):
    """The shop, workers that are real processes, and everything that must be true at any moment."""

    def start_worker(self, point: str = "", hit: int = 1, *, forever: bool = False) -> subprocess.Popen[bytes]:
        """Start a worker process that kills itself with SIGKILL the `hit`-th time it comes to `point`."""
        mode = "forever" if forever else "once"
        return subprocess.Popen([sys.executable, str(STRIKER), self.dsn, point, str(hit), mode])

    def state(self) -> State | None:
        pair = self.pair()
        return states.copy(pair.arrays) if pair.epoch else None

    def check(self, captured: int | None = None, wrong: frozenset[str] = frozenset()) -> None:
        """Raise AssertionError unless captured = accounted + pending, ledger = counters, and budget within its cap.

        What was captured is what the table's own triggers counted; `wrong` is what the ledger's check should find.
        """
        if captured is None:
            captured = self.one("select coalesce(sum(events), 0) from counted")
        assert self.one(ACCOUNTED) + self.pending() == captured
        assert {
            problem for _, _, problem in self.sql.execute("select * from mempair.verify_odometer('churn')")
        } == wrong
        spent, cap, clock, learned = self.sql.execute(
            "select spent, coalesce(cap, 0), clock,"
            " (select coalesce(sum(rows), 0) from mempair.ledger where kind = 'learned') from mempair.state"
        ).fetchone() or (1, 0, 0, 0)
        assert spent <= cap
        assert clock == learned

    def check_done(self, captured: int | None = None, wrong: frozenset[str] = frozenset()) -> None:
        """Check that, besides, nothing is left to do and the model knows exactly the rows of the table."""
        self.check(captured, wrong)
        assert self.pending() == 0
        assert self.learned() == self.rows()

    def pending(self) -> int:
        return int(self.one("select pending_changes from mempair.model_status"))


@pytest.fixture
def story(shop: World) -> Story:
    shop(COUNT)
    return Story(shop.dsn, shop.sql)


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """See that a process ends with the test."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
