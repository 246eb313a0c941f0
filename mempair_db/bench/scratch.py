"""A database of its own for a benchmark, with a captured table, a bare twin and a worker; dropped afterwards."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from mempair_db.database import arrays
from mempair_db.database.install import install
from mempair_db.embedded import server


@contextmanager
def database(dsn: str | None) -> Iterator[str]:
    """Create a database with schema mempair on the server of this DSN."""
    address = server.ensure(dsn)
    name = f"mempair_bench_{secrets.token_hex(4)}"
    with psycopg.connect(address, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            scratch = make_conninfo(address, dbname=name)
            install(scratch)
            yield scratch
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def worker(dsn: str) -> Iterator[psutil.Process]:
    """Run `mempair worker` as a process of its own, and end it as an operator would."""
    environment = {**os.environ, "MEMPAIR_DSN": dsn}
    process = subprocess.Popen([sys.executable, "-m", "mempair_db", "worker"], env=environment)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=180)


class Table:
    """A table of d numbers and a label, with or without a model on it."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        name: str,
        d: int,
        *,
        model: bool = True,
        unlearner: str = "symmetric",
    ) -> None:
        """Create it."""
        self.connection = connection
        self.name = sql.Identifier(name)
        self.columns = [f"x{j}" for j in range(1, d + 1)]
        self.d = d
        self.model = name if model else None
        self.next_id = 1
        numbers = sql.SQL(", ").join(sql.SQL("{} float8").format(sql.Identifier(column)) for column in self.columns)
        connection.execute(sql.SQL("create table {} (id bigint primary key, y boolean, {})").format(self.name, numbers))
        if model:
            connection.execute(
                "select mempair.create_model(%s, %s::text::regclass, 'y', %s::text[], unlearner => %s, lambda => %s)",
                [name, name, self.columns, unlearner, None if unlearner == "exact" else 0.01],
            )

    def block(self, rows: int) -> bytes:
        """Return rows with new keys in COPY's binary format: the client's own work is then next to nothing."""
        rng = np.random.default_rng(self.next_id)
        x = rng.normal(size=(rows, self.d))
        fields = [("count", ">i2"), ("id_length", ">i4"), ("id", ">i8"), ("y_length", ">i4"), ("y", "i1")]
        row = np.empty(rows, [*fields, ("x", arrays.ELEMENT, (self.d,))])
        row["count"], row["id_length"], row["y_length"] = self.d + 2, 8, 1
        row["id"] = np.arange(self.next_id, self.next_id + rows)
        row["y"] = x[:, 0] + rng.normal(size=rows) > 0
        row["x"]["length"], row["x"]["value"] = 8, x
        self.next_id += rows
        return b"PGCOPY\n\xff\r\n\x00" + bytes(8) + row.tobytes() + b"\xff\xff"

    def copy_in(self, block: bytes) -> None:
        """COPY rows in."""
        with self.connection.cursor() as cursor, cursor.copy(self.format("copy {} from stdin (format binary)")) as copy:
            copy.write(block)

    def fill(self, rows: int) -> None:
        """COPY new rows in."""
        self.copy_in(self.block(rows))

    def values(self, rows: int) -> list[list[Any]]:
        """Return new rows as parameters of `insert`."""
        rng = np.random.default_rng(self.next_id)
        first, self.next_id = self.next_id, self.next_id + rows
        numbers: list[list[float]] = rng.normal(size=(rows, self.d)).tolist()
        return [[first + i, numbers[i][0] > 0, *numbers[i]] for i in range(rows)]

    def insert(self) -> sql.Composed:
        """Return an INSERT of one row."""
        return self.format("insert into {} values ({})", sql.SQL(", ").join([sql.Placeholder()] * (self.d + 2)))

    def format(self, statement: str, *more: sql.Composable) -> sql.Composed:
        """Fill in the table's name, and what follows."""
        return sql.SQL(statement).format(self.name, *more)

    def drop(self) -> None:
        """Remove it with its model."""
        if self.model:
            self.connection.execute("select mempair.drop_model(%s)", [self.model])
        self.connection.execute(self.format("drop table {}"))
