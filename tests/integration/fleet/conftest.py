"""Fleets of databases on the one test server, and a Dask cluster in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import psycopg
import pytest

from mempair_db.fleet import declare
from mempair_db.fleet.compute import Computing
from mempair_db.fleet.config import Fleet, Place
from mempair_db.fleet.coordinator import Coordinator
from mempair_db.fleet.exchange import Exchange, Exchanged
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums, nothing
from tests.world import SHOP, World, fresh_database

MODEL: dict[str, Any] = {
    "source": "shop",
    "target": "churned",
    "features": ["age", "plan", "spend"],
    "calibration_rows": 50,
}


class Shards:
    """A fleet in several databases, and what can be asked of all of them."""

    def __init__(self, worlds: list[World], client: Any) -> None:
        self.worlds = worlds
        places = [Place(f"s{i}", world.dsn) for i, world in enumerate(worlds)]
        self.fleet = Fleet(Place("coordinator", worlds[0].dsn), tuple(places))
        self.known = Coordinator(worlds[0].sql)
        self.computing = Computing(self.fleet, client)
        self.exchange = Exchange(self.fleet, self.known, self.computing)

    def __len__(self) -> int:
        return len(self.worlds)

    def __getitem__(self, place: int) -> World:
        return self.worlds[place]

    def declare(self, **parameters: Any) -> None:
        for world in self.worlds:
            world(SHOP)
        declare.create(self.fleet, "churn", MODEL | parameters)

    def fill(self, first: int, last: int, where: Callable[[int], int] | None = None) -> None:
        """Insert rows with these numbers, each into some shard."""
        for i in range(first, last + 1):
            self.worlds[(where(i) if where else i) % len(self)].fill(i, i)

    def spread(self, first: int, last: int, where: Callable[[int], int]) -> None:
        """Insert many rows at once: the same rows, by shard."""
        for place, world in enumerate(self.worlds):
            numbers = [i for i in range(first, last + 1) if where(i) % len(self) == place]
            world.sql.execute(
                "insert into shop select i, 20 + i * 7919 %% 50, (array['basic', 'plus', 'pro'])[1 + i %% 3],"
                " i::bigint * 104729 %% 1000 / 10.0, 'n', (i * 7919 %% 50) + (i * 31 %% 17) < 32"
                " from unnest(%s::integer[]) i",
                [numbers],
            )

    def work(self) -> None:
        for world in self.worlds:
            world.work()

    def sync(self, times: int = 2) -> Exchanged:
        """Exchange: the first time may choose constants, which the second one finds everywhere."""
        for _ in range(times):
            done = self.exchange.once("churn")
        return done

    def reference(self) -> Reference:
        found = self.known.model("churn").reference
        assert found is not None
        return found

    def own(self) -> list[Sums]:
        """Every shard's own sums, as it has stored them; under the fleet's constants, or it is an error."""
        constants = self.reference()
        result = []
        for world in self.worlds:
            stored, packed = world.one("select m.constants, s.sums from mempair.model m join mempair.state s on true")
            assert Reference.from_json(stored).to_bytes() == constants.to_bytes()
            result.append(Sums.from_bytes(packed, *constants.shape))
        return result

    def total(self) -> Sums:
        constants = self.reference()
        total = nothing(constants)
        for part in self.own():
            total += part
        return total

    def served(self) -> list[Any]:
        """What every shard serves."""
        columns = "weights, intercept, level_weights, missing_weights, samples, ready"
        return [world.one(f"select {columns} from mempair.published") for world in self.worlds]

    def close(self) -> None:
        self.exchange.close()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Dask in this process: two workers that are threads."""
    dask: Any = import_module("distributed")
    with dask.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=40
    ) as client:
        yield client


@pytest.fixture
def make_fleet(server_dsn: str, template_database: str, client: Any) -> Iterator[Callable[[int], Shards]]:
    """Makes fleets of so many databases."""
    with contextlib.ExitStack() as stack:

        def make(shards: int) -> Shards:
            worlds = []
            for _ in range(shards):
                dsn = stack.enter_context(fresh_database(server_dsn, template_database))
                worlds.append(World(dsn, stack.enter_context(psycopg.connect(dsn, autocommit=True))))
            fleet = Shards(worlds, client)
            stack.callback(fleet.close)
            return fleet

        yield make
