"""Embeddings: a column of numbers for each text, and a model that knows which messages are complaints.

Here eight invented numbers stand for an embedding, in a `real[]`. With pgvector the column is a `vector(8)`, and the
feature is its name alone. Who deletes a message has its embedding forgotten with it.
"""

from __future__ import annotations

import random
from typing import Any

import psycopg

from mempair_db.client import Client
from mempair_db.examples import afresh, main, work

SIZE = 8
TABLE = """
drop table if exists example_messages cascade;
create table example_messages (id integer primary key, meaning real[] not null, complaint boolean)
"""


def message(number: int, chance: random.Random) -> dict[str, Any]:
    """Invent an embedding: complaints lie in one direction, the others in another."""
    complaint = chance.random() < 0.3
    meaning = [chance.gauss(0.6 if complaint and place < 3 else 0.0, 0.5) for place in range(SIZE)]
    return {"id": number, "meaning": meaning, "complaint": complaint}


def run(client: Client) -> dict[str, Any]:
    """Learn messages, sort out those that nobody has read yet, and forget one."""
    chance = random.Random(13)  # noqa: S311
    afresh(client, "example_complaints")
    with psycopg.connect(client.dsn, autocommit=True) as session:
        session.execute(TABLE)
        features = [f"meaning:{SIZE}"]
        client.create_model("example_complaints", "example_messages", target="complaint", features=features)
        client.learn("example_complaints", [message(number, chance) for number in range(1000)])
        client.learn(
            "example_complaints", [message(number, chance) | {"complaint": None} for number in range(1000, 1010)]
        )
        work(client)
        unread = session.execute(
            "select id, mempair_predict('example_complaints', m) from example_messages m where complaint is null"
            " order by 2 desc"
        ).fetchall()
    figures = client.evaluate("example_complaints")
    client.forget("example_complaints", 42)
    work(client)
    return {
        "auc": figures["auc"],
        "first_to_read": unread[0],
        "unread": len(unread),
        "asked": client.predict("example_complaints", {"meaning": [0.9] * 3 + [0.0] * 5}),
        "receipt": client.receipt("example_complaints", 42),
    }


if __name__ == "__main__":
    main(run)
