"""Receipts: what they say, who can check them, and how they end."""

from __future__ import annotations

import contextlib
import copy
import hmac
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mempair_db import __version__, errors
from mempair_db.ledger import keys, notes, receipts
from mempair_db.pages import receipt as page
from mempair_db.pair.odometer import UNITS, epsilon_of
from mempair_db.worker import changes
from mempair_db.worker.retrain import retrain
from tests.conftest import Run
from tests.world import World

KEY = keys.SigningKey.new("db.example.org")
OTHER = keys.SigningKey.new("db.example.org")

ORDERS = """
create table orders (id integer primary key, user_id text, amount float8, late boolean);
insert into orders select i, 'user ' || i % 500, i * 7919 % 100, (i * 7919 % 100) < 50 from generate_series(1, 2000) i;
"""
MORE = "insert into orders select i, 'new', i * 7919 % 100, (i * 7919 % 100) < 50 from"
DECLARE = """
select mempair.create_model('late', 'orders', target => 'late', features => array['amount'], lambda => 0.01,
                            on_null => 'skip', calibration_rows => 200, gamma => 100, unlearner => %s, subject => %s)
"""


class Orders(World):
    """A table of orders, and the receipts of those that were deleted."""

    def declare(self, unlearner: str = "symmetric", subject: str | None = None) -> None:
        declaration = DECLARE.replace("lambda => 0.01,", "") if unlearner == "exact" else DECLARE
        self.sql.execute(declaration, [unlearner, subject])
        self.work()

    def delete(self, condition: str) -> None:
        self.sql.execute(f"delete from orders where {condition}")
        self.work()

    def document(self, key: str) -> dict[str, Any]:
        """What the database says."""
        return self.one("select mempair.receipt('late', %s)", key) or {}

    def issue(self, key: str, *, consume: bool = False) -> dict[str, Any]:
        """The signed receipt."""
        with psycopg.connect(self.dsn) as connection:
            document = receipts.issue(connection, "late", key, KEY, consume=consume)
        assert document is not None
        return document


@pytest.fixture
def orders(world: World) -> Orders:
    world(ORDERS)
    return Orders(world.dsn, world.sql)


def test_a_receipt_is_checked_offline_with_the_public_key_and_the_key_value(orders: Orders) -> None:
    orders.declare()
    orders.delete("id in (7, 42)")
    document = json.loads(json.dumps(orders.issue("42")))
    assert len(receipts.check(document, [KEY.public], "42")) == 3
    (deletion,) = document["deletions"]
    assert (deletion["kind"], deletion["version"]) == ("unlearned", __version__)
    assert deletion["requested"] <= deletion["executed"] <= deletion["queue_erased"] <= document["issued"]


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the key": lambda d: d.update(key="7"),
    "epsilon": lambda d: d["deletions"][0].update(epsilon_record="0.0000"),
    "the time": lambda d: d["deletions"][0].update(requested="2020-01-01T00:00:00.000000Z"),
    "the entry": lambda d: d["deletions"][0]["entry"].update(rho=0),
    "the salt": lambda d: d["deletions"][0].update(salt="00" * 32),
    "the statement": lambda d: d["deletions"][0].update(statement="Nothing ever knew you."),
    "what remains": lambda d: d.update(remains=[]),
    "the signature": lambda d: d.update(signature=d["checkpoint"]),
    "a missing field": lambda d: d.pop("deletions"),
    "another version": lambda d: d.update(version=3),
}


def test_whatever_is_changed_in_a_receipt_is_found_out(orders: Orders) -> None:
    orders.declare()
    orders.delete("id = 42")
    document = orders.issue("42")
    for name, change in CHANGES.items():
        changed = copy.deepcopy(document)
        change(changed)
        with contextlib.suppress(errors.VerificationFailed):
            receipts.check(changed, [KEY.public])
            pytest.fail(f"{name} was changed unnoticed")
    with pytest.raises(errors.VerificationFailed, match="No signature by a key we trust"):
        receipts.check(document, [OTHER.public])
    with pytest.raises(errors.VerificationFailed, match="another key value"):
        receipts.check(document, [KEY.public], "43")


def resigned(document: dict[str, Any]) -> dict[str, Any]:
    """What an issuer who lies would hand out: a good signature under false statements."""
    return document | {"signature": notes.sign(receipts._digest_text(document), KEY)}


def test_even_the_issuer_cannot_make_up_an_entry(orders: Orders) -> None:
    orders.declare()
    orders.delete("id = 42")
    document = orders.issue("42")
    cheaper = copy.deepcopy(document)
    cheaper["deletions"][0]["entry"]["rho"] = 1
    with pytest.raises(errors.VerificationFailed, match="not under the signed root"):
        receipts.check(resigned(cheaper), [KEY.public])
    with pytest.raises(errors.VerificationFailed, match="not made from the key value"):
        receipts.check(resigned(document | {"key": "43"}), [KEY.public], "43")


@pytest.mark.parametrize("unlearner", ["symmetric", "passive"])
def test_both_guarantees_are_stated_and_neither_is_too_strong(orders: Orders, unlearner: str) -> None:
    orders.declare(unlearner)
    orders.delete("id = 7")
    orders.delete("id = 42")
    (deletion,) = orders.issue("42")["deletions"]
    entry, delta = deletion["entry"], float(deletion["delta"])
    assert entry["rho_spent"] > entry["rho"] > 0
    for name, units in (("epsilon_record", entry["rho"]), ("epsilon_epoch", entry["rho_spent"])):
        exact = epsilon_of(units / UNITS, delta)
        assert exact <= float(deletion[name]) <= exact + 1e-4
    assert ("those of the records deleted before it" in deletion["statement"]) == (unlearner == "symmetric")
    assert any("seen the model" in text for text in orders.document("42")["assumes"])


def test_epsilon_in_sql_is_the_exact_one_rounded_up(database: str) -> None:
    with psycopg.connect(database) as connection:
        for delta in (1e-12, 1e-6, 1e-2, 0.4):
            for rho in (1e-12, 1e-9, 1e-6, 1e-4, 0.01, 0.0280145, 0.5, 3.0, 100.0, 5000.0):
                units = int(rho * UNITS)
                exact = epsilon_of(units / UNITS, delta)
                (text,) = connection.execute(
                    "select mempair.epsilon_of(%s::bigint, %s)", [units, delta]
                ).fetchone() or ("",)
                assert exact - 1e-9 <= float(text) <= exact + 1.01e-4, (rho, delta)


def test_deletions_that_cost_nothing_say_why(orders: Orders) -> None:
    orders.declare()
    orders.sql.execute("insert into orders values (9001, 'x', 1, true)")
    orders.delete("id = 9001")
    orders.sql.execute("insert into orders values (9002, 'x', null, true)")
    orders.work()
    orders.delete("id = 9002")
    for key, kind in (("9001", "cancelled"), ("9002", "never learned")):
        document = orders.issue(key)
        assert document["deletions"][0]["kind"] == kind
        assert document["deletions"][0]["epsilon_record"] == "0.0000"
        assert len(document["assumes"]) == 1
        receipts.check(document, [KEY.public], key)


def test_an_exact_retrain_certifies_zero_for_the_record(orders: Orders) -> None:
    orders.declare()
    orders.sql.execute("delete from orders where id = 42")
    with psycopg.connect(orders.dsn, autocommit=True) as connection:
        from mempair_db.worker import batch  # noqa: PLC0415

        batch.prepare(connection)
        retrain(connection, 1, "test")
    document = orders.issue("42")
    assert document["deletions"][0]["kind"] == "retrained"
    assert document["deletions"][0]["epsilon_record"] == "0.0000"
    assert document["deletions"][0]["retrained_since"] is not None
    receipts.check(document, [KEY.public], "42")


def test_a_changed_row_is_not_called_gone(orders: Orders) -> None:
    orders.declare()
    orders.sql.execute("update orders set amount = amount + 1 where id = 42")
    orders.work()
    document = orders.issue("42")
    assert document["present_again"] == 1
    assert "exist again" in page.render(document)
    orders.delete("id = 42")
    document = orders.issue("42")
    assert document["present_again"] == 0
    assert len(document["deletions"]) == 2


def test_nobody_is_called_gone_by_an_update_that_does_not_fit_into_a_batch(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.declare("exact")
    orders(f"{MORE} generate_series(9001, 9400) i")
    orders.work()
    monkeypatch.setattr(changes, "BATCH_ROWS", 600)
    orders(f"{MORE} generate_series(9401, 9800) i")
    orders("update orders set amount = amount + 0.5 where id > 9000")  # half of them are learned
    while orders.one("select pending_changes from mempair.model_status"):
        orders.work()
    assert orders.one("select count(*) from mempair.receipt") == 0
    assert not {"unlearned", "cancelled"} & {kind for kind, _ in orders.kinds()}
    assert [fine for _, fine, _ in orders.execute("select * from mempair.verify_model('late')")].count(False) == 0
    orders.delete("id in (7, 9001)")
    assert orders.one("select count(*) from mempair.receipt") == 2


def test_a_row_that_lost_its_label_before_it_went_has_its_receipt_from_a_retrain_too(orders: Orders) -> None:
    orders.declare("exact")
    orders("update orders set late = null where id = 42", "select mempair.retrain('late')")
    orders.work()
    orders.delete("id = 42")
    (deletion,) = orders.issue("42")["deletions"]
    assert deletion["kind"] == "retrained"


def test_a_row_that_came_and_went_before_a_truncate_has_its_receipt(orders: Orders) -> None:
    orders.declare("exact")
    orders("insert into orders values (9001, 'new', 1, true)", "delete from orders where id in (7, 9001)")
    orders("truncate orders")
    orders.work()
    assert orders.issue("9001")["deletions"][0]["kind"] == "never learned"
    assert orders.issue("7")["deletions"][0]["kind"] == "retrained"


def test_one_receipt_covers_all_rows_of_a_person(orders: Orders) -> None:
    orders.declare(subject="user_id")
    orders.delete("user_id = 'user 42'")
    document = orders.issue("user 42")
    assert [deletion["row"] for deletion in document["deletions"]] == ["42", "542", "1042", "1542"]
    assert document["key_is"] == "user_id"
    receipts.check(document, [KEY.public], "user 42")
    salt = bytes.fromhex(document["deletions"][0]["salt"])
    assert hmac.digest(salt, b"user 42", "sha256").hex() == document["deletions"][0]["entry"]["tag"]
    said: list[str] = []
    orders.sql.add_notice_handler(lambda notice: said.append(f"{notice.message_primary} {notice.message_hint}"))
    assert orders.document("42") == {}
    assert "row '42' of model 'late' was deleted; its receipt is that of its user_id" in said[0]
    assert "select mempair.receipt('late', 'user 42')" in said[0]
    assert orders.document("user 43") == {}
    assert "The key is user_id. Either no learned row" in said[1]


def test_whose_row_it_was_is_not_asked_of_inserts_and_leaves_with_the_queue(orders: Orders) -> None:
    orders.sql.execute(DECLARE, ["symmetric", "user_id"])
    orders.sql.execute("insert into orders values (9001, 'new', 1, true)")
    orders.sql.execute("update orders set user_id = 'renamed', amount = 1.5 where id = 7")
    events = orders.sql.execute("select op, subjects from mempair.change_1_a where subjects is not null").fetchall()
    assert events == [(2, ["user 7"])]


def test_a_partition_that_is_truncated_gives_receipts_per_person(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        orders = Orders(database, connection)
        connection.execute(
            "create table orders (id integer primary key, user_id text, amount float8, late boolean)"
            " partition by range (id);"
            "create table low partition of orders for values from (0) to (10);"
            "create table high partition of orders for values from (10) to (10000);"
        )
        connection.execute(ORDERS.split(";")[1])
        orders.declare(subject="user_id")
        connection.execute("truncate low")
        orders.work()
        assert [deletion["row"] for deletion in orders.issue("user 7")["deletions"]] == ["7"]


@pytest.mark.parametrize("unlearner", ["exact", "symmetric"])
@pytest.mark.parametrize("before", ["", "select mempair.retrain('late')"], ids=["a batch", "a retrain"])
def test_a_table_that_is_truncated_gives_receipts_per_person(orders: Orders, unlearner: str, before: str) -> None:
    orders.sql.execute(DECLARE.replace("lambda => 0.01,", ""), [unlearner, "user_id"])
    orders.work()
    orders("update orders set user_id = 'somebody else' where id = 1007", "truncate orders", before or "select 1")
    orders.work()
    document = orders.issue("user 7")
    assert len(receipts.check(document, [KEY.public], "user 7")) == 5
    assert {deletion["row"] for deletion in document["deletions"]} == {"7", "507", "1507"}
    assert [deletion["row"] for deletion in orders.issue("somebody else")["deletions"]] == ["1007"]
    assert orders.one("select count(*) from mempair.receipt") == 2000


def test_where_nobody_could_read_whose_rows_went_receipts_are_found_by_key(orders: Orders) -> None:
    orders.declare(subject="user_id")
    with psycopg.connect(orders.dsn) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("truncate orders")
    orders.work()
    assert orders.document("user 7") == {}
    document = orders.issue("7")
    assert document["key_is"] == "id"
    assert len(receipts.check(document, [KEY.public], "7")) == 3


def test_dropping_the_subjects_column_ends_capture_and_not_the_users_writes(orders: Orders) -> None:
    orders.declare(subject="user_id")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        orders.sql.execute("alter table orders drop column user_id")
    orders.sql.execute("alter table orders drop column user_id cascade")
    orders.sql.execute("delete from orders where id = 7")
    orders.sql.execute("insert into orders values (9001, 1, true)")


@pytest.mark.parametrize(("column", "code"), [("nobody", "MP005"), ("late_json", "MP004")])
def test_a_column_that_cannot_say_whose_row_it_is_is_refused(orders: Orders, column: str, code: str) -> None:
    orders.sql.execute("alter table orders add column late_json jsonb")
    with pytest.raises(psycopg.Error) as refused:
        orders.sql.execute(DECLARE, ["symmetric", column])
    assert refused.value.sqlstate == code


def test_reading_keeps_a_receipt_and_consuming_deletes_it(orders: Orders) -> None:
    orders.declare()
    orders.delete("id = 42")
    assert orders.document("42") != {}
    with psycopg.connect(orders.dsn) as connection:
        assert receipts.issue(connection, "late", "42", KEY, consume=True) is not None
        connection.rollback()
    assert orders.issue("42", consume=True)["key"] == "42"
    assert orders.document("42") == {}
    assert orders.sql.execute("select count(*) from mempair.receipt").fetchone() == (0,)


def test_receipts_expire_after_the_time_that_was_declared(orders: Orders) -> None:
    orders.declare()
    orders.delete("id in (7, 42)")
    orders.sql.execute("update mempair.receipt set created_at = now() - interval '89 days' where row_key = '7'")
    orders.sql.execute("update mempair.receipt set created_at = now() - interval '91 days' where row_key = '42'")
    orders.work()
    assert orders.document("7") != {}
    assert orders.document("42") == {}


def test_without_the_salt_the_ledger_says_nothing_about_whom(orders: Orders) -> None:
    """With the salt gone, trying every key there is finds no tag."""
    orders.declare()
    orders.delete("id = 42")
    orders.issue("42", consume=True)
    (tag,) = orders.sql.execute("select tag from mempair.ledger where kind = 'unlearned'").fetchone() or (None,)
    assert all(hmac.digest(b"", str(key).encode(), "sha256") != tag for key in range(2001))
    details = str(orders.sql.execute("select detail from mempair.ledger").fetchall())
    assert not re.search(r"\b42\b", details)


def test_the_page_is_readable_verifiable_and_harmless(orders: Orders) -> None:
    orders.declare(subject="user_id")
    name = "</script><script>alert(1)</script>&\"'"
    orders.sql.execute("insert into orders values (9001, %s, 1, true)", [name])
    orders.work()
    orders.sql.execute("delete from orders where user_id = %s", [name])
    orders.work()
    text = page.render(orders.issue(name))
    assert "<script>alert" not in text
    assert text.count("</script>") == 2  # the document, and what checks it
    for part in ("What the statement assumes", "What remains", "How to check it", "backups", "ε = "):
        assert part in text
    receipts.check(page.read(text), [KEY.public], name)
    for lie in (
        text.replace("<h1>Deletion receipt", "<h1>Nothing remains"),
        text.replace("<body>", "<body><p>You were never here.</p>"),
    ):
        assert lie != text
        with pytest.raises(errors.VerificationFailed, match="does not read as"):
            page.read(lie)


@pytest.mark.parametrize("text", ["", "nothing", "[1]", "<html></html>"])
def test_files_without_a_receipt_are_refused(text: str) -> None:
    with pytest.raises(errors.VerificationFailed, match="no receipt"):
        page.read(text)


@pytest.fixture
def mempair(mempair: Run, monkeypatch: pytest.MonkeyPatch, database: str, tmp_path: Path) -> Run:
    """Run `mempair …` as somebody who has set the usual variables."""
    monkeypatch.setenv("MEMPAIR_DSN", database)
    monkeypatch.setenv("MEMPAIR_HOME", str(tmp_path / "home"))
    return mempair


def test_the_command_line_issues_and_verifies_receipts(orders: Orders, mempair: Run, tmp_path: Path) -> None:
    orders.declare()
    orders.delete("id = 42")
    assert mempair("receipt", "late", "42")[0] == 2  # no key yet
    code, public, _ = mempair("keys", "new", "--name", "db.example.org")
    assert code == 0
    assert mempair("keys", "show")[1] == public
    for form in ("json", "html"):
        code, text, _ = mempair("receipt", "late", "42", "--format", form)
        assert code == 0
        file = tmp_path / f"receipt.{form}"
        file.write_text(text)
        check = ("receipt", "verify", str(file), "--public-key", public.strip())
        assert mempair(*check, "--key-value", "42")[0] == 0
        assert mempair(*check)[0] == 0
        assert mempair(*check, "--key-value", "43")[0] == 5
        file.write_text(text.replace('"42"', '"43"'))
        assert mempair(*check)[0] == 5
    assert json.loads(mempair("receipt", "late", "42", "--unsigned")[1])["key"] == "42"
    assert mempair("receipt", "late", "42", "--consume")[0] == 0
    code, text, messages = mempair("receipt", "late", "42")
    assert (code, text) == (1, "")
    assert "was consumed, or has expired" in " ".join(messages.split())
    code, text, messages = mempair("receipt", "late", "43")
    assert (code, text) == (1, "")
    assert "has learned row '43', and it was not deleted" in " ".join(messages.split())


def test_the_command_line_makes_checkpoints_and_finds_tampering(
    orders: Orders, mempair: Run, superuser: Callable[[str], str], tmp_path: Path
) -> None:
    orders.declare()
    file = tmp_path / "late.checkpoint"
    mempair("keys", "new")
    assert mempair("odometer", "checkpoint", "late", "--to", str(file))[0] == 0
    orders.delete("id = 42")
    assert mempair("odometer", "checkpoint", "late", "--to", str(file))[0] == 0
    assert mempair("odometer", "verify", "late", "--checkpoint", str(file))[0] == 0
    code, text, _ = mempair("odometer", "verify", "--json")
    assert (code, json.loads(text)[0]["verdict"]) == (0, "good")
    before = file.read_text()
    with psycopg.connect(superuser(orders.dsn), autocommit=True) as connection:
        connection.execute("alter table mempair.ledger disable trigger user")
        connection.execute(
            "update mempair.ledger set rho = rho + 1, rho_spent = rho_spent + 1 where kind = 'unlearned'"
        )
    code, _, messages = mempair("odometer", "verify", "late")
    assert code == 5
    assert "its body is not that of its columns" in " ".join(messages.split())
    assert mempair("odometer", "checkpoint", "late", "--to", str(file))[0] == 5
    assert file.read_text() == before
    assert mempair("receipt", "late", "42")[0] == 5
