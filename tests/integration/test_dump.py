"""pg_dump and restore: the same model, nothing learned twice."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mempair_db.database.install import install
from mempair_db.errors import VerificationFailed
from mempair_db.ledger.restored import erasures_to_redo
from mempair_db.offline.export import export
from mempair_db.worker.loop import Worker
from tests.conftest import Run
from tests.programs import program

PREDICTIONS = "select id, mempair_predict('m', t) from t order by id"


def run(name: str, dsn: str, *arguments: str) -> None:
    parts = conninfo_to_dict(dsn)
    done = subprocess.run(
        [program(name, dsn), "--dbname", dsn, *arguments],
        env={"PGPASSWORD": str(parts.get("password", ""))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def original(database: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("create table t (id integer primary key, a float8, b text, y boolean)")
        sql.execute(
            "select mempair.create_model('m', 't', target => 'y', features => array['a', 'b'], lambda => 0.1,"
            " unlearner => 'symmetric', on_null => 'skip',"
            " gamma => 0.5, calibration_rows => 100)"
        )
        sql.execute("insert into t select i, i % 17, 'b' || i % 3, i * 7919 % 17 < 8 from generate_series(1, 1000) i")
        Worker(database).run_once()
        sql.execute("delete from t where id <= 3")
        Worker(database).run_once()
        yield database, sql


@pytest.fixture
def copy(superuser: Callable[[str], str], database: str) -> Iterator[str]:
    """An empty database of the same owner."""
    admin, name = superuser(database), f"copy_{secrets.token_hex(6)}"
    owner = conninfo_to_dict(database)["user"]
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0 owner {owner}")
        yield make_conninfo(database, dbname=name)
        connection.execute(f"drop database {name} with (force)")


def test_a_restored_database_predicts_the_same_and_goes_on(
    original: tuple[str, psycopg.Connection[Any]], copy: str, tmp_path: Path
) -> None:
    dsn, sql = original
    run("pg_dump", dsn, "--format", "custom", "--file", str(tmp_path / "dump"))
    run("pg_restore", copy, "--no-owner", "--exit-on-error", str(tmp_path / "dump"))
    with psycopg.connect(copy, autocommit=True) as restored:
        assert restored.execute(PREDICTIONS).fetchall() == sql.execute(PREDICTIONS).fetchall()
        assert restored.execute("select * from mempair.verify_odometer('m')").fetchall() == []
        assert restored.execute("select * from mempair.reconcile('m')").fetchall() == []
        Worker(copy).run_once()
        restored.execute("delete from t where id = 10")
        restored.execute("insert into t values (5000, 1, 'b1', true)")
        Worker(copy).run_once()
        learned = {key for (key,) in restored.execute("select row_key from mempair.learned")}
        assert learned == {key for (key,) in restored.execute("select id::text from t")}
        assert restored.execute("select * from mempair.verify_odometer('m')").fetchall() == []


def test_data_reloaded_through_live_triggers_is_not_learned_twice(
    original: tuple[str, psycopg.Connection[Any]], copy: str, tmp_path: Path
) -> None:
    dsn, sql = original
    run("pg_dump", dsn, "--format", "custom", "--file", str(tmp_path / "dump"))
    run("pg_restore", copy, "--no-owner", "--exit-on-error", "--schema-only", str(tmp_path / "dump"))
    run("pg_restore", copy, "--no-owner", "--exit-on-error", "--data-only", str(tmp_path / "dump"))
    with psycopg.connect(copy, autocommit=True) as restored:
        before = restored.execute("select clock, anchor from mempair.state").fetchone()
        Worker(copy).run_once()
        assert restored.execute("select clock, anchor from mempair.state").fetchone() == before
        assert restored.execute("select count(*) from mempair.learned").fetchone() == (997,)
        assert restored.execute(PREDICTIONS).fetchall() == sql.execute(PREDICTIONS).fetchall()


def test_a_restored_older_backup_is_found_to_be_behind_and_names_what_to_erase_again(
    original: tuple[str, psycopg.Connection[Any]], copy: str, tmp_path: Path
) -> None:
    dsn, sql = original
    run("pg_dump", dsn, "--format", "custom", "--file", str(tmp_path / "dump"))
    sql.execute("delete from t where id in (10, 11)")  # after the backup
    Worker(dsn).run_once()
    receipt = tmp_path / "receipt.json"
    receipt.write_text(json.dumps(sql.execute("select mempair.receipt('m', '10')").fetchone()[0]))  # type: ignore[index]
    export(dsn, tmp_path / "export")
    run("pg_restore", copy, "--no-owner", "--exit-on-error", str(tmp_path / "dump"))

    with psycopg.connect(copy, autocommit=True) as restored:
        (found,), missing = erasures_to_redo(restored, tmp_path / "export" / "ledger.parquet", [receipt])
        assert found.shared == found.here < found.there
        assert [erasure.kind for erasure in missing] == ["unlearned", "unlearned"]
        assert [erasure.key for erasure in missing].count("10") == 1
        assert restored.execute("select count(*) from t where id in (10, 11)").fetchone() == (2,)
    (found,), missing = erasures_to_redo(sql, tmp_path / "export" / "ledger.parquet")
    assert (found.parted, missing) == (False, [])


def test_a_restored_copy_that_went_on_is_found_however_long_its_ledger_has_become(
    original: tuple[str, psycopg.Connection[Any]], copy: str, tmp_path: Path
) -> None:
    dsn, sql = original
    run("pg_dump", dsn, "--format", "custom", "--file", str(tmp_path / "dump"))
    run("pg_restore", copy, "--no-owner", "--exit-on-error", str(tmp_path / "dump"))
    sql.execute("delete from t where id = 20")
    Worker(dsn).run_once()
    export(dsn, tmp_path / "export")
    with psycopg.connect(copy, autocommit=True) as other:
        for number in range(30, 36):
            other.execute("delete from t where id = %s", [number])
            Worker(copy).run_once()
        (found,), missing = erasures_to_redo(other, tmp_path / "export" / "ledger.parquet")
    assert found.here > found.there > found.shared
    assert found.parted
    assert [erasure.kind for erasure in missing] == ["unlearned"]


def test_a_copy_that_misses_an_update_or_only_insertions_is_an_older_one(
    original: tuple[str, psycopg.Connection[Any]], copy: str, mempair: Run, tmp_path: Path
) -> None:
    dsn, sql = original
    sql.execute("select mempair.create_model('e', 't', target => 'y', features => array['a', 'b'], gamma => 1)")
    Worker(dsn).run_once()
    run("pg_dump", dsn, "--format", "custom", "--file", str(tmp_path / "dump"))
    run("pg_restore", copy, "--no-owner", "--exit-on-error", str(tmp_path / "dump"))
    sql.execute("insert into t values (5001, 1, 'b1', true)")
    Worker(dsn).run_once()
    export(dsn, tmp_path / "inserted")
    file = str(tmp_path / "inserted" / "ledger.parquet")
    assert mempair("odometer", "restored", file, "--dsn", dsn)[0] == 0
    code, _, err = mempair("odometer", "restored", file, "--dsn", copy)
    assert (code, "is behind" in err, "No erasure is missing" in err) == (5, True, True)
    sql.execute("update t set a = 77 where id = 5001")
    Worker(dsn).run_once()
    export(dsn, tmp_path / "updated")
    with psycopg.connect(copy, autocommit=True) as other:
        _, missing = erasures_to_redo(other, tmp_path / "updated" / "ledger.parquet", name="e")
    assert [(erasure.kind, erasure.rows, erasure.key) for erasure in missing] == [("updated", 1, None)]


def test_a_ledger_without_a_common_beginning_is_no_copy(
    original: tuple[str, psycopg.Connection[Any]], empty_database: str, tmp_path: Path
) -> None:
    dsn, _ = original
    export(dsn, tmp_path / "export")
    install(empty_database)
    with psycopg.connect(empty_database, autocommit=True) as other:
        other.execute("create table t (id integer primary key, a float8, y boolean)")
        other.execute("select mempair.create_model('m', 't', target => 'y', features => array['a'])")
        other.execute("select mempair.pause_model('m')")
        with pytest.raises(VerificationFailed, match="no common beginning"):
            erasures_to_redo(other, tmp_path / "export" / "ledger.parquet")


def test_a_file_that_cannot_tell_is_no_reassurance(
    original: tuple[str, psycopg.Connection[Any]], tmp_path: Path
) -> None:
    dsn, sql = original
    export(dsn, tmp_path / "export")
    ledger = tmp_path / "export" / "ledger.parquet"
    sql.execute("select mempair.create_model('later', 't', target => 'y', features => array['a'])")
    with pytest.raises(VerificationFailed, match="has no ledger of later"):
        erasures_to_redo(sql, ledger)
    assert erasures_to_redo(sql, ledger, name="m")[1] == []
    for wrong in (tmp_path / "export" / "model.parquet", tmp_path / "nowhere.parquet"):
        with pytest.raises(VerificationFailed, match="is no exported ledger"):
            erasures_to_redo(sql, wrong)
