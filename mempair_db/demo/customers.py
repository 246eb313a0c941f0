"""Invented customers, the same every time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any, NamedTuple

import psycopg

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


class Customer(NamedTuple):
    """A row of the table."""

    id: int
    age: int
    signed_up: date
    plan: str
    monthly_spend: float
    newsletter: bool
    churned: bool


def invent(first: int, count: int) -> Iterator[Customer]:
    """Young ones on the basic plan who never joined the newsletter leave most often."""
    chance = random.Random(first + 1)  # noqa: S311 - the same customers every time
    for number in range(first, first + count):
        age = min(90, max(18, round(chance.gauss(45, 15))))
        days = chance.randrange(2_000)
        plan = chance.choices(("basic", "plus", "pro"), (5, 3, 2))[0]
        spend = round(chance.lognormvariate({"basic": 2.5, "plus": 3.4, "pro": 4.2}[plan], 0.4), 2)
        newsletter = chance.random() < 0.4
        score = 1.2 - 0.05 * (age - 45) - 0.001 * days - newsletter + {"basic": 1.0, "plus": -0.5, "pro": -1.5}[plan]
        joined = date(2026, 1, 1) - timedelta(days=days)
        yield Customer(number, age, joined, plan, spend, newsletter, score + chance.gauss(0, 1.5) > 0)


def insert(connection: psycopg.Connection[Any], customers: Iterable[Customer]) -> None:
    """Load them into the table."""
    with connection.cursor() as cursor, cursor.copy("copy mempair_demo.customers from stdin") as copy:
        for customer in customers:
            copy.write_row(customer)
