"""What the commands share: the application, its options, and how rows are shown."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from psycopg.rows import dict_row
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mempair_db import __version__
from mempair_db.database import queries
from mempair_db.database.connect import connect
from mempair_db.embedded import server

app = typer.Typer(
    no_args_is_help=True,
    help="Postgres tables that learn on INSERT and provably forget on DELETE.",
)

out = Console()
messages = Console(stderr=True)

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", help="Default: MEMPAIR_DSN, libpq's variables, or the embedded server.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Name = Annotated[str, typer.Argument(help="The model's name.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mempair_db {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback()
def for_all(
    context: typer.Context,
    dsn: Dsn = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take `--dsn` before the command as if it stood behind it."""
    if dsn is not None:
        context.default_map = _default_dsn(context.command, dsn)


def _default_dsn(command: Any, dsn: str) -> dict[str, Any]:
    names = getattr(command, "commands", None)
    return {"dsn": dsn} if names is None else {name: _default_dsn(each, dsn) for name, each in names.items()}


def _for_group(context: typer.Context, dsn: Dsn = None) -> None:
    if dsn is not None:
        context.default_map = _default_dsn(context.command, dsn)


def group(name: str, about: str, *, speaks: bool = False) -> typer.Typer:
    """Add a group of commands; those that speak to a database take `--dsn` before the last word, too."""
    commands = typer.Typer(no_args_is_help=True, help=about)
    if speaks:
        commands.callback()(_for_group)
    app.add_typer(commands, name=name)
    return commands


def query(name: str) -> str:
    """Return one of the queries of cli.sql."""
    return queries.query(f"cli_{name}")


def rows(dsn: str | None, statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
    """Run a query of cli.sql and return its rows."""
    with connect(server.ensure(dsn)) as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query(statement), parameters).fetchall()


def model_id(dsn: str, name: str | None) -> int | None:
    """Look a model up; an unknown name is an error with a suggestion."""
    if name is None:
        return None
    return int(rows(dsn, "find_model", name=name)[0]["id"])


def say(text: object, mark: str = "", colour: str = "") -> None:
    """Print a message as it is: brackets in a name are no markup, and a line in a pipe or a file is not cut."""
    messages.print(Text.assemble((f"{mark} ", colour) if mark else "", str(text)), soft_wrap=True)


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print rows as a table or as JSON."""
    if as_json:
        print(json.dumps(rows, indent=2, default=str, ensure_ascii=False))  # noqa: T201
    elif rows:
        show_table(table(rows))
    else:
        say("Nothing to show.")


def show_table(shown: Table) -> None:
    """Print a table; in a pipe or a file whole, however wide it is."""
    (out if out.is_terminal else Console(width=100_000)).print(shown)


def table(rows: list[dict[str, Any]]) -> Table:
    """Return rows as a table for the terminal."""
    table = Table(box=None, header_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(escape(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    return table
