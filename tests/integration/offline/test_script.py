"""`duckdb < verify.sql`: DuckDB alone computes exact models anew from an export, and finds what was edited by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from mempair_db.offline.export import export
from tests.integration.test_verify_sql import DECLARED, RANDOM, fill
from tests.world import World

Verdicts = dict[str, tuple[str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Verdicts]:
    """Run verify.sql in its folder, as `duckdb < verify.sql` does; returns its verdicts, raises if one is WRONG."""

    def run(folder: Path) -> Verdicts:
        monkeypatch.chdir(folder)
        script = (folder / "verify.sql").read_text()
        with duckdb.connect() as duck:
            try:
                duck.execute(script)
                assert duck.fetchall() == [("Everything holds.",)]
            finally:
                rows = duck.execute("select checked, fine, detail from verdict").fetchall()
            return {checked: (fine, detail) for checked, fine, detail in rows}

    return run


def edit(folder: Path, table: str, change: str) -> None:
    with duckdb.connect() as duck:
        file = folder / f"{table}.parquet"
        duck.execute("create table t as select * from read_parquet($1)", [str(file)])
        duck.execute(change)
        duck.execute(f"copy t to '{file}' (format parquet)")


@pytest.fixture
def exported(world: World, tmp_path: Path) -> Path:
    world(RANDOM)
    fill(world, 0, 700, seed=5)
    world("select mempair.create_model('it''s', 't', features => array['a', 'b', 'c'], target => 'label', gamma => 10)")
    world.work()
    world("delete from t where id in (5, 6)")
    world.work()
    export(world.dsn, tmp_path / "e", rows=True)
    return tmp_path / "e"


@pytest.mark.parametrize("options", DECLARED.values(), ids=DECLARED)
def test_duckdb_gives_the_same_sums(
    world: World, run: Callable[[Path], Verdicts], options: str, tmp_path: Path
) -> None:
    world(RANDOM)
    fill(world, 0, 1000, seed=1)
    world(
        "select mempair.create_model('m', 't', features => array['a', 'b', 'c', 'd'], calibration_rows => 300,"
        f" gamma => 10, {options})"
    )
    world.work()
    world("delete from t where id % 7 = 0")
    world.work()
    export(world.dsn, tmp_path / "e", rows=True)
    verdicts = run(tmp_path / "e")
    assert verdicts["sums"][0], verdicts
    assert "bit for bit" in verdicts["sums"][1]
    assert verdicts["ledger"][0]


def test_rows_have_the_users_own_names_and_types(exported: Path) -> None:
    schema = pq.read_schema(exported / "rows_1.parquet")
    assert schema.names == ["row_key", "a", "b", "c", "label", "reference_row"]
    assert [str(field.type) for field in schema] == ["string", "double", "double", "string", "double", "bool"]
    assert "duckdb < verify.sql" in (exported / "README").read_text()


@pytest.mark.parametrize(
    ("table", "change", "wrong"),
    [
        ("rows_1", "update t set b = 5 where row_key = '17'", "sums"),
        ("rows_1", "delete from t where row_key = '17'", "sums"),
        ("rows_1", "insert into t select * from t where row_key = '17'", "sums"),
        ("sums", "update t set value = value + 1 where name = 'g[b]'", "sums"),
        ("sums", "delete from t where name = 'g[b]'", "sums"),
        ("ledger", "update t set rows = rows + 1 where seq = 2", "ledger"),
        ("ledger", "delete from t where seq = 2", "ledger"),
        ("ledger", "delete from t where seq = (select max(seq) from t)", "ledger's end"),
        ("model", "update t set changes_waiting = 3", "sums"),
    ],
)
def test_an_export_that_was_edited_by_hand_does_not_verify(
    exported: Path, run: Callable[[Path], Verdicts], table: str, change: str, wrong: str
) -> None:
    edit(exported, table, change)
    with pytest.raises(duckdb.Error, match=f"Something does not hold: it's: {wrong}"):
        run(exported)


def test_without_rows_the_ledger_is_verified_all_the_same(
    exported: Path, world: World, run: Callable[[Path], Verdicts], tmp_path: Path
) -> None:
    export(world.dsn, tmp_path / "less")
    assert set(run(tmp_path / "less")) == {"ledger", "ledger's end"}
