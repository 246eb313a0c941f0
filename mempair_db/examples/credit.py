"""Credit scoring with several classes: a loan is paid in time, paid late, or lost. The applicants are invented."""

from __future__ import annotations

import math
import random
from typing import Any

import psycopg

from mempair_db.client import Client
from mempair_db.examples import afresh, main, work

TABLE = """
drop table if exists example_loans cascade;
create table example_loans (
    id integer primary key, income numeric, amount numeric, years integer, housing text, purpose text, outcome text)
"""
FEATURES = ["income", "amount", "years", "housing", "housing * purpose"]


def loan(number: int, chance: random.Random) -> dict[str, object]:
    """Invent a loan: the more is owed for each unit of income, the worse; years in a job help."""
    income, amount, years = chance.uniform(15, 90), chance.uniform(2, 60), chance.randrange(20)
    housing = chance.choice(["own", "rent"])
    risk = 3 * amount / income - 0.15 * years + (0.7 if housing == "rent" else 0.0)
    weights = [1.0, math.exp(risk - 1.5), math.exp(2 * risk - 4)]
    return {
        "id": number,
        "income": round(income, 2),
        "amount": round(amount, 2),
        "years": years,
        "housing": housing,
        "purpose": chance.choice(["car", "home", "study"]),
        "outcome": chance.choices(["in time", "late", "lost"], weights)[0],
    }


def run(client: Client) -> dict[str, Any]:
    """Learn how loans ended, ask about two applicants, say why, and forget a third."""
    chance = random.Random(11)  # noqa: S311
    afresh(client, "example_credit")
    with psycopg.connect(client.dsn, autocommit=True) as session:
        session.execute(TABLE)
    client.create_model("example_credit", "example_loans", target="outcome", features=FEATURES)
    client.learn("example_credit", [loan(number, chance) for number in range(1500)])
    work(client)
    figures = client.evaluate("example_credit")
    safe = {"income": 80, "amount": 5, "years": 15, "housing": "own", "purpose": "home"}
    risky = {"income": 18, "amount": 55, "years": 0, "housing": "rent", "purpose": "car"}
    reasons = {
        each["feature"]: round(each["contribution"], 2)
        for each in client.explain("example_credit", risky)
        if each["class"] == "lost"
    }
    client.forget("example_credit", 42)
    work(client)
    return {
        "log_loss": figures["log_loss"],
        "base_log_loss": figures["base_log_loss"],
        "safe": client.predict_class("example_credit", safe),
        "risky": client.predict_proba("example_credit", risky),
        "reasons": reasons,
        "receipt": client.receipt("example_credit", 42),
    }


if __name__ == "__main__":
    main(run)
