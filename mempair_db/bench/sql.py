"""`mempair bench sql`: what capture costs a writer, and what predictions cost a reader.

capture      the same statements on a table with a model and on its bare twin, in turns, one transaction each
predict      mempair_predict over a whole table, against pulling the same rows into numpy and multiplying
predict_all  against the same linear expression written into the query as literals
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import psycopg
from psycopg import sql

from mempair_db.bench.report import Result, goal, machine, render, side_by_side, timed
from mempair_db.bench.scratch import Table, database
from mempair_db.database import arrays
from mempair_db.worker.loop import Worker
from mempair_db.worker.purge import purge

__all__ = ["render", "run"]

DIMENSIONS: Final = (10, 100)


def run(*, quick: bool = False, dsn: str | None = None) -> Result:
    """Measure everything; `quick` only shows that it works."""
    at = machine()
    with database(dsn) as scratch, psycopg.connect(scratch, autocommit=True) as connection:
        version = connection.execute("show server_version").fetchone()
        capture = [row for d in DIMENSIONS for row in _capture(connection, d, quick=quick)]
        predict = [_predict(connection, scratch, d, quick=quick) for d in DIMENSIONS]
        queue = _queue(connection, scratch, quick=quick)
        compared = _reconcile(connection, scratch, quick=quick)
    single = [row for row in capture if row["rows"] == 1]
    bulk = [row for row in capture if row["statement"] in ("INSERT", "COPY") and row["rows"] > 1]
    return {
        "bench": "sql",
        "quick": quick,
        "machine": at | {"postgres": version[0] if version else None},
        "tables": [
            {"title": "Capture: milliseconds per statement, with a model and without", "rows": capture},
            {"title": "Prediction: microseconds per row of a table", "rows": predict},
            {"title": "Queue", "rows": [queue]},
            {"title": "Reconcile: a model compared with its table", "rows": [compared]},
        ],
        "goals": [
            *(goal(f"{r['statement']} of one row, d = {r['d']}", r["ratio"], most=1.15) for r in single),
            *(goal(f"{r['statement']} of {r['rows']} rows, d = {r['d']}", r["ratio"], most=2.0) for r in bulk),
            *(
                goal(
                    f"mempair_predict against numpy, d = {r['d']}",
                    r["predict/numpy"],
                    most=2.0 if r["d"] == 10 else 1.0,
                )
                for r in predict
            ),
            *(goal(f"predict_all against literals, d = {r['d']}", r["all/literal"], most=2.0) for r in predict),
        ],
        "notes": [],
    }


def _capture(connection: psycopg.Connection[Any], d: int, *, quick: bool) -> list[dict[str, Any]]:
    """Time each statement on both tables; the captured one's queue is emptied now and then, as a worker would."""
    captured, bare = Table(connection, "captured", d), Table(connection, "bare", d, model=False)
    copied, few = (500, 100) if quick else (100_000, 1_000)
    repeats = 2 if quick else 5
    found = []
    for statement, rows in (
        ("INSERT", 1),
        ("DELETE", 1),
        ("INSERT", few),
        ("UPDATE half", few),
        ("DELETE", few),
        ("COPY", copied),
    ):
        calls = (5 if quick else 60) if rows == 1 else (2 if quick else 4) if rows == few else 1
        seconds = side_by_side(
            {
                name: timed_statement(table, statement, rows, calls)
                for name, table in (("with", captured), ("without", bare))
            },
            repeats,
        )
        found.append(
            {
                "d": d,
                "statement": statement,
                "rows": rows,
                "with": seconds["with"] * 1e3,
                "without": seconds["without"] * 1e3,
                "ratio": seconds["with"] / seconds["without"],
            }
        )
        _empty(connection, captured)
    captured.drop()
    bare.drop()
    return found


def timed_statement(table: Table, statement: str, rows: int, calls: int) -> Callable[[], float]:
    """Return a contestant: prepare the input, then time the statement alone."""

    def seconds() -> float:
        total = 0.0
        for _ in range(calls):
            total += _once(table, statement, rows)
        return total / calls

    return seconds


def _once(table: Table, statement: str, rows: int) -> float:
    connection = table.connection
    if statement == "COPY":
        block = table.block(rows)
        return timed(1, lambda: table.copy_in(block))()
    if statement == "INSERT" and rows == 1:
        values = table.values(1)[0]
        return timed(1, lambda: connection.execute(table.insert(), values))()
    first = table._next
    if statement == "INSERT":
        numbers = sql.SQL(", ").join(sql.SQL("i * {} % 97").format(j) for j in range(1, table.d + 1))
        table._next += rows
        insert = table.format(
            "insert into {} select i, i % 2 = 0, {} from generate_series({}, {}) i",
            numbers,
            *map(sql.Literal, (first, first + rows - 1)),
        )
        return timed(1, lambda: connection.execute(insert))()
    table.fill(rows)
    if statement == "DELETE":
        return timed(1, lambda: connection.execute(table.format("delete from {} where id >= %s"), [first]))()
    update = table.format("update {} set x1 = x1 + (id %% 2) where id >= %s")  # every second row stays what it was
    return timed(1, lambda: connection.execute(update, [first]))()


def _empty(connection: psycopg.Connection[Any], table: Table) -> None:
    found = connection.execute("select id from mempair.model where name = %s", [table.model]).fetchone()
    number = int(found[0]) if found else 0
    connection.execute(
        sql.SQL("truncate mempair.{}, mempair.{}").format(*(sql.Identifier(f"change_{number}_{h}") for h in "ab"))
    )
    connection.execute("vacuum analyze")


def _predict(connection: psycopg.Connection[Any], dsn: str, d: int, *, quick: bool) -> dict[str, Any]:
    rows = 2_000 if quick else 100_000
    table = Table(connection, f"scored{d}", d)
    table.fill(rows)
    Worker(dsn).run_once()
    connection.execute("update mempair.published set ready = true")  # speed does not depend on the gate
    connection.execute("vacuum analyze")
    row = connection.execute(
        "select p.weights, p.intercept from mempair.published p join mempair.model m on m.id = p.model_id"
        " where m.name = %s",
        [table.model],
    ).fetchone()
    assert row is not None  # noqa: S101
    weights, intercept = np.array(row[0], float), float(row[1])
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    literal = sql.SQL(" + ").join(
        sql.SQL("{}::float8 * {}").format(w, sql.Identifier(c))
        for w, c in zip(weights.tolist(), table.columns, strict=True)
    )

    plain = sql.SQL("select {} from {}").format(columns, table.name)
    packed = sql.SQL("select array[{}]::float8[] from {}").format(columns, table.name)

    def pull() -> None:
        x = np.array(connection.execute(plain).fetchall())
        1.0 / (1.0 + np.exp(-(x @ weights + intercept)))

    def pull_raw() -> None:
        x = arrays.floats([r[0] for r in arrays.fetch(connection, packed)], d)
        1.0 / (1.0 + np.exp(-(x @ weights + intercept)))

    def whole(statement: sql.Composed) -> Callable[[], object]:
        return lambda: connection.execute(statement).fetchone()

    contestants = {
        "mempair_predict": whole(
            sql.SQL("select sum(mempair_predict({}, t)) from {} t").format(table.model, table.name)
        ),
        "numpy": pull,
        "numpy raw": pull_raw,
        "predict_all": whole(
            sql.SQL("select count(row_key), sum(prediction) from mempair.predict_all({})").format(table.model)
        ),
        "literal": whole(
            sql.SQL(
                "select count(q.k), sum(q.p)"
                " from (select id::text as k, 1 / (1 + exp(-({} + {}))) as p from {} offset 0) as q"
            ).format(intercept, literal, table.name)
        ),
    }
    seconds = side_by_side({name: timed(rows, work) for name, work in contestants.items()}, 1 if quick else 5)
    table.drop()
    return {
        "d": d,
        **{name: value * 1e6 for name, value in seconds.items()},
        "predict/numpy": seconds["mempair_predict"] / seconds["numpy"],
        "all/literal": seconds["predict_all"] / seconds["literal"],
    }


def _queue(connection: psycopg.Connection[Any], dsn: str, *, quick: bool) -> dict[str, Any]:
    """Bytes that one captured row takes, and the time to erase the queue physically after many deletions."""
    rows = 2_000 if quick else 100_000
    table = Table(connection, "queued", 10)
    table.fill(rows)
    found = connection.execute("select id from mempair.model where name = 'queued'").fetchone()
    number = int(found[0]) if found else 0
    size = connection.execute("select pg_total_relation_size(%s::regclass)", [f"mempair.change_{number}_a"]).fetchone()
    Worker(dsn).run_once()
    connection.execute(table.format("delete from {}"))
    Worker(dsn).run_once()
    times = []
    for _ in range(1 if quick else 5):
        start = time.perf_counter()
        purge(connection, number)
        times.append(time.perf_counter() - start)
    table.drop()
    return {
        "rows": rows,
        "d": 10,
        "bytes per captured row": (size[0] if size else 0) / rows,
        "bytes of its numbers": 8 * 10,
        "purge milliseconds": statistics.median(times) * 1e3,
    }


def _reconcile(connection: psycopg.Connection[Any], dsn: str, *, quick: bool) -> dict[str, Any]:
    """Compare every learned key with the table, beside counting the table's keys as text and nothing else."""
    rows = 2_000 if quick else 1_000_000
    table = Table(connection, "compared", 10)
    for _ in range(0, rows, 50_000):
        table.fill(min(rows, 50_000))
    Worker(dsn).run_once()
    connection.execute("vacuum analyze")
    seconds = side_by_side(
        {
            "reconcile": timed(1, lambda: connection.execute("select * from mempair.reconcile('compared')").fetchall()),
            "count": timed(
                1, lambda: connection.execute(table.format("select count(distinct id::text) from {}")).fetchone()
            ),
        },
        1 if quick else 3,
    )
    table.drop()
    return {
        "rows": rows,
        "reconcile, s": seconds["reconcile"],
        "distinct keys counted, s": seconds["count"],
        "ratio": seconds["reconcile"] / seconds["count"],
    }
