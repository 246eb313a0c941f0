"""Partitions on another server (postgres_fdw): what Postgres refuses, what we say to it, and what works instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mempair_db.database.install import install
from mempair_db.embedded.server import Server
from tests.conftest import Run
from tests.world import World

COLUMNS = "(id integer primary key, age float8, plan text, spend numeric, note text, churned boolean)"
SHOP = f"""
create table shop {COLUMNS.replace(" primary key", "")} partition by range (id);
create table shop_here partition of shop for values from (1) to (1000);
"""
TRIGGER = """
create trigger seen after insert on {table} referencing new table as came for each statement execute function seen()
"""
FOREIGN = "create foreign table shop_there partition of shop for values from (1000) to (9000) server other"
ROWS = "insert into shop select i, 20 + i %% 50, 'pro', i, 'n', i %% 2 = 0 from generate_series(%s::int, %s::int) i"


@pytest.fixture
def servers(server_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, World]]:
    """Two databases: one with a table whose next partition can lie in the other."""
    found = sorted(Path("/usr/share/postgresql").glob("*/extension/postgres_fdw.control"))
    if not found:
        pytest.skip("needs a PostgreSQL on the PATH that has postgres_fdw")
    monkeypatch.setenv("MEMPAIR_PG_BIN", f"/usr/lib/postgresql/{found[-1].parent.parent.name}/bin")
    here = Server(server_home).start()
    try:
        with psycopg.connect(here, autocommit=True) as connection:
            connection.execute("create database there")
        there = make_conninfo(here, dbname="there")
        for dsn in (here, there):
            install(dsn)
        with psycopg.connect(here, autocommit=True) as one, psycopg.connect(there, autocommit=True) as other:
            other.execute(f"create table shop_there {COLUMNS}")
            one.execute(SHOP)
            link(one, there)
            yield World(here, one), World(there, other)
    finally:
        Server(server_home).stop("immediate")  # while the variable says whose binaries they are


def link(connection: psycopg.Connection[Any], there: str) -> None:
    parts = conninfo_to_dict(there)
    options = {name: str(parts[name]) for name in ("host", "port", "dbname") if parts.get(name)}
    said = ", ".join(f"{name} '{value}'" for name, value in {**options, "batch_size": "100"}.items())
    connection.execute("create extension postgres_fdw")
    connection.execute(f"create server other foreign data wrapper postgres_fdw options ({said})")
    user = ", ".join(f"{name} '{parts[name]}'" for name in ("user", "password") if parts.get(name))
    connection.execute(f"create user mapping for current_user server other options ({user})")


MODEL = (
    "select mempair.create_model('churn', '{table}', target => 'churned', features => array['age', 'plan', 'spend'])"
)


def test_a_foreign_partition_is_refused_with_what_to_do_and_captured_where_it_lies(
    servers: tuple[World, World],
) -> None:
    here, there = servers
    here(FOREIGN)
    here("create function public.seen() returns trigger language plpgsql as $$ begin return null; end $$")
    with pytest.raises(psycopg.Error, match="is a foreign table") as plain:  # Postgres itself, without us
        here(TRIGGER.format(table="shop_there"))
    assert "transition tables" in str(plain.value)
    here(TRIGGER.format(table="shop"))
    with pytest.raises(psycopg.Error, match="cannot collect transition tuples from child foreign tables"):
        here.execute(ROWS, 1000, 1299)
    here("drop trigger seen on shop")
    with pytest.raises(psycopg.Error, match="shop_there is a foreign table, whose rows no trigger sees") as refused:
        here(MODEL.format(table="shop"))
    assert "mempair fleet" in str(refused.value)

    there(MODEL.format(table="shop_there"))  # what works: the model is where the rows are
    here.execute(ROWS, 1000, 1299)  # through the parent
    there.work()
    assert there.one("select rows_learned from mempair.state") == 300
    here("delete from shop where id = 1007")
    there.work()
    assert there.one("select rows_learned from mempair.state") == 299
    assert here.one("select count(*) from shop") == 299


def test_a_foreign_partition_that_comes_later_ends_capture_and_never_a_write(
    servers: tuple[World, World], mempair: Run
) -> None:
    here, _ = servers
    here("alter table shop add primary key (id)", MODEL.format(table="shop"))
    here("create table other (id int primary key, x float8, y boolean)")
    here("select mempair.create_model('other', 'other', target => 'y', features => '{x}')")
    here.execute(ROWS, 1, 300)
    here("insert into other select i, i % 17, i % 3 = 0 from generate_series(1, 300) i")
    here.work()
    with pytest.raises(psycopg.Error, match="contains indexes that are unique"):  # Postgres itself
        here(FOREIGN)

    here("alter table shop drop constraint shop_pkey", FOREIGN)  # who insists
    with pytest.raises(psycopg.Error, match="cannot collect transition tuples from child foreign tables"):
        here.execute(ROWS, 1000, 1009)
    assert "a partition is a foreign table" in findings(mempair, here.dsn)
    here("delete from other where id = 7")
    here.work()  # at the latest ten seconds after it came
    here.execute(ROWS, 1000, 1009)
    here("update shop set age = 30 where id in (5, 1005)", "delete from shop where id in (6, 1006)")
    status, reason = here.one("select status, reason from mempair.model_status where model = 'churn'")
    assert status == "failed"
    assert "shop_there is a foreign table" in reason
    assert "mempair reconcile churn --repair" in reason
    assert "a partition is a foreign table" in str(here.execute("select finding from mempair.reconcile('churn')"))
    # One model's trouble is not another's.
    assert here.one("select status, rows_learned from mempair.model_status where model = 'other'") == ("ready", 299)

    here("alter table shop detach partition shop_there", "alter table shop add primary key (id)")
    assert mempair("reconcile", "churn", "--repair", "--dsn", here.dsn)[0] in (0, 5)
    here("select mempair.resume_model('churn')")
    here.execute(ROWS, 400, 409)
    here.work()
    assert here.learned("churn") == {key for (key,) in here.execute("select id::text from shop")}
    assert here.execute("select * from mempair.reconcile('churn')") == []
    assert "churn" not in findings(mempair, here.dsn)


def findings(mempair: Run, dsn: str) -> str:
    """What the doctor says is wrong."""
    rows = json.loads(mempair("doctor", "--json", "--dsn", dsn)[1])
    return "; ".join(f"{row['fact']}: {row['remedy']}" for row in rows if row["remedy"])
