"""A fleet on one machine: refresh and verify by Dask workers, bytes of an exchange, a deletion's way."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Any, Final

import numpy as np
import psycopg

from mempair_db.bench import scratch
from mempair_db.bench.report import Result, goal, machine
from mempair_db.fleet import declare
from mempair_db.fleet.compute import Computing
from mempair_db.fleet.config import Fleet, Place
from mempair_db.fleet.coordinator import coordinator
from mempair_db.fleet.exchange import Exchange
from mempair_db.fleet.refresh import refresh_fleet
from mempair_db.fleet.verify import verify
from mempair_db.pair.exact import refer, sums
from mempair_db.worker.loop import Worker

SHARDS: Final = 3
FEATURES: Final = [f"x{i}" for i in range(1, 11)]
TABLE: Final = "create table people (id integer primary key, y boolean, " + ", ".join(
    f"x{i} float8" for i in range(1, 11)
)
ROWS: Final = (
    "insert into people select i, random() < 0.5, "  # noqa: S608
    + ", ".join(f"random() * {i}" for i in range(1, 11))
    + " from generate_series(%s::integer, %s::integer) i"
)


def run(*, quick: bool = False, dsn: str | None = None, rows: int | None = None) -> Result:
    """Measure a fleet of three databases on one server; `quick` only shows that it works."""
    at = machine()
    rows = rows or (3_000 if quick else 300_000)
    with ExitStack() as stack:
        places = [Place(f"s{i}", stack.enter_context(scratch.database(dsn))) for i in range(SHARDS)]
        fleet = Fleet(Place("coordinator", places[0].dsn), tuple(places), workers=1)
        each = rows // SHARDS
        for i, place in enumerate(places):
            with psycopg.connect(place.dsn) as connection:
                connection.execute(f"{TABLE})")
                connection.execute(ROWS, [i * each + 1, (i + 1) * each])
        declare.create(fleet, "people", {"source": "people", "target": "y", "features": FEATURES})
        rates, deleted = [], []
        with coordinator(fleet) as known:
            for workers in (1,) if quick else (1, 2, 4):
                with Computing(replace(fleet, workers=workers)) as computing:
                    computing.client.run(_warm)
                    exchange = Exchange(fleet, known, computing)
                    exchange.once("people")
                    rates.append({"Dask workers": workers} | _rates(exchange, each * SHARDS))
                    if workers == 1:
                        deleted.append(_small(exchange, places, 3 if quick else 10))
                    exchange.close()
    return {
        "bench": "fleet",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": f"{SHARDS} shards, {each * SHARDS} rows: rows per second", "rows": rates},
            {"title": "A deletion on one of them", "rows": deleted},
        ],
        "goals": [goal("verified by every number of workers", min(rate["verified"] for rate in rates), least=1.0)],
        "notes": [],
    }


def _warm() -> None:
    """Let a Dask worker load, and compile if it must, what it is going to use."""
    x, y = np.random.default_rng(0).normal(size=(200, 10)), np.array([0.0, 1.0] * 100)
    sums(refer(x, y, curves=4), x, y)


def _rates(exchange: Exchange, rows: int) -> dict[str, float]:
    began = time.monotonic()
    refresh_fleet(exchange.computing, exchange.known, "people", "bench")
    refreshed = time.monotonic()
    fine = verify(exchange, "people").fine
    return {
        "refresh": round(rows / (refreshed - began)),
        "verify": round(rows / (time.monotonic() - refreshed)),
        "verified": float(fine),
    }


def _small(exchange: Exchange, places: list[Place], times: int) -> dict[str, Any]:
    """Delete a row: bytes of the exchange that carries it, and the time from COMMIT to all published models."""
    exchange.once("people")
    spent, sizes, quiet = [], [], []
    worker = Worker(places[1].dsn)
    with psycopg.connect(places[1].dsn, autocommit=True) as connection:
        for _ in range(times):
            connection.execute("delete from people where id = (select max(id) from people)")
            began = time.monotonic()
            worker.run_once()
            done = exchange.once("people")
            spent.append(time.monotonic() - began)
            sizes.append(done.bytes)
            quiet.append(exchange.once("people").bytes)
    return {
        "bytes of an exchange": max(sizes),
        "of a quiet one": max(quiet),
        "ms, COMMIT to everywhere": round(1000 * median(spent)),
        "slowest": round(1000 * max(spent)),
    }
