"""The doctor: what is wrong around a database, and what to do about it."""

from __future__ import annotations

import typer
from rich.text import Text

from mempair_db.cli.common import AsJson, Dsn, app, out, show
from mempair_db.database import doctor as checks
from mempair_db.database.connect import connect
from mempair_db.embedded import server


@app.command()
def doctor(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Check server, encoding, clocks, schema, rights, triggers and ways around them; exit code 1 if one is wrong."""
    with connect(server.ensure(dsn), autocommit=True, checked=False, application_name="mempair doctor") as connection:
        findings = list(checks.examine(connection))
    if as_json:
        show([finding._asdict() for finding in findings], as_json)
    else:
        for finding in findings:
            colour = "red" if finding.remedy else "green"
            check = f"{finding.check.replace('_', ' '):14} "
            remedy = f"{'' if finding.fact.endswith('.') else '.'} {finding.remedy}" if finding.remedy else ""
            out.print(Text.assemble(check, (finding.fact, colour), remedy), soft_wrap=True)
    raise typer.Exit(1 if any(finding.remedy for finding in findings) else 0)
