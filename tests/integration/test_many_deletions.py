"""Many rows deleted at once: one ledger entry, whose tag is the root over theirs, and a path to it on every receipt."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import psycopg
import pytest

from mempair_db import errors
from mempair_db.ledger import kept, keys, notes, receipts, record, verify
from mempair_db.ledger.append import Ledger
from mempair_db.pages import receipt as page
from mempair_db.worker import retrain
from tests.world import SHOP, World

KEY = keys.SigningKey.new("db.example.org")
EXACT = """
select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'spend'],
                            calibration_rows => 200, gamma => 100{})
"""
ENTRIES = "select detail, rows::integer from mempair.ledger where kind in ('unlearned', 'cancelled') order by seq"
STATE = "select to_jsonb(s) - array['ledger_seq', 'ledger_hash'] from mempair.state s"


@pytest.fixture
def shop(world: World) -> World:
    return open_shop(world)


def open_shop(world: World, subject: str = "") -> World:
    """A model of 4,000 rows, of which those above 1,000 are no reference rows: a deletion there is a subtraction."""
    world(SHOP, EXACT.format(subject))
    world.fill(1, 4000)
    world.work()
    world("delete from mempair.reference_row where row_key::integer > 1000")
    return world


def issue(world: World, key: str) -> dict[str, Any]:
    with psycopg.connect(world.dsn) as connection:
        document = receipts.issue(connection, "churn", key, KEY)
    assert document is not None
    return document


def resigned(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"signature": notes.sign(receipts._digest_text(document), KEY)}


def assert_good(world: World) -> None:
    """The ledger holds in SQL and in Python."""
    assert world.sql.execute("select * from mempair.verify_odometer()").fetchall() == []
    with psycopg.connect(world.dsn) as connection:
        assert verify.verify_database(connection, "churn").problem is None


def test_many_deletions_share_an_entry_and_every_receipt_proves_its_own(shop: World) -> None:
    shop("delete from shop where id between 1001 and 1100")
    shop.work()
    assert shop.sql.execute(ENTRIES).fetchall() == [("exact", 100)]
    assert_good(shop)
    for key in ("1001", "1064", "1100"):
        document = json.loads(json.dumps(issue(shop, key)))
        (deletion,) = document["deletions"]
        assert (deletion["row"], deletion["entry"]["rows"], document["version"]) == (key, 100, 2)
        assert receipts.check(document, [KEY.public], key)
        text = page.render(document)
        assert "shared by 100 deletions" in text
        assert receipts.check(page.read(text), [KEY.public], key)
    assert shop.one("select mempair.receipt('churn', '1002', consume => true)") is not None
    assert receipts.check(issue(shop, "1003"), [KEY.public], "1003")  # does not need that of its neighbour


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another place": lambda d: d.update(place=d["place"] + 2),
    "a place beyond the end": lambda d: d.update(place=100),
    "a place before the beginning": lambda d: d.update(place=-1),
    "no path": lambda d: d.update(path=[]),
    "no path at all": lambda d: d.update(path=None),
    "a missing hash": lambda d: d["path"].pop(),
    "one hash too many": lambda d: d["path"].append("00" * 32),
    "another hash": lambda d: d["path"].__setitem__(0, "00" * 32),
    "hashes in another order": lambda d: d["path"].reverse(),
    "another salt": lambda d: d.update(salt="00" * 32),
    "an entry about this row alone": lambda d: d["entry"].update(rows=1),
    "an entry about more rows": lambda d: d["entry"].update(rows=128),
}


def test_a_forged_path_is_found_even_if_the_issuer_signs_it(shop: World) -> None:
    shop("delete from shop where id between 1001 and 1100")
    shop.work()
    document = issue(shop, "1007")
    for name, forge in FORGED.items():
        forged = copy.deepcopy(document)
        forge(forged["deletions"][0])
        with contextlib.suppress(errors.VerificationFailed):
            receipts.check(resigned(forged), [KEY.public])
            pytest.fail(f"{name} went unnoticed")
    with pytest.raises(errors.VerificationFailed, match="not made from the key value"):
        receipts.check(resigned(document | {"key": "7"}), [KEY.public], "7")


def test_a_path_on_the_receipt_of_an_entry_about_one_row_is_refused(shop: World) -> None:
    shop("delete from shop where id = 2001")
    shop.work()
    document = issue(shop, "2001")
    document["deletions"][0].update(place=0, path=[])
    with pytest.raises(errors.VerificationFailed, match="not made from the key value"):
        receipts.check(resigned(document), [KEY.public])


def test_a_receipt_of_the_first_version_still_verifies(shop: World) -> None:
    shop("delete from shop where id = 2001")
    shop.work()
    document = issue(shop, "2001") | {"version": 1}
    for field in ("place", "path"):
        del document["deletions"][0][field]
    assert receipts.check(resigned(document), [KEY.public], "2001")


def test_few_deletions_have_an_entry_each_and_very_many_are_divided(shop: World) -> None:
    shop("delete from shop where id between 1001 and 1020")
    shop.work()
    assert shop.sql.execute(ENTRIES).fetchall() == [("exact", 1)] * 20
    shop("delete from shop where id between 1101 and 3149")
    shop.work()
    assert [rows for _, rows in shop.sql.execute(ENTRIES).fetchall()[20:]] == [683, 683, 683]
    assert_good(shop)
    assert receipts.check(issue(shop, "3149"), [KEY.public], "3149")


def test_one_receipt_covers_all_rows_of_a_person_in_a_shared_entry(world: World) -> None:
    shop = open_shop(world, ", subject => 'note'")
    shop("update shop set note = 'somebody' where id between 1001 and 1003")
    shop("delete from shop where id between 1001 and 1030")
    shop.work()
    document = issue(shop, "somebody")
    assert [deletion["row"] for deletion in document["deletions"]] == ["1001", "1002", "1003"]
    assert {deletion["entry"]["rows"] for deletion in document["deletions"]} == {30}
    assert receipts.check(document, [KEY.public], "somebody")


def test_deletions_that_cost_nothing_share_an_entry_too(shop: World) -> None:
    shop.fill(5001, 5050)
    shop("delete from shop where id > 5000")
    shop.work()
    assert shop.sql.execute(ENTRIES).fetchall() == [("cancelled", 50)]
    assert receipts.check(issue(shop, "5050"), [KEY.public], "5050")


def test_a_truncate_is_a_few_entries_and_a_receipt_for_every_row(shop: World) -> None:
    shop("truncate shop")
    shop.work()
    assert shop.sql.execute(ENTRIES).fetchall() == [("by exact retrain", 1000)] * 4
    assert shop.one("select count(*) from mempair.receipt") == 4000
    assert_good(shop)
    assert receipts.check(issue(shop, "17"), [KEY.public], "17")


def test_a_retrain_enters_waiting_deletions_some_at_a_time(shop: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait: no more than a handful of lists of so many is ever held."""
    monkeypatch.setattr(retrain, "KEYS_AT_ONCE", 100)
    monkeypatch.setattr(record, "MUCH", 250)
    held: list[int] = []
    pack = kept.pack

    def counted(terms: kept.Terms, some: Sequence[kept.Kept], first: int) -> Iterator[bytes]:
        held.append(sum(len(receipts.keys) for receipts in some))
        return pack(terms, some, first)

    monkeypatch.setattr(kept, "pack", counted)
    shop("delete from shop where id between 1001 and 3000", "select mempair.retrain('churn')")
    shop.work()
    assert sum(held) == 2000
    assert max(held) < 350
    assert shop.sql.execute(ENTRIES).fetchall() == [("by exact retrain", 100)] * 20
    assert_good(shop)
    assert receipts.check(issue(shop, "2999"), [KEY.public], "2999")


def test_worker_and_sql_append_on_one_path(shop: World) -> None:
    """The same entry from both: the same bytes but for its number and time, and nothing else is touched."""
    before = shop.one(STATE)
    state = shop.sql.execute("select epoch, clock, spent from mempair.state").fetchone()
    assert state is not None
    epoch, clock, spent = state
    ledger = Ledger(1, datetime.now(timezone.utc))
    ledger.append("config", epoch=epoch, clock=clock, rho_spent=spent, detail="é 'x'")
    first, last = ledger.write(shop.sql).fetchone() or (0, 0)
    assert first == last
    second = shop.one("select mempair.append_entry(1, 'config', 0, %s)", "é 'x'")
    assert second == first + 1
    assert shop.one(STATE) == before
    assert_good(shop)
    same = (
        "select kind, epoch, clock, rows, rho, rho_spent, rho_cap, tag, detail from mempair.ledger where seq = any (%s)"
    )
    one, other = shop.sql.execute(same, [[first, second]]).fetchall()
    assert one == other


def test_a_purge_does_not_void_what_was_attested(shop: World) -> None:
    shop("delete from shop where id between 1001 and 1100")
    shop.work()
    shop(
        "select mempair.attest_state('churn')", "update mempair.state set unpurged_since = now() - interval '1 minute'"
    )
    entries = shop.one("select count(*) from mempair.ledger where kind = 'purged'")
    shop.work()
    assert shop.one("select count(*) from mempair.ledger where kind = 'purged'") == entries + 1
    assert shop.one("select mempair.state_is_attested(1)") is True
    assert_good(shop)
