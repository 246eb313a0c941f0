"""Receipts in a real browser: asked for, kept, checked, and every forgery found out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mempair_db.ledger import keys, notes, receipts
from mempair_db.pages import receipt as receipt_page
from mempair_db.web.guard import Locks
from mempair_db.web.person import issue
from mempair_db.web.site import Site
from tests.web.conftest import Picture
from tests.world import World

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")


def take_receipt(page: Any, folder: Path, form: str) -> Path:
    """Ask for customer 7's receipt as a file."""
    page.goto(re.match(r"http://[^/]+/", page.url)[0] + "request")  # type: ignore[index]
    page.fill("#key", "7")
    page.keyboard.press("Enter")
    article = page.locator("article", has=page.get_by_role("heading", name=re.compile("^churn")))
    with page.expect_download() as found:
        article.get_by_role("button", name=form).click()
    file = folder / ("receipt.json" if form == "As JSON" else "receipt.html")
    found.value.save_as(file)
    return file


def test_a_receipt_is_read_kept_and_checked(page: Any, home: Path, tmp_path: Path, picture: Picture) -> None:
    page.get_by_role("link", name="A person's request").click()
    page.fill("#key", "7")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Show the receipt").first.click()
    assert "was deleted. The model certified has unlearned it" in page.inner_text("main")
    assert "Example Ltd, privacy@example.org" in page.inner_text("main")
    page.get_by_role("button", name="Check it in this browser").click()
    page.get_by_text("This receipt is genuine.").wait_for()
    picture(page, "receipt")
    public = str(keys.load(home / "keys" / "signing.key").public)
    document = json.loads(take_receipt(page, tmp_path, "As JSON").read_text())
    assert receipts.check(document, [keys.PublicKey.parse(public)], "7")
    # The page as a file, without any server.
    file = take_receipt(page, tmp_path, "As a page to keep")
    assert receipt_page.read(file.read_text()) == {
        **document,
        **{k: receipt_page.read(file.read_text())[k] for k in ("issued", "signature")},
    }
    alone = page.context.browser.new_context(offline=True).new_page()
    alone.goto(file.as_uri())
    alone.get_by_label("The public key").fill(public)
    alone.get_by_label("Your own key value").fill("7")
    alone.get_by_role("button", name="Check it in this browser").click()
    alone.get_by_text("This receipt is genuine.").wait_for()
    picture(alone, "receipt-file")
    alone.get_by_label("Your own key value").fill("8")
    alone.get_by_role("button", name="Check it in this browser").click()
    alone.get_by_text("for another key value than yours").wait_for()
    alone.context.close()


def forgeries(document: dict[str, Any], key: keys.SigningKey, other: keys.SigningKey) -> dict[str, tuple[Any, str]]:
    """Receipts that must not pass, and what is wrong with each; the last ones are signed by an issuer who lies."""

    def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        copy: dict[str, Any] = json.loads(json.dumps(document))
        change(copy)
        return copy

    def signed(copy: dict[str, Any], by: keys.SigningKey = key) -> dict[str, Any]:
        return copy | {"signature": notes.sign(receipts._digest_text(copy), by)}

    def entry(d: dict[str, Any]) -> Any:
        return d["deletions"][0]["entry"]

    return {
        "statement": (changed(lambda d: d["deletions"][0].update(statement="x")), "changed after it was signed"),
        "salt": (changed(lambda d: d["deletions"][0].update(salt="00" * 32)), "changed after it was signed"),
        "own key": (signed(document, other), "not signed with the key that you gave"),
        "unsigned": (changed(lambda d: d.pop("signature")), "not signed"),
        "no receipt": ({"a": 1}, "no receipt of a version"),
        "signed salt": (
            signed(changed(lambda d: d["deletions"][0].update(salt="00" * 32))),
            "not made from the key value",
        ),
        "signed entry": (signed(changed(lambda d: entry(d).update(rows=2))), "not under the signed root"),
        "signed time": (
            signed(changed(lambda d: d["deletions"][0].update(executed="2020-01-01T00:00:00.000000Z"))),
            "another word on when it was done",
        ),
        "signed kind": (signed(changed(lambda d: d["deletions"][0].update(kind="cancelled"))), "another word on what"),
        "signed epsilon": (
            signed(changed(lambda d: d["deletions"][0].update(delta="1e-6"))),
            "another word on an epsilon",
        ),
        "signed model": (signed(changed(lambda d: d.update(model="other"))), "of another ledger"),
        "signed proof": (signed(changed(lambda d: d["deletions"][0]["proof"].pop())), "not under the signed root"),
    }


def test_a_forged_receipt_is_found_out_in_the_browser(page: Any, home: Path, tmp_path: Path, picture: Picture) -> None:
    key = keys.load(home / "keys" / "signing.key")
    document = json.loads(take_receipt(page, tmp_path, "As JSON").read_text())
    page.get_by_role("link", name="Check a receipt").click()
    page.get_by_label("Your own key value").fill("7")

    def verdict(content: Any) -> str:
        text = content if isinstance(content, str) else json.dumps(content)
        page.set_input_files("input[type=file]", {"name": "r", "mimeType": "", "buffer": text.encode()})
        page.evaluate("document.getElementById('verdict').hidden = true")
        page.get_by_role("button", name="Check it in this browser").click()
        page.locator("#verdict:not([hidden])").wait_for()
        return str(page.inner_text("#verdict"))

    assert "This receipt is genuine." in verdict(document)
    assert "This receipt is genuine." in verdict(receipt_page.render(document))
    picture(page, "check-genuine")
    for name, (forged, why) in forgeries(document, key, keys.SigningKey.new("db.example.org")).items():
        said = verdict(forged)
        assert "NOT proven genuine" in said, name
        assert why in said, f"{name}: {said}"
    picture(page, "check-forged")
    assert "NOT proven genuine" in verdict("no json")


@pytest.fixture
def checks(page: Any, company: World, home: Path) -> Callable[[dict[str, Any], str], None]:
    """Sign what an issuer might sign, and see what the browser says of it."""
    key = keys.load(home / "keys" / "signing.key")
    page.goto(f"{page.url}check")

    def run(content: dict[str, Any], words: str) -> None:
        signed = content | {"signature": notes.sign(receipts._digest_text(content), key)}
        page.set_input_files("input[type=file]", {"name": "r", "mimeType": "", "buffer": json.dumps(signed).encode()})
        page.get_by_role("button", name="Check it in this browser").click()
        page.get_by_text(words).first.wait_for()

    return run


def issued(company: World, home: Path, model: str, key: str) -> dict[str, Any]:
    here = Site(lambda: company.dsn, Locks("127.0.0.1"), key_file=home / "keys" / "signing.key")
    return issue(here, model, key)


def test_epsilon_in_the_browser_is_checked_as_in_python(company: World, home: Path, checks: Any) -> None:
    """The certified model's receipt, honest and with a smaller ε that its issuer signed."""
    document = issued(company, home, "certified", "7")
    checks(document, "This receipt is genuine.")
    for field, value, words in (
        ("epsilon_record", "0.1000", "another word on epsilon_record"),
        ("epsilon_budget", "9", "another word on the budget"),
    ):
        forged = json.loads(json.dumps(document))
        forged["deletions"][0][field] = value
        checks(forged, words)


def test_one_of_many_deletions_that_share_an_entry_is_checked_too(company: World, home: Path, checks: Any) -> None:
    company("delete from mempair_demo.customers where id between 301 and 340")
    company.work()
    document = issued(company, home, "churn", "305")
    assert document["deletions"][0]["entry"]["rows"] == 40
    checks(document, "This receipt is genuine.")
    changes: list[dict[str, Any]] = [{"place": 0}, {"path": []}, {"salt": "00" * 32}]
    for change in changes:
        forged = json.loads(json.dumps(document))
        forged["deletions"][0].update(change)
        checks(forged, "not made from the key value")
    checks(document | {"key": "306"}, "not made from the key value")


def test_a_forged_retrain_and_a_forged_digest_are_found_out_in_the_browser(
    company: World, home: Path, checks: Any
) -> None:
    """Parts of a receipt beside the deletion's own entry, each signed by an issuer who lies."""
    company("delete from mempair_demo.customers where id = 350", "select mempair.retrain('churn')")
    company.work()
    document = issued(company, home, "churn", "350")
    deletion = document["deletions"][0]
    own = {name: deletion[name] for name in ("entry", "proof")}
    assert (deletion["entry"]["detail"], deletion["retrain"]["entry"]["kind"]) == ("by exact retrain", "retrained")
    assert deletion["state"]["entry"]["kind"] == "attested"
    checks(document, "This receipt is genuine.")

    def forged(**parts: Any) -> dict[str, Any]:
        copy: dict[str, Any] = json.loads(json.dumps(document))
        copy["deletions"][0].update(parts)
        return copy

    def other(part: str, **fields: Any) -> dict[str, Any]:
        return {part: deletion[part] | {"entry": deletion[part]["entry"] | fields}}

    checks(forged(retrain=None), "and no retrain follows it")
    checks(forged(retrain=own), "is not the retrain that entry")
    checks(forged(**other("retrain", rows=1)), "not under the signed root")
    checks(forged(state=own), "has no digest of the state after entry")
    checks(forged(state=deletion["retrain"]), "has no digest of the state after entry")
    checks(forged(**other("state", detail=f"sha256 of the state: {'0' * 64}")), "not under the signed root")
