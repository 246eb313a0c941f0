"""The ledger and the receipts."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mempair_db import server
from mempair_db.catalog.connect import connect
from mempair_db.cli.common import AsJson, Dsn, Name, app, group, query, rows, show, talk

odometer_app = group("odometer", "The ledger of what was learned, forgotten and spent.")


@app.command()
def receipt(name: Name, key: Annotated[str, typer.Argument(help="The deleted row's key.")], dsn: Dsn = None) -> None:
    """Print the receipt of a deletion as JSON."""
    with connect(server.ensure(dsn)) as connection:
        row = connection.execute(query("receipt"), {"name": name, "key": key}).fetchone()
    print(json.dumps(row[0] if row else None, indent=2, ensure_ascii=False))  # noqa: T201


@odometer_app.command("show")
def odometershow(
    name: Name,
    last: Annotated[int, typer.Option(help="Newest entries to show.")] = 20,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest entries of a model's ledger."""
    show(rows(dsn, "odometer", name=name, last=last), as_json)


@odometer_app.command("verify")
def odometer_verify(name: Name, dsn: Dsn = None) -> None:
    """Check the ledger's chain; exit code 5 if it does not hold."""
    for row in rows(dsn, "verify_odometer", name=name):
        talk.print(" ".join(str(value) for value in row.values()), highlight=False)
