"""A regression: what a flat costs. With `curves` a number need not act along a straight line."""

from __future__ import annotations

import random

import psycopg

from mempair_db.client import Client
from mempair_db.examples import afresh, main, work

TABLE = """
drop table if exists example_flats cascade;
create table example_flats (
    id integer primary key, size numeric, floor integer, district text, built date, rent numeric)
"""


def flat(number: int, chance: random.Random) -> dict[str, object]:
    """Invent a flat: rent grows with size, ever more slowly; the middle floors are dearest."""
    size, floor = chance.uniform(20, 150), chance.randrange(10)
    district = chance.choice(["centre", "north", "south"])
    rent = 60 * size**0.6 - 4 * (floor - 5) ** 2 + {"centre": 200, "north": 0, "south": 60}[district]
    built = f"{chance.randrange(1900, 2020)}-01-01"
    return {
        "id": number,
        "size": round(size, 1),
        "floor": floor,
        "district": district,
        "built": built,
        "rent": round(rent + chance.gauss(0, 30), 2),
    }


def run(client: Client) -> dict[str, float]:
    """Learn straight lines and curves side by side, and compare them on the same rows."""
    chance = random.Random(5)  # noqa: S311
    afresh(client, "example_rent", "example_rent_straight")
    with psycopg.connect(client.dsn, autocommit=True) as session:
        session.execute(TABLE)
        features = ["size", "floor", "district", "built"]
        client.create_model("example_rent", "example_flats", target="rent", features=features, curves=4)
        client.create_model("example_rent_straight", "example_flats", target="rent", features=features, curves=0)
        client.learn("example_rent", [flat(number, chance) for number in range(1500)])
        work(client)
        compared = session.execute(
            "select first_loss, second_loss from mempair.compare('example_rent', 'example_rent_straight')"
        ).fetchone()
    assert compared is not None  # noqa: S101
    figures = client.evaluate("example_rent")
    return {
        "r2": figures["r2"],
        "error_with_curves": compared[0],
        "error_of_straight_lines": compared[1],
        "rent_of_80_square_metres": client.predict("example_rent", {"size": 80, "floor": 5, "district": "centre"}),
    }


if __name__ == "__main__":
    main(run)
