"""Away from production: export, replay, and the ledger's views for DuckDB."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from mempair_db.cli.bench import Quick, bench_app
from mempair_db.cli.bench import _print as print_result
from mempair_db.cli.common import AsJson, Dsn, app, messages, out, say, show
from mempair_db.cli.evidence import KeyFile, PublicKeys, trusted
from mempair_db.cli.start import sql_app
from mempair_db.database.connect import connect
from mempair_db.embedded import server
from mempair_db.errors import InvalidParameter
from mempair_db.ledger import checkpoints, keys

MaybeName = Annotated[str | None, typer.Argument(help="The model's name; may be left out if there is only one.")]
From = Annotated[
    Path | None,
    typer.Option("--from", help="Work on an export made with --rows instead of the database.", show_default=False),
]


def address(dsn: str | None, folder: Path | None) -> str:
    """Return the database's address; an export needs none."""
    return "" if folder is not None else server.ensure(dsn)


def partitions(given: str) -> int:
    """Read `hash:64`."""
    kind, _, count = given.partition(":")
    if kind != "hash" or not count.isdigit() or not 1 <= int(count) <= 10_000:
        raise InvalidParameter(
            f"--partition-by cannot be {given!r}.", remedy="hash:64 makes 64 files, by the rows' keys."
        )
    return int(count)


@app.command()
def export(
    folder: Annotated[Path, typer.Option("--out", help="A new folder.")],
    name: Annotated[str | None, typer.Argument(help="The model's name; default: all models.")] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Also the surviving rows: personal data.")] = False,
    route: Annotated[str | None, typer.Option(help="adbc: never use DuckDB's postgres extension.")] = None,
    partition_by: Annotated[str, typer.Option(help="hash:64: exact models' rows in 64 files, by key.")] = "hash:1",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Write ledger, constants and learned order to Parquet and a DuckDB file, for work away from production."""
    from mempair_db.offline.export import export as write  # noqa: PLC0415 - DuckDB and Arrow take a moment to import
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415
    from mempair_db.worker.messages import some  # noqa: PLC0415

    parts = partitions(partition_by)
    if rows:
        say(
            f"{folder} will hold keys and features of every surviving row. "
            "Its files are readable by you alone; a deletion in production does not reach them. "
            "Remove the folder when you are done.",
            "Personal data:",
            "yellow",
        )
    done = write(
        server.ensure(dsn), folder, name=name, rows=rows, route=route, partitions=parts, bars=shown_on(messages)
    )
    if as_json:
        print(json.dumps(asdict(done), default=str))  # noqa: T201
        return
    say(
        f"{some(done.models, 'model')}, {done.entries} ledger entries, {done.rows} rows in {folder} (by {done.route}). "
        f"Next: `mempair audit --from {folder}`, or `cd {folder} && duckdb mempair.duckdb`.",
    )


@app.command()
def replay(
    name: MaybeName = None,
    folder: From = None,
    since: Annotated[
        Path | None, typer.Option(help="An earlier export of the same epoch: replay only what came after it.")
    ] = None,
    until: Annotated[int | None, typer.Option(help="Stop after this tick and show that model's quality.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--what-if", help="Another constant, such as lambda=0.1; repeat for more.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild the model from the surviving rows and compare it with the live one; exit code 5 if they do not agree."""
    from mempair_db.measure import replay as replays  # noqa: PLC0415
    from mempair_db.offline import folder as folders  # noqa: PLC0415
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415

    bars = shown_on(messages)
    with folders.offline(name, folder=folder, dsn=address(dsn, folder), bars=bars) as model:
        if model.exact:
            raise InvalidParameter(
                f"{model.name} is exact: its state has no order to replay.",
                remedy="`mempair audit` and `mempair verify` compute it anew from its rows, and compare every bit.",
            )
        if until is not None or change:
            changes = dict(part.partition("=")[::2] for part in change or ())
            columns = {"replayed": replays.quality(model, replays.ideal(model, until=until, bars=bars))}
            if changes:
                other = replays.what_if(model, changes, until=until, bars=bars)
                columns["what if"] = replays.quality(model, other)
            facts = [{"": key, **{c: values[key] for c, values in columns.items()}} for key in columns["replayed"]]
            show(facts, as_json)
            return
        earlier = folders.read(since, model.name) if since is not None else None
        result = replays.compare(model, since=earlier, bars=bars)
    if as_json:
        print(json.dumps({**asdict(result), "holds": result.holds}, indent=2))  # noqa: T201
    else:
        from mempair_db.pages import text  # noqa: PLC0415

        for line in text.comparison(result):
            out.print(line, highlight=False, soft_wrap=True)
    if result.holds is False:
        raise typer.Exit(5)


@app.command()
def audit(
    name: MaybeName = None,
    folder: From = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows and samples: seconds instead of minutes.")] = False,
    attest: Annotated[bool, typer.Option("--attest", help="Enter the result into the ledger, signed.")] = False,
    checkpoint: Annotated[list[Path] | None, typer.Option(help="A signed checkpoint of the ledger.")] = None,
    public_key: PublicKeys = None,
    key: KeyFile = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Measure every promise on the surviving rows; a verdict per claim, exit code 5 unless all of them hold."""
    from mempair_db.measure import audit as audits  # noqa: PLC0415
    from mempair_db.offline import folder as folders  # noqa: PLC0415
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415
    from mempair_db.pages import text  # noqa: PLC0415

    bars = shown_on(messages)
    signer = keys.load(key or keys.default_path()) if attest else None
    with folders.offline(name, folder=folder, dsn=address(dsn, folder), bars=bars) as model:
        signed = checkpoints.read(checkpoint or [], trusted(public_key) if checkpoint else [])
        effort = audits.QUICK if quick else audits.Effort()
        result = audits.audit(model, effort=effort, bars=bars, checkpoints=signed)
        number = int(model.row["id"])
    if as_json:
        print(json.dumps({**result.to_json(), "sha256": result.digest()}, indent=2, ensure_ascii=False))  # noqa: T201
    else:
        for line in text.claims(result):
            out.print(line, highlight=False, soft_wrap=True)
        note = "" if model.exact else f" {text.ONE_RECORD}"
        say(f"{result.summary()}.{note}")
    if signer is not None:
        from mempair_db.measure.attest import attest as enter  # noqa: PLC0415

        with connect(server.ensure(dsn), autocommit=True) as connection:
            seq = enter(connection, number, result, signer)
        say(f"Entered as ledger entry {seq}, signed by {signer.public.name}.")
    if result.unproven:
        raise typer.Exit(5)


@app.command()
def report(
    page: Annotated[Path, typer.Option("--out", help="The page to write, such as report.html.")],
    name: MaybeName = None,
    folder: From = None,
    audited: Annotated[bool, typer.Option("--audit/--no-audit", help="With the audit's verdicts and plots.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Audit with fewer rows and samples.")] = False,
    dsn: Dsn = None,
) -> None:
    """Write one self-contained page: what was forgotten and when, the verdicts; exit code 5 unless all claims hold."""
    from mempair_db.measure import audit as audits  # noqa: PLC0415
    from mempair_db.offline import folder as folders  # noqa: PLC0415
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415
    from mempair_db.pages.report import render  # noqa: PLC0415

    bars = shown_on(messages)
    with folders.offline(name, folder=folder, dsn=address(dsn, folder), bars=bars) as model:
        effort = audits.QUICK if quick else audits.Effort()
        result = audits.audit(model, effort=effort, bars=bars) if audited else None
        page.write_text(render(model, result), encoding="utf-8")
    say(f"{page} is written" + (f": {result.summary()}." if result else "."))
    if result is not None and result.unproven:
        raise typer.Exit(5)


@app.command()
def simulate(
    source: Annotated[str, typer.Argument(help="A CSV or Parquet file, or a table of the database.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    features: Annotated[str | None, typer.Option(help="Columns to predict from, separated by commas.")] = None,
    positive: Annotated[str | None, typer.Option(help="The target's positive value.")] = None,
    epsilon: Annotated[str, typer.Option(help="One or more, separated by commas; so are the others.")] = "1",
    gamma: str = "0.01,0.03,0.1,0.3",
    lam: Annotated[str, typer.Option("--lambda", help="auto: chosen as at calibration.")] = "auto,0.003,0.01,0.03,0.1",
    m: Annotated[str, typer.Option(help="Deletions to plan for; auto: capacity.")] = "auto",
    unlearner: str = "symmetric,passive",
    pattern: Annotated[str, typer.Option(help="random, one class, newest, highest loss")] = "random",
    delta: float = 1e-6,
    deletions_per_day: Annotated[float, typer.Option(help="How many rows are deleted a day.")] = 1.0,
    most_loss: Annotated[float, typer.Option(help="Accuracy that may be lost, such as 0.01.")] = 0.01,
    rows: Annotated[int, typer.Option(help="Read at most so many rows.")] = 50_000,
    draws: Annotated[int, typer.Option(help="How often noise is drawn.")] = 5,
    on_null: Annotated[
        str, typer.Option(help="impute: learn that a value is missing; skip: leave rows with missing values out.")
    ] = "impute",
    seed: Annotated[int, typer.Option(help="Of deletions and noise: the same seed gives the same advice.")] = 0,
    published: Annotated[
        bool, typer.Option("--published", help="Others may compare the models before and after a deletion.")
    ] = False,
    page: Annotated[Path | None, typer.Option("--out", help="Write a page with plots.")] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Try the exact pair and the certified unlearners out before production, and recommend one for a stated need."""
    from mempair_db.measure import advice as advices  # noqa: PLC0415
    from mempair_db.measure import exact_trial  # noqa: PLC0415
    from mempair_db.measure import simulate as simulation  # noqa: PLC0415
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415
    from mempair_db.offline.table import load  # noqa: PLC0415
    from mempair_db.pages.advice import render  # noqa: PLC0415

    columns = [name.strip() for name in features.split(",")] if features else None
    place = None if Path(source).exists() else server.ensure(dsn)
    table = load(source, target, features=columns, positive=positive, dsn=place, limit=rows, on_null=on_null)
    missing = "for missing values" if on_null == "skip" else "for a missing target"
    say(f"{len(table)} rows, {table.skipped} left out {missing}.")
    wanted = simulation.scenarios(
        epsilon=_numbers("epsilon", epsilon),
        gamma=_numbers("gamma", gamma),
        lam=_numbers("lambda", lam, auto=True),
        m=[None if value is None else int(value) for value in _numbers("m", m, auto=True)],
        unlearner=[part.strip() for part in unlearner.split(",")],
        pattern=[part.strip() for part in pattern.split(",")],
        a_day=[deletions_per_day],
    )
    bars = shown_on(messages)
    results = simulation.simulate(table.imputed(), wanted, delta=delta, draws=draws, seed=seed, bars=bars)
    exact = exact_trial.trials(table, wanted, delta=delta, seed=seed, bars=bars)
    advice = advices.advise(results, most_loss, exact, published=published)
    if page is not None:
        page.write_text(render(source, results, advice, exact), encoding="utf-8")
        say(f"{page} is written.")
    if as_json:
        answer = {"need": advice.need, "reason": advice.reason, "parameters": advice.sql()}
        tables = {"exact": [trial.row() for trial in exact], "results": [r.row() for r in results]}
        print(json.dumps({**tables, "advice": answer}, indent=2))  # noqa: T201
        return
    show([trial.row() for trial in exact], as_json=False)
    differing, same = advices.varying([r.row() for r in results])
    say(
        "The certified unlearners, in all of them: " + ", ".join(f"{k} {v}" for k, v in same.items()),
    )
    show(differing, as_json=False)
    say(f"{advice.need}: {advice.reason}.")
    if advice.found:
        out.print(Text(advice.sql()), soft_wrap=True)
    if advice.best is not None and advice.best.scenario.unlearner == "symmetric":
        say(advices.PASSIVE)


def _numbers(name: str, text: str, *, auto: bool = False) -> list[float | None]:
    """Read numbers separated by commas; `auto` stands for none."""
    try:
        return [None if auto and part.strip() == "auto" else float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameter(f"{name} is {text!r}.", remedy="Give numbers, separated by commas.") from None


@bench_app.command("replay")
def bench_replay(quick: Quick = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Export and replay of a million rows against a binary COPY; leave-one-out audits a second."""
    from mempair_db.bench import replay as bench  # noqa: PLC0415

    print_result(bench.run(quick=quick, dsn=dsn), as_json)


@sql_app.command("duckdb")
def sql_duckdb() -> None:
    """Print the views that an export's DuckDB file has."""
    from mempair_db.offline.export import VIEWS  # noqa: PLC0415

    print(VIEWS.read_text(encoding="utf-8"), end="")  # noqa: T201
