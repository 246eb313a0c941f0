"""One model over several databases."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from mempair_db.cli.common import AsJson, Name, app, say, show, show_table, table

fleet_app = typer.Typer(no_args_is_help=True, help="One model over several databases, whose rows stay where they are.")
app.add_typer(fleet_app, name="fleet")
fleet_models = typer.Typer(no_args_is_help=True, help="Declare, change and drop models of the fleet.")
fleet_app.add_typer(fleet_models, name="model")

File = Annotated[Path, typer.Option("--fleet", envvar="MEMPAIR_FLEET", help="The file that says what the fleet is.")]
DEFAULT = Path("fleet.toml")


@fleet_app.command("init")
def fleet_init(file: File = DEFAULT, as_json: AsJson = False) -> None:
    """Install the schema on the coordinator and on every shard, or bring it up to date; and say what they have."""
    from mempair_db.fleet import config, declare  # noqa: PLC0415

    show(declare.init(config.read(file)), as_json)


@fleet_models.command("create")
def fleet_model_create(
    name: Name,
    source: Annotated[str, typer.Argument(metavar="TABLE", help="The source table, of this name on every shard.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    features: Annotated[str, typer.Option(help="Columns to predict from, separated by commas; also 'city:hash:256'.")],
    positive: Annotated[str | None, typer.Option(help="The target's value that counts as yes.")] = None,
    ridge: Annotated[float, typer.Option(help="The ridge of the solution.")] = 10.0,
    curves: Annotated[int | None, typer.Option(help="Knots per number; default: 4 up to 32 numbers.")] = None,
    serve_during_refresh: Annotated[
        bool, typer.Option(help="Predict while a deletion waits for the constants to be checked.")
    ] = True,
    loss: Annotated[
        str | None, typer.Option(help="logistic, classes, squared or huber; default: by the target's type.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="A column of numbers: how much a row counts.")] = None,
    class_weight: Annotated[str | None, typer.Option(help="balanced: each class counts alike.")] = None,
    key: Annotated[str | None, typer.Option(help="Columns of a unique index, if not the primary key.")] = None,
    subject: Annotated[str | None, typer.Option(help="The column that says whose row it is; for receipts.")] = None,
    categories: Annotated[str | None, typer.Option(help='JSON: {"plan": ["basic", "pro"]}')] = None,
    on_null: Annotated[str, typer.Option(help="impute, or skip rows with a missing value.")] = "impute",
    gamma: Annotated[float, typer.Option(help="How much worse than the best it may be when predictions open.")] = 0.1,
    calibration_rows: Annotated[int, typer.Option(help="Rows of all shards together that begin a model.")] = 100,
    keep_receipts: Annotated[str, typer.Option(help="How long receipts are kept.")] = "90 days",
    clip: Annotated[float, typer.Option(help="Where a Huber regression cuts residuals, in deviations.")] = 1.0,
    file: File = DEFAULT,
) -> None:
    """Declare a model on every shard that does not have it yet; `fleet sync` begins it."""
    from mempair_db.fleet import config, declare  # noqa: PLC0415

    given: dict[str, Any] = {k: v for k, v in locals().items() if k not in ("config", "declare", "file", "name")}
    given |= {"features": _listed(features), "key": _listed(key)}
    new = declare.create(config.read(file), name, given)
    say(f"Model {name} is declared on {', '.join(new) or 'every shard already'}.")


@fleet_models.command("alter")
def fleet_model_alter(
    name: Name,
    ridge: Annotated[float | None, typer.Option(help="The ridge of the solution.")] = None,
    curves: Annotated[int | None, typer.Option(help="Knots per number.")] = None,
    serve_during_refresh: Annotated[
        bool | None, typer.Option(help="Predict while a deletion waits for the constants to be checked.")
    ] = None,
    on_null: Annotated[str | None, typer.Option(help="impute, or skip rows with a missing value.")] = None,
    gamma: Annotated[float | None, typer.Option(help="How much worse than the best it may be.")] = None,
    calibration_rows: Annotated[int | None, typer.Option(help="Rows of all shards that begin a model.")] = None,
    keep_receipts: Annotated[str | None, typer.Option(help="How long receipts are kept.")] = None,
    file: File = DEFAULT,
) -> None:
    """Change a model on every shard; the old one serves until `fleet sync` has refreshed all of them."""
    from mempair_db.fleet import config, declare  # noqa: PLC0415

    given = {k: v for k, v in locals().items() if k not in ("config", "declare", "file", "name")}
    due = declare.alter(config.read(file), name, given)
    then = ": the next exchange (`mempair fleet sync`) refreshes all of them" if due else ""
    say(f"Model {name} is changed on every shard{then}.")


@fleet_models.command("drop")
def fleet_model_drop(name: Name, file: File = DEFAULT) -> None:
    """Drop a model on every shard."""
    from mempair_db.fleet import config, declare  # noqa: PLC0415

    declare.drop(config.read(file), name)


@fleet_app.command("sync")
def fleet_sync(
    once: Annotated[bool, typer.Option("--once", help="Exchange once, then end.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two exchanges.")] = 1.0,
    file: File = DEFAULT,
) -> None:
    """Exchange sums between the shards until interrupted; choose, check and refresh the constants they share."""
    from mempair_db.fleet import config, exchange  # noqa: PLC0415

    fleet, stop = config.read(file), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    down: dict[str, str] = {}

    def hear(done: exchange.Exchanged) -> None:
        for note in done.notes:
            say(f"{done.model}: {note}")
        for shard, why in done.down.items():
            if shard not in down:
                said = why if shard in why else f"shard {shard}: {why}"
                say(said)
        for shard in set(down) - set(done.down):
            say(f"shard {shard} is there again")
        down.clear()
        down.update(done.down)

    if not once:
        exchange.run(fleet, every, stop, hear)
        return
    with exchange.exchanging(fleet) as ready:
        for model in ready.known.models():
            hear(ready.once(model.name))
    raise typer.Exit(1 if down else 0)


@fleet_app.command("status")
def fleet_status(file: File = DEFAULT, as_json: AsJson = False) -> None:
    """Show every model on every shard: rows, since when it is down, which deletions are everywhere."""
    from mempair_db.fleet import config, status  # noqa: PLC0415

    show(status.status(config.read(file)), as_json)


@fleet_app.command("refresh")
def fleet_refresh(
    name: Name,
    why: Annotated[str, typer.Option(help="What the ledgers are to say.")] = "requested",
    file: File = DEFAULT,
) -> None:
    """Choose the constants anew from all shards' reference rows, and add everything up under them."""
    from mempair_db.fleet import config, exchange  # noqa: PLC0415
    from mempair_db.fleet.refresh import refresh_fleet  # noqa: PLC0415

    with exchange.exchanging(config.read(file)) as ready:
        done = refresh_fleet(ready.computing, ready.known, name, why)
        ready.once(name)
    said = f"{name} has constants {done.generation}, from {done.references} reference rows of {done.rows} rows."
    say(said)


@fleet_app.command("verify")
def fleet_verify(name: Name, file: File = DEFAULT, as_json: AsJson = False) -> None:
    """Compute a model anew from the tables of all shards, on Dask, and compare every bit; exit code 5: one differs."""
    from mempair_db.fleet import config, exchange  # noqa: PLC0415
    from mempair_db.fleet.verify import verify  # noqa: PLC0415

    with exchange.exchanging(config.read(file)) as ready:
        report = verify(ready, name)
    show_verdict(report, as_json)


@fleet_app.command("export")
def fleet_export(
    name: Name,
    folder: Annotated[Path, typer.Option("--out", help="A new folder that all Dask workers see.")],
    rows: Annotated[bool, typer.Option("--rows", help="Also the surviving rows: personal data.")] = False,
    partition_by: Annotated[str, typer.Option(help="hash:64: the rows of a shard in 64 files, by key.")] = "hash:1",
    file: File = DEFAULT,
) -> None:
    """Export every shard on Dask, each into a folder of its own, with verify.sql for DuckDB."""
    from mempair_db.cli.offline import partitions  # noqa: PLC0415
    from mempair_db.fleet import config, files  # noqa: PLC0415
    from mempair_db.fleet.compute import Computing  # noqa: PLC0415

    parts = partitions(partition_by)
    with Computing(config.read(file)) as computing:
        count = files.export_fleet(computing, name, folder, rows=rows, partitions=parts)
    say(f"{count} rows of {name} in {folder}.")


@fleet_app.command("audit")
def fleet_audit(
    name: Name,
    folder: Annotated[Path | None, typer.Option("--from", help="An export of the fleet with --rows.")] = None,
    file: File = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Compute a model anew from an export of all shards, file by file on Dask; exit code 5 if a claim does not hold."""
    import tempfile  # noqa: PLC0415

    from mempair_db.fleet import config, files  # noqa: PLC0415
    from mempair_db.fleet.compute import Computing  # noqa: PLC0415

    with Computing(config.read(file)) as computing, tempfile.TemporaryDirectory(prefix="mempair-") as temporary:
        if folder is None:
            folder = Path(temporary) / "fleet"
            files.export_fleet(computing, name, folder, rows=True)
        report = files.verify_files(computing, folder, name)
    show_verdict(report, as_json)


def show_verdict(report: Any, as_json: bool) -> NoReturn:
    """Print what was found; exit code 5 if something does not hold."""
    if as_json:
        print(json.dumps(report.to_json(), indent=2, ensure_ascii=False))  # noqa: T201
    else:
        lines = [{"check": c.check, "": "good" if c.fine else "WRONG", "found": c.detail} for c in report.checks]
        show_table(table(lines))
    said = f"is what its {report.rows} rows make of it" if report.fine else "differs from its rows"
    say(f"{report.model} {said}.")
    raise typer.Exit(0 if report.fine else 5)


def _listed(names: str | None) -> list[str] | None:
    return [name.strip() for name in names.split(",")] if names is not None else None
