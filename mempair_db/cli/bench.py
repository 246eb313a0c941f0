"""Measurements: every figure is a ratio from one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mempair_db.cli.common import AsJson, Dsn, group, out

bench_app = group("bench", "Measure: every figure is a ratio from one run.")


Quick = Annotated[bool, typer.Option("--quick", help="Only show that it works.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder with real data; default: scikit-learn's own sets.", show_default=False),
]
Plots = Annotated[Path | None, typer.Option("--plots", help="Draw PNG and SVG into this folder.", show_default=False)]
Only = Annotated[
    str | None, typer.Option("--only", help="One set alone, such as covtype or 'mnist 3v8'.", show_default=False)
]
Seconds = Annotated[float, typer.Option("--seconds", help="How long the load lasts.")]


@bench_app.command("core")
def bench_core(quick: Quick = False, as_json: AsJson = False) -> None:
    """Time per insert and delete against river and scikit-learn."""
    from mempair_db.bench import core  # noqa: PLC0415

    _print(core.run(quick=quick), as_json)


@bench_app.command("picture")
def bench_picture(
    out_file: Annotated[Path, typer.Option("--out", help="The SVG to write.")] = Path("replay-distance.svg"),
) -> None:
    """Draw the distance to the true replay against what is promised."""
    from mempair_db.bench import picture  # noqa: PLC0415

    picture.draw(out_file)


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


@bench_app.command("growth")
def bench_growth(quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """What grows under two million mixed events, and with a million deletions waiting for a retrain."""
    from mempair_db.bench import growth  # noqa: PLC0415

    _print(growth.run(quick=quick, dsn=dsn), as_json)


@bench_app.command("forget")
def bench_forget(quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None, seconds: Seconds = 60.0) -> None:
    """What a deletion costs an exact model, and everybody else's scores; how many per second are sustained."""
    from mempair_db.bench import forget  # noqa: PLC0415

    _print(forget.run(quick=quick, dsn=dsn, seconds=seconds), as_json)


@bench_app.command("fleet")
def bench_fleet(
    quick: Quick = False,
    rows: Annotated[int | None, typer.Option(help="Rows of all shards together; default: 300,000.")] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Three shards on this machine: refresh and verify by Dask workers, bytes of an exchange, a deletion's way."""
    from mempair_db.bench import fleet  # noqa: PLC0415

    _print(fleet.run(quick=quick, dsn=dsn, rows=rows), as_json)


@bench_app.command("ledger")
def bench_ledger(quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """What it costs to write, verify and certify a ledger of a million entries."""
    from mempair_db.bench import ledger  # noqa: PLC0415

    _print(ledger.run(quick=quick, dsn=dsn), as_json)


@bench_app.command("regret")
def bench_regret(quick: Quick = False, as_json: AsJson = False, data: Data = None, plots: Plots = None) -> None:
    """Regret on streams: the Memory Pair against AdaGrad, SGD and the Online Newton Step."""
    from mempair_db.bench import regret  # noqa: PLC0415

    _print(regret.run(folder=data, quick=quick), as_json, plots)


@bench_app.command("quality")
def bench_quality(quick: Quick = False, as_json: AsJson = False, data: Data = None, only: Only = None) -> None:
    """How good an exact model is beside logistic regression, river and boosting, in every order, after deletions."""
    from mempair_db.bench import quality  # noqa: PLC0415

    _print(quality.run(folder=data, quick=quick, only=only), as_json)


@bench_app.command("capacity")
def bench_capacity(quick: Quick = False, as_json: AsJson = False, data: Data = None, plots: Plots = None) -> None:
    """What m deletions cost, against an exact retrain and against the formulas."""
    from mempair_db.bench import capacity  # noqa: PLC0415

    _print(capacity.run(folder=data, quick=quick), as_json, plots)


@bench_app.command("fidelity")
def bench_fidelity(quick: Quick = False, as_json: AsJson = False, data: Data = None, plots: Plots = None) -> None:
    """Distance to the true replay against the bound, and empirical epsilon."""
    from mempair_db.bench import fidelity  # noqa: PLC0415

    _print(fidelity.run(folder=data, quick=quick), as_json, plots)


@bench_app.command("peers")
def bench_peers(quick: Quick = False, as_json: AsJson = False, data: Data = None, plots: Plots = None) -> None:
    """Certified removal, full retrain, shards and exact statistics beside the Memory Pair."""
    from mempair_db.bench import peers  # noqa: PLC0415

    _print(peers.run(folder=data, quick=quick), as_json, plots)


@bench_app.command("scale")
def bench_scale(quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None, plots: Plots = None) -> None:
    """How time and memory grow with events and features."""
    from mempair_db.bench import scale  # noqa: PLC0415

    _print(scale.run(quick=quick, dsn=dsn), as_json, plots)


@bench_app.command("system")
def bench_system(
    quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None, plots: Plots = None, seconds: Seconds = 60.0
) -> None:
    """Several clients write, delete and predict for a while; then every invariant is checked."""
    from mempair_db.bench import system  # noqa: PLC0415

    _print(system.run(quick=quick, dsn=dsn, seconds=seconds), as_json, plots)


def _print(result: dict[str, Any], as_json: bool, pictures: Path | None = None) -> None:
    from mempair_db.bench.report import render  # noqa: PLC0415

    if pictures is not None:
        from mempair_db.bench import plots  # noqa: PLC0415

        plots.write(result, pictures)

    if as_json:
        print(json.dumps(result, indent=2))  # noqa: T201
    else:
        render(result, out)
