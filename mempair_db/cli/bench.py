"""Measurements: every figure is a ratio from one run."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from mempair_db.cli.common import AsJson, Dsn, group, out

bench_app = group("bench", "Measure: every figure is a ratio from one run.")


Quick = Annotated[bool, typer.Option("--quick", help="Only show that it works.")]


@bench_app.command("core")
def bench_core(quick: Quick = False, as_json: AsJson = False) -> None:
    """Time per insert and delete against river and scikit-learn."""
    from mempair_db.bench import core  # noqa: PLC0415

    _print(core.run(quick=quick), as_json)


@bench_app.command("sql")
def bench_sql(quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """What capture costs a writer, and predictions a reader."""
    from mempair_db.bench import sql  # noqa: PLC0415

    _print(sql.run(quick=quick, dsn=dsn), as_json)


@bench_app.command("worker")
def bench_worker(quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Events applied per second, latency of a deletion, cost of an exact retrain."""
    from mempair_db.bench import worker  # noqa: PLC0415

    _print(worker.run(quick=quick, dsn=dsn), as_json)


@bench_app.command("ledger")
def bench_ledger(quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """What it costs to write, verify and certify a ledger of a million entries."""
    from mempair_db.bench import ledger  # noqa: PLC0415

    _print(ledger.run(quick=quick, dsn=dsn), as_json)


def _print(result: dict[str, Any], as_json: bool) -> None:
    from mempair_db.bench.report import render  # noqa: PLC0415

    if as_json:
        print(json.dumps(result, indent=2))  # noqa: T201
    else:
        render(result, out)
