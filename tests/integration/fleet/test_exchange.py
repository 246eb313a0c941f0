"""The exchange: when a deletion is where, who is down, and what a kill leaves."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from mempair_db.database import faults
from mempair_db.database.install import install
from mempair_db.embedded.server import Server
from mempair_db.fleet import compute
from mempair_db.fleet.compute import Computing
from mempair_db.fleet.config import Place
from mempair_db.fleet.exchange import Exchange
from mempair_db.fleet.refresh import refresh_fleet
from mempair_db.fleet.status import status
from mempair_db.fleet.verify import verify
from mempair_db.ledger import keys, receipts
from mempair_db.pages.receipt import render
from tests.integration.fleet.conftest import Shards
from tests.integration.fleet.test_equal import in_one_database
from tests.world import World

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


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Closes at the end what a test has opened."""
    with ExitStack() as stack:
        yield stack


def check(fleet: Shards) -> list[str]:
    """What a verification finds wrong."""
    return [line.check for line in verify(fleet.exchange, "churn").checks if not line.fine]


def equal(fleet: Shards) -> bool:
    return in_one_database(fleet).to_bytes() == fleet.total().to_bytes()


def receipt(fleet: Shards, shard: int, key: int) -> dict[str, Any]:
    found = fleet[shard].one("select mempair.receipt('churn', %s)", str(key))
    assert found is not None
    return dict(found["deletions"][0])


def page_of(fleet: Shards, shard: int, key: int) -> str:
    """The receipt as people read it."""
    signer = keys.SigningKey.new("shop.example")
    with psycopg.connect(fleet[shard].dsn) as connection:
        document = receipts.issue(connection, "churn", str(key), signer)
    assert document is not None
    return render(document)


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
    assert "not yet on every other server" in page_of(fleet, 1, 4)
    assert "not yet: shard s1 has forgotten it" in page_of(fleet, 1, 4)
    done = fleet.sync(1)
    assert done.everywhere == ["s0", "s1", "s2"]
    said = receipt(fleet, 1, 4)["everywhere"]
    published = [world.one("select mempair.utc(published_at) from mempair.published") for world in fleet.worlds]
    assert said >= max(published)  # no earlier than the last shard published
    assert "the last of the databases that share this model published without it" in page_of(fleet, 1, 4)
    assert "nothing in it comes from this one" in page_of(fleet, 1, 4)
    assert len(set(map(str, fleet.served()))) == 1
    fleet.sync(1)
    quiet = fleet.sync(1)
    assert (quiet.bytes, quiet.delivered) == (0, 0)
    ledgers = [world.one("select count(*) from mempair.ledger") for world in fleet.worlds]
    fleet.sync(1)
    assert ledgers == [world.one("select count(*) from mempair.ledger") for world in fleet.worlds]


def test_an_exchange_leaves_the_digests_and_commitments_of_the_ledgers_good(fleet: Shards) -> None:
    fleet[0]("delete from shop where id = (select max(id) from shop)")
    fleet.work()
    entered = fleet[0].one("select max(seq) from mempair.ledger where mempair.has_digest(kind, detail)")
    for world in fleet.worlds:
        world("select mempair.attest_state('churn')")
    fleet.sync()
    for world in fleet.worlds:
        assert world.execute("select * from mempair.verify_odometer()") == []
    assert fleet[0].one("select seq from mempair.published_digest(1)") == entered
    fleet[0]("update mempair.state set sums = set_byte(sums, 40, 255 - get_byte(sums, 40))")
    ((_, _, problem),) = fleet[0].execute("select * from mempair.verify_odometer()")
    assert problem == "the model's state is not the one whose digest it has"


def test_status_says_why_constants_are_still_to_be_checked(make_fleet: Callable[[int], Shards]) -> None:
    fleet = make_fleet(2)
    fleet.declare()
    fleet.fill(1, 120)
    fleet.work()

    def trouble() -> set[str | None]:
        return {line["trouble"] for line in status(fleet.fleet)}

    fleet.sync(1)
    assert trouble() == {"the next exchange checks the constants: they are new"}
    fleet.sync(1)
    assert trouble() == {None}
    fleet[0]("delete from shop where id = 2")
    fleet.work()
    assert trouble() == {None, "the next exchange checks the constants: a reference row went"}


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
    fleet[0].fill(1000, 1001)  # no reference rows: their going changes no constants, and is delivered
    fleet.work()
    fleet.sync()
    for i, point in enumerate(points):
        gone = 1000 + i
        fleet[0](f"delete from shop where id = {gone}")
        fleet[1](f"insert into shop values ({2000 + i}, 30, 'pro', 5, 'n', true)")
        fleet.work()
        command = [sys.executable, str(STRIKER), str(file_of(fleet, tmp_path)), point, what]
        assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
        fleet.sync(3)
        assert equal(fleet)
        assert receipt(fleet, 0, gone)["everywhere"] is not None
        assert fleet.served()[0][4] == 302
    assert check(fleet) == []


def test_a_dask_worker_that_dies_changes_nothing(fleet: Shards, hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
            if name == "constants chosen" and not struck:
                struck.append(name)
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        hook(strike)
        refresh_fleet(computing, fleet.known, "churn", "test", 5)
    assert struck
    fleet.sync()
    assert (fleet.reference().to_bytes(), fleet.total().to_bytes()) == expected
    assert check(fleet) == []


def test_a_shard_whose_server_is_stopped_and_started_changes_nothing(
    make_fleet: Callable[[int], Shards],
    server_home: Path,
    hook: Any,
    monkeypatch: pytest.MonkeyPatch,
    client: Any,
    opened: ExitStack,
) -> None:
    """A server of its own, which crashes in the middle of a refresh, and is away for an exchange."""
    server = Server(server_home)

    def start() -> World:
        dsn = server.start()
        monkeypatch.setenv("SHARD_S1", dsn)  # its port is another one after each start
        return World(dsn, opened.enter_context(closing(psycopg.connect(dsn, autocommit=True))))

    own = start()
    install(own.dsn)
    fleet = Shards([make_fleet(1)[0], own], client)
    opened.callback(fleet.close)
    places = (fleet.fleet.shards[0], Place("s1", env="SHARD_S1"))
    fleet.fleet = fleet.exchange.fleet = fleet.computing.fleet = dataclasses.replace(fleet.fleet, shards=places)
    fleet.declare()
    fleet.spread(1, 200, lambda i: i)
    refresh_fleet(fleet.computing, fleet.known, "churn", "test", 5)
    fleet.sync()
    expected = fleet.reference().to_bytes(), fleet.total().to_bytes()
    struck: list[str] = []

    def strike(name: str) -> None:
        if name == "constants chosen":
            struck.append(name)
            if len(struck) == 1:
                server.stop("immediate")
                fleet.worlds[1] = start()

    hook(strike)
    refresh_fleet(fleet.computing, fleet.known, "churn", "test", 5)
    assert len(struck) == 2  # the refresh began anew
    fleet.sync()
    assert (fleet.reference().to_bytes(), fleet.total().to_bytes()) == expected
    assert check(fleet) == []

    fleet[0]("delete from shop where id = 2")
    fleet[0].work()
    server.stop("fast")
    assert "s1" in fleet.sync(1).down  # the connection that was open ended
    assert "shard s1 cannot be reached" in fleet.sync(1).down["s1"]
    assert receipt(fleet, 0, 2)["everywhere"] is None
    fleet.worlds[1] = start()
    fleet.sync()
    assert receipt(fleet, 0, 2)["everywhere"] is not None
    assert [served[4] for served in fleet.served()] == [199, 199]
    assert check(fleet) == []
