"""A name that is used again: the kept ledger of the dropped model stays evidence beside that of the new one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import psycopg
import pytest

from mempair_db.ledger.notes import log_name
from mempair_db.offline.export import export
from tests.conftest import Run
from tests.world import CHURN, World


@pytest.fixture
def named(shop: World) -> World:
    """Model 1 has learned 300 rows and forgotten one."""
    shop.fill(1, 300)
    shop.work()
    shop("delete from shop where id = 7")
    shop.work()
    return shop


def use_again(shop: World) -> None:
    shop("select mempair.drop_model('churn', keep_ledger => true)", CHURN)
    shop.work()
    shop("delete from shop where id = 8")
    shop.work()


def test_each_ledger_of_a_name_is_verified_signed_shown_and_exported(
    named: World, mempair: Run, tmp_path: Path, superuser: Callable[[str], str]
) -> None:
    key = ("--key", str(tmp_path / "signing.key"))
    _, public, _ = mempair("keys", "new", *key)
    sign = ("odometer", "checkpoint", "churn", *key, "--dsn", named.dsn, "--to")
    assert mempair(*sign, str(tmp_path / "first"))[0] == 0
    use_again(named)

    code, _, said = mempair(*sign, str(tmp_path / "first"))
    assert (code, "of another" in said or "not of" in said) == (5, True)  # each ledger has a file of its own
    assert mempair(*sign, str(tmp_path / "second"))[0] == 0
    second = (tmp_path / "second").read_text()
    assert log_name(2, "churn") in second

    signed = ("--checkpoint", str(tmp_path / "first"), "--checkpoint", str(tmp_path / "second"))
    verify = ("odometer", "verify", "churn", *signed, "--public-key", public.strip(), "--json")
    export(named.dsn, tmp_path / "all")
    for where in (("--dsn", named.dsn), ("--file", str(tmp_path / "all/ledger.parquet"))):
        words = [word for word in verify if where[0] == "--dsn" or word != "churn"]
        code, found, said = mempair(*words, *where)
        assert code == 0, said
        assert [(one["number"], one["model"], one["verdict"][:4]) for one in json.loads(found)] == [
            (1, "churn", "good"),
            (2, "churn", "good"),
        ]
        assert all(one["checkpoints"] for one in json.loads(found))

    _, shown, _ = mempair("odometer", "show", "churn", "--last", "1000", "--json", "--dsn", named.dsn)
    assert [one["seq"] for one in json.loads(shown)] == [
        seq for (seq,) in named.execute("select seq from mempair.ledger where model_id = 2 order by seq")
    ]
    code, receipt, said = mempair("receipt", "churn", "8", *key, "--dsn", named.dsn)
    assert (code, json.loads(receipt)["model_id"]) == (0, 2), said

    with duckdb.connect(str(tmp_path / "all/mempair.duckdb"), read_only=True) as duck:
        size, root = second.splitlines()[1:3]
        assert duck.execute(f"select root from merkle_root('churn', {size})").fetchall() == [(root,)]
        assert duck.execute(
            "select count(*), bool_and(fine) from verify_ledger where checked = 'ledger'"
        ).fetchall() == [(2, True)]

    with psycopg.connect(superuser(named.dsn), autocommit=True) as forger:  # in the old one
        forger.execute("alter table mempair.ledger disable trigger user")
        forger.execute("update mempair.ledger set rows = rows + 1 where model_id = 1 and seq = 3")
    code, found, said = mempair(*verify, "--dsn", named.dsn)
    assert (code, [one["verdict"][:7] for one in json.loads(found)]) == (5, ["entry 3", "good"])


def test_a_restored_copy_is_told_of_the_erasures_of_both_ledgers(
    named: World, mempair: Run, tmp_path: Path, superuser: Callable[[str], str]
) -> None:
    use_again(named)
    export(named.dsn, tmp_path / "newest")
    with psycopg.connect(superuser(named.dsn), autocommit=True) as older:  # a copy without the newest entries
        older.execute("alter table mempair.ledger disable trigger user")
        older.execute("delete from mempair.ledger where kind = 'unlearned' or seq > 2")
    code, found, said = mempair(
        "odometer", "restored", str(tmp_path / "newest/ledger.parquet"), "--dsn", named.dsn, "--json"
    )
    assert code == 5, said
    assert [one["rows"] for one in json.loads(found)] == [1, 1]
