"""Getting started: the demo, the embedded server, the schema."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

import typer

from mempair_db.cli.common import Dsn, app, group, out, say
from mempair_db.embedded import binaries, server

sql_app = group("sql", "Print SQL for a database administrator.")


@app.command()
def demo(dsn: Dsn = None) -> None:
    """Show the main job on the embedded server: learn, predict, forget, prove."""
    from mempair_db.demo.story import run  # noqa: PLC0415 - numba takes a moment to import

    run(dsn, out)


@app.command()
def up() -> None:
    """Start the embedded server and print its DSN."""
    print(server.Server().start())  # noqa: T201


@app.command()
def down() -> None:
    """Stop the embedded server; its data stays."""
    server.Server().stop()
    say("The embedded server is stopped; `mempair up` starts it again.")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context, dsn: Dsn = None) -> None:
    """Open psql on the database; options are psql's own, such as -c "select 1" or -f FILE."""
    program = shutil.which("psql") or str(binaries.find().folder / "psql")
    address = server.ensure(dsn)
    os.environ["MEMPAIR_DSN"] = address  # so that `\! mempair status` in it means the same database
    os.execv(program, ["psql", *context.args, "--dbname", address])  # noqa: S606


@app.command()
def install(dsn: Dsn = None) -> None:
    """Install schema mempair, or bring it up to date."""
    from mempair_db.database import install as schema  # noqa: PLC0415 - Alembic takes a moment to import

    schema.install(server.ensure(dsn))
    say("Schema mempair is installed.")


@app.command()
def uninstall(dsn: Dsn = None, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Remove schema mempair, its triggers and everything learned. Your tables stay."""
    from mempair_db.database import install as schema  # noqa: PLC0415

    if not yes:
        typer.confirm("Remove all models, their ledgers and the schema mempair?", abort=True, err=True)
    schema.uninstall(server.ensure(dsn))
    say("Schema mempair is removed.")


@sql_app.command("install")
def sql_install() -> None:
    """Print what `mempair install` does to an empty database."""
    from mempair_db.database import install as schema  # noqa: PLC0415

    print(schema.script())  # noqa: T201
