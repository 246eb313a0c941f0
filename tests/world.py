"""The world that tests act in: a database with schema mempair, its owner's connection, and a worker that runs if asked.

Most tests need no more than the table `shop` and the model `churn` on it. A test that is about another table makes it,
and uses the rest.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from mempair_db.database import models
from mempair_db.database.connect import connect
from mempair_db.database.exact import refer
from mempair_db.ledger.record import Outcome
from mempair_db.pair import state as states
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.state import State
from mempair_db.worker import batch, reference
from mempair_db.worker.loop import Worker

OWNER = "mempair_owner"
OWNER_PASSWORD = "owner"

SHOP = "create table shop (id integer primary key, age float8, plan text, spend numeric, note text, churned boolean)"
CHURN = """
select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'],
                            unlearner => 'symmetric', lambda => 0.01, calibration_rows => 200, gamma => 0.3,
                            on_null => 'skip')
"""
FILL = """
insert into shop
select i, 20 + i * 7919 %% 50, (array['basic', 'plus', 'pro'])[1 + i %% 3], i::bigint * 104729 %% 1000 / 10.0, 'n',
       (i * 7919 %% 50) + (i * 31 %% 17) < 32
from generate_series(%s::integer, %s::integer) i
"""

EVERY_ROW = 0, 2**63 - 1  # salt and threshold of a sample that has all of them


class World:
    """A database, and what can be asked of it."""

    def __init__(self, dsn: str, connection: psycopg.Connection[Any]) -> None:
        self.dsn = dsn
        self.sql = connection
        self.outcomes: list[Outcome] = []

    def __call__(self, *statements: str) -> None:
        for statement in statements:
            self.sql.execute(statement)

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, if it has any."""
        cursor = self.sql.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *values: Any) -> Any:
        """Return the only value of the first row, or the row."""
        row = self.sql.execute(statement, values or None).fetchone()
        assert row is not None
        return row[0] if len(row) == 1 else row

    def work(self) -> None:
        """Let a worker apply what waits."""
        Worker(self.dsn, report=lambda _, outcome: self.outcomes.append(outcome)).run_once()

    def fill(self, first: int, last: int) -> None:
        """Insert rows with these numbers into `shop`."""
        self.sql.execute(FILL, [first, last])

    def learned(self, name: str | None = None) -> set[str]:
        """Return the keys of the rows that a model knows."""
        rows = self.sql.execute(
            "select l.row_key from mempair.learned l join mempair.model m on m.id = l.model_id"
            " where m.name = coalesce(%s, m.name)",
            [name],
        )
        return {key for (key,) in rows}

    def rows(self) -> set[str]:
        """Return the keys of the rows of `shop` that can be learned."""
        usable = "select id::text from shop where churned is not null and age < 'infinity'"
        return {key for (key,) in self.sql.execute(usable)}

    def kinds(self) -> list[tuple[str, int]]:
        """Return kind and rows of every ledger entry."""
        return self.sql.execute("select kind, rows from mempair.ledger where kind <> 'purged' order by seq").fetchall()

    def pair(self) -> CertifiedPair:
        """Return the state of model 1 as Python has it."""
        with connect(self.dsn) as connection:
            batch.prepare(connection)
            model = models.lease(connection, 1)
            assert model is not None
            return model.certified.pair

    def replay(self, since: State | None = None) -> State:
        """Return what the epoch's constants make of the learned rows of `shop`, in the order of their ticks.

        `since`: go on from this state, with the rows learned after it.
        """
        pair = self.pair()
        assert pair.epoch is not None
        rows = self.sql.execute(
            "select age, spend::float8, plan, case when churned then 1 else -1 end from shop s"
            " join mempair.learned l on l.row_key = s.id::text where l.tick > %s order by l.tick",
            [int(since.tally["clock"][0]) if since is not None else 0],
        ).fetchall()
        fresh = CertifiedPair(pair.parameters)
        fresh.start(pair.epoch)
        if since is not None:
            fresh.restore(pair.epoch, states.copy(since), pair.odometer)
        numbers, targets = np.array([row[:2] for row in rows], float), np.array([row[3] for row in rows], float)
        fresh.apply(np.ones(len(rows), np.int16), numbers.reshape(-1, 2), targets, [[row[2]] for row in rows])
        return fresh.arrays

    def check_exact(self) -> None:
        """Raise AssertionError unless the bytes of model 1 are those that the rows of its table give, computed anew."""
        with connect(self.dsn) as connection:
            batch.prepare(connection)
            model = models.lease(connection, 1)
            assert model is not None
            engine = model.exact
            assert engine.reference is not None
            assert engine.sums is not None
            rows = reference.read(connection, model, *EVERY_ROW)
            left = reference.without(connection, model, [])
        assert left.dropped == []
        again = refer(engine.terms, left.x, left.y, left.c, engine.reference.labels)
        assert again.to_bytes() == engine.reference.to_bytes()
        anew = engine.sums_of(rows.x, rows.y, rows.c)
        assert anew.to_bytes() == engine.sums.to_bytes()

    def check_ledger(self, name: str = "churn") -> None:
        """Raise AssertionError unless the ledger is whole and its sums are the state's."""
        assert self.sql.execute("select * from mempair.verify_odometer(%s)", [name]).fetchall() == []
        spent, total, last = self.one(
            "select s.spent, (select coalesce(sum(rho), 0) from mempair.ledger l where l.epoch = s.epoch),"
            " (select rho_spent from mempair.ledger order by seq desc limit 1) from mempair.state s"
        )
        assert spent == total == last


def same(one: State | None, other: State | None) -> bool:
    """Whether two states are equal in every bit."""
    if one is None or other is None:
        return one is other
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@contextlib.contextmanager
def opened(dsn: str) -> Iterator[World]:
    """A world in this database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield World(dsn, connection)


@contextlib.contextmanager
def fresh_database(server_dsn: str, template: str) -> Iterator[str]:
    """A database of its own, as its owner, who is no superuser; dropped afterwards."""
    name = f"test_{secrets.token_hex(8)}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        make_owner(connection)
        create = sql.SQL("create database {} template {} owner {}")
        connection.execute(create.format(*map(sql.Identifier, (name, template, OWNER))))
    try:
        yield make_conninfo(server_dsn, dbname=name, user=OWNER, password=OWNER_PASSWORD)
    finally:
        with psycopg.connect(server_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def make_owner(connection: psycopg.Connection) -> None:
    """Create the role that owns the tests' databases."""
    if connection.execute("select from pg_roles where rolname = %s", [OWNER]).rowcount == 0:
        create = sql.SQL("create role {} login password {}").format(sql.Identifier(OWNER), OWNER_PASSWORD)
        # Another worker may be faster.
        with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            connection.execute(create)
