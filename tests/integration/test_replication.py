"""Other servers: a subscriber fires no statement triggers; a promoted standby goes on, and the worker follows."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mempair_db.database.install import install
from mempair_db.embedded.server import Server
from mempair_db.worker.loop import Worker
from tests.conftest import Run, make_home, remove_home
from tests.programs import program
from tests.world import World, opened

SETTINGS = {"fsync": "off", "wal_level": "logical"}
TABLE = "create table t (id int primary key, x float8, y boolean)"
ROWS = "insert into t select i, i % 17, i % 3 = 0 from generate_series(1, 300) i"
MODEL = "select mempair.create_model('m', 't', target => 'y', features => '{x}')"


@pytest.fixture
def server(server_home: Path) -> Server:
    """A server of its own that others can follow."""
    server = Server(server_home, settings=SETTINGS)
    install(server.start())
    return server


@pytest.fixture
def second_home() -> Iterator[Path]:
    home = make_home()
    yield home
    remove_home(home)


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_what_a_subscription_writes_is_refused_or_found(server: Server, mempair: Run) -> None:
    """Publisher and subscriber are databases of one server, so the slot is made by hand."""
    with opened(server.dsn()) as here, psycopg.connect(server.dsn("postgres"), autocommit=True) as other:
        here(TABLE, ROWS, "create publication p for table t", MODEL)
        here.one("select pg_create_logical_replication_slot('s', 'pgoutput')::text")
        other.execute("create database copy")
    copy = make_conninfo(server.dsn(), dbname="copy")
    install(copy)
    with opened(server.dsn()) as here, opened(copy) as there:
        there(TABLE, ROWS, MODEL)
        there.work()
        address = conninfo_to_dict(server.dsn())
        source = make_conninfo(
            "", **{name: address[name] for name in ("host", "port", "user", "password", "dbname", "sslmode")}
        )
        there(
            f"create subscription s connection '{source}' publication p"
            " with (create_slot = false, slot_name = 's', copy_data = false)"
        )
        try:
            here(
                "delete from t where id <= 20",
                "insert into t values (1001, 1, true)",
                "update t set x = 99 where id = 30",
            )
            until(lambda: there.one("select count(*), max(x) from t") == (281, 99))
            # No statement trigger has fired. The worker sees that a subscription feeds the table, and reads it anew.
            assert there.one("select pending_changes from mempair.model_status") == 0
            there.work()
            assert there.learned() == {key for (key,) in there.execute("select id::text from t")}
            assert there.one("select count(*) from mempair.receipt") == 20
            # What comes after that is found, and said.
            here("delete from t where id <= 40")
            until(lambda: there.one("select count(*) from t") == 261)
            there.work()
            found = dict(there.execute("select finding, rows from mempair.reconcile('m')"))
            assert found.pop("deletions that were never captured") == 20
            assert any("logical replication" in finding for finding in found)
            code, output, _ = mempair("doctor", "--dsn", copy)
            assert code == 1
            assert "subscription" in output
            there("select mempair.reconcile('m', repair => true)")
            there.work()
            assert there.learned() == {key for (key,) in there.execute("select id::text from t")}
            with pytest.raises(psycopg.Error, match="logical replication"):
                there(MODEL.replace("'m'", "'another'"))
        finally:
            there("alter subscription s disable", "alter subscription s set (slot_name = none)", "drop subscription s")
            until(lambda: here.one("select not active from pg_replication_slots where slot_name = 's'"))
            here.one("select pg_drop_replication_slot('s')::text")
        here.work()  # the publisher's own model has lost nothing
        assert here.learned() == {key for (key,) in here.execute("select id::text from t")}


def stand_by(server: Server, home: Path) -> Server:
    """A standby of the server, in a home of its own."""
    standby = Server(home, settings=SETTINGS | {"hot_standby": "on"})
    standby.workspace.make()
    shutil.copy2(server.workspace.path / "password", standby.workspace.path / "password")
    command = [program("pg_basebackup", server.dsn()), "--dbname", server.dsn(), "--pgdata", str(standby.data)]
    subprocess.run([*command, "--checkpoint=fast"], check=True)
    # As --write-recovery-conf does, but without options that only a newer libpq knows.
    (standby.data / "standby.signal").touch()
    primary = make_conninfo(server.dsn()).replace("'", "''")
    with (standby.data / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"primary_conninfo = '{primary}'\n")
    account = server.workspace.account()
    if account is not None:
        for path in (standby.workspace.path / "password", standby.data, *standby.data.rglob("*")):
            shutil.chown(path, *account)
    return standby


def test_a_promoted_standby_goes_on_and_the_worker_follows(server: Server, second_home: Path) -> None:
    primary = server.dsn()
    with opened(primary) as world:
        world(TABLE, ROWS, MODEL)
        world.work()
        before = world.one("select mempair_predict('m', t) from t where id = 7")
    standby = stand_by(server, second_home)
    second = launch_as_standby(standby)
    with opened(primary) as world, opened(second) as copy:
        until(lambda: copy.one("select count(*) from t") == 300)
        assert copy.one("select mempair_predict('m', t) from t where id = 7") == before  # a standby predicts
        ports = [str(conninfo_to_dict(dsn)["port"]) for dsn in (primary, second)]
        both = make_conninfo(
            primary, host="127.0.0.1,127.0.0.1", port=",".join(ports), target_session_attrs="read-write"
        )
        worker = Worker(both, idle=0.05)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            world("delete from t where id <= 10")
            until(lambda: world.one("select rows_learned = 290 from mempair.model_status"))
            until(lambda: copy.one("select rows_learned = 290 from mempair.model_status"))
            server.stop("immediate")
            copy.one("select pg_promote()::text")
            copy("delete from t where id <= 20")
            until(lambda: copy.one("select rows_learned = 280 from mempair.model_status"))
        finally:
            worker.stop()
            thread.join()
        check(copy)


def check(world: World) -> None:
    assert world.learned() == {key for (key,) in world.execute("select id::text from t")}
    assert world.execute("select * from mempair.verify_odometer('m')") == []
    assert world.execute("select finding from mempair.reconcile('m')") == []
    world.check_exact()


def launch_as_standby(standby: Server) -> str:
    """Start it without the writes that `start` makes; they come with the primary's."""
    with standby.workspace.locked():
        standby._launch()
    return standby.dsn()
