"""What an owner may have set for all sessions of a database: everything gives the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mempair_db.database.queries import query
from tests.conftest import Run
from tests.world import World, opened

SETTINGS = [
    ("standard_conforming_strings", "off"),  # '\\x02' in a function would be another text
    ("extra_float_digits", "-15"),
    ("quote_all_identifiers", "on"),
    ("array_nulls", "off"),
    ("intervalstyle", "sql_standard"),
    ("plpgsql.extra_errors", "'all'"),
]


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_a_database_may_have_its_own_settings(
    empty_database: str, superuser: Callable[[str], str], mempair: Run, tmp_path: Path, name: str, value: str
) -> None:
    with psycopg.connect(superuser(empty_database), autocommit=True) as admin:
        admin.execute(f"alter database {conninfo_to_dict(empty_database)['dbname']} set {name} = {value}")
    assert mempair("install", "--dsn", empty_database)[0] == 0
    with opened(empty_database) as world:
        world("create table t (id integer primary key, age float8, plan text, at timestamptz, y boolean)")
        world("select mempair.create_model('m', 't', 'y', 'age, plan, at:cyclical')")
        world(
            "insert into t select i, i % 50 / 3.0, 'p' || i % 3, now() + i * '7 h'::interval, i % 2 = 0"
            " from generate_series(1, 300) i"
        )
        world.work()
        world("delete from t where id <= 10", "update t set age = age + 1 where id = 20")
        world.work()
        assert world.one("select count(mempair_predict('m', t)) from t") == 290
        assert world.execute("select * from mempair.verify_model('m') where not fine") == []
        assert world.execute("select * from mempair.verify_odometer()") == []
        world(f"set {name} to default")
        assert world.execute("select * from mempair.verify_odometer()") == []
    assert mempair("verify", "m", "--dsn", empty_database)[0] == 0
    if name != "quote_all_identifiers":  # the driver of the fast route does not know types by quoted names
        folder = str(tmp_path / "export")
        assert mempair("export", "--rows", "--out", folder, "--dsn", empty_database)[0] == 0
        assert mempair("audit", "--from", folder)[0] == 0


def test_an_export_may_take_longer_than_a_transaction_may_idle(shop: World, mempair: Run, tmp_path: Path) -> None:
    impatient = make_conninfo(shop.dsn, options="-c idle_in_transaction_session_timeout=60ms")
    code, _, told = mempair("export", "--rows", "--out", str(tmp_path / "export"), "--dsn", impatient)
    assert code == 0, told


def test_queries_under_planner_settings_of_ours_are_not_compiled(world: World) -> None:
    """Before PostgreSQL 18 what is switched off costs so much that a server with LLVM compiles for seconds."""
    with world.sql.transaction():
        world("set jit = on")
        world.sql.execute(query("read_everything"))
        assert world.one("show jit") == "off"
    ours = "select proname, proconfig::text from pg_proc where pronamespace = 'mempair'::regnamespace"
    switched = dict(world.execute(ours + " and proconfig::text ~ 'enable_nestloop'"))
    assert switched
    assert all("jit=off" in settings for settings in switched.values())
