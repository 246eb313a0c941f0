"""Models: declare, list, pause, drop."""

from __future__ import annotations

from typing import Annotated

import typer

from mempair_db.cli.common import AsJson, Dsn, Name, group, messages, query, rows, show
from mempair_db.database.connect import connect
from mempair_db.embedded import server

model_app = group("model", "Declare, list, pause and drop models.")


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
    subject: Annotated[str | None, typer.Option(help="The column that says whose row it is; for receipts.")] = None,
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
        "subject": subject,
    }
    with connect(server.ensure(dsn)) as connection:
        connection.execute(query("create_model"), parameters)
    messages.print(f"Model {name} is declared on {table}; `mempair worker` teaches it.", highlight=False)


@model_app.command("list")
def model_list(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the models."""
    show(rows(dsn, "model_list"), as_json)


@model_app.command("drop")
def model_drop(
    name: Name, keep_ledger: Annotated[bool, typer.Option("--keep-ledger")] = False, dsn: Dsn = None
) -> None:
    """Remove a model, its triggers and what it learned."""
    with connect(server.ensure(dsn)) as connection:
        connection.execute(query("drop_model"), {"name": name, "keep": keep_ledger})
    messages.print(f"Model {name} is dropped.", highlight=False)


@model_app.command("pause")
def model_pause(name: Name, dsn: Dsn = None) -> None:
    """Stop learning and forgetting for a while; changes are still captured."""
    with connect(server.ensure(dsn)) as connection:
        connection.execute(query("pause_model"), {"name": name})


@model_app.command("resume")
def model_resume(name: Name, dsn: Dsn = None) -> None:
    """Go on after a pause or a failure."""
    with connect(server.ensure(dsn)) as connection:
        connection.execute(query("resume_model"), {"name": name})
