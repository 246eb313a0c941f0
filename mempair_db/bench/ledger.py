"""`mempair bench ledger`: what it costs to write, verify and certify a ledger.

write    hashing and COPY of entries, against COPY of the same rows with hashes that were made before
verify   in Postgres, in Python over a connection, and from Parquet, each against reading the same rows the same way
proof    one inclusion proof, and the check of it
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import duckdb
import psycopg

from mempair_db.bench.report import Result, goal, machine, render
from mempair_db.bench.scratch import Table, database
from mempair_db.ledger import merkle, verify
from mempair_db.ledger.append import Ledger

__all__ = ["render", "run"]

ENTRIES: Final = 1_000_000
CHUNK: Final = 50_000
AT: Final = datetime(2026, 1, 1, tzinfo=timezone.utc)
TAG: Final = bytes(range(32))


def run(*, quick: bool = False, dsn: str | None = None) -> Result:
    """Measure everything; `quick` only shows that it works."""
    at, entries = machine(), 2_000 if quick else ENTRIES
    with database(dsn) as scratch, psycopg.connect(scratch, autocommit=True) as connection:
        Table(connection, "bench", 1)
        written = _write(connection, entries)
        connection.execute("vacuum analyze mempair.ledger")
        verified, leaves = _verify(scratch, entries)
    proof = _proof(leaves)
    return {
        "bench": "ledger",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": f"Write {entries:,} entries", "rows": [written]},
            {"title": f"Verify {entries:,} entries", "rows": verified},
            {"title": f"Prove one entry of {entries:,}", "rows": [proof]},
        ],
        "goals": [goal(f"seconds to verify, {row['where']}", row["seconds"], most=15.0) for row in verified],
        "notes": [],
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _write(connection: psycopg.Connection[Any], entries: int) -> dict[str, Any]:
    """Enter deletions, as many as fit into a transaction each; then the same rows once more, hashed already."""
    ledger = Ledger(1, AT)

    def write() -> None:
        ledger.append("calibrated", epoch=1, clock=0, rows=1, rho_cap=10**15, detail="bench")
        for entry in range(1, entries):
            spent = 1000 * entry
            ledger.append("unlearned", epoch=1, clock=0, rows=1, rho=1000, rho_spent=spent, rho_cap=10**15, tag=TAG)
            if len(ledger) == CHUNK or entry == entries - 1:
                ledger.write(connection)

    hashed = _seconds(write)
    connection.execute(
        "update mempair.state set epoch = 1, spent = %s, cap = 1000000000000000, deletions = %s where model_id = 1",
        [1000 * (entries - 1), entries - 1],
    )
    connection.execute("create table plain (like mempair.ledger including constraints including indexes)")
    rows = connection.execute("select * from mempair.ledger order by seq").fetchall()

    def copy() -> None:
        for first in range(0, entries, CHUNK):
            with connection.cursor().copy("copy plain from stdin") as output:
                for row in rows[first : first + CHUNK]:
                    output.write_row(row)

    plain = _seconds(copy)
    return {"seconds": hashed, "µs per entry": 1e6 * hashed / entries, "COPY alone, s": plain, "ratio": hashed / plain}


def _verify(dsn: str, entries: int) -> tuple[list[dict[str, Any]], list[bytes]]:
    leaves: list[bytes] = []
    found = []
    with psycopg.connect(dsn) as connection, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.parquet"
        ((_, _, counters),) = verify.find(connection, "bench")

        def server() -> None:
            assert connection.execute("select * from mempair.verify_odometer('bench')").fetchall() == []  # noqa: S101

        def python() -> None:
            assert verify.verify_rows(verify.ledger_rows(connection, 1), counters=counters).entries == entries  # noqa: S101

        def parquet() -> None:
            assert verify.verify_parquet(file, counters=counters).problem is None  # noqa: S101

        read = {
            "Postgres": _seconds(
                lambda: connection.execute("select sum(length(l::text)) from mempair.ledger l").fetchall()
            ),
            "Python, connected": _seconds(lambda: _drain(verify.ledger_rows(connection, 1))),
        }
        leaves.extend(merkle.leaf_hash(row.body) for row in verify.ledger_rows(connection, 1))
        _export(connection, file)
        read["Python, Parquet file"] = _seconds(lambda: _drain(verify.parquet_rows(file)))
        for (where, base), work in zip(read.items(), (server, python, parquet), strict=True):
            seconds = _seconds(work)
            found.append({"where": where, "seconds": seconds, "reading alone, s": base, "ratio": seconds / base})
    return found, leaves


def _drain(rows: Any) -> None:
    for _ in rows:
        pass


def _export(connection: psycopg.Connection[Any], file: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415

    columns = ", ".join(f'"{column}"' for column in verify.COLUMNS)
    rows = connection.execute(f"select {columns} from mempair.ledger order by model_id, seq").fetchall()  # noqa: S608
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(verify.COLUMNS)})
    with duckdb.connect() as duck:
        duck.register("ledger", table)
        duck.execute(f"copy ledger to '{file}' (format parquet)")


def _proof(leaves: list[bytes]) -> dict[str, Any]:
    root = merkle.Tree(leaves).root()
    index, proof = len(leaves) // 3, []

    def make() -> None:
        proof.extend(merkle.inclusion_proof(leaves, index))

    made = _seconds(make)
    checked = _seconds(lambda: merkle.included(leaves[index], index, len(leaves), proof, root))
    return {"make, s": made, "hashes": len(proof), "check, µs": 1e6 * checked}
