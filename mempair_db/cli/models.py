"""Models: declare, describe, change, pause, drop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from mempair_db.cli.common import AsJson, Dsn, Name, group, query, rows, say, show
from mempair_db.database.connect import connect
from mempair_db.embedded import server
from mempair_db.errors import InvalidParameter
from mempair_db.pages import shape

model_app = group("model", "Declare, list, describe, change, pause and drop models.", speaks=True)

Certified = "certified models: "
Positive = Annotated[str | None, typer.Option(help="The target's value that counts as yes, if it is not boolean.")]
Unlearner = Annotated[str | None, typer.Option(help="exact, symmetric or passive; default: exact.")]
Epsilon = Annotated[float | None, typer.Option(help=f"{Certified}the deletion guarantee; default: 1.")]
Delta = Annotated[float | None, typer.Option(help=f"{Certified}its other half; default: 1e-6.")]
Lambda = Annotated[float | None, typer.Option("--lambda", help=f"{Certified}ridge; default: chosen at calibration.")]
M = Annotated[int | None, typer.Option("--m", help=f"{Certified}deletions to plan for; default: capacity.")]
CalibrationRows = Annotated[int | None, typer.Option(help="Rows that begin a model; default: 100, certified 500.")]
KeepReceipts = Annotated[str | None, typer.Option(help="How long receipts are kept, such as '90 days'.")]


def _hear(said: psycopg.errors.Diagnostic) -> None:
    hint = f". {said.message_hint}" if said.message_hint else ""
    mark = ("warning", "yellow") if said.severity_nonlocalized == "WARNING" else ()
    say(f"{said.message_primary}{hint}", *mark)


def _listed(names: str | None) -> list[str] | None:
    return [name.strip() for name in names.split(",")] if names is not None else None


@model_app.command("create")
def model_create(
    name: Name,
    table: Annotated[str, typer.Argument(help="The source table, such as public.customers.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    features: Annotated[
        str,
        typer.Option(
            help="Columns to predict from, separated by commas, or JSON; also 'at:cyclical', 'city:hash:256', 'a * b'."
        ),
    ],
    positive: Positive = None,
    unlearner: Unlearner = None,
    ridge: Annotated[float, typer.Option(help="Exact models: the ridge of the solution.")] = 10.0,
    curves: Annotated[
        int | None, typer.Option(help="Exact models: knots per number; default: 4 up to 32 numbers.")
    ] = None,
    serve_during_refresh: Annotated[
        bool, typer.Option(help="Exact models: predict while a deletion waits for the table to be read anew.")
    ] = True,
    loss: Annotated[
        str | None, typer.Option(help="logistic, classes, squared or huber; default: by the target's type.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Exact models: the column that says how much a row counts.")
    ] = None,
    class_weight: Annotated[
        str | None, typer.Option(help="Exact models: balanced, so that all classes count alike.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Columns of a unique index, if not the primary key.")] = None,
    subject: Annotated[str | None, typer.Option(help="The column that says whose row it is; for receipts.")] = None,
    categories: Annotated[str | None, typer.Option(help='JSON: {"plan": ["basic", "pro"]}')] = None,
    on_null: Annotated[
        str, typer.Option(help="impute, or skip: rows with a missing value are not learned.")
    ] = "impute",
    gamma: Annotated[float, typer.Option(help="How much worse than the best it may be when predictions open.")] = 0.1,
    calibration_rows: CalibrationRows = None,
    keep_receipts: KeepReceipts = "90 days",
    backfill: Annotated[bool, typer.Option(help="Learn the rows that are there.")] = True,
    clip: Annotated[float, typer.Option(help="Where a Huber regression cuts residuals, in deviations.")] = 1.0,
    epsilon: Epsilon = None,
    delta: Delta = None,
    lam: Lambda = None,
    m: M = None,
    tau: Annotated[int | None, typer.Option(help=f"{Certified}pairs of the curvature window; default: 10.")] = None,
    kappa: Annotated[float | None, typer.Option(help=f"{Certified}trust region; default: 1.")] = None,
    on_exhausted: Annotated[str, typer.Option(help=f"{Certified}retrain or halt")] = "retrain",
    dsn: Dsn = None,
) -> None:
    """Declare a model on a table; from now on it learns and forgets."""
    parameters: dict[str, Any] = {
        "model_name": name,
        "source": table,
        "target": target,
        "features": features,
        "positive": positive,
        "unlearner": unlearner,
        "ridge": ridge,
        "curves": curves,
        "serve_during_refresh": serve_during_refresh,
        "loss": loss,
        "key": _listed(key),
        "subject": subject,
        "categories": categories,
        "on_null": on_null,
        "gamma": gamma,
        "calibration_rows": calibration_rows,
        "keep_receipts": keep_receipts,
        "backfill": backfill,
        "clip": clip,
        "epsilon": epsilon,
        "delta": delta,
        "lambda": lam,
        "m": m,
        "tau": tau,
        "kappa": kappa,
        "on_exhausted": on_exhausted,
        "weight": weight,
        "class_weight": class_weight,
    }
    with connect(server.ensure(dsn)) as connection:
        connection.add_notice_handler(_hear)
        connection.execute(query("create_model"), parameters)
    say(f"Model {name} is declared on {table}.")


@model_app.command("alter")
def model_alter(
    name: Name,
    unlearner: Unlearner = None,
    ridge: Annotated[float | None, typer.Option(help="Exact models: the ridge of the solution.")] = None,
    curves: Annotated[int | None, typer.Option(help="Exact models: knots per number.")] = None,
    serve_during_refresh: Annotated[
        bool | None, typer.Option(help="Exact models: predict while a deletion waits for the table to be read anew.")
    ] = None,
    on_null: Annotated[str | None, typer.Option(help="impute or skip")] = None,
    gamma: Annotated[float | None, typer.Option(help="How much worse than the best it may be.")] = None,
    calibration_rows: CalibrationRows = None,
    keep_receipts: KeepReceipts = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    lam: Lambda = None,
    m: M = None,
    on_exhausted: Annotated[str | None, typer.Option(help=f"{Certified}retrain or halt")] = None,
    dsn: Dsn = None,
) -> None:
    """Change parameters; the old model serves until the new one is ready."""
    parameters: dict[str, Any] = {
        "model_name": name,
        "unlearner": unlearner,
        "ridge": ridge,
        "curves": curves,
        "serve_during_refresh": serve_during_refresh,
        "on_null": on_null,
        "gamma": gamma,
        "calibration_rows": calibration_rows,
        "keep_receipts": keep_receipts,
        "epsilon": epsilon,
        "delta": delta,
        "lambda": lam,
        "m": m,
        "on_exhausted": on_exhausted,
    }
    if all(value is None for field, value in parameters.items() if field != "model_name"):
        raise InvalidParameter("Nothing is to be changed.", remedy="Name a parameter, such as --ridge 30.", whole=True)
    with connect(server.ensure(dsn)) as connection:
        connection.add_notice_handler(_hear)
        connection.execute(query("alter_model"), parameters)


@model_app.command("describe")
def model_describe(name: Name, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show all about a model: what it predicts from what, its parameters, where it stands."""
    (described,) = rows(dsn, "describe_model", name=name)
    known = {field: value for field, value in described.items() if value not in (None, "")}
    show([known] if as_json else [{"field": field, "value": value} for field, value in known.items()], as_json)


@model_app.command("curve")
def model_curve(
    name: Name,
    feature: Annotated[str, typer.Argument(help="A feature, by the name that mempair.coefficients gives it.")],
    out: Annotated[Path | None, typer.Option(help="Draw it, as an SVG file; otherwise a table.")] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show the shape of a feature: what each of its values adds to the score."""
    found = rows(dsn, "curve", name=name, feature=feature)
    if out is None:
        show(found, as_json)
        return
    out.write_text(shape.picture(name, feature, found), encoding="utf-8")
    say(f"{out} has the shape of {feature}.")


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
    say(f"Model {name} is dropped.")


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
