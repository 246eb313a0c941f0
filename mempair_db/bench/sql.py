"""`mempair bench sql`: what capture costs a writer, and what predictions cost a reader.

capture      the same statements on a table with a model, on its bare twin, on one with an empty trigger that gets the
             changed rows (which no capture can do without), and on one whose trigger copies the rows that went into
             a table like it (which nobody who must unlearn them can do without), in turns, one transaction each
predict      mempair_predict and predict_all, against pulling the same rows into numpy: see bench/predict.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg import sql

from mempair_db.bench import predict
from mempair_db.bench.report import Result, goal, machine, render, side_by_side, timed
from mempair_db.bench.scratch import Table, database
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
        scored = [predict.run(connection, scratch, shape, quick=quick) for shape in predict.SHAPES]
        queue = _queue(connection, scratch, quick=quick)
        compared = _reconcile(connection, scratch, quick=quick)
    single = [row for row in capture if row["rows"] == 1]
    bulk = [row for row in capture if row["rows"] > 1]
    return {
        "bench": "sql",
        "quick": quick,
        "machine": at | {"postgres": version[0] if version else None},
        "tables": [
            {"title": "Capture: milliseconds per statement, with a model and without", "rows": capture},
            {"title": "Prediction: microseconds per row of a table", "rows": scored},
            {"title": "Queue", "rows": [queue]},
            {"title": "Reconcile: a model compared with its table", "rows": [compared]},
        ],
        "goals": [
            *(goal(f"{r['statement']} of one row, d = {r['d']}", r["ratio"], most=1.15) for r in single),
            *(goal(f"{r['statement']} of {r['rows']} rows, d = {r['d']}", r["ratio"], most=_most(r)) for r in bulk),
            *_predict_goals(scored),
        ],
        "notes": [],
    }


def _most(row: dict[str, Any]) -> float:
    """What a statement of many rows may cost beside the bare table."""
    narrow, wide = {"COPY": (1.5, 1.3), "DELETE": (2.0, 2.5), "UPDATE half": (1.6, 1.6)}.get(
        row["statement"], (2.0, 2.0)
    )
    return narrow if row["d"] == DIMENSIONS[0] else wide


def _predict_goals(scored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ten, hundred, bank, census = scored
    return [
        goal("mempair_predict against numpy, 10 numbers", ten["predict/numpy"], most=2.0),
        goal("mempair_predict against numpy, 100 numbers", hundred["predict/numpy"], most=1.0),
        *(goal(f"predict_all against literals, {row['table']}", row["all/literal"], most=2.0) for row in scored[:2]),
        goal(f"predict_all, µs a row, {bank['table']}", bank["predict_all"], most=10.0),
        goal(f"mempair_predict, µs a row, {census['table']}", census["mempair_predict"], most=30.0),
        goal(f"predict_all against numpy, {census['table']}", census["all/numpy"], most=2.0),
    ]


def _capture(connection: psycopg.Connection[Any], d: int, *, quick: bool) -> list[dict[str, Any]]:
    """Time each statement on both tables; the captured one's queue is emptied now and then, as a worker would."""
    captured, bare = Table(connection, "captured", d), Table(connection, "bare", d, model=False)
    idle, keeping = _with_triggers(connection, "idle", d), _with_triggers(connection, "keeping", d, keep="kept")
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
                for name, table in (("with", captured), ("empty", idle), ("kept", keeping), ("without", bare))
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
                "empty trigger": seconds["empty"] / seconds["without"],
                "what went kept": seconds["kept"] / seconds["without"],
                "ratio": seconds["with"] / seconds["without"],
            }
        )
        connection.execute("truncate kept")
        _empty(connection, captured)
    for table in (captured, idle, keeping, bare):
        table.drop()
    connection.execute("drop table kept")
    return found


def _with_triggers(connection: psycopg.Connection[Any], name: str, d: int, *, keep: str | None = None) -> Table:
    """Make a table whose triggers do nothing, or keep the rows that went in a table of this name."""
    table = Table(connection, name, d, model=False)
    copied = sql.SQL("insert into {} select * from o;").format(sql.Identifier(keep)) if keep else sql.SQL("")
    if keep:
        connection.execute(table.format("create table {1} (like {0})", sql.Identifier(keep)))
    rows = {"insert": "new table as n", "update": "old table as o new table as n", "delete": "old table as o"}
    for operation, names in rows.items():
        function = sql.Identifier(f"{name}_{operation}")
        body = sql.SQL("begin {} return null; end").format(sql.SQL("") if operation == "insert" else copied)
        connection.execute(
            sql.SQL("create or replace function {}() returns trigger language plpgsql as {}").format(
                function, sql.Literal(body.as_string(connection))
            )
        )
        connection.execute(
            table.format(
                "create trigger {3} after {1} on {0} referencing {2} for each statement execute function {3}()",
                sql.SQL(operation),
                sql.SQL(names),
                function,
            )
        )
    return table


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
    first = table.next_id
    if statement == "INSERT":
        numbers = sql.SQL(", ").join(sql.SQL("i * {} % 97").format(j) for j in range(1, table.d + 1))
        table.next_id += rows
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
