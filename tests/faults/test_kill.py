"""SIGKILL at every point of a batch and of a retrain: afterwards it is as if the batch had happened, or had not."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.world import same

from .conftest import STRIKER, Story

POINTS = [
    "leased",
    "read",
    "queue emptied",
    "stepped",
    "receipts written",
    "ledger written",
    "state written",
    "committed",
]
RETRAIN_POINTS = ["retrain began", "chunk replayed", "replayed", "state written", "committed"]


def mixed_batch(story: Story) -> None:
    """Inserts, deletions, updates, a cancelled pair, a row that was never learned and one that cannot be."""
    story.fill(3001, 3050)
    story.sql.execute("delete from shop where id in (11, 12)")
    story.sql.execute("update shop set age = age + 1 where id = 13")
    story.fill(4000, 4000)
    story.sql.execute("delete from shop where id = 4000")
    story.sql.execute("insert into shop (id, age, spend, churned) values (5000, 'infinity', 1, true)")
    story.fill(3051, 3060)


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_in_a_batch_leaves_all_of_it_or_nothing(story: Story, point: str) -> None:
    story.fill(1, 3000)
    story.work()
    before = story.state()
    mixed_batch(story)

    assert story.start_worker(point).wait(timeout=120) == -signal.SIGKILL
    story.check()
    if point == "committed":
        assert story.pending() == 0
    else:
        assert same(story.state(), before)
        assert story.pending() == 67

    story.work()
    story.check_done()
    checkpoint = story.state()
    assert checkpoint is not None
    story.fill(6000, 6100)
    story.work()
    assert same(story.state(), story.replay(checkpoint))


@pytest.mark.parametrize("point", ["read", "stepped", "state written", "committed"])
def test_a_worker_killed_while_calibrating_starts_again_from_the_queue(story: Story, point: str) -> None:
    story.fill(1, 250)
    assert story.start_worker(point).wait(timeout=120) == -signal.SIGKILL
    story.check()
    story.work()
    story.check_done()


@pytest.mark.parametrize("point", RETRAIN_POINTS)
def test_a_retrain_killed_half_way_leaves_the_old_epoch_intact(story: Story, point: str) -> None:
    story.fill(1, 3000)
    story.work()
    story.sql.execute("select mempair.retrain('churn')")
    story.sql.execute("delete from shop where id <= 5")
    before = story.state()

    assert story.start_worker(point).wait(timeout=120) == -signal.SIGKILL
    if point == "committed":
        assert story.one("select epoch from mempair.model") == 2
    else:
        assert same(story.state(), before)
        assert story.one("select epoch from mempair.model") == 1
        assert story.pending() == 5
        assert story.one("select mempair_predict('churn', s) from shop s where id = 10") is not None

    story.work()
    assert story.one("select epoch from mempair.model") == 2
    assert story.one("select count(*) from mempair.learned") == 2995
    assert story.one("select count(*) from mempair.receipt where kind = 'retrained'") == 5
    assert story.sql.execute("select * from mempair.verify_odometer('churn')").fetchall() == []


def test_these_tests_catch_a_worker_that_commits_its_state_too_early(story: Story) -> None:
    # The mutant is right when nothing strikes ...
    story.fill(1, 300)
    subprocess.run([sys.executable, str(STRIKER), story.dsn, "", "1", "mutant"], check=True, timeout=120)
    story.check_done()
    # ... and learns twice when killed between its two commits.
    story.fill(301, 400)
    died = subprocess.run([sys.executable, str(STRIKER), story.dsn, "between", "1", "mutant"], check=False, timeout=120)
    assert died.returncode == -signal.SIGKILL
    with pytest.raises(AssertionError):
        story.check()
