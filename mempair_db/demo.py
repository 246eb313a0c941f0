"""`mempair demo`: the whole story on one table of invented customers, in a schema of its own."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from datetime import date, timedelta
from typing import Any

import psycopg
from rich.console import Console
from rich.panel import Panel
from rich.progress import Progress
from rich.syntax import Syntax
from rich.table import Table

from mempair_db import settings
from mempair_db.database.connect import connect
from mempair_db.database.install import install
from mempair_db.embedded import server
from mempair_db.pair import odometer
from mempair_db.worker.loop import Worker

CUSTOMERS = 4_000
PERSON = 42
CHUNK = 500

TABLE = """\
create table mempair_demo.customers (
    id            integer primary key,
    age           integer,
    signed_up     date,
    plan          text,
    monthly_spend numeric(8, 2),
    newsletter    boolean,
    churned       boolean
);"""

MODEL = """\
select mempair.create_model('demo_churn', 'mempair_demo.customers',
         target   => 'churned',
         features => array['age', 'signed_up', 'plan', 'monthly_spend', 'newsletter'],
         epsilon  => 1.0, delta => 1e-6, gamma => 0.1);"""

PREDICT = """\
select id, plan, age, churned, mempair_predict('demo_churn', c) as risk
from mempair_demo.customers c order by id limit 5;"""

DELETE = "delete from mempair_demo.customers where id = 42;"

LEDGER = """\
select seq, kind, clock, rows, rho, rho_spent, detail
from mempair.odometer where model = 'demo_churn' order by seq;"""

RECEIPT = "select mempair.receipt('demo_churn', '42');"

QUALITY = """\
select avg(((mempair_predict('demo_churn', c) > 0.5) = churned)::integer),
       greatest(avg(churned::integer), 1 - avg(churned::integer))
from mempair_demo.customers c"""

FACTS = """\
select (select count(*) from mempair.learned l where l.model_id = m.id),
       s.deletions, s.spent::float8 / s.cap as share, s.largest,
       exists (select from mempair.learned l where l.model_id = m.id and l.row_key = %(key)s) as known,
       mempair_predict('demo_churn', %(person)s::mempair_demo.customers) as risk,
       (select count(*) from mempair.curvature c where c.model_id = m.id) as pairs
from mempair.model m
join mempair.state s on s.model_id = m.id join mempair.published p on p.model_id = m.id
where m.name = 'demo_churn'"""


def run(dsn: str | None, console: Console) -> None:
    """Tell the story."""
    console.rule("[bold]mempair_db: Postgres tables that learn on INSERT and provably forget on DELETE")
    with console.status("Starting Postgres ..."):
        address = server.ensure(dsn)
    with console.status("Installing schema mempair ..."):
        install(address)
    with connect(address, autocommit=True) as connection:
        _start_over(connection)
        version = connection.execute("show server_version").fetchone()
        console.print(f"Postgres {version[0] if version else ''} is running; schema mempair is installed.\n")

        _say(console, "A table, and a model declared on it", TABLE, MODEL)
        connection.execute(TABLE)
        connection.execute(MODEL)

        _insert(console, connection)
        worker = Worker(address)
        with console.status("The worker learns (the first time it compiles its kernel: some seconds) ..."):
            worker.run_once()
        learned = connection.execute("select count(*) from mempair.learned").fetchone()
        console.print(
            f"The worker has learned {learned[0] if learned else 0} rows, and the gate is open: the model predicts.\n"
        )

        _say(console, "Predictions are a SQL function", PREDICT)
        console.print(_table(connection, PREDICT))
        console.print(_quality(connection) + "\n")

        _say(console, f"Customer {PERSON} asks to be forgotten", DELETE)
        person = connection.execute("select c::text from mempair_demo.customers c where id = %s", [PERSON]).fetchone()
        facts = {"key": str(PERSON), "person": person[0] if person else None}
        before = connection.execute(FACTS, facts).fetchone()
        connection.execute(DELETE)
        worker.run_once()
        after = connection.execute(FACTS, facts).fetchone()
        console.print(_comparison(before or (), after or ()))
        console.print(_guarantee((after or (0,) * 4)[3]))
        console.print(_quality(connection) + "\n")

        _say(console, "The ledger shows it", LEDGER)
        console.print(_table(connection, LEDGER))
        console.print()

        _say(console, "The person gets a receipt", RECEIPT)
        receipt = connection.execute(RECEIPT).fetchone()
        console.print(
            Syntax(
                json.dumps(receipt[0] if receipt else None, indent=2),
                "json",
                background_color="default",
                word_wrap=True,
            )
        )
    _next_steps(console, address, embedded=settings.dsn(dsn) is None)


def _start_over(connection: psycopg.Connection[Any]) -> None:
    if connection.execute("select from mempair.model where name = 'demo_churn'").fetchone() is not None:
        connection.execute("select mempair.drop_model('demo_churn')")
    connection.execute("set client_min_messages = warning")
    connection.execute("drop schema if exists mempair_demo cascade")
    connection.execute("create schema mempair_demo")


def _insert(console: Console, connection: psycopg.Connection[Any]) -> None:
    chance = random.Random(7)  # noqa: S311 - the same customers every time
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"Inserting {CUSTOMERS} customers", total=CUSTOMERS)
        for start in range(1, CUSTOMERS + 1, CHUNK):
            with connection.cursor() as cursor, cursor.copy("copy mempair_demo.customers from stdin") as copy:
                for number in range(start, start + CHUNK):
                    copy.write_row(_customer(number, chance))
            progress.advance(task, CHUNK)
    console.print(f"{CUSTOMERS} customers inserted; triggers captured every one of them.")


def _customer(number: int, chance: random.Random) -> tuple[Any, ...]:
    """Invent a customer: young ones on the basic plan who never joined the newsletter leave most often."""
    age = min(90, max(18, round(chance.gauss(45, 15))))
    days = chance.randrange(2_000)
    plan = chance.choices(("basic", "plus", "pro"), (5, 3, 2))[0]
    spend = round(chance.lognormvariate({"basic": 2.5, "plus": 3.4, "pro": 4.2}[plan], 0.4), 2)
    newsletter = chance.random() < 0.4
    score = 1.2 - 0.05 * (age - 45) - 0.001 * days + {"basic": 1.0, "plus": -0.5, "pro": -1.5}[plan] - 1.0 * newsletter
    return (
        number,
        age,
        date(2026, 1, 1) - timedelta(days=days),
        plan,
        spend,
        newsletter,
        score + chance.gauss(0, 1.5) > 0,
    )


def _quality(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute(QUALITY).fetchone()
    right, guess = (100 * float(value) for value in row or (0, 0))
    return f"Right for {right:.1f} % of all customers; always guessing the commoner answer: {guess:.1f} %."


def _guarantee(units: int) -> str:
    epsilon = odometer.epsilon_of(units / odometer.UNITS, 1e-6)
    return (
        f"Whatever is computed from the model from now on is (ε = {epsilon:.2f}, δ = 1e-6)-indistinguishable from "
        f"one that never saw customer {PERSON}."
    )


def _comparison(before: tuple[Any, ...], after: tuple[Any, ...]) -> Table:
    table = Table("", "before", "after", box=None, header_style="bold")
    labels = (
        "rows the model has learned from",
        "deletions",
        "share of the deletion budget spent",
        "largest spend on one record (1e-12 rho)",
        f"is row {PERSON} among the learned?",
        f"risk predicted for somebody like {PERSON}",
        "curvature pairs kept",
    )
    for label, old, new in zip(labels, before, after, strict=True):
        table.add_row(label, _text(old), _text(new))
    return table


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def _say(console: Console, title: str, *statements: str) -> None:
    text = "\n\n".join(statements)
    console.print(
        Panel(
            Syntax(text, "sql", background_color="default", word_wrap=True), title=f"[bold]{title}", title_align="left"
        )
    )


def _table(connection: psycopg.Connection[Any], statement: str) -> Table:
    cursor = connection.execute(statement)
    table = Table(*(column.name for column in cursor.description or ()), box=None, header_style="bold")
    for row in cursor:
        table.add_row(*(_text(value) for value in row))
    return table


def _next_steps(console: Console, address: str, *, embedded: bool) -> None:
    console.rule("[bold]What next")
    mempair = "mempair" if shutil.which("mempair") else os.path.relpath(sys.argv[0])
    psql = f'psql "{address}"' if shutil.which("psql") else f"{mempair} psql"
    console.print(f"Look around:    [bold]{psql}[/bold]", soft_wrap=True, highlight=False)
    console.print(
        f"Keep learning:  [bold]{mempair} worker[/bold]  and meanwhile delete some customers in psql.",
        soft_wrap=True,
        highlight=False,
    )
    if embedded:
        console.print(f"[dim]The server keeps running; `{mempair} down` stops it.[/dim]", highlight=False)
