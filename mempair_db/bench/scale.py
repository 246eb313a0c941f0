"""`mempair bench scale`: how time and memory grow with the number of events and of features.

kernel, events     inserts of d = 10 numbers into one state; time per event must not depend on how many came before
kernel, features   inserts and deletes with a full window of τ = 10 pairs, d from 10 to 10,000
pipeline           rows COPYed into a captured table, then the worker; then deletions one by one, and one exact retrain
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import psycopg

from mempair_db.bench import plots
from mempair_db.bench.core import rows
from mempair_db.bench.report import Result, goal, machine
from mempair_db.bench.scratch import Table, database
from mempair_db.database.connect import connect
from mempair_db.pair import events
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.curvature import DENSE
from mempair_db.pair.state import State, empty
from mempair_db.worker import batch
from mempair_db.worker.loop import Worker
from mempair_db.worker.retrain import retrain

LAM: Final = 0.01
TAU: Final = 10
EVENTS: Final = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
FEATURES: Final = (10, 30, 100, 300, 1_000, 3_000, 10_000)
PIPELINE: Final = (
    (10, 1_000),
    (10, 10_000),
    (10, 100_000),
    (10, 1_000_000),
    (100, 10_000),
    (100, 50_000),
    (500, 10_000),
)
REPEATS: Final = 3
DELETIONS: Final = 15
MICRO: Final = 1e6
CHUNK: Final = 100_000


def run(*, quick: bool = False, dsn: str | None = None) -> Result:
    """Measure everything; `quick` only shows that it works."""
    at = machine()
    by_events = _events(EVENTS[:2] if quick else EVENTS)
    by_features = [_features(d, quick) for d in (FEATURES[:2] if quick else FEATURES)]
    with database(dsn) as scratch, psycopg.connect(scratch, autocommit=True) as connection:
        sizes = ((10, 800), (10, 1_500)) if quick else PIPELINE
        pipeline = [
            _median([_pipeline(connection, scratch, d, n) for _ in range(1 if quick else REPEATS)]) for d, n in sizes
        ]
    return {
        "bench": "scale",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": "Kernel, d = 10: microseconds per insert after so many events", "rows": by_events},
            {"title": f"Kernel, window of {TAU} pairs full: microseconds per event", "rows": by_features},
            {"title": f"Pipeline: from COPY to the published model, medians of {REPEATS}", "rows": pipeline},
        ],
        "goals": [
            goal(
                "an insert costs the same after the most events as after 100 times fewer",
                by_events[-1]["µs per insert"] / by_events[-3 if len(by_events) > 2 else 0]["µs per insert"],
                most=1.5,
            ),
            goal(
                "the state is as large after the most events as after the fewest",
                by_events[-1]["bytes of state"] / by_events[0]["bytes of state"],
                most=1.0,
            ),
        ],
        "notes": [
            f"Up to d = {DENSE} the inverse Hessian is kept as a matrix, d² a step; beyond, a step is two loops over "
            "the window, linear in d. From some thousand features on, a number costs more; memory that no longer fits "
            "the nearest cache is the likely reason, which this run does not separate.",
            "The pipeline's first rows pay for calibration and the first batch. Its peak is that of the whole process, "
            "so it never falls from one line to the next.",
        ],
        "plots": [_picture("features", "d", by_features), _picture("events", "events", by_events)],
    }


def _events(counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Time the last stretch before each count: at most `CHUNK` events, the median of three such stretches."""
    k = constants_for(Parameters(tau=TAU), LAM)
    X, y = _unit(CHUNK, 10)
    events.learn(empty(10, TAU), k, X[:10], y[:10])  # compiles
    state = empty(10, TAU)
    found = []
    for count in counts:
        times: list[float] = []
        while (left := count - int(state.tally["clock"][0])) > 0:
            size = min(left, CHUNK, max(100, count // 10))
            times.append(_seconds(lambda size=size: events.learn(state, k, X[:size], y[:size])) / size)  # type: ignore[misc]
        held = sum(array.nbytes for array in state)
        last = statistics.median(times[-3:]) * MICRO
        found.append({"events": count, "µs per insert": last, "bytes of state": held, "peak MB of process": _peak()})
    return found


def _features(d: int, quick: bool) -> dict[str, Any]:
    k = constants_for(Parameters(tau=TAU), LAM)
    size = 50 if quick else int(np.clip(2_000_000 // d, 200, 20_000))
    X, y = _unit(size, d)
    state = empty(d, TAU)
    while state.tally["pairs"][0] < TAU:
        events.learn(state, k, X, y)
    insert = statistics.median(_seconds(lambda: events.learn(state, k, X, y)) / size for _ in range(3)) * MICRO
    delete = statistics.median(_delete(state, k, X, y) for _ in range(5)) * MICRO
    held = sum(array.nbytes for array in state)
    return {
        "d": d,
        "µs per insert": insert,
        "ns per insert and feature": insert / d * 1e3,
        "µs per delete": delete,
        "kB of state": held / 1024,
        "bytes per feature": held / d,
    }


def _delete(state: State, k: Any, X: Any, y: Any) -> float:
    one, noise = np.array([events.DELETE], np.int16), np.zeros((1, X.shape[1]))
    victim = State(*(array.copy() for array in state))
    return _seconds(lambda: events.apply(victim, k, one, X[:1], y[:1], noise))


def _pipeline(connection: psycopg.Connection[Any], dsn: str, d: int, n: int) -> dict[str, Any]:
    """Fill a captured table, let the worker apply it, delete one row, retrain."""
    table = Table(connection, f"pipeline_{d}_{n}", d)
    fill = apply = 0.0
    for start in range(0, n, CHUNK):
        block = table.block(min(CHUNK, n - start))
        fill += _seconds(lambda block=block: table.copy_in(block))  # type: ignore[misc]
        apply += _seconds(Worker(dsn).run_once)
    number = connection.execute("select id from mempair.model where name = %s", [table.model]).fetchone()
    assert number is not None  # noqa: S101
    deleted = []
    with connect(dsn, autocommit=True) as worker:
        batch.prepare(worker)
        for key in range(1, DELETIONS + 1):
            connection.execute(table.format("delete from {} where id = %s"), [key])
            deleted.append(_seconds(lambda: batch.apply_batch(worker, number[0])))
        again = _seconds(lambda: retrain(worker, number[0], "bench"))
    table.drop()
    return {
        "d": d,
        "rows": n,
        "µs per row, capture": fill / n * MICRO,
        "µs per row, worker": apply / n * MICRO,
        "ms per deletion, worker": statistics.median(deleted) * 1e3,
        "µs per row, retrain": again / n * MICRO,
        "peak MB of process": _peak(),
    }


def _median(repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of every column."""
    return {column: statistics.median(one[column] for one in repeats) for column in repeats[0]}


def _unit(n: int, d: int) -> tuple[Any, Any]:
    x, y = rows(n, d)
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _peak() -> float:
    """Return the peak of resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _picture(name: str, x: str, table: list[dict[str, Any]]) -> dict[str, Any]:
    lines = [plots.line(c, [r[x] for r in table], [r[c] for r in table]) for c in table[0] if c.startswith("µs per")]
    return plots.plot(name, f"Kernel: time per event by {name}", x, "microseconds", lines, "xy")
