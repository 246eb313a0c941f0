"""Export and replay of a million rows against a binary COPY of the same rows; leave-one-out audits on both cores."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from mempair_db.bench import report, scratch
from mempair_db.bench.report import Result
from mempair_db.database.queries import query
from mempair_db.measure import leave_one_out, replay
from mempair_db.offline.export import export
from mempair_db.offline.folder import Offline, read
from mempair_db.worker.loop import Worker

D = 10
MOST = 3.0
"""Goal: export and replay together, as a multiple of the COPY."""


def run(*, quick: bool = False, dsn: str | None = None) -> Result:
    """Measure, in turns so that a busy moment hits all contestants."""
    rows, repeats = (20_000, 1) if quick else (1_000_000, 3)
    with scratch.database(dsn) as address, tempfile.TemporaryDirectory(prefix="mempair-bench-") as temporary:
        with psycopg.connect(address, autocommit=True) as connection:
            table = scratch.Table(connection, "numbers", D)
            for _ in range(0, rows, 100_000):
                table.fill(min(rows, 100_000))
            Worker(address).run_once()
            connection.execute("vacuum analyze numbers")
            connection.execute("vacuum analyze mempair.learned_keys")
            seconds = _in_turns(connection, address, Path(temporary), repeats)
        model = read(Path(temporary) / "export")
        exact = replay.compare(model).exact
        audits = _audits(model, 4 if quick else 16, repeats)
    both = seconds["export"] + seconds["replay"]
    return {
        "bench": "replay",
        "quick": quick,
        "machine": report.machine(),
        "tables": [
            {"title": f"{rows:,} rows, d = {D}", "rows": _rows(rows, seconds, both)},
            {"title": "Leave-one-out audits", "rows": audits},
        ],
        "goals": [
            report.goal("export and replay against a binary COPY of the table", both / seconds["COPY"], most=MOST),
            report.goal("the replay equals the live state bit for bit", float(exact), least=1.0),
        ],
        "notes": ["The COPY has the table's columns as they are; the export has key, encoded arrays, target and tick."],
    }


def _rows(rows: int, seconds: dict[str, float], both: float) -> list[dict[str, Any]]:
    named = {**seconds, "export and replay": both}
    return [
        {"what": name, "seconds": s, "rows a second": rows / s, "against COPY": s / seconds["COPY"]}
        for name, s in named.items()
    ]


def _in_turns(connection: psycopg.Connection[Any], address: str, folder: Path, repeats: int) -> dict[str, float]:
    """Time COPY, export and replay; the last export stays in `folder`/export."""
    number = 0

    def write() -> None:
        nonlocal number
        number += 1
        export(address, folder / f"export-{number}", rows=True)

    same = (
        query("offline_rows")
        .replace("{source}", "numbers")
        .replace("{model}", "1")
        .format(**{f: f"mempair.{f}_1" for f in ("key", "x", "c", "y")})
    )
    contestants: dict[str, Callable[[], object]] = {
        "COPY": lambda: _drain(connection, "copy numbers to stdout (format binary)"),
        "COPY of what is exported": lambda: _drain(connection, f"copy ({same}) to stdout (format binary)"),
        "export": write,
        "replay": lambda: replay.ideal(read(folder / f"export-{number}")),
    }
    found = report.side_by_side({name: report.timed(1, work) for name, work in contestants.items()}, repeats)
    (folder / f"export-{number}").rename(folder / "export")
    return found


def _drain(connection: psycopg.Connection[Any], statement: str) -> int:
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        return sum(len(block) for block in copy)


def _audits(model: Offline, count: int, repeats: int) -> list[dict[str, Any]]:
    """Time leave-one-out replays with one thread and with as many as there are cores."""
    cores = os.cpu_count() or 1
    ticks = leave_one_out.candidates(model, count)
    contestants: dict[str, report.Contestant] = {
        f"{n} thread{'s' if n > 1 else ''}": _timed(model, ticks, n) for n in sorted({1, cores})
    }
    found = report.side_by_side(contestants, repeats)
    alone = found["1 thread"]
    return [
        {"what": name, "rows left out": len(ticks), "audits a second": len(ticks) / s, "against one thread": alone / s}
        for name, s in found.items()
    ]


def _timed(model: Offline, ticks: dict[int, str], threads: int) -> report.Contestant:
    def seconds() -> float:
        start = time.perf_counter()
        leave_one_out.leave_out(model, ticks, threads=threads)
        return time.perf_counter() - start

    return seconds
