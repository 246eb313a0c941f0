"""The exchange: when a deletion is where, who is down, and what a kill leaves."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from mempair_db.database import faults
from mempair_db.fleet import compute
from mempair_db.fleet.compute import Computing
from mempair_db.fleet.exchange import Exchange
from mempair_db.fleet.refresh import refresh_fleet
from mempair_db.fleet.status import status
from mempair_db.fleet.verify import verify
from tests.integration.fleet.conftest import Shards
from tests.integration.fleet.test_equal import in_one_database

STRIKER = Path(__file__).with_name("striker.py")


@pytest.fixture
def fleet(make_fleet: Callable[[int], Shards]) -> Shards:
    """Three shards with 300 rows, all learned and exchanged."""
    fleet = make_fleet(3)
    fleet.declare()
    fleet.spread(1, 300, lambda i: i)
    fleet.sync()
    assert check(fleet) == []
    return fleet


@pytest.fixture
def hook() -> Iterator[Callable[[Callable[[str], None]], None]]:
    """Sets what happens at the named points of this process."""
    before = faults.hook
    yield lambda strike: setattr(faults, "hook", strike)
    faults.hook = before


def check(fleet: Shards) -> list[str]:
    """What a verification finds wrong."""
    return [line.check for line in verify(fleet.exchange, "churn").checks if not line.fine]


def equal(fleet: Shards) -> bool:
    return in_one_database(fleet).to_bytes() == fleet.total().to_bytes()


def receipt(fleet: Shards, shard: int, key: int) -> dict[str, Any]:
    found = fleet[shard].one("select mempair.receipt('churn', %s)", str(key))
    assert found is not None
    return dict(found["deletions"][0])


def file_of(fleet: Shards, folder: Path) -> Path:
    shards = "".join(f'[[shard]]\nname = "{p.name}"\ndsn = "{p.dsn}"\n' for p in fleet.fleet.shards)
    file = folder / "fleet.toml"
    file.write_text(f'[coordinator]\ndsn = "{fleet.fleet.coordinator.dsn}"\n{shards}')
    return file


def test_a_deletion_is_out_of_its_shard_at_once_and_of_all_after_the_next_exchange(fleet: Shards) -> None:
    before = fleet.served()
    fleet[1]("delete from shop where id = 4")
    fleet.work()
    first, second, third = fleet.served()
    assert second != before[1]
    assert (first, third) == (before[0], before[2])
    assert receipt(fleet, 1, 4)["shard"] == "s1"
    assert receipt(fleet, 1, 4)["everywhere"] is None
    done = fleet.sync(1)
    assert done.everywhere == ["s0", "s1", "s2"]
    assert receipt(fleet, 1, 4)["everywhere"] is not None
    assert len(set(map(str, fleet.served()))) == 1
    fleet.sync(1)
    quiet = fleet.sync(1)
    assert (quiet.bytes, quiet.delivered) == (0, 0)
    ledgers = [world.one("select count(*) from mempair.ledger") for world in fleet.worlds]
    fleet.sync(1)
    assert ledgers == [world.one("select count(*) from mempair.ledger") for world in fleet.worlds]


def test_a_shard_that_is_down_keeps_its_sums_and_nothing_is_called_done_meanwhile(fleet: Shards) -> None:
    whole = fleet.fleet
    away = dataclasses.replace(whole.shards[2], given=make_conninfo(whole.shards[2].dsn, dbname="gone"))
    without = dataclasses.replace(whole, shards=(*whole.shards[:2], away))
    fleet[0]("delete from shop where id = 3")
    fleet[2]("delete from shop where id = 2")
    fleet.work()
    other = Exchange(without, fleet.known, fleet.computing)
    done = other.once("churn")
    other.close()
    assert "s2" in done.down
    assert done.everywhere == []
    lines = {line["shard"]: line for line in status(without)}
    assert lines["s2"]["down_since"] is not None
    assert "gone" in lines["s2"]["trouble"]
    assert lines["s0"]["everywhere"] != "all"
    assert receipt(fleet, 0, 3)["everywhere"] is None
    samples = [served[4] for served in fleet.served()]
    assert samples[:2] == [299, 299]  # without row 3, with row 2 of the shard that was not asked
    fleet.sync(1)
    assert receipt(fleet, 0, 3)["everywhere"] is not None
    assert receipt(fleet, 2, 2)["everywhere"] is not None
    fleet.sync(1)  # the delivery itself was an entry
    assert {line["everywhere"] for line in status(whole)} == {"all"}
    assert check(fleet) == []


def test_verify_finds_what_was_kept_changed_or_forged_anywhere(fleet: Shards) -> None:
    fleet[1]("delete from shop where id = 4")
    fleet.work()
    kept = fleet[0].one("select sums from mempair.fleet_part where shard = 's1'")
    fleet.sync(1)
    assert check(fleet) == []
    good = fleet[0].one("select sums from mempair.fleet_part where shard = 's1'")
    change = "update mempair.fleet_part set sums = %s where shard = 's1'"
    fleet[0].execute(change, kept)  # the deleted row, in another shard's copy
    assert check(fleet) == ["s0: served", "s0: exchange"]
    fleet[0].execute(change, good)
    fleet[2]("alter table shop disable trigger user", "update shop set age = 99 where id = 5")
    assert check(fleet) == ["s2: sums", "s2: learned"]
    fleet[2]("update shop set age = 20 + 5 * 7919 % 50 where id = 5", "alter table shop enable trigger user")
    assert check(fleet) == []
    fleet[0].execute("update mempair.fleet_shard set sums = %s where shard = 's1'", kept)
    assert check(fleet) == ["coordinator: exchange"]


def test_a_reference_row_that_goes_is_checked_by_the_whole_fleet(fleet: Shards) -> None:
    """Every row is a reference row here: 300 of them. One shard alone never chooses."""
    generation = fleet.known.model("churn").generation
    fleet[0]("delete from shop where id % 3 = 0 and id < 250")  # most rows of a shard
    fleet.work()
    assert fleet[0].one(
        "select references_checked > (select count(*) from mempair.reference_row) from mempair.fleet_member"
    )
    assert fleet[0].one("select retrain_requested is null from mempair.model")
    fleet.sync()
    assert fleet.known.model("churn").generation > generation  # the constants were other ones without them
    assert check(fleet) == []
    assert equal(fleet)
    assert receipt(fleet, 0, 3)["everywhere"] is not None


def test_a_truncate_and_a_retrain_of_one_shard_keep_the_fleets_constants(fleet: Shards) -> None:
    fleet[1]("select mempair.retrain('churn')")
    fleet.work()
    assert equal(fleet)
    assert check(fleet) == []
    fleet[1]("truncate shop")
    fleet.work()
    assert fleet.own()[1].n == 0
    fleet.sync()
    assert equal(fleet)
    assert check(fleet) == []
    fleet[1].check_ledger()


def test_without_serving_during_a_refresh_nothing_is_predicted_before_the_check(
    make_fleet: Callable[[int], Shards],
) -> None:
    fleet = make_fleet(2)
    fleet.declare(serve_during_refresh=False)
    fleet.spread(1, 200, lambda i: i)
    fleet.sync(3)
    assert [served[-1] for served in fleet.served()] == [True, True]
    fleet[0]("delete from shop where id = 2")
    fleet.work()
    assert [served[-1] for served in fleet.served()] == [False, True]
    fleet.sync(2)
    fleet.work()
    assert [served[-1] for served in fleet.served()] == [True, True]


@pytest.mark.parametrize(
    ("points", "what"),
    [
        (("stored", "delivered"), "exchange"),  # known to the coordinator; all but committed on a shard
        (("constants stored", "shard released"), "refresh"),  # known to the coordinator alone; to it and one shard
    ],
)
def test_a_kill_at_any_point_leaves_what_the_next_exchange_completes(
    fleet: Shards, tmp_path: Path, points: Sequence[str], what: str
) -> None:
    """One fleet is killed again and again, each time at another point."""
    for i, point in enumerate(points):
        gone = 3 * (i + 1)
        fleet[0](f"delete from shop where id = {gone}")
        fleet[1](f"insert into shop values ({1000 + i}, 30, 'pro', 5, 'n', true)")
        fleet.work()
        command = [sys.executable, str(STRIKER), str(file_of(fleet, tmp_path)), point, what]
        assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
        fleet.sync(3)
        assert equal(fleet)
        assert receipt(fleet, 0, gone)["everywhere"] is not None
        assert fleet.served()[0][4] == 300
    assert check(fleet) == []


def test_a_dask_worker_that_dies_and_a_shard_that_restarts_change_nothing(
    fleet: Shards, hook: Any, monkeypatch: pytest.MonkeyPatch, superuser: Callable[[str], str]
) -> None:
    monkeypatch.setattr(compute, "BLOCKS", 1)
    refresh_fleet(fleet.computing, fleet.known, "churn", "test", 5)
    fleet.sync()
    expected = fleet.reference().to_bytes(), fleet.total().to_bytes()
    dask: Any = import_module("distributed")
    struck: list[str] = []
    how = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with dask.LocalCluster(n_workers=2, **how) as cluster, dask.Client(cluster) as client:
        computing = Computing(fleet.fleet, client)

        def strike(name: str) -> None:
            if name == "constants chosen":
                struck.append(name)
                if len(struck) == 1:
                    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
                    terminate(superuser(fleet[1].dsn))

        hook(strike)
        refresh_fleet(computing, fleet.known, "churn", "test", 5)
    assert len(struck) == 2  # the refresh began anew
    fleet.sync()
    assert (fleet.reference().to_bytes(), fleet.total().to_bytes()) == expected
    assert check(fleet) == []


def terminate(dsn: str) -> None:
    """End every connection to a shard, as a restart does."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and application_name = 'mempair fleet'"
        )
