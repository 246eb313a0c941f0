"""The command line: one function per command. Data goes to stdout, talk to stderr.

Exit codes: 0 fine, 1 failed, 2 usage, 3 not installed, 4 exhausted, 5 verification failed.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import time
from typing import Annotated, Any

import psycopg
import typer
from psycopg.rows import dict_row
from rich.console import Console
from rich.live import Live
from rich.table import Table

from mempair_db import binaries, errors, server
from mempair_db.catalog import install as schema
from mempair_db.catalog.connect import connect

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Postgres tables that learn on INSERT and provably forget on DELETE.",
)
model_app = typer.Typer(no_args_is_help=True, help="Declare, list, pause and drop models.")
odometer_app = typer.Typer(no_args_is_help=True, help="The ledger of what was learned, forgotten and spent.")
sql_app = typer.Typer(no_args_is_help=True, help="Print SQL for a database administrator.")
bench_app = typer.Typer(no_args_is_help=True, help="Measure: every figure is a ratio from one run.")
app.add_typer(model_app, name="model")
app.add_typer(odometer_app, name="odometer")
app.add_typer(sql_app, name="sql")
app.add_typer(bench_app, name="bench")

out = Console()
talk = Console(stderr=True)

Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn", help="Database; default MEMPAIR_DSN, libpq's variables, or the embedded server.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Name = Annotated[str, typer.Argument(help="The model's name.")]


def main() -> None:
    """Run a command and turn errors into messages and exit codes."""
    try:
        app()
    except errors.MempairError as error:
        talk.print(f"[red]error[/red] {error}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error).strip()
        hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
        talk.print(f"[red]error[/red] {text}{hint}", highlight=False, soft_wrap=True)
        sys.exit(1)


# -- getting started ----------------------------------------------------------------------------------------------


@app.command()
def demo(dsn: Dsn = None) -> None:
    """Show the main job on the embedded server: learn, predict, forget, prove."""
    from mempair_db.demo import run  # noqa: PLC0415 - numba takes a moment to import

    run(dsn, out)


@app.command()
def up() -> None:
    """Start the embedded server and print its DSN."""
    print(server.Server().start())  # noqa: T201


@app.command()
def down() -> None:
    """Stop the embedded server; its data stays."""
    server.Server().stop()
    talk.print("The embedded server is stopped; `mempair up` starts it again.")


@app.command()
def psql(dsn: Dsn = None) -> None:
    """Open psql on the database."""
    program = shutil.which("psql") or str(binaries.find().folder / "psql")
    os.execv(program, ["psql", server.ensure(dsn)])  # noqa: S606


@app.command()
def install(dsn: Dsn = None) -> None:
    """Install schema mempair, or bring it up to date."""
    schema.install(server.ensure(dsn))
    talk.print("Schema mempair is installed.")


@app.command()
def uninstall(dsn: Dsn = None, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Remove schema mempair, its triggers and everything learned. Your tables stay."""
    if not yes:
        typer.confirm("Remove all models, their ledgers and the schema mempair?", abort=True, err=True)
    schema.uninstall(server.ensure(dsn))
    talk.print("Schema mempair is removed.")


@sql_app.command("install")
def sql_install() -> None:
    """Print what `mempair install` does to an empty database."""
    print(schema.script())  # noqa: T201


# -- models -------------------------------------------------------------------------------------------------------


@model_app.command("create")
def model_create(
    name: Name,
    table: Annotated[str, typer.Argument(help="The source table, such as public.customers.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    features: Annotated[str, typer.Option(help="Columns to predict from, separated by commas.")],
    positive: Annotated[str | None, typer.Option(help="The target's positive value, if it is not boolean.")] = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    gamma: float = 0.1,
    lam: Annotated[float | None, typer.Option("--lambda", help="Ridge; default: chosen at calibration.")] = None,
    m: Annotated[int | None, typer.Option(help="Deletions to plan for; default: capacity.")] = None,
    calibration_rows: int = 500,
    on_null: Annotated[str, typer.Option(help="skip or impute")] = "skip",
    on_exhausted: Annotated[str, typer.Option(help="retrain or halt")] = "retrain",
    unlearner: Annotated[str, typer.Option(help="symmetric or passive")] = "symmetric",
    categories: Annotated[str | None, typer.Option(help='JSON: {"plan": ["basic", "pro"]}')] = None,
    dsn: Dsn = None,
) -> None:
    """Declare a model on a table; from now on it learns and forgets."""
    parameters = {
        "model_name": name,
        "source": table,
        "target": target,
        "features": [feature.strip() for feature in features.split(",")],
        "positive": positive,
        "epsilon": epsilon,
        "delta": delta,
        "gamma": gamma,
        "lambda": lam,
        "m": m,
        "calibration_rows": calibration_rows,
        "on_null": on_null,
        "on_exhausted": on_exhausted,
        "unlearner": unlearner,
        "categories": categories,
    }
    with connect(server.ensure(dsn)) as connection:
        connection.execute(_query("create_model"), parameters)
    talk.print(f"Model {name} is declared on {table}; `mempair worker` teaches it.", highlight=False)


@model_app.command("list")
def model_list(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the models."""
    _show(_rows(dsn, "model_list"), as_json)


@model_app.command("drop")
def model_drop(
    name: Name, keep_ledger: Annotated[bool, typer.Option("--keep-ledger")] = False, dsn: Dsn = None
) -> None:
    """Remove a model, its triggers and what it learned."""
    with connect(server.ensure(dsn)) as connection:
        connection.execute(_query("drop_model"), {"name": name, "keep": keep_ledger})
    talk.print(f"Model {name} is dropped.", highlight=False)


@model_app.command("pause")
def model_pause(name: Name, dsn: Dsn = None) -> None:
    """Stop learning and forgetting for a while; changes are still captured."""
    with connect(server.ensure(dsn)) as connection:
        connection.execute(_query("pause_model"), {"name": name})


@model_app.command("resume")
def model_resume(name: Name, dsn: Dsn = None) -> None:
    """Go on after a pause or a failure."""
    with connect(server.ensure(dsn)) as connection:
        connection.execute(_query("resume_model"), {"name": name})


# -- work ---------------------------------------------------------------------------------------------------------


@app.command()
def worker(
    once: Annotated[bool, typer.Option("--once", help="Apply what is waiting, then end.")] = False,
    model: Annotated[str | None, typer.Option(help="Work on one model only.")] = None,
    idle: Annotated[float, typer.Option(help="Longest pause between looks, in seconds.")] = 0.2,
    dsn: Dsn = None,
) -> None:
    """Apply captured changes: learn, unlearn, retrain. Run as many as you like."""
    from mempair_db.worker.loop import Worker  # noqa: PLC0415 - numba takes a moment to import

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    address = server.ensure(dsn)
    process = Worker(address, model_id=_model_id(address, model), idle=idle)
    signal.signal(signal.SIGTERM, lambda *_: process.stop())
    signal.signal(signal.SIGINT, lambda *_: process.stop())
    if once:
        process.run_once()
    else:
        process.run()


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until interrupted.")] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show every model: where it stands, what waits, what is spent."""
    address = server.ensure(dsn)
    if not watch:
        _show(_rows(address, "status"), as_json)
        return
    with Live(console=out, screen=False, auto_refresh=False) as live:
        while True:
            live.update(_table(_rows(address, "status")), refresh=True)
            time.sleep(1.0)


@app.command()
def retrain(name: Name, dsn: Dsn = None) -> None:
    """Retrain a model exactly, now: a replay of the surviving rows, with a full budget afterwards."""
    from mempair_db.worker import batch  # noqa: PLC0415
    from mempair_db.worker.retrain import retrain as replay  # noqa: PLC0415

    address = server.ensure(dsn)
    model_id = _model_id(address, name)
    with connect(address, autocommit=True) as connection, talk.status(f"Retraining {name} ..."):
        batch.prepare(connection)
        outcome = replay(connection, model_id or 0, "requested")
    for note in outcome.notes or [f"another worker is busy with {name}, or it is paused"]:
        talk.print(note, highlight=False)


@app.command()
def purge(dsn: Dsn = None) -> None:
    """Physically erase applied changes from the queue tables."""
    from mempair_db.worker import batch  # noqa: PLC0415
    from mempair_db.worker.purge import purge as erase  # noqa: PLC0415

    with connect(server.ensure(dsn), autocommit=True) as connection:
        batch.prepare(connection)
        for model_id, name in connection.execute(_query("model_ids")).fetchall():
            done = erase(connection, model_id)
            talk.print(
                f"{name}: {'erased' if done else 'changes are waiting; run the worker, then purge again'}",
                highlight=False,
            )


# -- evidence -----------------------------------------------------------------------------------------------------


@app.command()
def receipt(name: Name, key: Annotated[str, typer.Argument(help="The deleted row's key.")], dsn: Dsn = None) -> None:
    """Print the receipt of a deletion as JSON."""
    with connect(server.ensure(dsn)) as connection:
        row = connection.execute(_query("receipt"), {"name": name, "key": key}).fetchone()
    print(json.dumps(row[0] if row else None, indent=2, ensure_ascii=False))  # noqa: T201


@odometer_app.command("show")
def odometer_show(
    name: Name,
    last: Annotated[int, typer.Option(help="Newest entries to show.")] = 20,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest entries of a model's ledger."""
    _show(_rows(dsn, "odometer", name=name, last=last), as_json)


@odometer_app.command("verify")
def odometer_verify(name: Name, dsn: Dsn = None) -> None:
    """Check the ledger's chain; exit code 5 if it does not hold."""
    rows = _rows(dsn, "verify_odometer", name=name)
    for row in rows:
        talk.print(" ".join(str(value) for value in row.values()), highlight=False)


# -- benchmarks ---------------------------------------------------------------------------------------------------


@bench_app.command("core")
def bench_core(quick: Annotated[bool, typer.Option("--quick")] = False, as_json: AsJson = False) -> None:
    """Time per insert and delete against river and scikit-learn."""
    from mempair_db.bench import core  # noqa: PLC0415

    result = core.run(quick=quick)
    print(json.dumps(result, indent=2)) if as_json else core.render(result, out)  # noqa: T201


# -- inside -------------------------------------------------------------------------------------------------------


def _query(name: str) -> str:
    from mempair_db.catalog.queries import query  # noqa: PLC0415

    return query(f"cli_{name}")


def _rows(dsn: str | None, statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
    with connect(server.ensure(dsn)) as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_query(statement), parameters).fetchall()


def _model_id(dsn: str, name: str | None) -> int | None:
    """Look a model up; an unknown name is an error with a suggestion."""
    if name is None:
        return None
    return int(_rows(dsn, "find_model", name=name)[0]["id"])


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2, default=str, ensure_ascii=False))  # noqa: T201
    elif rows:
        out.print(_table(rows))
    else:
        talk.print("Nothing to show.")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(*(rows[0].keys() if rows else ()), box=None, header_style="bold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    return table
