"""`mempair bench system`: several clients write, delete and predict for a while; then every invariant is checked.

Each writer owns the keys it inserted, so writers never wait for each other's rows. Of its statements, eight in ten are
inserts, one an update (which unlearns the old row and learns the new one) and one a deletion. Others predict. One
worker runs as a process of its own. Twice a second somebody looks at the queue and at the worker's memory.

At the end the clients stop, the queue drains, and then: the learned set is the table, `verify_odometer` has nothing to
say, `reconcile` has nothing to say, and nothing was refused.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg import sql

from mempair_db.bench import plots
from mempair_db.bench.report import Result, goal, machine
from mempair_db.bench.scratch import Table, database, worker
from mempair_db.worker.loop import Worker

D: Final = 10
SEED_ROWS: Final = 20_000
WRITERS: Final = 2
READERS: Final = 2
LOOK: Final = 0.5
PATIENCE: Final = 180.0
Times = dict[str, list[float]]


def run(*, quick: bool = False, dsn: str | None = None, seconds: float = 60.0) -> Result:
    """Put the system under load; `quick` only shows that it works."""
    at = machine()
    seconds = 1.5 if quick else seconds
    with database(dsn) as address, psycopg.connect(address, autocommit=True) as connection:
        table = Table(connection, "load", D)
        table.fill(1_500 if quick else SEED_ROWS)
        Worker(address).run_once()
        with worker(address) as process:
            table.fill(100)
            _drain(connection)  # so that the worker is there
            times, seen, lasted = _load(address, table, process, seconds)
            drained = _drain(connection)
        Worker(address).run_once()  # whatever a worker that was slow to start has left
        wrong = _invariants(connection)
        ledger = _ledger(connection)
    lag = [row["waiting"] for row in seen]
    return {
        "bench": "system",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": f"{WRITERS} writers and {READERS} readers for {lasted:.0f} s", "rows": _latencies(times, lasted)},
            {
                "title": "The worker meanwhile",
                "rows": [
                    {
                        "changes waiting, median": float(np.median(lag)),
                        "most": max(lag),
                        "oldest deletion waiting, s, median": float(np.median([row["oldest"] for row in seen])),
                        "oldest, most": max(row["oldest"] for row in seen),
                        "s to drain": drained,
                        "MB at first": seen[0]["memory"],
                        "MB at last": seen[-1]["memory"],
                    }
                ],
            },
            {"title": "What the ledger says", "rows": ledger},
            {"title": "Invariants: findings, none expected", "rows": [wrong]},
        ],
        "goals": [goal(f"no finding: {name}", float(count), most=0.0) for name, count in wrong.items()],
        "notes": [
            f"{SEED_ROWS:,} rows were learned before. Clients are threads of one Python process, the worker another."
        ],
        "plots": [_picture(seen)],
    }


def _load(
    address: str, table: Table, process: psutil.Process, seconds: float
) -> tuple[Times, list[dict[str, float]], float]:
    """Run the clients; return every latency, and what was seen of the worker."""
    stop = threading.Event()
    found: list[Times] = []
    failed: list[BaseException] = []

    def client(act: Callable[[psycopg.Connection[Any], Times, threading.Event], None]) -> threading.Thread:
        mine: Times = defaultdict(list)
        found.append(mine)

        def work() -> None:
            try:
                with psycopg.connect(address, autocommit=True) as connection:
                    act(connection, mine, stop)
            except BaseException as error:  # raised again by whoever started the thread
                failed.append(error)
                stop.set()

        return threading.Thread(target=work)

    clients = [client(_writer(table, number)) for number in range(WRITERS)]
    clients += [client(_reader(number)) for number in range(READERS)]
    start = time.perf_counter()
    for thread in clients:
        thread.start()
    seen = []
    with psycopg.connect(address, autocommit=True) as connection:
        while (now := time.perf_counter() - start) < seconds and not stop.is_set():
            seen.append({"at": now, **_look(connection), "memory": process.memory_info().rss / 2**20})
            stop.wait(min(LOOK, seconds / 3))
    stop.set()
    for thread in clients:
        thread.join()
    if failed:
        raise failed[0]
    times: Times = defaultdict(list)
    for mine in found:
        for name, values in mine.items():
            times[name] += values
    return times, seen, time.perf_counter() - start


def _writer(table: Table, number: int) -> Callable[[psycopg.Connection[Any], Times, threading.Event], None]:
    columns = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(f"x{j}")) for j in range(1, D + 1))
    insert, delete = table.insert(), table.format("delete from {} where id = %s")
    update = table.format("update {} set {} where id = %s", columns)

    def act(connection: psycopg.Connection[Any], times: Times, stop: threading.Event) -> None:
        rng = random.Random(number)  # noqa: S311
        mine: list[int] = []
        key = (number + 1) * 10**9
        while not stop.is_set():
            draw, x = rng.random(), [rng.gauss(0.0, 1.0) for _ in range(D)]
            start = time.perf_counter()
            if draw < 0.8 or not mine:
                key += 1
                connection.execute(insert, [key, x[0] + rng.gauss(0.0, 1.0) > 0.0, *x])
                mine.append(key)
                name = "insert"
            elif draw < 0.9:
                connection.execute(update, [*x, rng.choice(mine)])
                name = "update"
            else:
                place = rng.randrange(len(mine))
                mine[place], mine[-1] = mine[-1], mine[place]
                connection.execute(delete, [mine.pop()])
                name = "delete"
            times[name].append(time.perf_counter() - start)

    return act


def _reader(number: int) -> Callable[[psycopg.Connection[Any], Times, threading.Event], None]:
    def act(connection: psycopg.Connection[Any], times: Times, stop: threading.Event) -> None:
        rng = random.Random(-number - 1)  # noqa: S311
        while not stop.is_set():
            x = [rng.gauss(0.0, 1.0) for _ in range(D)]
            start = time.perf_counter()
            connection.execute("select mempair_try_predict('load', %s::float8[])", [x]).fetchone()
            times["predict"].append(time.perf_counter() - start)

    return act


def _look(connection: psycopg.Connection[Any]) -> dict[str, float]:
    row = connection.execute(
        """select p.changes, coalesce(extract(epoch from clock_timestamp() - p.oldest_deletion), 0)::float8
           from mempair.model m cross join lateral mempair.pending(m.id) p where m.name = 'load'"""
    ).fetchone()
    assert row is not None  # noqa: S101
    return {"waiting": int(row[0]), "oldest": float(row[1])}


def _drain(connection: psycopg.Connection[Any]) -> float:
    start = time.perf_counter()
    while _look(connection)["waiting"] and time.perf_counter() - start < PATIENCE:
        time.sleep(0.02)
    return time.perf_counter() - start


def _invariants(connection: psycopg.Connection[Any]) -> dict[str, int]:
    number = _one(connection, sql.SQL("select id from mempair.model where name = 'load'"))
    source, model = sql.Identifier("mempair", f"source_{number}"), sql.Literal(number)
    different = sql.SQL(
        """select count(*) from (select row_key from {} where y is not null) s
           full join (select row_key from mempair.learned where model_id = {}) l using (row_key)
           where s.row_key is null or l.row_key is null"""
    )
    checks: dict[str, sql.SQL | sql.Composed] = {
        "learned set against table": different.format(source, model),
        "verify_odometer": sql.SQL("select count(*) from mempair.verify_odometer('load')"),
        "reconcile": sql.SQL("select count(*) from mempair.reconcile('load')"),
        "refused": sql.SQL("select count(*) from mempair.rejected where model_id = {}").format(model),
        "still waiting": sql.SQL("select changes from mempair.pending({})").format(model),
    }
    return {name: _one(connection, statement) for name, statement in checks.items()}


def _one(connection: psycopg.Connection[Any], statement: sql.SQL | sql.Composed) -> int:
    row = connection.execute(statement).fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


def _ledger(connection: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    found = connection.execute(
        """select l.kind::text, count(*) from mempair.ledger l join mempair.model m on m.id = l.model_id
           where m.name = 'load' group by l.kind order by count(*) desc"""
    ).fetchall()
    return [{"entry": kind, "count": count} for kind, count in found]


def _latencies(times: Times, lasted: float) -> list[dict[str, Any]]:
    """Return throughput and percentiles of latency, in milliseconds."""
    table = []
    for name, values in sorted(times.items()):
        p50, p95, p99 = np.percentile(np.array(values) * 1e3, (50, 95, 99))
        table.append(
            {
                "statement": name,
                "count": len(values),
                "per second": len(values) / lasted,
                "median ms": float(p50),
                "95 % ms": float(p95),
                "99 % ms": float(p99),
                "slowest ms": max(values) * 1e3,
            }
        )
    return table


def _picture(seen: list[dict[str, float]]) -> dict[str, Any]:
    at = [row["at"] for row in seen]
    lines = [plots.line("changes waiting", at, [row["waiting"] for row in seen])]
    lines.append(plots.line("MB of worker", at, [row["memory"] for row in seen]))
    return plots.plot("load", "The worker under load", "seconds", "", lines)
