"""What a deletion costs an exact model in Postgres, and everybody else: seconds, scores, and how many are sustained."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any, Final

import numpy as np
import psycopg

from mempair_db.bench import scratch
from mempair_db.bench.report import Result, goal, machine
from mempair_db.worker.loop import Worker

SIZES: Final = (4_000, 33_000, 1_000_000)
DELETIONS: Final = 20  # of each kind
PATIENCE: Final = 60.0
TODAY: Final = 88  # deletions per second that the certified pair of version 0.1 sustained
LATENCY: Final = 8.0  # milliseconds
MILLI: Final = 1e3


def run(*, quick: bool = False, dsn: str | None = None, seconds: float = 60.0) -> Result:
    """Measure."""
    sizes = SIZES[:1] if quick else SIZES
    rows = []
    for size in sizes:
        with scratch.database(dsn) as address:
            rows.append(_one_size(address, size, 3 if quick else DELETIONS, 2.0 if quick else seconds))
    return {
        "bench": "forget",
        "quick": quick,
        "machine": machine(),
        "tables": [
            {"title": "COMMIT of a DELETE to the published model, and a minute of writers and readers", "rows": rows}
        ],
        "goals": [
            *(
                goal(f"COMMIT to published, outside R of {row['rows']} rows, ms", row["outside R, ms"], most=LATENCY)
                for row in rows[-1:]
                if row["outside R, ms"] is not None
            ),
            goal("rank correlation of all scores", min(row["rank correlation"] for row in rows), least=0.9999),
            goal("deletions per second, sustained", min(row["deletions/s"] for row in rows), least=10 * TODAY),
        ],
        "notes": ["inside R: the deleted row was one of the reference rows, from which the constants follow."],
    }


def _one_size(address: str, size: int, deletions: int, seconds: float) -> dict[str, Any]:
    with psycopg.connect(address, autocommit=True) as connection:
        table = scratch.Table(connection, "people", 10, unlearner="exact")
        for begin in range(0, size, 100_000):
            table.fill(min(100_000, size - begin))
        Worker(address).run_once()
        inside, outside = _keys(connection, size, deletions)
        before = _scores(connection)
        with scratch.worker(address):
            _until(connection, "select count(*) > 0 from mempair.worker")
            times = {
                name: [_forget(connection, key) for key in keys] for name, keys in (("in", inside), ("out", outside))
            }
            after = _scores(connection)
            rate = _sustained(address, connection, size, seconds)
        refreshes = connection.execute("select count(*) - 1 from mempair.ledger where kind = 'retrained'").fetchone()
    return {
        "rows": size,
        "inside R, ms": statistics.median(times["in"]) * MILLI,
        "outside R, ms": statistics.median(times["out"]) * MILLI if times["out"] else None,
        "slowest, ms": max([*times["in"], *times["out"]]) * MILLI,
        "rank correlation": _rank_correlation(before, after),
        "deletions/s": rate,
        "refreshes": refreshes[0] if refreshes else None,
    }


def _keys(connection: psycopg.Connection[Any], size: int, count: int) -> tuple[list[int], list[int]]:
    """Return rows that are reference rows, and rows that are not."""
    reference = {int(key) for (key,) in connection.execute("select row_key from mempair.reference_row")}
    others = [key for key in range(1, size + 1) if key not in reference]
    return sorted(reference)[:count], others[:count]


def _forget(connection: psycopg.Connection[Any], key: int) -> float:
    """Delete a row, and return the seconds until the published model is without it."""
    samples = connection.execute("select samples from mempair.published").fetchone()
    connection.execute("delete from people where id = %s", [key])
    began = time.perf_counter()
    _until(connection, "select samples < %s from mempair.published", samples[0] if samples else 0)
    return time.perf_counter() - began


def _until(connection: psycopg.Connection[Any], condition: str, *values: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        row = connection.execute(condition, values).fetchone()
        if row and row[0]:
            return
        time.sleep(0.0005)
    raise TimeoutError(condition)


def _scores(connection: psycopg.Connection[Any]) -> dict[str, float]:
    return dict(connection.execute("select row_key, prediction from mempair.predict_all('people')").fetchall())


def _rank_correlation(before: dict[str, float], after: dict[str, float]) -> float:
    """Spearman's, over the rows that are there both times."""
    both = [key for key in before if key in after]
    ranks = [np.argsort(np.argsort([scores[key] for key in both])) for scores in (before, after)]
    return float(np.asarray(np.corrcoef(np.array(ranks)))[0, 1])


def _sustained(address: str, connection: psycopg.Connection[Any], size: int, seconds: float) -> float:
    """Delete, insert and predict for a while; return how many deletions per second were applied, backlog included."""
    stop = threading.Event()
    reader = threading.Thread(target=_read, args=(address, stop))
    reader.start()
    forgotten = "select coalesce(sum(rows), 0) from mempair.ledger where kind = 'unlearned'"
    first = connection.execute(forgotten).fetchone()
    began, key = time.monotonic(), size // 4
    try:
        while time.monotonic() < began + seconds and key + 100 < size * 3 // 4:
            connection.execute("delete from people where id between %s and %s", [key, key + 19])
            connection.execute(
                "insert into people select id + 10000000, y, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 from people"
                " where id between %s and %s",
                [key + 20, key + 24],
            )
            key += 20
        _until(connection, "select pending_changes = 0 from mempair.model_status")
        took = time.monotonic() - began
    finally:
        stop.set()
        reader.join()
    last = connection.execute(forgotten).fetchone()
    return float((last[0] if last else 0) - (first[0] if first else 0)) / took


def _read(address: str, stop: threading.Event) -> None:
    with psycopg.connect(address, autocommit=True) as reader:
        while not stop.is_set():
            reader.execute("select mempair_try_predict('people', p) from people p where id = %s", [7]).fetchone()
            time.sleep(0.001)
