"""Whether a model is what its rows make of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from mempair_db.cli.common import AsJson, Dsn, Name, app, messages, model_id, query, say, show_table, table
from mempair_db.database.connect import connect
from mempair_db.embedded import server


@app.command()
def verify(
    name: Name,
    repair: Annotated[bool, typer.Option("--repair", help="If something differs, ask for a refresh.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--from", help="An export made with --rows, file by file on Dask; no database.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="With --from: Dask's scheduler; default: processes here.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Compute a model anew from its table and compare constants, sums, weights and keys; exit code 5 if one differs.

    Reads one snapshot of the table on several connections, and locks no more than a SELECT. With --repair the code is
    0: the next worker reads the table anew, which puts everything right.
    """
    from mempair_db.offline.progress import shown_on  # noqa: PLC0415 - commands that do not verify need none of it
    from mempair_db.verify.checks import verify as compute  # noqa: PLC0415

    if folder is not None:
        from mempair_db.cli.fleet import show_verdict  # noqa: PLC0415
        from mempair_db.fleet import files  # noqa: PLC0415

        with files.alone(scheduler=scheduler) as computing:
            report = files.verify_files(computing, folder, name)
        show_verdict(report, as_json)
    address = server.ensure(dsn)
    report = compute(address, model_id(address, name) or 0, shown_on(messages))
    if as_json:
        print(json.dumps(report.to_json(), indent=2, ensure_ascii=False))  # noqa: T201
    else:
        lines = [{"check": c.check, "": "good" if c.fine else "WRONG", "found": c.detail} for c in report.checks]
        show_table(table(lines))
    if report.fine and not report.begun:
        say(f"{name} has learned nothing yet, and holds nothing: its {report.rows} rows wait.")
        return
    if report.fine:
        say(f"{name} is what its {report.rows} rows make of it.")
        return
    wrong = ", ".join(check.check for check in report.checks if not check.fine)
    if repair:
        with connect(address) as connection:
            connection.execute(query("retrain"), {"name": name, "reason": f"verify found differences: {wrong}"})
        say(f"{name} differs from its table: {wrong}. A refresh is requested.")
        return
    remedy = f"`mempair verify {shlex.quote(name)} --repair` asks for a refresh."
    say(f"{name} differs from its table: {wrong}. {remedy}")
    raise typer.Exit(5)
