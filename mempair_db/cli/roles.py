"""Roles: give database roles exactly what a worker, a reader, an auditor or an operator needs."""

from __future__ import annotations

from typing import Annotated

import typer
from psycopg import sql

from mempair_db import errors
from mempair_db.cli.common import Dsn, app, query, say
from mempair_db.cli.start import sql_app
from mempair_db.database.connect import connect
from mempair_db.embedded import server

Roles = Annotated[list[str] | None, typer.Option(help="A role; may be repeated.")]


@app.command()
def grant(
    worker: Roles = None,
    reader: Roles = None,
    auditor: Roles = None,
    operator: Roles = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take it away instead.")] = False,
    dsn: Dsn = None,
) -> None:
    """Grant roles what they need, now and for models to come. Run as the owner of the schema."""
    wanted = _wanted(worker=worker, reader=reader, auditor=auditor, operator=operator)
    if not wanted:
        raise errors.InvalidParameter("No role was named.", remedy="Use --worker, --reader, --auditor or --operator.")
    with connect(server.ensure(dsn)) as connection:
        for kind, role in wanted:
            connection.execute(query("revoke_role" if revoke else "grant_role"), {"role": role, "kind": kind})
            say(f"{role} is {'no longer' if revoke else 'now'} {kind}.")


@sql_app.command("grants")
def sql_grants(
    worker: Roles = None, reader: Roles = None, auditor: Roles = None, operator: Roles = None, dsn: Dsn = None
) -> None:
    """Print the grants of the roles, for a database administrator; without roles, those of all kinds by example."""
    wanted = _wanted(worker=worker, reader=reader, auditor=auditor, operator=operator)
    wanted = wanted or [(kind, f"mempair_{kind}") for kind in ("worker", "reader", "auditor", "operator")]
    with connect(server.ensure(dsn)) as connection:
        privileges = connection.execute(query("privileges")).fetchall()
        for kind, role in wanted:
            name = sql.Identifier(role).as_string(connection)
            print(f"-- {kind}")  # noqa: T201
            for _, privilege, target in (each for each in privileges if each[0] == kind):
                print(f"grant {privilege} on {target} to {name};")  # noqa: T201


def _wanted(**kinds: list[str] | None) -> list[tuple[str, str]]:
    return [(kind, role) for kind, roles in kinds.items() for role in roles or ()]
