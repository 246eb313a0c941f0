"""The audit of an exact model: equalities on an export, and the frauds that break them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import psycopg
import pytest

from mempair_db.ledger import checkpoints, keys
from mempair_db.measure.audit import audit
from mempair_db.offline.export import export
from mempair_db.offline.folder import read
from mempair_db.pages.report import render
from tests.conftest import Run
from tests.integration.test_verify_sql import RANDOM, fill
from tests.world import World

KEY = keys.SigningKey.new("db.example.org")


@pytest.fixture
def shop(world: World) -> World:
    world(RANDOM)
    fill(world, 0, 700, seed=5)
    world("select mempair.create_model('m', 't', features => array['a', 'b', 'c'], target => 'label', gamma => 10)")
    world.work()
    world("delete from t where id in (5, 6)")
    world.work()
    world.work()
    return world


def verdicts(world: World, folder: Path, change: Callable[[Path], None] = lambda _: None) -> dict[str, str]:
    export(world.dsn, folder, rows=True)
    change(folder)
    return {claim.name: claim.verdict for claim in audit(read(folder)).claims}


def edited(table: str, statement: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / f"{table}.parquet"
        with duckdb.connect() as duck:
            duck.execute("create table t as select * from read_parquet($1)", [str(file)])
            duck.execute(statement)
            duck.execute(f"copy t to '{file}' (format parquet)")

    return edit


def test_every_claim_of_an_honest_exact_model_holds_and_the_page_says_so_first(shop: World, tmp_path: Path) -> None:
    export(shop.dsn, tmp_path / "e", rows=True)
    model = read(tmp_path / "e")
    result = audit(model)
    assert {claim.name for claim in result.claims} == {
        *(
            "ledger",
            "served",
            "purged",
            "constants",
            "sums",
            "served weights",
            "learned keys",
            "deleted keys",
            "digest",
        ),
    }
    assert result.unproven == [], result.unproven
    page = render(model, result)
    assert "Every row that was deleted is out of the model: it is, bit for bit, the one computed from" in page


@pytest.mark.parametrize(
    ("table", "statement", "claim"),
    [
        ("rows_1", "update t set b = 5 where row_key = '17'", "sums"),
        ("rows_1", "delete from t where row_key = '17'", "sums"),
        ("rows_1", "update t set reference_row = reference_row and label > 0 and b < 100", "constants"),
        ("model", "update t set constants = replace(constants, '\"h\": ', '\"h\": 1')", "constants"),
        (
            "model",
            'update t set published = replace(published, \'"intercept": \', \'"intercept": 7, "was": \')',
            "served weights",
        ),
        ("ledger", "delete from t where seq = (select max(seq) from t)", "ledger"),
        ("held_keys", "delete from t where row_key = '17' and held_in = 'learned_keys.keys'", "learned keys"),
        ("held_keys", "insert into t select 1, 'learned_keys.keys', '17'", "learned keys"),
        ("held_keys", "insert into t select 1, 'rejected.row_key', '5'", "deleted keys"),
        ("model", "update t set constants = constants || ' '", "digest"),
        ("model", 'update t set constants = replace(constants, \'"h": \', \'"note": "47 years", "h": \')', "constants"),
        ("model", "update t set published = replace(published, '\"logistic\"', '\"identity\"')", "served weights"),
    ],
)
def test_an_export_that_was_edited_fails_its_audit(
    shop: World, tmp_path: Path, table: str, statement: str, claim: str
) -> None:
    assert verdicts(shop, tmp_path / "e", edited(table, statement))[claim] == "fails"


def test_a_model_that_skips_missing_values_is_audited_too(world: World, tmp_path: Path) -> None:
    world(RANDOM)
    fill(world, 0, 700, seed=5)
    world(
        "select mempair.create_model('m', 't', features => array['a', 'b', 'c'], target => 'label', gamma => 10,"
        " on_null => 'skip')"
    )
    world.work()
    world.work()
    assert set(verdicts(world, tmp_path / "e").values()) == {"holds"}


def test_the_command_ends_with_5_unless_everything_is_proven(shop: World, mempair: Run, tmp_path: Path) -> None:
    assert mempair("audit", "m", "--dsn", shop.dsn)[0] == 0
    assert mempair("report", "m", "--out", str(tmp_path / "page.html"), "--dsn", shop.dsn)[0] == 0
    export(shop.dsn, tmp_path / "less")
    assert mempair("audit", "--from", str(tmp_path / "less"))[0] == 5  # without rows nothing is proven
    code, _, err = mempair("replay", "m", "--dsn", shop.dsn)
    assert code == 2
    assert "mempair verify" in " ".join(err.split())
    shop("delete from t where id = 77")  # nobody has applied it yet
    assert mempair("audit", "m", "--dsn", shop.dsn)[0] == 5
    assert mempair("report", "m", "--out", str(tmp_path / "page.html"), "--dsn", shop.dsn)[0] == 5


def test_the_audit_takes_signed_checkpoints(shop: World, mempair: Run, tmp_path: Path) -> None:
    note = tmp_path / "m.checkpoint"
    with psycopg.connect(shop.dsn) as connection:
        note.write_text(checkpoints.make(connection, "m", KEY))
    believed = ("--checkpoint", str(note), "--public-key", str(KEY.public))
    code, out, _ = mempair("audit", "m", "--dsn", shop.dsn, *believed)
    assert (code, "signed up to" in out) == (0, True)
    export(shop.dsn, tmp_path / "e", rows=True)
    edited("ledger", "delete from t where seq = (select max(seq) from t)")(tmp_path / "e")
    assert mempair("audit", "--from", str(tmp_path / "e"), *believed)[0] == 5
