"""`duckdb < verify.sql`: DuckDB alone computes exact models anew from an export, and finds what was edited by hand."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from mempair_db.ledger import merkle
from mempair_db.offline import route
from mempair_db.offline.export import export
from tests.integration.test_verify_sql import DECLARED, RANDOM, fill, fill_nearly_one
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
    assert verdicts["constants"][0], verdicts
    assert "NOT chosen again here: the reference weights" in verdicts["constants"][1]


def test_numbers_that_a_double_hardly_tells_apart_are_the_same_in_duckdb(
    world: World, run: Callable[[Path], Verdicts], tmp_path: Path
) -> None:
    fill_nearly_one(world)
    export(world.dsn, tmp_path / "e", rows=True)
    verdicts = run(tmp_path / "e")
    assert "bit for bit" in verdicts["sums"][1]
    assert verdicts["constants"][0], verdicts


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
        ("held_keys", "update t set row_key = '5' where held_in like 'learned%' and row_key = '17'", "keys"),
        ("held_keys", "insert into t select 1, 'rejected.row_key', '5'", "keys"),
        ("model", "update t set constants = constants || ' '", "digest"),
    ],
)
def test_an_export_that_was_edited_by_hand_does_not_verify(
    exported: Path, run: Callable[[Path], Verdicts], table: str, change: str, wrong: str
) -> None:
    edit(exported, table, change)
    with pytest.raises(duckdb.Error, match=f"Something does not hold: it's: {wrong}"):
        run(exported)


def test_constants_that_do_not_follow_from_the_reference_rows_are_found(
    exported: Path, world: World, tmp_path: Path
) -> None:
    centre, scale = world.one("select constants #> '{encoding,numbers,1}' from mempair.model")[:2]
    plants = {
        "{encoding,numbers,1,0}": (str(centre + scale / 100), "centre or scale of"),  # near the mean, off the grid
        "{encoding,numbers,0,1}": ("64", "centre or scale of"),
        "{encoding,numbers,0,2,0}": ("-3968", "a knot of"),
        "{encoding,texts,0,0,0}": ('"somebody"', "the levels of"),
        "{encoding,target,0}": ("47.5", "centre or scale of"),
        "{note}": ("[47.5]", "something lies among them that is no constant"),
    }
    for number, (path, (value, what)) in enumerate(plants.items()):
        before = world.one("select constants::text from mempair.model")
        world.sql.execute(
            "update mempair.model set constants = jsonb_set(constants, %s::text[], %s::jsonb)", [path, value]
        )
        export(world.dsn, tmp_path / f"planted {number}", rows=True)
        world.sql.execute("update mempair.model set constants = %s", [before])
        with duckdb.connect(str(tmp_path / f"planted {number}" / "mempair.duckdb"), read_only=True) as duck:
            (verdict,) = duck.execute("select fine, detail from verification where checked = 'constants'").fetchall()
        assert (verdict[0], what in verdict[1]) == (False, True), (path, verdict)


def test_without_rows_the_ledger_is_verified_all_the_same(
    exported: Path, world: World, run: Callable[[Path], Verdicts], tmp_path: Path
) -> None:
    export(world.dsn, tmp_path / "less")
    assert set(run(tmp_path / "less")) == {"ledger", "ledger's end", "digest"}


@pytest.fixture
def opened(exported: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database of an export, from another folder, in a session with another time zone."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect(str(exported / "mempair.duckdb"), read_only=True) as duck:
        duck.execute("set timezone = 'Asia/Kathmandu'")
        yield duck


def test_the_database_verifies_itself_from_any_folder(opened: duckdb.DuckDBPyConnection) -> None:
    found = opened.execute("from verification").fetchall()
    assert {checked for _, checked, _, _ in found} == {"ledger", "ledger's end", "digest", "sums", "keys", "constants"}
    assert all(fine for _, _, fine, _ in found), found
    assert opened.execute("select count(*) from rows_1").fetchall() == [(698,)]
    assert opened.execute("select value from sums where name = 'n'").fetchall() == [(698,)]


def test_the_merkle_root_in_sql_is_the_one_that_checkpoints_sign(
    opened: duckdb.DuckDBPyConnection, world: World
) -> None:
    bodies = [body for (body,) in world.execute("select body from mempair.ledger order by seq")]
    for size in range(1, len(bodies) + 1):
        tree = merkle.Tree()
        for body in bodies[:size]:
            tree.add(merkle.leaf_hash(body))
        found = opened.execute("select root from merkle_root('it''s', $1)", [size]).fetchall()
        assert found == [(base64.b64encode(tree.root()).decode(),)]


def test_every_table_says_what_it_is_and_no_name_needs_quotes(opened: duckdb.DuckDBPyConnection) -> None:
    tables = opened.execute("select table_name, comment from duckdb_tables()").fetchall()
    assert [table for table, comment in tables if not comment] == []
    columns = opened.execute("select table_name, column_name, data_type from duckdb_columns() where not internal")
    for table, column, kind in columns.fetchall():
        assert "TIME ZONE" not in kind, f"{table}.{column} would need pytz"
        if not table.startswith("rows_"):
            opened.execute(f"select {column} from {table} limit 1").fetchall()  # reserved words do not parse


def test_an_older_duckdb_can_read_the_database(exported: Path) -> None:
    head = (exported / "mempair.duckdb").read_bytes()[:24]
    assert head[8:12] == b"DUCK"
    assert int.from_bytes(head[12:20], "little") == 64  # the storage of DuckDB 0.10 to 1.1


@pytest.mark.skipif(
    importlib.util.find_spec(route.EXTENSION) is None or route.extension() is None,
    reason="no duckdb-extension-postgres-scanner of exactly DuckDB's version is installed",
)
def test_the_same_checks_run_on_the_live_server(exported: Path, world: World) -> None:
    def found() -> dict[str, bool]:
        with duckdb.connect() as duck:
            duck.execute(f"load '{route.extension()}'")
            duck.execute(f"attach '{world.dsn}' as live (type postgres, read_only)")
            duck.execute((exported / "verify_live.sql").read_text())
            return {checked: fine for _, checked, fine, _ in duck.execute("from verdict").fetchall()}

    assert found() == dict.fromkeys(("ledger", "ledger's end", "digest", "sums", "keys", "constants"), True)
    world("alter table t disable trigger user", "update t set b = 77 where id = 11")
    with pytest.raises(duckdb.Error, match=r"Something does not hold: .*it's: sums, .* sums differ"):
        found()
