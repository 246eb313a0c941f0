"""Roles of every kind, and a database in which they have been granted what they need, before its models were made."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from mempair_db.worker.loop import Worker
from tests.world import World

KINDS = ("worker", "reader", "auditor", "operator", "stranger")

# Of every kind that is generated: text and no text, classifier and regression, partitions, a subject.
MODELS = """
create table customers (id int primary key, age int, plan text, churned boolean, income float8);
create table parts (id int primary key, x float8, y boolean) partition by range (id);
create table part partition of parts for values from (0) to (10);
select mempair.create_model('churn', 'customers', target => 'churned', features => '{age,plan}', subject => 'id');
select mempair.create_model('income', 'customers', target => 'income', features => '{age}');
select mempair.create_model('parts', 'parts', target => 'y', features => '{x}');
"""
CUSTOMERS = """
create table customers (id integer primary key, age float8, plan text, secret text, churned boolean);
select mempair.create_model('churn', 'customers', target => 'churned', features => array['age', 'plan'],
                            lambda => 0.01, calibration_rows => 200, gamma => 100);
insert into customers
select i, 20 + i * 7919 % 50, (array['a', 'b'])[1 + i % 2], 'secret ' || i, (i * 7919 % 50) < 25
from generate_series(1, 1000) i;
"""


class Site(World):
    """A world that others can reach as well, each under a name of its own."""

    names: dict[str, str]

    def as_(self, kind: str) -> str:
        return make_conninfo(self.dsn, user=self.names[kind], password=self.names[kind])


@pytest.fixture(scope="session")
def roles(server_dsn: str) -> Iterator[dict[str, str]]:
    names = {kind: f"test_{kind}_{secrets.token_hex(4)}" for kind in KINDS}
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        for name in names.values():
            connection.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(name), name))
    yield names
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        for name in names.values():
            with contextlib.suppress(psycopg.errors.DependentObjectsStillExist):
                connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.fixture
def site(world: World, roles: dict[str, str]) -> Site:
    """The roles are granted first; the model is created afterwards. Nothing has been learned yet."""
    site = Site(world.dsn, world.sql)
    site.names = roles
    for kind in KINDS[:-1]:
        site.execute("select mempair.grant_role(%s, %s)", roles[kind], kind)
    site(CUSTOMERS)
    return site


@pytest.fixture
def learned(site: Site) -> Site:
    """As `site`, after the worker, under its own role, has learned everything and forgotten row 1."""
    Worker(site.as_("worker")).run_once()
    site("delete from customers where id = 1")
    Worker(site.as_("worker")).run_once()
    site.sql.execute(sql.SQL("grant select on customers to {}").format(sql.Identifier(site.names["reader"])))
    return site


@pytest.fixture
def refused() -> Callable[[str, str], None]:
    """Asserts that a statement is refused for lack of a privilege."""

    def check(dsn: str, statement: str) -> None:
        with psycopg.connect(dsn) as connection:
            try:
                connection.execute(statement)
            except psycopg.errors.InsufficientPrivilege:
                connection.rollback()
            else:
                pytest.fail(f"was not refused: {statement}")

    return check
