from __future__ import annotations

import importlib.util
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from mempair_db.errors import InvalidParameter, MempairError, UnknownModel
from mempair_db.measure import replay
from mempair_db.offline import route
from mempair_db.offline.export import VIEWS, _private, export
from mempair_db.offline.folder import read

SECOND = """
select mempair.create_model('second', 'customers', target => 'left_us', features => array['age'], epsilon => 1)
"""


def test_rows_leave_only_when_asked_for(shop: Any, tmp_path: Path) -> None:
    shop.export(tmp_path / "e", rows=False)
    found = sorted(file.name for file in (tmp_path / "e").iterdir())
    assert found == [
        *(
            "README",
            "curvature.parquet",
            "held_keys.parquet",
            "learned.parquet",
            "ledger.parquet",
            "mempair.duckdb",
            "model.parquet",
            "request.parquet",
            "sums.parquet",
            "verify.sql",
            "verify_live.sql",
        )
    ]
    assert pq.read_schema(tmp_path / "e" / "learned.parquet").names == ["model_id", "tick"]
    with pytest.raises(InvalidParameter, match="--rows"):
        next(read(tmp_path / "e").batches())


def test_files_belong_to_their_owner_alone(shop: Any, tmp_path: Path) -> None:
    shop.export(tmp_path / "e")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "e").iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert stat.S_IMODE((tmp_path / "e").stat().st_mode) == 0o700


def test_two_exports_at_once_leave_what_other_threads_write_as_it_was(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with ExitStack() as first, ExitStack() as second:
            first.enter_context(_private(tmp_path / "first"))
            second.enter_context(_private(tmp_path / "second"))
            first.close()
    finally:
        assert os.umask(before) == 0o022


def test_an_export_holds_every_bit_of_the_live_state(shop: Any, tmp_path: Path) -> None:
    model = shop.export(tmp_path / "e")
    (anchor, theta, tally), *_ = shop.execute("select anchor, theta, tally from mempair.state")
    live = model.live()
    assert live.arrays.anchor.tolist() == anchor
    assert live.arrays.theta.tolist() == theta
    assert live.arrays.tally.tobytes() == tally
    assert model.row["source_table"] == "customers"


def test_rows_come_in_tick_order_with_gaps_where_rows_are_gone(shop: Any, tmp_path: Path) -> None:
    ticks_of = dict(shop.execute("select row_key, tick from mempair.learned"))
    shop.delete(0, 41, 2_499)
    model = shop.export(tmp_path / "e")
    for size in (7, 1_000, 50_000):
        batches = list(model.batches(size=size))
        ticks = [tick for rows in batches for tick in rows.ticks.tolist()]
        gone = [tick for rows in batches for tick in rows.ticks[~rows.there].tolist()]
        assert ticks == list(range(1, 2_501))
        assert gone == sorted(ticks_of[key] for key in ("0", "41", "2499"))


def test_an_export_is_one_moment_even_while_rows_are_deleted(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = route.choose

    def choose_late(*arguments: Any) -> Any:
        way = choose(*arguments)
        shop.delete(1, 2, 3)  # committed after the snapshot, before a row was read
        return way

    monkeypatch.setattr(route, "choose", choose_late)
    model = shop.export(tmp_path / "e")
    assert model.surviving_rows == model.learned_rows == 2_500
    assert len(model.ledger) == model.row["ledger_seq"]


def test_a_used_folder_is_refused_and_left_alone(shop: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InvalidParameter, match="not empty"):
        export(shop.dsn, tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_an_unknown_model_leaves_nothing_behind(shop: Any, tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="churn"):
        export(shop.dsn, tmp_path / "e", name="chrun")
    assert not (tmp_path / "e").exists()


def test_a_name_chooses_one_of_several_models(shop: Any, tmp_path: Path) -> None:
    shop.execute(SECOND)
    shop.work()
    export(shop.dsn, tmp_path / "all", rows=True)
    export(shop.dsn, tmp_path / "one", name="second", rows=True)
    assert read(tmp_path / "one").name == "second"
    assert read(tmp_path / "all", "churn").surviving_rows == 2_500
    with pytest.raises(UnknownModel, match="churn, second"):
        read(tmp_path / "all")


def test_the_views_answer_in_the_folder_itself(story: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(story.folder)
    with duckdb.connect("mempair.duckdb", read_only=True) as duck:
        epochs = duck.execute("select epoch, deletions_by_noise, clock, exhausted from deletions_per_epoch").fetchall()
        days = duck.execute("select sum(learned), sum(deletions_by_noise), max(share_spent) from spending_per_day")
        learned, deleted, share = days.fetchall()[0]
        assert epochs == [(1, 3, 2_800, False)]
        assert (learned, deleted) == (2_800, 3)
        assert 0 < share < 1
        assert duck.execute("select count(*) from deletions where served_by = 'certified noise'").fetchall() == [(3,)]
        assert duck.execute("select changes_waiting from obligations").fetchall() == [(0,)]
        assert duck.execute("select count(*) from gaps").fetchall() == [(len(story.ledger),)]
        ((waited, longest),) = duck.execute("select sum(deletions), max(longest_seconds) from latency").fetchall()
        assert waited == 3
        assert 0 < longest < 600
        assert duck.execute("select count(*) from retrains").fetchall() == [(0,)]
        assert duck.execute(f"select count(*) from rows_{story.row['id']}").fetchall() == [(2_797,)]


def test_every_view_that_is_printed_is_in_the_export(story: Any) -> None:
    printed = {line.split()[4] for line in VIEWS.read_text().splitlines() if line.startswith("create")}
    with duckdb.connect(str(story.folder / "mempair.duckdb"), read_only=True) as duck:
        views = {name for (name,) in duck.execute("select view_name from duckdb_views() where not internal").fetchall()}
    assert printed <= views


@pytest.mark.skipif(
    importlib.util.find_spec(route.EXTENSION) is None or route.extension() is None,
    reason="no duckdb-extension-postgres-scanner of exactly DuckDB's version is installed",
)
def test_the_postgres_extension_gives_the_same_rows_as_adbc(shop: Any, tmp_path: Path) -> None:
    one = export(shop.dsn, tmp_path / "one", rows=True, route="adbc")
    two = export(shop.dsn, tmp_path / "two", rows=True)
    assert (one.route, two.route) == ("adbc", "postgres extension")
    for file in ("rows_1.parquet", "ledger.parquet", "learned.parquet"):
        assert pq.read_table(tmp_path / "one" / file).to_pylist() == pq.read_table(tmp_path / "two" / file).to_pylist()


def test_no_extension_is_downloaded(shop: Any, tmp_path: Path) -> None:
    shop.export(tmp_path / "e")
    with duckdb.connect(str(tmp_path / "e" / "mempair.duckdb")) as duck:
        loaded = duck.execute("select extension_name from duckdb_extensions() where installed and loaded").fetchall()
    assert ("postgres_scanner",) not in loaded


def test_reading_needs_no_write_access(shop: Any, tmp_path: Path) -> None:
    before = shop.execute("select xmin::text, version from mempair.state")
    shop.export(tmp_path / "e")
    assert shop.execute("select xmin::text, version from mempair.state") == before
    with psycopg.connect(shop.dsn) as connection:
        assert connection.execute("select count(*) from pg_prepared_xacts").fetchone() == (0,)


def test_rows_stored_in_another_order_are_sorted_by_tick(shop: Any, tmp_path: Path) -> None:
    shop.execute("create index by_age on customers (age)")
    shop.execute("cluster customers using by_age")
    model = shop.export(tmp_path / "e")
    ticks = pq.read_table(model.folder / f"rows_{model.row['id']}.parquet")["tick"].to_pylist()
    assert ticks == list(range(1, 2_501))
    assert not list(model.folder.glob("*.unsorted"))
    assert replay.compare(model).exact


def test_a_full_disk_is_reported_and_nothing_is_left(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", full)
    with pytest.raises(OSError, match="No space left"):
        shop.export(tmp_path / "e")
    assert not (tmp_path / "e").exists()


def test_the_ledger_of_a_dropped_model_is_exported_too(shop: Any, tmp_path: Path) -> None:
    shop.execute(SECOND)
    shop.work()
    shop.execute("select mempair.drop_model('churn', keep_ledger => true)")
    export(shop.dsn, tmp_path / "all")
    export(shop.dsn, tmp_path / "one", name="second")
    names = [set(pq.read_table(tmp_path / which / "ledger.parquet")["model"].to_pylist()) for which in ("all", "one")]
    assert names == [{"churn", "second"}, {"second"}]


def test_a_role_that_may_not_export_is_told_who_may(shop: Any, tmp_path: Path, superuser: Callable[[str], str]) -> None:
    role = f"stranger_{secrets.token_hex(4)}"
    with psycopg.connect(superuser(shop.dsn), autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login password 'x'").format(sql.Identifier(role)))
        connection.execute(sql.SQL("grant usage on schema mempair to {}").format(sql.Identifier(role)))
        try:
            with pytest.raises(MempairError, match="schema's owner"):
                export(make_conninfo(shop.dsn, user=role, password="x"), tmp_path / "e")
        finally:
            connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
    assert not (tmp_path / "e").exists()


def test_ticks_of_rows_that_left_the_table_are_still_known(shop: Any, tmp_path: Path) -> None:
    shop.execute("delete from customers where id = 8")  # and no worker has run
    for which, rows in (("with", True), ("without", False)):
        model = shop.export(tmp_path / which, rows=rows)
        assert pq.read_table(model.folder / "learned.parquet")["tick"].to_pylist() == list(range(1, 2_501))
