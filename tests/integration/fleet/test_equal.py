"""Bit-equality: the same rows on 1, 2, 3 and 7 shards, in any distribution, have the same constants and sums."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from mempair_db.fleet.refresh import refresh_fleet
from mempair_db.pair.exact import sums
from mempair_db.pair.sums import Sums
from tests.integration.fleet.conftest import Shards

SALT = 7


def life(fleet: Shards, seed: int) -> list[tuple[bytes, bytes]]:
    """A history that ends with the same rows however they are distributed; what the fleet was after each chapter."""
    place = random.Random(seed)
    home = {i: place.randrange(len(fleet)) for i in range(1, 481)}
    chapters = []

    def chapter() -> None:
        fleet.work()
        fleet.sync()
        chapters.append((fleet.reference().to_bytes(), fleet.total().to_bytes()))

    fleet.declare()
    fleet.spread(1, 400, home.__getitem__)
    refresh_fleet(fleet.computing, fleet.known, "churn", "test", SALT)
    chapter()
    fleet.spread(401, 480, home.__getitem__)  # not enough for another refresh
    for i in range(3, 480, 17):  # reference rows and others
        fleet[home[i]](f"delete from shop where id = {i}")
    for i in range(5, 480, 31):
        fleet[home[i]](f"update shop set age = age + 1, plan = 'pro' where id = {i}")
    moved = [fleet[home[i]].execute("delete from shop where id = %s returning *", i) for i in range(1, 480, 29)]
    fleet.work()  # a row that comes back to its shard before it was forgotten never left, and stays a reference row
    for row in (rows[0] for rows in moved if rows):
        fleet[place.randrange(len(fleet))].execute("insert into shop values (%s, %s, %s, %s, %s, %s)", *row)
    chapter()
    fleet[place.randrange(len(fleet))]("insert into shop values (2000, null, null, 1e9, 'odd', true)")
    refresh_fleet(fleet.computing, fleet.known, "churn", "test", SALT + 1)
    chapter()
    return chapters


def in_one_database(fleet: Shards) -> Sums:
    """The sums of all rows, under the fleet's constants, by the pair alone."""
    query = "select age, spend::float8, plan, churned::int from shop"
    rows = [row for world in fleet.worlds for row in world.execute(query)]
    x = np.array([[np.nan if age is None else age, spend] for age, spend, _, _ in rows])
    return sums(fleet.reference(), x, np.array([float(row[3]) for row in rows]), [[row[2]] for row in rows])


def test_the_same_rows_in_any_distribution_have_the_same_bits(make_fleet: Callable[[int], Shards]) -> None:
    alone = life(make_fleet(1), 0)
    assert len(set(alone)) == len(alone)  # every chapter changed something
    for shards in (2, 3, 7):
        fleet = make_fleet(shards)
        assert life(fleet, shards) == alone
        assert in_one_database(fleet).to_bytes() == fleet.total().to_bytes()
        first, *others = fleet.served()
        for other in others:  # every shard serves the same model: sums of the same integers
            for one, two in zip(first, other, strict=True):
                assert np.array_equal(one, two)
    for world in fleet.worlds:
        world.check_ledger()
