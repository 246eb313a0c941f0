"""Retention: rows live in partitions by month, and whole months are forgotten by dropping their partition."""

from __future__ import annotations

import random
from typing import Any

import psycopg

from mempair_db.client import Client
from mempair_db.examples import afresh, main, work

TABLE = """
drop table if exists example_visits cascade;
create table example_visits (id integer, day date, pages integer, seconds float8, bought boolean, primary key (id, day))
    partition by range (day);
create table example_visits_1 partition of example_visits for values from ('2026-01-01') to ('2026-02-01');
create table example_visits_2 partition of example_visits for values from ('2026-02-01') to ('2026-03-01');
create table example_visits_3 partition of example_visits for values from ('2026-03-01') to ('2026-04-01')
"""


def run(client: Client) -> dict[str, Any]:
    """Learn three months, drop the oldest, and look at what is left of it."""
    chance = random.Random(3)  # noqa: S311
    afresh(client, "example_buys")
    with psycopg.connect(client.dsn, autocommit=True) as session:
        session.execute(TABLE)
        client.create_model("example_buys", "example_visits", target="bought", features=["pages", "seconds"])
        rows = []
        for number in range(1200):
            pages, seconds = chance.randrange(20), chance.uniform(0, 600)
            day = f"2026-0{1 + number % 3}-{1 + number % 28:02}"
            bought = chance.random() < pages / 25
            rows.append({"id": number, "day": day, "pages": pages, "seconds": seconds, "bought": bought})
        client.learn("example_buys", rows)
        work(client)
        session.execute("drop table example_visits_1")
        work(client)
        learned = "select count(*), count(*) filter (where row_key like '%%\"2026-01-%%') from mempair.learned l"
        mine = " join mempair.model m on m.id = l.model_id where m.name = 'example_buys'"
        left, of_january = session.execute(learned + mine, []).fetchone() or (0, 0)
    return {"left": left, "of_january": of_january, "receipt": client.receipt("example_buys", '["0", "2026-01-01"]')}


if __name__ == "__main__":
    main(run)
