"""`mempair bench worker`: how fast changes are applied, how soon a deletion shows, what a retrain costs.

applied     the worker over a queue of captured inserts, against COPY filling the captured table, against reading the
            same rows into arrays and doing nothing with them, and against a binary COPY of them out of Postgres,
            than which nobody reads them faster
deleted     the worker over a queue of captured deletions, ledger entries and receipts included
latency     from the return of a DELETE's COMMIT to the published model, a worker running beside it
memory      of a worker process, while the number of events it has applied grows
retrain     exact retrain of the whole table, against a binary COPY of the same rows out of Postgres
verify      the model computed anew from the whole table and compared, against that COPY
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg import sql

from mempair_db.bench import scratch
from mempair_db.bench.report import Result, goal, machine, render
from mempair_db.bench.scratch import Table
from mempair_db.database import models
from mempair_db.database.connect import connect
from mempair_db.verify.checks import verify
from mempair_db.worker import batch, changes
from mempair_db.worker.loop import Worker
from mempair_db.worker.purge import purge
from mempair_db.worker.retrain import retrain

__all__ = ["render", "run"]

SIZES: Final = {10: 200_000, 100: 60_000, 784: 10_000}
APPLIED: Final = {10: 2.0, 100: 1.5, 784: 1.2}  # times as fast as COPY
DELETED: Final = 15.0  # µs a row


def run(*, quick: bool = False, dsn: str | None = None) -> Result:
    """Measure everything; `quick` only shows that it works."""
    at = machine()
    rounds = 1 if quick else 3
    with scratch.database(dsn) as address, psycopg.connect(address, autocommit=True) as connection:
        applied = [_applied(connection, address, d, 1_500 if quick else rows, rounds) for d, rows in SIZES.items()]
        deleted = _deleted(connection, address, 1_000 if quick else 100_000)
        latency = _latency(connection, address, 5 if quick else 200)
        memory = _memory(connection, address, 1_000 if quick else 200_000)
        again = _retrain(connection, address, 3_000 if quick else 1_000_000)
    return {
        "bench": "worker",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": "Events per second", "rows": applied},
            {"title": "Mass deletion, d = 10", "rows": [deleted]},
            {"title": "From COMMIT of a DELETE to the published model, milliseconds", "rows": [latency]},
            {"title": "Memory of the worker, d = 10", "rows": memory},
            {"title": "Exact retrain and verify, d = 10", "rows": [again]},
        ],
        "goals": [
            *(goal(f"applied against COPY, d = {r['d']}", r["applied/COPY"], least=APPLIED[r["d"]]) for r in applied),
            goal("mass deletion, µs a row", deleted["µs a row"], most=DELETED),
            *(goal(f"applied against bare reading, d = {r['d']}", r["applied/read"], least=0.5) for r in applied),
            goal("memory after 8 times the events", memory[-1]["MB"] / memory[0]["MB"], most=1.1),
            goal("retrain against COPY out", again["retrain/COPY"], most=3.0),
            goal("verify against COPY out", again["verify/COPY"], most=3.0),
        ],
        "notes": [],
    }


def _applied(connection: psycopg.Connection[Any], dsn: str, d: int, rows: int, rounds: int) -> dict[str, Any]:
    table = Table(connection, f"stream{d}", d, unlearner="exact")
    table.fill(1_000)
    Worker(dsn).run_once()
    number = _model_id(connection, table)
    fill, out, read, apply = [], [], [], []
    with connect(dsn, autocommit=True) as worker:
        batch.prepare(worker)
        for _ in range(rounds + 1):
            block = table.block(rows)
            fill.append(_time(lambda block=block: table.copy_in(block)))
            out.append(_time(lambda: _copy_out(table, table.next_id - rows)))
            read.append(_time(lambda: _read_all(worker, number)))
            apply.append(_time(lambda: _apply_all(worker, number)))
    table.drop()
    per_second = {
        name: rows / statistics.median(times[1:])
        for name, times in (("COPY", fill), ("COPY out", out), ("read", read), ("applied", apply))
    }
    return {
        "d": d,
        "rows": rows,
        **per_second,
        "applied/COPY": per_second["applied"] / per_second["COPY"],
        "COPY out/COPY": per_second["COPY out"] / per_second["COPY"],
        "applied/COPY out": per_second["applied"] / per_second["COPY out"],
        "applied/read": per_second["applied"] / per_second["read"],
    }


def _copy_out(table: Table, first: int = 0) -> None:
    """Read rows from a number on, as quickly as Postgres hands them out, and do nothing with them."""
    rows = table.format("copy (select * from {} where id >= {}) to stdout (format binary)", sql.Literal(first))
    with table.connection.cursor() as cursor, cursor.copy(rows) as copy:
        for _ in copy:
            pass


def _read_all(worker: psycopg.Connection[Any], number: int) -> None:
    """Read the queue in the batches the worker reads, without applying anything."""
    with worker.transaction():
        model = models.lease(worker, number)
        assert model is not None  # noqa: S101
        last = 0
        while len(found := changes.read(worker, model, after=last)):
            last = int(found.seq[-1])


def _apply_all(worker: psycopg.Connection[Any], number: int) -> None:
    """Apply what waits; the refreshes that a growing table asks for are measured as retrains, not here."""
    while batch.apply_batch(worker, number).worked:
        worker.execute("update mempair.model set retrain_requested = null where id = %s", [number])
    purge(worker, number)


def _deleted(connection: psycopg.Connection[Any], dsn: str, rows: int) -> dict[str, Any]:
    """Delete rows outside R, all at once, and apply that: a median of three, each of other rows."""
    table = Table(connection, "crowd", 10, unlearner="exact")
    table.fill(10 * rows)
    Worker(dsn).run_once()
    number = _model_id(connection, table)
    connection.execute("delete from mempair.reference_row where row_key::bigint <= %s", [3 * rows])
    times = []
    with connect(dsn, autocommit=True) as worker:
        batch.prepare(worker)
        for first in (1, rows + 1, 2 * rows + 1):
            connection.execute(table.format("delete from {} where id between %s and %s"), [first, first + rows - 1])
            times.append(_time(lambda: _apply_all(worker, number)))
    statement = "select count(*) from mempair.ledger where model_id = %s and kind = 'unlearned' and detail = 'exact'"
    entries = connection.execute(statement, [number]).fetchone()
    table.drop()
    return {
        "of rows": 10 * rows,
        "deleted at once": rows,
        "µs a row": statistics.median(times) / rows * 1e6,
        "ledger entries for each time": (entries[0] if entries else 0) / 3,
    }


def _latency(connection: psycopg.Connection[Any], dsn: str, deletions: int) -> dict[str, Any]:
    table = Table(connection, "latency", 10, unlearner="exact")
    table.fill(20_000)
    service = Worker(dsn)
    service.run_once()
    number = _model_id(connection, table)
    thread = threading.Thread(target=service.run)
    thread.start()
    times = []
    try:
        for key in range(1, deletions + 1):
            before = _version(connection, number)
            connection.execute(table.format("delete from {} where id = %s"), [key])
            start = time.perf_counter()
            while _version(connection, number) == before:
                time.sleep(0.0005)
            times.append((time.perf_counter() - start) * 1e3)
    finally:
        service.stop()
        thread.join()
    retrains = connection.execute(
        "select count(*) from mempair.ledger where model_id = %s and kind = 'retrained'", [number]
    ).fetchone()
    table.drop()
    times.sort()
    return {
        "deletions": deletions,
        "median": statistics.median(times),
        "99 %": times[min(len(times) - 1, int(0.99 * len(times)))],
        "retrains meanwhile": retrains[0] if retrains else 0,
    }


def _memory(connection: psycopg.Connection[Any], dsn: str, rows: int) -> list[dict[str, Any]]:
    """Look at a worker process after so many events, twice, four and eight times as many."""
    table = Table(connection, "memory", 10, unlearner="exact")
    found = []
    with scratch.worker(dsn) as process:
        for block in range(1, 9):
            table.fill(rows)
            while _rows(connection, table) < block * rows:
                if process.status() == psutil.STATUS_ZOMBIE:
                    raise RuntimeError("the worker has ended; what it said is above")
                time.sleep(0.05)
            if block in (1, 2, 4, 8):
                found.append({"events": block * rows, "MB": process.memory_info().rss / 2**20})
    table.drop()
    return found


def _retrain(connection: psycopg.Connection[Any], dsn: str, rows: int) -> dict[str, Any]:
    table = Table(connection, "history", 10, unlearner="exact")
    for _ in range(0, rows, 50_000):
        table.fill(min(rows, 50_000))
    Worker(dsn).run_once()
    number = _model_id(connection, table)

    def look() -> None:
        report = verify(dsn, number)
        if not report.fine:
            raise RuntimeError(f"an honest model does not verify: {report}")

    look()  # compiles
    rounds = [(_time(lambda: _copy_out(table)), _time(look)) for _ in range(3)]
    copy, verified = (statistics.median(times) for times in zip(*rounds, strict=True))
    with connect(dsn, autocommit=True) as worker:
        batch.prepare(worker)
        full = statistics.median(_time(lambda: retrain(worker, number, "bench")) for _ in range(2))
        connection.execute(table.format("delete from {} where id = 7"))
        one = _time(lambda: batch.apply_batch(worker, number))
    table.drop()
    return {
        "rows": rows,
        "COPY out, s": copy,
        "retrain, s": full,
        "retrain/COPY": full / copy,
        "verify, s": verified,
        "verify/COPY": verified / copy,
        "one deletion, s": one,
        "retrain/deletion": full / one,
    }


def _time(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _model_id(connection: psycopg.Connection[Any], table: Table) -> int:
    row = connection.execute("select id from mempair.model where name = %s", [table.model]).fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


def _rows(connection: psycopg.Connection[Any], table: Table) -> int:
    statement = "select s.rows_learned from mempair.state s join mempair.model m on m.id = s.model_id where m.name = %s"
    row = connection.execute(statement, [table.model]).fetchone()
    return int(row[0]) if row else 0


def _version(connection: psycopg.Connection[Any], number: int) -> int:
    row = connection.execute("select version from mempair.published where model_id = %s", [number]).fetchone()
    return int(row[0]) if row else 0
