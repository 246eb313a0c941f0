"""A schema and a mempair_db that do not fit together: said when connecting, not by a raw SQL error later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from mempair_db.database.connect import connect
from mempair_db.database.install import install
from mempair_db.database.resources import Stamp, stamp
from mempair_db.errors import NotInstalled, SchemaMismatch
from mempair_db.worker import loop
from mempair_db.worker.loop import Worker
from tests.conftest import Run
from tests.snapshot import migrate, snapshot
from tests.world import SHOP, World

NEWER = Stamp("mempair_9999", "9.0.0", "0" * 64)


def pretend(dsn: str, which: Stamp) -> None:
    """Let the database say that another version was installed last."""
    with psycopg.connect(dsn) as connection:
        connection.execute(f"comment on table mempair.alembic_version is '{which}'")


def test_a_worker_and_a_command_name_an_older_schema_and_the_remedy(empty_database: str, mempair: Run) -> None:
    migrate(empty_database, "mempair_0002")
    for work in (Worker(empty_database).run_once, Worker(empty_database).run):
        with pytest.raises(SchemaMismatch, match=r"0\.1\.0 or earlier.*mempair install"):
            work()
    code, _, message = mempair("status", "--dsn", empty_database)
    assert (code, "mempair install" in message) == (6, True)
    assert mempair("install", "--dsn", empty_database)[0] == 0
    assert mempair("status", "--dsn", empty_database)[0] == 0


def test_a_newer_schema_asks_for_a_newer_mempair_db_and_is_not_touched(database: str, mempair: Run) -> None:
    pretend(database, NEWER)
    with pytest.raises(SchemaMismatch, match=r"mempair_9999.*pip install --upgrade"):
        Worker(database).run_once()
    before = snapshot(database)
    for command in ("status", "install"):
        code, _, message = mempair(command, "--dsn", database)
        assert (code, "pip install --upgrade" in message) == (6, True)
    assert snapshot(database) == before


def test_a_running_worker_ends_when_the_schema_becomes_newer(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "HEARTBEAT", 0.05)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(Worker(database).run)
        with psycopg.connect(database, autocommit=True) as connection:
            while connection.execute("select from mempair.worker").rowcount == 0:
                assert not running.done()
        pretend(database, NEWER)
        with pytest.raises(SchemaMismatch, match="pip install --upgrade"):
            running.result(timeout=60)


def test_functions_of_an_older_release_are_brought_up_to_date(database: str) -> None:
    before = snapshot(database)
    pretend(database, stamp()._replace(release="0.0.9", functions="old"))
    with pytest.raises(SchemaMismatch, match="mempair install"), connect(database):
        pass
    install(database)
    assert snapshot(database) == before


def before_turns(world: World) -> None:
    """Undo what no revision before mempair_0014 finds in its way."""
    world("create table mempair.queue (model_id integer primary key, active smallint not null default 0)")
    for (number,) in world.execute("select id from mempair.model"):
        world(f"alter sequence mempair.change_{number}_turn rename to former_{number}")


def test_exact_models_of_before_the_ridge_was_eased_are_read_anew_and_the_first_reason_stays(world: World) -> None:
    world(SHOP)
    world.fill(1, 300)
    for name, ridge in (("small", 1), ("usual", 10)):
        world(
            f"select mempair.create_model('{name}', 'shop', target => 'churned', features => 'age', ridge => {ridge})"
        )
    world.work()
    before_turns(world)
    world("update mempair.alembic_version set version_num = 'mempair_0009'")
    pretend(world.dsn, stamp()._replace(revision="mempair_0009"))
    install(world.dsn)
    asked = dict(world.execute("select name, retrain_requested from mempair.model"))
    assert asked == {
        "small": "the reference weights are chosen with the model's own ridge",
        "usual": "the ridge may be eased, and far targets are counted",
    }
    world.work()
    assert dict(world.execute("select model, epoch from mempair.model_status")) == {"small": 2, "usual": 2}


def test_a_regression_of_before_numbers_could_be_clamped_farther_out_is_read_anew(world: World) -> None:
    world(SHOP)
    world.fill(1, 300)
    world("select mempair.create_model('label', 'shop', target => 'churned', features => 'age')")
    world("select mempair.create_model('number', 'shop', target => 'spend', features => 'age')")
    world.work()
    before_turns(world)
    world("update mempair.alembic_version set version_num = 'mempair_0013'")
    pretend(world.dsn, stamp()._replace(revision="mempair_0013"))
    install(world.dsn)
    asked = dict(world.execute("select name, retrain_requested from mempair.model"))
    assert asked == {"label": None, "number": "numbers of a regression may be clamped farther out"}
    world.work()
    assert dict(world.execute("select model, epoch from mempair.model_status")) == {"label": 1, "number": 2}


def test_a_model_whose_dates_were_numbers_like_any_other_is_read_anew(world: World) -> None:
    world(
        "create domain birthday as date",
        "create table t (id integer primary key, age integer, born birthday, label boolean)",
        "insert into t select i, i % 50, date '2000-01-01' + i, i % 3 = 0 from generate_series(1, 300) i",
        "select mempair.create_model('dated', 't', target => 'label', features => 'age,born')",
        "select mempair.create_model('plain', 't', target => 'label', features => 'age')",
    )
    world.work()
    before_turns(world)
    world("update mempair.model set times = '{}'", "update mempair.alembic_version set version_num = 'mempair_0011'")
    pretend(world.dsn, stamp()._replace(revision="mempair_0011"))
    install(world.dsn)
    assert world.execute("select name, times, retrain_requested from mempair.model order by name") == [
        ("dated", [2], "points in time bend only where that pays"),
        ("plain", [], None),
    ]
    world.work()
    assert dict(world.execute("select model, epoch from mempair.model_status")) == {"dated": 2, "plain": 1}


def test_newer_functions_of_the_same_revision_fit(database: str) -> None:
    pretend(database, stamp()._replace(release="99.0", functions="new"))
    with connect(database) as connection:
        assert connection.execute("select count(*) from mempair.model_status").fetchone() == (0,)


def test_roles_with_few_rights_are_told_as_well(world: World, superuser: object) -> None:
    assert callable(superuser)
    with psycopg.connect(superuser(world.dsn), autocommit=True) as connection:
        connection.execute("drop role if exists few_rights")
        connection.execute("create role few_rights login password 'few'")
    world("select mempair.grant_role('few_rights', 'reader')")
    reader = make_conninfo(world.dsn, user="few_rights", password="few")
    with connect(reader) as connection:
        connection.execute("select * from mempair.model_status")
    pretend(world.dsn, NEWER)
    with pytest.raises(SchemaMismatch), connect(reader):
        pass


def test_a_database_without_the_schema_says_so_when_connecting(empty_database: str, mempair: Run) -> None:
    with pytest.raises(NotInstalled, match="mempair install"), connect(empty_database):
        pass
    assert mempair("status", "--dsn", empty_database)[0] == 3
