"""Nothing of an erased row stays behind: the server's own files are searched for its bytes."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path

import psycopg
import pytest

from mempair_db.database.connect import connect
from mempair_db.database.install import install
from mempair_db.embedded.server import Server
from mempair_db.worker import batch
from mempair_db.worker.loop import Worker
from mempair_db.worker.purge import rewrite

NUMBERS = (7.123456789012345e7, 3.987654321098765e-9)
TEXT = "marker-of-one-person"
KEY = "key-of-one-person"


@pytest.fixture
def server(server_home: Path) -> tuple[str, Path]:
    """A server whose files are this test's alone."""
    dsn = Server(server_home, settings={"fsync": "off"}).start()
    install(dsn)
    return dsn, server_home / "server"


def found(folder: Path, *, wal: bool = False) -> set[str]:
    """Which markers are in which kind of file, and where."""
    markers = {repr(n): struct.pack("<d", n) for n in NUMBERS} | {TEXT: TEXT.encode(), KEY: KEY.encode()}
    hits = set()
    for file in folder.rglob("*"):
        if file.is_file() and ("pg_wal" in file.parts) == wal:
            data = file.read_bytes()
            hits |= {f"{name} in {file.relative_to(folder)}" for name, marker in markers.items() if marker in data}
    return hits


def test_no_file_of_the_server_holds_an_erased_row(server: tuple[str, Path]) -> None:
    dsn, folder = server
    with psycopg.connect(dsn, autocommit=True) as sql:
        sql.execute("create table t (id text primary key, a float8, b float8, c text, y boolean)")
        sql.execute(
            "select mempair.create_model('m', 't', target => 'y', features => array['a', 'b', 'c'], lambda => 0.1,"
            " gamma => 0.5, calibration_rows => 100)"
        )
        sql.execute(
            "insert into t select i::text, i % 17, i % 5, 'c' || i % 3, i % 2 = 0 from generate_series(1, 1000) i"
        )
        sql.execute("insert into t values (%s, %s, %s, %s, true)", [KEY, *NUMBERS, TEXT])
        # One that cannot be learned, one that breaks a rule of the table: neither may end in a log or a list.
        sql.execute("insert into t values (%s, 'infinity', %s, %s, true)", [KEY + "2", NUMBERS[1], TEXT])
        sql.execute("alter table t add check (a <> 1234.5)")
        with pytest.raises(psycopg.errors.CheckViolation):
            sql.execute("insert into t values ('x', 1234.5, %s, %s, true)", [NUMBERS[1], TEXT])
        Worker(dsn).run_once()
        sql.execute("checkpoint")
        assert any("base" in hit for hit in found(folder)), "the search finds what is there"

        sql.execute("delete from t where id like %s", [KEY + "%"])
        Worker(dsn).run_once()  # unlearns, and purges the queue
        sql.execute("vacuum (full) t")  # the table's own dead rows are its owner's to remove
        sql.execute("checkpoint")
        assert {hit for hit in found(folder) if KEY not in hit} == set()

        # Keys are in `learned` and in the receipts until those are fetched or expire, and the tables rewritten.
        sql.execute("delete from mempair.receipt")
        sql.execute("delete from mempair.rejected")
        with connect(dsn, autocommit=True) as connection:
            batch.prepare(connection)
            rewrite(connection)
        sql.execute("vacuum (full) pg_catalog.pg_statistic")  # what ANALYZE saw
        sql.execute("checkpoint")
        assert found(folder) == set()
    assert found(folder, wal=True) != set(), "the write-ahead log is the limit that the README names"


def test_rows_that_wait_for_calibration_leave_nothing_of_an_erased_one(server: tuple[str, Path]) -> None:
    dsn, folder = server
    with psycopg.connect(dsn, autocommit=True) as sql:
        sql.execute("create table t (id text primary key, a float8, b float8, c text, y boolean)")
        sql.execute("select mempair.create_model('m', 't', target => 'y', features => array['a', 'b', 'c'])")
        sql.execute("insert into t select i::text, i, i, 'c', i % 2 = 0 from generate_series(1, 20) i")
        sql.execute("insert into t values ('one', %s, %s, %s, true)", [*NUMBERS, TEXT])
        Worker(dsn).run_once()
        sql.execute("delete from t where id = 'one'")
        Worker(dsn).run_once()
        sql.execute("vacuum (full) t")
        sql.execute("checkpoint")
        assert found(folder) == set()
        assert sql.execute("select pending_changes, pending_deletions from mempair.model_status").fetchone() == (20, 0)


def test_under_load_no_erased_payload_stays_longer_than_said(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("create table t (id bigint primary key, a float8, y boolean)")
        sql.execute("select mempair.create_model('m', 't', target => 'y', features => array['a'])")
        sql.execute("insert into t select i, i % 17, i % 2 = 0 from generate_series(1, 2000) i")
        worker = Worker(database, purge_after=1.0)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            oldest, until = 0.0, time.monotonic() + 8
            step = 0
            while time.monotonic() < until:
                step += 1
                sql.execute("insert into t values (%s, 3, true)", [10_000 + step])
                sql.execute("delete from t where id = %s", [10_000 + step - 50])
                age = sql.execute(
                    "select extract(epoch from clock_timestamp() - oldest_unpurged)::float8 from mempair.model_status"
                ).fetchone()
                oldest = max(oldest, (age and age[0]) or 0.0)
            purged = sql.execute("select count(*) from mempair.ledger where kind = 'purged'").fetchone() or (0,)
        finally:
            worker.stop()
            thread.join()
        assert purged[0] >= 3
        assert oldest < 4.0  # seconds; the promise is one, on a machine that does nothing else
