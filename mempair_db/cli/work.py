"""The worker and what it can be asked to do."""

from __future__ import annotations

import signal
import time
from typing import Annotated, Any

import typer
from psycopg.errors import InsufficientPrivilege
from rich.console import Group
from rich.live import Live
from rich.text import Text

from mempair_db import errors
from mempair_db.cli.common import AsJson, Dsn, Name, app, messages, model_id, out, query, rows, say, show, table
from mempair_db.database.connect import connect
from mempair_db.embedded import server


@app.command()
def worker(
    once: Annotated[bool, typer.Option("--once", help="Apply what is waiting, then end.")] = False,
    model: Annotated[str | None, typer.Option(help="Work on one model only.")] = None,
    idle: Annotated[float, typer.Option(help="Longest pause between looks, in seconds.")] = 0.2,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics on this port.", min=0, max=65535)
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address to serve them on.")] = "127.0.0.1",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON lines.")] = False,
    dsn: Dsn = None,
) -> None:
    """Apply captured changes: learn, unlearn, retrain. Run as many as you like."""
    from mempair_db.database.ahead import compile_meanwhile  # noqa: PLC0415 - numba takes a moment to import
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415
    from mempair_db.worker import logs  # noqa: PLC0415
    from mempair_db.worker.loop import Worker  # noqa: PLC0415
    from mempair_db.worker.metrics import Metrics  # noqa: PLC0415

    logs.configure(as_json=log_json)
    address = server.ensure(dsn)
    try:
        metrics = Metrics(metrics_port, metrics_host) if metrics_port is not None else None
    except OSError as error:
        raise errors.InvalidParameter(
            f"Metrics cannot be served on {metrics_host}:{metrics_port}: {error.strerror}.",
            remedy="Choose another --metrics-port; 0 takes a free one.",
            whole=True,
        ) from error
    bars = shown_on(messages, after=1.0) if messages.is_terminal and not log_json else None
    number = model_id(address, model)
    process = Worker(lambda: server.ensure(dsn), model_id=number, idle=idle, metrics=metrics, bars=bars)
    signal.signal(signal.SIGTERM, lambda *_: process.stop())
    signal.signal(signal.SIGINT, lambda *_: process.stop())
    if once:
        failed = process.run_once()
        for name, why in failed.items():
            say(f"model {name} failed: {why}", "error", "red")
        raise typer.Exit(1 if failed else 0)
    compile_meanwhile()
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
        found = rows(address, "status" if as_json else "status_short")
        if as_json or not found or not out.is_terminal:
            show(found, as_json)
        else:
            out.print(_standing(found))
    else:
        with Live(console=out, screen=False, auto_refresh=False) as live:
            while True:
                live.update(_standing(rows(address, "status_short")), refresh=True)
                time.sleep(1.0)


def _standing(models: list[dict[str, Any]]) -> Group:
    """Return the models as a table that fits a terminal: why they stand where they stand is below it."""
    told = {"reason", *(name for name in ("to forget", "since") if not any(model[name] for model in models))}
    reasons = [Text(f"{model['model']}: {model['reason']}") for model in models if model["reason"]]
    short = [{name: value for name, value in model.items() if name not in told} for model in models]
    return Group(table(short), *reasons)


@app.command()
def health(
    silence: Annotated[float, typer.Option(help="Seconds after which a silent worker counts as gone.")] = 60.0,
    patience: Annotated[float, typer.Option(help="Seconds a deletion may wait.")] = 3600.0,
    dsn: Dsn = None,
) -> None:
    """Exit with 0 if a worker is alive, no model has failed and no deletion waits too long; else say what is wrong."""
    problems = rows(dsn, "health", silence=silence, patience=patience)
    for row in problems:
        say(row["problem"])
    raise typer.Exit(1 if problems else 0)


@app.command()
def retrain(name: Name, dsn: Dsn = None) -> None:
    """Retrain a model exactly, now: a replay of the surviving rows, with a full budget afterwards."""
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415
    from mempair_db.worker import batch  # noqa: PLC0415
    from mempair_db.worker.retrain import retrain as replay  # noqa: PLC0415

    address = server.ensure(dsn)
    try:
        number = model_id(address, name) or 0
    except InsufficientPrivilege:  # an operator's right is to ask for it
        rows(address, "retrain", name=name, reason=None)
        say(f"A worker will retrain {name}.")
        return
    with connect(address, autocommit=True) as connection:
        batch.prepare(connection)
        outcome = replay(connection, number, "requested", dsn=address, bars=shown_on(messages))
    for note in outcome.notes or [f"another worker has {name} at the moment: try again"]:
        say(note)


@app.command()
def reconcile(
    name: Name,
    repair: Annotated[bool, typer.Option("--repair", help="Enqueue, put right, or retrain what was found.")] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Compare what a model has learned with its table; exit code 5 if they differ and are not repaired."""
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415
    from mempair_db.verify.checks import escaped_updates  # noqa: PLC0415

    address = server.ensure(dsn)
    updated = escaped_updates(address, model_id(address, name) or 0, shown_on(messages))
    with messages.status(Text(f"Comparing {name} with its table ...")):
        findings = rows(address, "reconcile", name=name, repair=repair)
    if updated:
        what = (
            f"rows that were updated and never captured: {', '.join(updated[:10])}{' …' if len(updated) > 10 else ''}"
        )
        findings.append({"finding": what, "rows": len(updated), "remedy": "served by an exact retrain"})
    if updated and repair:
        with connect(address) as connection:
            connection.execute(query("retrain"), {"name": name, "reason": f"{len(updated)} updates escaped capture"})
    if findings or as_json:
        show(findings, as_json)
    else:
        say(f"{name} has learned exactly what its table holds.")
    raise typer.Exit(5 if findings and not repair else 0)


@app.command()
def backfill(
    name: Name,
    chunk: Annotated[int | None, typer.Option(help="Blocks per transaction; by default a hundredth of all.")] = None,
    dsn: Dsn = None,
) -> None:
    """Enqueue the rows that are in the table but not learned, a chunk at a time, while others go on writing."""
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415

    enqueued = 0
    with connect(server.ensure(dsn), autocommit=True) as connection:
        parts = connection.execute(query("parts"), {"name": name}).fetchall()
        total = sum(blocks for _, blocks, _ in parts)
        rows_guessed = round(sum(blocks * density for _, blocks, density in parts))
        chunk = chunk or max(1_000, total // 100)  # every transaction looks through all learned keys
        with shown_on(messages)(f"Rows looked through for {name}, about", max(rows_guessed, 1)) as advance:
            for relation, blocks, density in parts:
                for first in range(0, blocks, chunk):
                    values = {"name": name, "relation": relation, "first": first, "blocks": chunk}
                    row = connection.execute(query("backfill"), values).fetchone()
                    enqueued += row[0] if row else 0
                    advance(round(min(chunk, blocks - first) * density))
    done = f"{enqueued} rows enqueued; a worker learns them." if enqueued else "No row is missing: nothing to enqueue."
    say(done)


@app.command()
def purge(
    full: Annotated[bool, typer.Option("--full", help="Rewrite the other tables too; locks them meanwhile.")] = False,
    dsn: Dsn = None,
) -> None:
    """Physically erase applied changes from the queue tables; with --full also deleted keys and old models."""
    from mempair_db.worker import batch  # noqa: PLC0415
    from mempair_db.worker.purge import purge as erase  # noqa: PLC0415
    from mempair_db.worker.purge import rewrite  # noqa: PLC0415

    with connect(server.ensure(dsn), autocommit=True) as connection:
        batch.prepare(connection)
        for number, name in connection.execute(query("model_ids")).fetchall():
            done = erase(connection, number)
            say(
                f"{name}: {'erased' if done else 'changes are waiting; run the worker, then purge again'}",
            )
        if full:
            with messages.status("Rewriting tables ..."):
                rewrite(connection)
