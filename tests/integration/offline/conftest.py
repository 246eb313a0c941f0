"""A table, a model and a worker in a few lines, and one exported story that many tests read."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from mempair_db.offline.export import export
from mempair_db.offline.folder import Offline, read
from mempair_db.worker.loop import Worker

ROWS = 2_500
OWNER, PASSWORD = "mempair_owner", "owner"  # as tests/conftest.py makes it


@dataclass
class Shop:
    """A database with customers, and a model of who leaves."""

    dsn: str

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def work(self) -> None:
        Worker(self.dsn).run_once()

    def fill(self, first: int, last: int) -> None:
        rng = np.random.default_rng(first)
        with (
            psycopg.connect(self.dsn, autocommit=True) as connection,
            connection.cursor().copy("copy customers from stdin") as copy,
        ):
            for number in range(first, last):
                age, spend = rng.normal(size=2).tolist()
                left = age + 0.5 * spend + rng.normal() > 0
                copy.write_row((number, age, spend, "abc"[number % 3], left))

    def delete(self, *keys: int) -> None:
        for key in keys:
            self.execute("delete from customers where id = %s", key)
            self.work()

    def export(self, folder: Path, *, rows: bool = True) -> Offline:
        export(self.dsn, folder, rows=rows)
        return read(folder)


def open_shop(dsn: str, rows: int = ROWS, **options: Any) -> Shop:
    shop = Shop(dsn)
    shop.execute("create table customers (id int primary key, age float8, spend float8, plan text, left_us boolean)")
    shop.fill(0, rows)
    chosen = {"lambda": 0.03, "target": "left_us", "features": ["age", "spend", "plan"], **options}
    extra = sql.SQL("").join(sql.SQL(", {} => {}").format(sql.Identifier(k), v) for k, v in chosen.items())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("select mempair.create_model('churn', 'customers'{})").format(extra))
    shop.work()
    return shop


@pytest.fixture
def shop(database: str) -> Shop:
    """A model that has learned, and nothing deleted yet."""
    return open_shop(database)


@pytest.fixture
def make_shop(database: str) -> Callable[..., Shop]:
    """The same, with other options."""
    return lambda rows=ROWS, **options: open_shop(database, rows, **options)


@pytest.fixture(scope="session")
def story(server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offline]:
    """The export of a model from which three rows were deleted, one after the other."""
    name = f"test_{secrets.token_hex(8)}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        create = sql.SQL("create database {} template {} owner {}")
        connection.execute(create.format(*map(sql.Identifier, (name, template_database, OWNER))))
    with contextlib.ExitStack() as stack:
        stack.callback(_drop, server_dsn, name)
        shop = open_shop(make_conninfo(server_dsn, dbname=name, user=OWNER, password=PASSWORD))
        shop.delete(3, 1200)
        shop.fill(ROWS, ROWS + 300)
        shop.work()
        shop.delete(ROWS + 299)
        yield shop.export(tmp_path_factory.mktemp("story") / "export")


def _drop(server_dsn: str, name: str) -> None:
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
