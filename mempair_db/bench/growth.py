"""`mempair bench growth`: what grows, under two million mixed events and when a million deletions wait for a retrain.

mixed       inserts, updates and deletions in turns on a table that stays as large as it is; after every quarter of them
            a VACUUM, as autovacuum would that comes once a minute, the size of every table of ours, dead rows, and the
            memory of the worker
waiting     nine tenths of a table deleted while no worker runs, then a retrain: the most memory that a worker takes
"""

from __future__ import annotations

import time
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
import psycopg

from mempair_db.bench import scratch
from mempair_db.bench.report import Result, goal, machine, render
from mempair_db.bench.scratch import Table

__all__ = ["render", "run"]

PATIENCE: Final = 600.0
MEGABYTE: Final = 2**20
QUARTERS: Final = 4
SIZES: Final = """
select regexp_replace(c.relname, '^change_\\d+_[ab]$', 'queue'), sum(pg_total_relation_size(c.oid))::bigint,
       coalesce(sum(s.n_dead_tup), 0)::bigint
from pg_class c left join pg_stat_user_tables s on s.relid = c.oid
where c.relnamespace = 'mempair'::regnamespace and c.relkind = 'r'
group by 1
"""


def run(*, quick: bool = False, dsn: str | None = None) -> Result:
    """Measure everything; `quick` only shows that it works."""
    at = machine()
    events, rows = (4_000, 1_000) if quick else (2_000_000, 200_000)
    with scratch.database(dsn) as address, psycopg.connect(address, autocommit=True) as connection:
        memory, tables = _mixed(connection, address, events, rows)
        waiting = [
            _waiting(connection, address, count) for count in ((1_000, 2_000) if quick else (100_000, 1_000_000))
        ]
    level = [row for row in tables if row["table"] not in ("ledger", "receipt")]
    return {
        "bench": "growth",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": f"{events:,} events on a table of {rows:,} rows: the worker", "rows": memory},
            {"title": "Tables of ours after each quarter of the events, MB", "rows": tables},
            {"title": "A retrain with nine tenths of the table's rows waiting to be forgotten", "rows": waiting},
        ],
        "goals": [
            goal(
                "worker's memory, last quarter to first", memory[-1]["worker, MB"] / memory[0]["worker, MB"], most=1.2
            ),
            goal(
                "all tables but ledger and receipts, last quarter to the largest before",
                sum(row["4"] for row in level) / max(sum(row[before] for row in level) for before in "123"),
                most=1.5,
            ),
            goal("most memory of a retrain, ten times as many waiting", waiting[-1]["MB"] / waiting[0]["MB"], most=1.5),
        ],
        "notes": [
            "receipts grow until they are consumed or expire (90 days); an entry is about up to 1,024 deletions."
        ],
    }


def _mixed(
    connection: psycopg.Connection[Any], address: str, events: int, rows: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Insert, update and delete in turns; return the worker's memory and the tables' sizes after each quarter."""
    table = Table(connection, "mixed", 10, unlearner="exact")
    table.fill(rows)
    block, oldest, done = rows // 5, 1, 0
    memory: list[dict[str, Any]] = []
    sizes: list[dict[str, int]] = []
    with scratch.worker(address) as process:
        _settle(connection, process, "mixed")
        for quarter in range(1, QUARTERS + 1):
            while done < events * quarter // QUARTERS:
                table.fill(block)
                move = "update {} set x1 = x1 + 1 where id between %s and %s"
                connection.execute(table.format(move), [oldest + block, oldest + block + block // 4])
                connection.execute(table.format("delete from {} where id < %s"), [oldest + block])
                oldest += block
                done += 2 * block + 2 * (block // 4)
                _settle(connection, process, "mixed")
            connection.execute("vacuum")
            found = connection.execute(SIZES).fetchall()
            sizes.append({name: size for name, size, _ in found})
            entries = connection.execute("select count(*) from mempair.ledger").fetchone()
            memory.append(
                {
                    "events": done,
                    "worker, MB": process.memory_info().rss / MEGABYTE,
                    "dead rows": sum(dead for _, _, dead in found),
                    "ledger entries": entries[0] if entries else 0,
                }
            )
    table.drop()
    last = sizes[-1]
    tables = [
        {"table": name, **{str(i + 1): quarter.get(name, 0) / MEGABYTE for i, quarter in enumerate(sizes)}}
        for name in sorted(last, key=lambda name: -last[name])
        if last[name] > MEGABYTE // 8 or name in ("ledger", "receipt", "queue", "learned_keys")
    ]
    return memory, tables


def _waiting(connection: psycopg.Connection[Any], address: str, rows: int) -> dict[str, Any]:
    """Delete nine tenths of a table while nobody works, ask for a retrain, and look at the worker's memory."""
    table = Table(connection, f"waiting{rows}", 10, unlearner="exact")
    for begin in range(0, rows, 100_000):
        table.fill(min(100_000, rows - begin))
    with scratch.worker(address) as process:
        _settle(connection, process, f"waiting{rows}")
    connection.execute(table.format("delete from {} where id %% 10 <> 0 and id <> %s"), [-1])
    connection.execute("select mempair.retrain(%s)", [table.model])
    with scratch.worker(address) as process:
        began = time.monotonic()
        most = _settle(connection, process, f"waiting{rows}")
        seconds = time.monotonic() - began
    served = connection.execute("select count(*) from mempair.receipt").fetchone()
    table.drop()
    return {"waiting": rows - rows // 10, "receipts": served[0] if served else 0, "MB": most, "seconds": seconds}


def _settle(connection: psycopg.Connection[Any], process: psutil.Process, model: str) -> float:
    """Wait until the worker has applied everything; return the most memory seen meanwhile, in MB."""
    most, deadline = 0.0, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        most = max(most, float(process.memory_info().rss) / MEGABYTE)
        row = connection.execute(
            "select s.pending_changes = 0 and m.retrain_requested is null and m.phase <> 'calibrating'"
            " from mempair.model_status s join mempair.model m on m.id = s.model_id where s.model = %s",
            [model],
        ).fetchone()
        if row and row[0]:
            return most
        time.sleep(0.05)
    raise TimeoutError(f"model {model} was not settled within {PATIENCE:.0f} s")
