"""Models from folders of Parquet files, on Dask and on one DuckDB; and the command line of a fleet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mempair_db.fleet.compute import Computing
from mempair_db.fleet.config import parse
from mempair_db.fleet.files import export_fleet, verify_files
from mempair_db.offline.export import export
from tests.conftest import Run
from tests.integration.fleet.conftest import Shards
from tests.integration.fleet.test_exchange import file_of
from tests.world import SHOP, World


def by_duckdb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The verdict of verify.sql."""
    monkeypatch.chdir(folder)
    with duckdb.connect() as duck:
        try:
            duck.execute((folder / "verify.sql").read_text())
        except duckdb.Error:
            return False
    return True


def test_a_partitioned_export_has_the_same_verdict_on_dask_and_on_duckdb(
    world: World, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mempair: Run
) -> None:
    world(SHOP)
    world.fill(1, 400)
    world(
        "select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'])"
    )
    world.work()
    computing = Computing(parse({"coordinator": {"dsn": "x"}, "shard": [{"name": "a", "dsn": "x"}]}), client)
    assert (
        mempair("export", "--out", str(tmp_path / "good"), "--rows", "--partition-by", "hash:8", "--dsn", world.dsn)[0]
        == 0
    )
    assert len(list((tmp_path / "good").glob("rows_1.parquet/*/*.parquet"))) == 8
    report = verify_files(computing, tmp_path / "good", "churn")
    assert [(line.check, line.fine) for line in report.checks] == [
        ("sums", True),
        ("served", True),
        ("constants", True),
    ]
    assert report.rows == 400
    assert by_duckdb(tmp_path / "good", monkeypatch)
    code, out, _ = mempair("audit", "churn", "--from", str(tmp_path / "good"), "--json")
    assert code == 0, out
    world("alter table shop disable trigger user", "delete from shop where id = 7")
    export(world.dsn, tmp_path / "bad", name="churn", rows=True, partitions=8)
    assert not verify_files(computing, tmp_path / "bad").fine
    assert not by_duckdb(tmp_path / "bad", monkeypatch)
    code, _, said = mempair("export", "--out", str(tmp_path / "no"), "--partition-by", "range:3", "--dsn", world.dsn)
    assert (code, "hash:64" in said) == (2, True)


def test_an_export_of_the_fleet_is_audited_file_by_file(
    make_fleet: Callable[[int], Shards], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = make_fleet(2)
    fleet.declare()
    fleet.spread(1, 300, lambda i: i // 7)
    fleet.sync()
    assert export_fleet(fleet.computing, "churn", tmp_path / "out", rows=True, partitions=3) == 300
    report = verify_files(fleet.computing, tmp_path / "out", "churn")
    assert report.fine, report
    assert [line.check for line in report.checks] == ["s0: sums", "s0: served", "s1: sums", "s1: served", "constants"]
    assert by_duckdb(tmp_path / "out" / "s1", monkeypatch)
    fleet[1]("alter table shop disable trigger user", "update shop set age = age + 20 where id % 2 = 0")
    export_fleet(fleet.computing, "churn", tmp_path / "bad", rows=True)
    wrong = [line.check for line in verify_files(fleet.computing, tmp_path / "bad").checks if not line.fine]
    assert wrong == ["s1: sums", "constants"]


def test_the_whole_story_by_the_command_line(
    make_fleet: Callable[[int], Shards], tmp_path: Path, mempair: Run, monkeypatch: pytest.MonkeyPatch, client: Any
) -> None:
    fleet = make_fleet(2)
    for world in fleet.worlds:
        world(SHOP)
    fleet.spread(1, 200, lambda i: i)
    monkeypatch.setattr(Computing, "client", client)  # the command's own cluster of processes takes seconds to start
    monkeypatch.setenv("MEMPAIR_FLEET", str(file_of(fleet, tmp_path)))
    code, out, _ = mempair("fleet", "init", "--json")
    assert (code, [line["database"] for line in json.loads(out)]) == (0, ["coordinator", "s0", "s1"])
    create = ("fleet", "model", "create", "churn", "shop", "--target", "churned", "--features", "age,plan,spend")
    assert mempair(*create)[0] == 0
    assert "already" in mempair(*create)[2]
    assert mempair("fleet", "sync", "--once")[0] == 0
    code, out, _ = mempair("fleet", "status", "--json")
    assert (code, sum(line["rows"] for line in json.loads(out))) == (0, 200)
    assert mempair("fleet", "refresh", "churn")[0] == 0
    assert mempair("fleet", "verify", "churn")[0] == 0
    assert mempair("verify", "churn", "--dsn", fleet[0].dsn)[0] == 0
    assert {row[1] for row in fleet[0].execute("select * from mempair.verify_model('churn')")} <= {True, None}
    assert mempair("fleet", "audit", "churn")[0] == 0
    assert mempair("fleet", "model", "drop", "churn")[0] == 0
    assert mempair("fleet", "verify", "churn")[0] == 1
