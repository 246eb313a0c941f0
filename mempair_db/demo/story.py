"""`mempair demo`: the whole story on one table of invented customers, in a schema of its own."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import Any

import numpy as np
import psycopg
from rich.console import Console

from mempair_db import settings
from mempair_db.database.ahead import compile_meanwhile
from mempair_db.database.connect import connect
from mempair_db.database.install import install
from mempair_db.demo import beside
from mempair_db.demo.customers import TABLE, Customer, insert, invent
from mempair_db.demo.screen import Screen
from mempair_db.embedded import server
from mempair_db.pair import odometer
from mempair_db.pair.encode import Vector
from mempair_db.worker.loop import Worker

CUSTOMERS = 4_000
NEWCOMERS = 2_000
PERSON = 42
MOST = 12  # deletions until the certified budget is spent; it takes three or four
DELTA = 1e-6

MODEL = """\
select mempair.create_model('demo_churn', 'mempair_demo.customers',
         target   => 'churned',
         features => array['age', 'signed_up', 'plan',
                           'monthly_spend', 'newsletter']);"""

CERTIFIED = (
    MODEL.replace("demo_churn", "demo_certified")
    .replace("'newsletter']", "'newsletter'],\n{0}")
    .format("         unlearner => 'symmetric', epsilon => 1.0, delta => 1e-6")
)

PREDICT = """\
select id, plan, age, churned, mempair_predict('demo_churn', c) as risk
from mempair_demo.customers c order by id limit 5;"""

DELETE = "delete from mempair_demo.customers where id = 42;"

DELETE_MORE = "delete from mempair_demo.customers where id between 1001 and 1500;"

LEDGER = """\
select model, kind, count(*) as entries, sum(rows) as rows,
       round(100.0 * max(rho_spent) / max(rho_cap)) as percent_of_budget
from mempair.odometer where model in ('demo_churn', 'demo_certified')
group by model, kind order by model desc, min(seq);"""

RECEIPT = "select mempair.receipt('demo_churn', '42');"

CERTIFIED_RECEIPT = "select mempair.receipt('demo_certified', '100')"

STORED = """\
select m.constants, s.sums, s.rows_learned,
       exists (select from mempair.learned l where l.model_id = m.id and l.row_key = '42') as knows_42
from mempair.model m join mempair.state s on s.model_id = m.id where m.name = 'demo_churn'"""

NEWCOMERS_SCORES = """\
select mempair_predict('demo_churn', c)
from jsonb_populate_recordset(null::mempair_demo.customers, %s) c order by c.id"""

BUDGET = """\
select s.epoch, s.rho_spent, s.rho_cap from mempair.model_status s where s.model = 'demo_certified'"""

Scores = dict[int, float]


class Story:
    """One telling, on one connection."""

    def __init__(self, connection: psycopg.Connection[Any], worker: Worker, screen: Screen) -> None:
        """Tell it with this worker, on this screen."""
        self.connection, self.worker, self.screen = connection, worker, screen

    def learn(self) -> None:
        """Declare, insert, learn."""
        self.screen.title("A table, and a model declared on it", TABLE, MODEL)
        self.connection.execute(TABLE)
        self.connection.add_notice_handler(self._hear)
        self.connection.execute(MODEL)
        self.connection.remove_notice_handler(self._hear)
        insert(self.connection, invent(1, CUSTOMERS))
        self.screen.say(f"{CUSTOMERS} customers inserted; triggers captured every one of them.")
        seconds = self.work()
        _, _, rows, _ = self.stored()
        self.screen.say(f"The worker has learned {rows} rows in {seconds:.1f} s, and the model predicts.")

    def _hear(self, said: psycopg.errors.Diagnostic) -> None:
        self.screen.say(f"[dim]NOTICE: {said.message_primary}[/dim]")

    def predict(self) -> None:
        """Show predictions, and how good they are beside what everybody knows."""
        self.screen.title("Predictions are a SQL function", PREDICT)
        self.screen.answer(self.connection, PREDICT)
        asked = list(invent(100_001, NEWCOMERS))
        truth, rows = beside.labels(asked), self.rows()
        base = np.full(NEWCOMERS, beside.labels(rows).mean())
        models = {
            "always the share of those who left": base,
            "plain logistic regression, converged": beside.logistic_regression(rows, asked),
            "demo_churn, by mempair_predict": self._scores_of(asked),
        }
        self.screen.say(f"\nAsked about {NEWCOMERS} customers that neither model has seen:")
        self.screen.table(
            ("", "log loss", "right", "AUC"), ((name, *beside.quality(p, truth)) for name, p in models.items())
        )

    def _scores_of(self, asked: list[Customer]) -> Vector:
        rows = json.dumps([customer._asdict() for customer in asked], default=str)
        return np.array(self.connection.execute(NEWCOMERS_SCORES, [rows]).fetchall(), float)[:, 0]

    def forget_one(self) -> None:
        """Delete a customer, and show that nothing of them is left, and that nobody else notices."""
        self.screen.title(f"Customer {PERSON} asks to be forgotten", DELETE)
        before = self.scores()
        self.connection.execute(DELETE)
        self.work()
        _, _, rows, known = self.stored()
        self.screen.say(f"Rows learned now: {rows}. Is row {PERSON} among them? {'yes' if known else 'No.'}")
        computed = self.compare()
        after = self.scores()
        others = sorted(after)
        retrained = dict(zip((row.id for row in self.rows()), computed.scores.tolist(), strict=True))
        moved = largest(before, after, others)
        self.screen.table(
            ("everybody else's score", "largest move"),
            (
                ("by this deletion", f"{moved:.6f}"),
                (f"by training anew without customer {PERSON}", f"{largest(before, retrained, others):.6f}"),
                ("difference between these two models", f"{largest(after, retrained, others):.6f}"),
            ),
        )

    def forget_many(self) -> None:
        """Delete five hundred more: still the same bytes."""
        self.screen.title("Five hundred more", DELETE_MORE)
        self.connection.execute(DELETE_MORE)
        seconds = self.work()
        self.screen.say(f"Forgotten in {seconds:.1f} s. No budget, no noise, no limit.")
        self.compare()
        self.screen.say(
            "(The constants, such as centres and scales, come from up to 10,000 rows, here from all. When one of these "
            "goes they are chosen again, and if they come out differently the table is read once more.)"
        )

    def certify(self) -> None:
        """Declare a second model whose deletions are hidden under noise, and spend its budget."""
        self.screen.title("The other way to forget: noise, and a budget", CERTIFIED)
        self.screen.say(
            "Who keeps two published versions of an exact model can compute from them the row that went in between. "
            "A certified model hides what a deletion changes under noise, and an odometer counts what that costs."
        )
        self.connection.execute(CERTIFIED)
        self.work()
        self.screen.table(
            ("deleted", "epoch", "budget spent", "epsilon so far", "move, certified", "move, exact"), self._spend()
        )
        self.screen.say(
            "When the budget was spent the worker retrained the model on the rows that are left, unasked: a new epoch "
            "with a full budget. A deletion is never refused."
        )

    def _spend(self) -> list[tuple[object, ...]]:
        lines: list[tuple[object, ...]] = []
        first, _, _ = self.budget()
        for person in range(100, 100 + MOST):
            before = self.scores(), self.scores("demo_certified")
            self.connection.execute("delete from mempair_demo.customers where id = %s", [person])
            self.work()
            after = self.scores(), self.scores("demo_certified")
            epoch, spent, cap = self.budget()
            exact, certified = (largest(old, new, sorted(new)) for old, new in zip(before, after, strict=True))
            epsilon = odometer.epsilon_of(spent / odometer.UNITS, DELTA)
            share = f"{100 * spent / cap:.0f} %"
            lines.append((person, epoch, share, f"{epsilon:.2f} of 1", f"{certified:.4f}", f"{exact:.4f}"))
            if epoch != first:
                break
        return lines

    def prove(self) -> None:
        """Show the ledgers of both, and a receipt."""
        self.screen.title("The ledger of both: every deletion is in it, those that came together in one entry", LEDGER)
        self.screen.answer(self.connection, LEDGER)
        self.screen.title(f"The receipt for customer {PERSON}, in plain words (the function returns JSON)", RECEIPT)
        receipt = self.receipt(RECEIPT)
        (deletion,) = receipt["deletions"]
        requested, executed = (deletion[name][:19].replace("T", " ") for name in ("requested", "executed"))
        self.screen.say(f"Deleted from {receipt['source']} {requested}, forgotten {executed} (UTC).")
        self.screen.say(f"How: {deletion['algorithm']}. Entry {deletion['entry']['seq']} of the ledger.")
        self.screen.say(f"[bold]{deletion['statement']}[/bold]")
        self.screen.points("What it does not undo:", receipt["assumes"])
        self.screen.points("What remains:", receipt["remains"])
        (deletion,) = self.receipt(CERTIFIED_RECEIPT)["deletions"]
        terms = f"epsilon = {deletion['epsilon_record']} and delta = {deletion['delta']}"
        self.screen.say(f"\nThe certified model's receipt for customer 100 says instead, with {terms}:")
        self.screen.say(deletion["statement"])

    def receipt(self, statement: str) -> dict[str, Any]:
        """Return a receipt."""
        row: tuple[dict[str, Any]] | None = self.connection.execute(statement).fetchone()
        return row[0] if row else {}

    def compare(self) -> beside.Fresh:
        """Compute the model on the spot from the rows that are left, and put it beside what is stored."""
        rows = self.rows()
        constants, sums, _, _ = self.stored()
        computed = beside.fresh(rows)
        self.screen.table(
            ("SHA-256 of the state", "stored in Postgres", f"computed now from the {len(rows)} rows"),
            (
                ("constants", beside.short(constants), beside.short(computed.constants)),
                (f"sums, {len(sums)} bytes", beside.short(sums), beside.short(computed.sums)),
            ),
        )
        same = (constants, sums) == (computed.constants, computed.sums)
        self.screen.say("[bold green]The same, byte for byte.[/]" if same else "[bold red]They differ.[/]")
        return computed

    def work(self) -> float:
        """Let the worker do all there is to do; return how long it took."""
        began = time.monotonic()
        self.worker.run_once()
        return time.monotonic() - began

    def rows(self) -> list[Customer]:
        """Return the table."""
        found = self.connection.execute("select c.* from mempair_demo.customers c order by id").fetchall()
        return [Customer(*row) for row in found]

    def stored(self) -> tuple[bytes, bytes, int, bool]:
        """Return the model's constants and sums, how many rows it knows, and whether the person is among them."""
        constants, sums, rows, known = self.connection.execute(STORED).fetchone() or ({}, b"", 0, False)
        return json.dumps(constants, sort_keys=True, separators=(",", ":")).encode(), bytes(sums), rows, known

    def scores(self, model: str = "demo_churn") -> Scores:
        """Return everybody's score."""
        found = self.connection.execute("select row_key, prediction from mempair.predict_all(%s)", [model]).fetchall()
        return {int(key): float(score) for key, score in found}

    def budget(self) -> tuple[int, int, int]:
        """Return the certified model's epoch, what is spent, and the cap."""
        epoch, spent, cap = self.connection.execute(BUDGET).fetchone() or (0, 0, 1)
        return epoch, spent, cap


def largest(before: Scores, after: Scores, who: list[int]) -> float:
    """Return the largest move of a score of these customers."""
    return max(abs(before[number] - after[number]) for number in who)


def run(dsn: str | None, console: Console) -> None:
    """Tell the story."""
    compile_meanwhile()
    began = time.monotonic()
    console.rule("[bold]Postgres tables that learn on INSERT and provably forget on DELETE")
    with console.status("Starting Postgres, installing schema mempair ..."):
        address = server.ensure(dsn)
        install(address)
    with connect(address, autocommit=True) as connection:
        start_over(connection)
        (version,) = connection.execute("show server_version").fetchone() or ("",)
        console.print(f"Postgres {version} is running; schema mempair is installed.", highlight=False)
        story = Story(connection, Worker(address), Screen(console))
        story.learn()
        story.predict()
        story.forget_one()
        story.forget_many()
        story.certify()
        story.prove()
    next_steps(console, address, embedded=settings.dsn(dsn) is None, seconds=time.monotonic() - began)


def start_over(connection: psycopg.Connection[Any]) -> None:
    """Remove what an earlier telling left."""
    for name in ("demo_churn", "demo_certified"):
        if connection.execute("select from mempair.model where name = %s", [name]).fetchone() is not None:
            connection.execute("select mempair.drop_model(%s)", [name])
    connection.execute("set client_min_messages = warning")
    connection.execute("drop schema if exists mempair_demo cascade")
    connection.execute("create schema mempair_demo")
    connection.execute("set client_min_messages = notice")


def next_steps(console: Console, address: str, *, embedded: bool, seconds: float) -> None:
    """Say what can be done now."""
    console.print()
    console.rule(f"[bold]What next (this took {seconds:.0f} s)")
    mempair = "mempair" if shutil.which("mempair") else os.path.relpath(sys.argv[0])
    if mempair.endswith("__main__.py"):
        mempair = f"{os.path.relpath(sys.executable)} -m mempair_db"
    psql = f'psql "{address}"' if shutil.which("psql") else f"{mempair} psql"
    for what, command in (
        ("Check the model:", f"{mempair} verify demo_churn"),
        ("Keep learning:  ", f"{mempair} worker"),
        ("Look around:    ", psql),
    ):
        console.print(f"{what} [bold]{command}[/bold]", soft_wrap=True, highlight=False)
    if embedded:
        console.print(f"[dim]The server keeps running; `{mempair} down` stops it.[/dim]", highlight=False)
