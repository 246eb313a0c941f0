"""Receipts, heads and exported ledgers that somebody made up or changed, and the commands that say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from mempair_db import errors
from mempair_db.database.connect import connect
from mempair_db.ledger import checkpoints, digest, keys, merkle, notes, receipts, verify
from mempair_db.ledger.entry import GENESIS, Entry, chain, make_tag
from mempair_db.ledger.notes import Checkpoint
from mempair_db.offline.export import export
from mempair_db.offline.folder import read
from mempair_db.worker import batch
from mempair_db.worker.purge import purge
from mempair_db.worker.retrain import retrain
from tests.conftest import Run
from tests.world import SHOP, World

KEY = keys.SigningKey.new("db.example.org")

CERTIFIED = """
select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'],
                            unlearner => 'symmetric', lambda => 0.01, calibration_rows => 200, gamma => 100)
"""
EXACT = """
select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'],
                            calibration_rows => 200, gamma => 100)
"""


@pytest.fixture(params=["exact", "certified"])
def shop(world: World, request: pytest.FixtureRequest) -> World:
    world(SHOP, EXACT if request.param == "exact" else CERTIFIED)
    world.fill(1, 1500)
    world.work()
    world("delete from shop where id = 1400")
    world.work()
    return world


@pytest.fixture
def certified(world: World) -> World:
    world(SHOP, CERTIFIED)
    world.fill(1, 1500)
    world.work()
    world("delete from shop where id = 1400")
    world.work()
    return world


def issue(world: World, key: str = "1400") -> dict[str, Any]:
    with psycopg.connect(world.dsn) as connection:
        document = receipts.issue(connection, "churn", key, KEY)
    assert document is not None
    return document


@pytest.mark.parametrize(
    "fraud",
    [
        "kind = 'retrained'",
        "kind = 'never learned'",
        "executed_at = executed_at - interval '1 year', requested_at = null",
        "requested_at = executed_at + interval '1 day'",
        "unlearner = case unlearner when 'exact' then 'symmetric' else 'exact' end",
        "epsilon = 0.5, delta = coalesce(delta, 1e-6)",
        "epsilon = 1, delta = 1e-9",
    ],
)
def test_a_receipt_that_was_changed_in_the_database_is_no_good_though_it_is_signed(shop: World, fraud: str) -> None:
    assert receipts.check(issue(shop), [KEY.public], "1400")
    shop(f"update mempair.receipt set {fraud}")
    with pytest.raises(errors.VerificationFailed, match="another word on"):
        receipts.check(issue(shop), [KEY.public], "1400")


def forge(world: World, number: int, kind: str, detail: str) -> None:
    """Two statements with the owner's rights: an entry in good order, and a receipt of a row that nobody deleted."""
    salt = bytes(32)
    seq = world.one("select mempair.append_entry(1, %s, 1, %s, %s)", kind, detail, make_tag(salt, str(number)))
    world.sql.execute(
        "insert into mempair.receipt (model_id, row_key, salt, ledger_seq, executed_at, kind, unlearner, version)"
        " select 1, %s, %s, l.seq, l.at, %s, 'exact', '0.1.0' from mempair.ledger l where l.seq = %s",
        [str(number), salt, {"by exact retrain": "retrained", "exact": "unlearned"}[detail], seq],
    )


def test_a_receipt_for_a_row_that_is_still_there_says_that_it_is(world: World, mempair: Run, tmp_path: Path) -> None:
    world(SHOP, EXACT)
    world.fill(1, 1500)
    world.work()
    forge(world, 7, "unlearned", "exact")
    file, public = tmp_path / "receipt.json", tmp_path / "issuer.pub"
    file.write_text(json.dumps(issue(world, "7")))
    public.write_text(f"{KEY.public}\n")
    _, out, _ = mempair("receipt", "verify", str(file), "--public-key", str(public))
    assert "note: 1 of these rows were in the model again when the receipt was issued: they are NOT gone" in out


def test_by_exact_retrain_without_a_retrain_is_no_receipt(world: World) -> None:
    world(SHOP, EXACT)
    world.fill(1, 1500)
    world.work()
    forge(world, 7, "unlearned", "by exact retrain")
    document = issue(world, "7")
    if "retrain" in document["deletions"][0]:  # the refresh of this epoch came before the entry
        with pytest.raises(errors.VerificationFailed, match="is not the retrain"):
            receipts.check(document, [KEY.public])
        document["deletions"][0].pop("retrain")
        document["signature"] = notes.sign(receipts._digest_text(document), KEY)
    with pytest.raises(errors.VerificationFailed, match="no retrain follows it"):
        receipts.check(document, [KEY.public])


def test_a_deletion_served_by_a_retrain_has_a_receipt_that_proves_the_retrain(shop: World) -> None:
    shop("delete from shop where id = 1300", "select mempair.retrain('churn')")
    shop.work()
    document = issue(shop, "1300")
    assert document["deletions"][0]["retrain"]["entry"]["kind"] == "retrained"
    assert receipts.check(document, [KEY.public], "1300")


def test_an_exact_models_receipt_names_the_entry_with_the_states_digest(shop: World, tmp_path: Path) -> None:
    (deletion,) = issue(shop)["deletions"]
    if shop.one("select unlearner from mempair.model") != "exact":
        assert "state" not in deletion
        return
    entry = deletion["state"]["entry"]
    assert entry["seq"] == deletion["state_digest_in_entry"] > deletion["entry"]["seq"]
    # An auditor computes it from the rows of an export, and the salt that lasts as long as the state.
    export(shop.dsn, tmp_path / "e", rows=True)
    model = read(tmp_path / "e").row
    salted = digest.of_state(model["digest_salt"], model["constants"], model["sums"])
    assert digest.said(entry["kind"], entry["detail"]) == salted
    document = issue(shop)
    document["deletions"][0]["state"] = {**document["deletions"][0], "proof": document["deletions"][0]["proof"]}
    document["signature"] = notes.sign(receipts._digest_text(document), KEY)
    with pytest.raises(errors.VerificationFailed, match="has no digest of the state after"):
        receipts.check(document, [KEY.public])
    # Without the salt the digest tells nothing of a row. It is in no document, and the next change takes it away.
    assert model["digest_salt"].hex() not in json.dumps(issue(shop))
    shop.fill(2000, 2001)
    apply_alone(shop)
    assert shop.one("select digest_salt is null from mempair.state")
    shop("delete from shop where id = 1399")
    apply_alone(shop)
    assert shop.one("select digest_salt from mempair.state") not in (None, model["digest_salt"])
    assert shop.execute("select * from mempair.verify_odometer()") == []


def apply_alone(world: World) -> None:
    """Apply what waits, and do nothing else: no purge, and no second look."""
    with connect(world.dsn) as connection:
        batch.prepare(connection)
        batch.apply_batch(connection, 1)
        if world.one("select retrain_requested is not null from mempair.model where id = 1"):
            retrain(connection, 1)


FORGETTING = {  # how a row goes, and how it is forgotten
    "subtracted": ("unlearned", ["delete from shop where id = 700"]),
    "among many": ("unlearned", ["delete from shop where id between 650 and 750"]),
    "by a retrain": ("retrained", ["delete from shop where id = 700", "select mempair.retrain('churn')"]),
    "before it was learned": ("cancelled", ["insert into shop values (900, 30, 'pro', 5, 'n', true)"]),
    "truncated": ("retrained", ["truncate shop"]),
    "too few left": ("retrained", ["delete from shop", "select mempair.retrain('churn')"]),
}


@pytest.mark.parametrize("how", FORGETTING)
def test_a_receipt_names_the_digest_of_the_state_at_once(world: World, mempair: Run, tmp_path: Path, how: str) -> None:
    world(SHOP, EXACT)
    world.fill(1, 600)
    world.work()
    world.fill(601, 800)  # no reference rows
    world.work()
    kind, statements = FORGETTING[how]
    key = "900" if kind == "cancelled" else "700"
    world(*statements, f"delete from shop where id = {key}")
    apply_alone(world)
    document = issue(world, key)
    deletion = document["deletions"][-1]
    entry = deletion["state"]["entry"]
    assert deletion["kind"] == kind
    assert entry["seq"] == deletion["state_digest_in_entry"] > deletion["entry"]["seq"]
    assert entry["at"] == deletion["entry"]["at"]  # one transaction: the state is the one right after the deletion
    constants, sums, salt = world.one(
        "select m.constants::text, s.sums, s.digest_salt from mempair.model m join mempair.state s on s.model_id = m.id"
    )
    assert (sums is None) == (how in ("truncated", "too few left"))
    assert digest.said(entry["kind"], entry["detail"]) == digest.of_state(salt, constants, sums)
    assert digest.said(entry["kind"], entry["detail"]) != digest.of_state(b"", constants, sums)
    assert world.execute("select * from mempair.verify_odometer()") == []
    (tmp_path / "receipt.json").write_text(json.dumps(document))
    code, out, _ = mempair("receipt", "verify", str(tmp_path / "receipt.json"), "--public-key", str(KEY.public))
    assert (code, "names no digest" in out) == (0, False)
    assert f"note: row {key}: ledger entry {entry['seq']} has the digest of the state then" in out
    export(world.dsn, tmp_path / "e", rows=True)
    with duckdb.connect(str(tmp_path / "e" / "mempair.duckdb")) as duck:
        assert duck.execute("select fine from verify_ledger where checked = 'digest'").fetchall() == [(True,)]


def test_a_deletion_before_the_first_constants_names_a_digest_too(world: World) -> None:
    world(SHOP, EXACT)
    world.fill(1, 50)
    world("delete from shop where id = 7")
    apply_alone(world)
    (deletion,) = issue(world, "7")["deletions"]
    assert deletion["kind"] == "cancelled"
    assert receipts.check(issue(world, "7"), [KEY.public], "7")
    salt = world.one("select digest_salt from mempair.state")
    assert digest.said("attested", deletion["state"]["entry"]["detail"]) == digest.of_state(salt, None, None)


def test_a_receipt_that_leaves_the_digest_out_says_so_and_one_of_an_earlier_purge_is_good(world: World) -> None:
    world(SHOP, EXACT)
    world.fill(1, 600)
    world.work()
    world("delete from shop where id = 500")
    apply_alone(world)
    said = f"queue tables truncated; sha256 of the state: {'ab' * 32}"
    seq = world.one("select mempair.append_entry(1, 'purged', 0, %s)", said)
    document = issue(world, "500")
    (deletion,) = document["deletions"]
    state = deletion.pop("state")
    document["signature"] = notes.sign(receipts._digest_text(document), KEY)
    assert receipts.check(document, [KEY.public])
    assert any("names no digest of the state" in remark for remark in receipts.remarks(document))
    with connect(world.dsn) as connection:
        entries = list(verify.ledger_rows(connection, 1))
    leaves = [merkle.leaf_hash(entry.body) for entry in entries]
    deletion["state"] = state | {
        "entry": receipts._fields(Entry(*entries[seq - 1][:12])),
        "proof": receipts._proof(leaves, seq),
    }
    document["signature"] = notes.sign(receipts._digest_text(document), KEY)
    assert receipts.check(document, [KEY.public])


def test_an_attested_audit_leaves_the_state_and_its_digest_as_they_are(
    world: World, mempair: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMPAIR_HOME", str(tmp_path / "home"))
    mempair("keys", "new", "--name", "db.example.org")
    world(SHOP, EXACT)
    world.fill(1, 600)
    world.work()
    world("delete from shop where id = 500")
    world.work()
    version = world.one("select version from mempair.state")
    code, _, err = mempair("audit", "churn", "--attest", "--dsn", world.dsn)
    last = world.one("select max(seq) from mempair.ledger where kind = 'attested'")
    assert code == 0
    assert f"Entered as ledger entry {last}," in err
    assert world.one("select version from mempair.state") == version
    assert world.execute("select * from mempair.verify_odometer()") == []


def test_a_state_that_was_exchanged_after_its_digest_was_published_is_found(world: World) -> None:
    world(SHOP, EXACT)
    world.fill(1, 1500)
    world.work()
    world("delete from shop where id = 1400")
    world.work()
    assert world.execute("select * from mempair.verify_odometer()") == []
    world("update mempair.state set sums = set_byte(sums, 40, 255 - get_byte(sums, 40))")
    ((_, _, problem),) = world.execute("select * from mempair.verify_odometer()")
    assert problem == "the model's state is not the one whose digest it has"


def test_a_purge_leaves_an_attested_state_attested(shop: World) -> None:
    shop("select mempair.attest_state('churn')")
    with connect(shop.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        assert purge(connection, 1)
    assert shop.execute("select * from mempair.verify_odometer()") == []
    assert shop.one("select mempair.state_is_attested(1)")


def test_the_command_says_whose_key_it_believed_and_a_forgers_receipt_fails(
    certified: World, mempair: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMPAIR_HOME", str(tmp_path / "home"))
    mempair("keys", "new", "--name", "db.example.org")
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(issue(certified)))  # by KEY, which is not the key of this home
    code, out, err = mempair("receipt", "verify", str(file))
    assert (code, out) == (5, "")
    assert "this machine's own signing key" in " ".join(err.split())
    code, _, err = mempair("receipt", "verify", str(file), "--public-key", str(KEY.public))
    assert code == 0
    assert "from --public-key" in " ".join(err.split())


# -- an exported ledger ----------------------------------------------------------------------------------------------


def rewritten(folder: Path, change: Callable[[list[Entry]], list[Entry]]) -> Path:
    """Write ledger.parquet anew with good bodies and hashes, and make model.parquet agree: a careful forger."""
    file = folder / "ledger.parquet"
    entries = change([Entry(*row[:12]) for row in verify.parquet_rows(file, 1)])
    with duckdb.connect() as duck:
        duck.execute("create table l as select * from read_parquet($1) limit 0", [str(file)])
        head = GENESIS
        for entry in entries:
            prev, body = head, entry.body()
            head = chain(prev, body)
            values = ["churn", *entry._replace(at=0), body, prev, head]
            duck.execute(
                f"insert into l values ({', '.join('?' for _ in values)})".replace(
                    "?, ?, ?, ?", "?, ?, ?, make_timestamptz(?)", 1
                ),
                [*values[:3], entry.at, *values[4:]],
            )
        spent, last = entries[-1].rho_spent, len(entries)
        duck.execute(f"copy l to '{file}' (format parquet)")
        model = folder / "model.parquet"
        duck.execute("create table m as select * from read_parquet($1)", [str(model)])
        duck.execute("update m set spent = $1, ledger_seq = $2, ledger_hash = $3", [spent, last, head])
        duck.execute(f"copy m to '{model}' (format parquet)")
    return file


def test_an_export_that_spends_more_than_its_cap_is_no_good(certified: World, mempair: Run, tmp_path: Path) -> None:
    export(certified.dsn, tmp_path / "export")
    file = tmp_path / "export" / "ledger.parquet"
    assert mempair("odometer", "verify", "--file", str(file))[0] == 0

    def change(entries: list[Entry]) -> list[Entry]:
        cap = next(entry.rho_cap for entry in entries if entry.kind == "calibrated") or 0
        more = 0
        changed = []
        for entry in entries:
            more += 2 * cap if entry.rho else 0
            rho = entry.rho + (2 * cap if entry.rho else 0)
            changed.append(entry._replace(rho=rho, rho_spent=entry.rho_spent + more))
        return changed

    code, _, err = mempair("odometer", "verify", "--file", str(rewritten(tmp_path / "export", change)))
    assert code == 5
    assert "it spends more than its epoch's cap" in " ".join(err.split())


def test_an_export_whose_time_runs_backwards_is_no_good(certified: World, mempair: Run, tmp_path: Path) -> None:
    export(certified.dsn, tmp_path / "export")

    def change(entries: list[Entry]) -> list[Entry]:
        last = entries[-1]
        assert isinstance(last.at, int)
        return [*entries[:-1], last._replace(at=last.at - 3_600_000_000)]

    code, _, err = mempair("odometer", "verify", "--file", str(rewritten(tmp_path / "export", change)))
    assert code == 5
    assert "it is older than an entry before it" in " ".join(err.split())


def test_a_cut_tail_is_found_by_the_model_beside_it_or_by_a_checkpoint(
    shop: World, mempair: Run, tmp_path: Path
) -> None:
    with psycopg.connect(shop.dsn) as connection:
        note = checkpoints.make(connection, "churn", KEY)
    signed = tmp_path / "churn.checkpoint"
    signed.write_text(note)
    export(shop.dsn, tmp_path / "export")
    file = tmp_path / "export" / "ledger.parquet"
    with duckdb.connect() as duck:
        duck.execute("create table l as select * from read_parquet($1)", [str(file)])
        duck.execute(f"copy (select * from l where seq < (select max(seq) from l)) to '{file}' (format parquet)")
    code, _, err = mempair("odometer", "verify", "--file", str(file))
    assert code == 5
    assert "it is not the last entry" in " ".join(err.split())
    (tmp_path / "export" / "model.parquet").unlink()
    code, _, err = mempair("odometer", "verify", "--file", str(file))
    assert code == 5
    assert "does not go on after its last entry" in " ".join(err.split())
    believed = ("--checkpoint", str(signed), "--public-key", str(KEY.public))
    code, _, err = mempair("odometer", "verify", "--file", str(file), *believed)
    assert code == 5
    assert "a signed checkpoint has" in " ".join(err.split())


# -- heads -----------------------------------------------------------------------------------------------------------


def test_two_heads_of_one_ledger_that_cannot_both_be_true_are_found(shop: World, mempair: Run, tmp_path: Path) -> None:
    one, other, later = (tmp_path / name for name in ("one", "other", "later"))
    with psycopg.connect(shop.dsn) as connection:
        one.write_text(checkpoints.make(connection, "churn", KEY))
    head = Checkpoint.open(one.read_text(), [KEY.public])
    other.write_text(notes.sign(Checkpoint(head.origin, head.size, bytes(32)).text(), KEY))
    believed = ("--public-key", str(KEY.public), "--dsn", shop.dsn)
    assert mempair("odometer", "compare", str(one), str(one), *believed)[0] == 0
    code, _, err = mempair("odometer", "compare", str(one), str(other), *believed)
    assert code == 5
    assert "different roots" in " ".join(err.split())
    shop("delete from shop where id = 1200")
    shop.work()
    with psycopg.connect(shop.dsn) as connection:
        later.write_text(checkpoints.make(connection, "churn", KEY))
    assert mempair("odometer", "compare", str(one), str(later), *believed)[0] == 0
    assert mempair("odometer", "compare", str(other), str(later), *believed)[0] == 5
