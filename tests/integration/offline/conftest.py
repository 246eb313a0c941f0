"""A table, a model and a worker in a few lines, and one exported story that many tests read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from psycopg import sql

from mempair_db.offline.export import export
from mempair_db.offline.folder import Offline, read
from tests.world import World, fresh_database, opened

ROWS = 2_500


class Customers(World):
    """A table of customers, a model of who leaves, and exports of it."""

    def fill(self, first: int, last: int) -> None:
        rng = np.random.default_rng(first)
        with self.sql.cursor().copy("copy customers from stdin") as copy:
            for number in range(first, last):
                age, spend = rng.normal(size=2).tolist()
                left = age + 0.5 * spend + rng.normal() > 0
                copy.write_row((number, age, spend, "abc"[number % 3], left))

    def delete(self, *keys: int) -> None:
        for key in keys:
            self.sql.execute("delete from customers where id = %s", [key])
            self.work()

    def export(self, folder: Path, *, rows: bool = True) -> Offline:
        export(self.dsn, folder, rows=rows)
        return read(folder)


def learned_customers(world: World, rows: int = ROWS, **options: Any) -> Customers:
    """Declare the model and let it learn."""
    shop = Customers(world.dsn, world.sql)
    shop("create table customers (id int primary key, age float8, spend float8, plan text, left_us boolean)")
    shop.fill(0, rows)
    chosen = {"lambda": 0.03, "target": "left_us", "features": ["age", "spend", "plan"], **options}
    extra = sql.SQL("").join(sql.SQL(", {} => {}").format(sql.Identifier(k), v) for k, v in chosen.items())
    shop.sql.execute(sql.SQL("select mempair.create_model('churn', 'customers'{})").format(extra))
    shop.work()
    return shop


@pytest.fixture
def shop(world: World) -> Customers:
    """A model that has learned, and nothing deleted yet."""
    return learned_customers(world)


@pytest.fixture
def make_shop(world: World) -> Callable[..., Customers]:
    """The same, with other options."""
    return lambda rows=ROWS, **options: learned_customers(world, rows, **options)


@pytest.fixture(scope="session")
def story(server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offline]:
    """The export of a model from which three rows were deleted, one after the other."""
    with fresh_database(server_dsn, template_database) as dsn, opened(dsn) as world:
        shop = learned_customers(world)
        shop.delete(3, 1200)
        shop.fill(ROWS, ROWS + 300)
        shop.work()
        shop.delete(ROWS + 299)
        yield shop.export(tmp_path_factory.mktemp("story") / "export")
