"""A receipt as a page for people. It carries the signed document, so the page itself can be verified."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any, Final

from mempair_db import errors

MARK: Final = re.compile(r'<script type="application/json" id="receipt">(.*?)</script>', re.DOTALL)

PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Deletion receipt</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; width: 100%; }} td {{ padding: .2rem .8rem .2rem 0; vertical-align: top; }}
td:first-child {{ color: #555; white-space: nowrap; }}
code, pre {{ font-size: .8rem; overflow-wrap: anywhere; white-space: pre-wrap; }}
</style></head><body>
<h1>Deletion receipt</h1>
<p>{summary}</p>
{deletions}
<h2>What the statement assumes</h2><ul>{assumes}</ul>
<h2>What was removed</h2><ul>{removed}</ul>
<h2>What remains, where and until when</h2><ul>{remains}</ul>
<h2>How to check it</h2>
<p>Save this page and run, with the issuer's public key obtained from somewhere you trust:</p>
<pre>mempair receipt verify receipt.html --key-value {key} --public-key {public_key}</pre>
<p>Signed checkpoint of the ledger:</p><pre>{checkpoint}</pre>
<script type="application/json" id="receipt">{document}</script>
</body></html>
"""

WORDS: Final = {
    "unlearned": "unlearned, with noise",
    "retrained": "removed by exact retraining",
    "cancelled": "deleted before it was learned",
    "never learned": "had never been learned",
}


def render(document: dict[str, Any]) -> str:
    """Return the page."""
    count = len(document["deletions"])
    summary = (
        f"{count} deletion{'s' if count > 1 else ''} from model <b>{escape(document['model'])}</b> on table "
        f"<b>{escape(document['source'])}</b>, for {escape(document['key_is'])} = <b>{escape(document['key'])}</b>. "
        f"Issued {_time(document['issued'])} by {escape(document['issuer'])}."
    )
    if document["present_again"]:
        summary += (
            f" <b>{document['present_again']} of these rows exist again</b>: a later version of them was learned."
        )
    return PAGE.format(
        summary=summary,
        deletions="\n".join(_deletion(deletion) for deletion in document["deletions"]),
        assumes=_items(document["assumes"]),
        removed=_items(document["removed"]),
        remains=_items(document["remains"]),
        key=escape(document["key"]),
        public_key=escape(document["public_key"]),
        checkpoint=escape(document["checkpoint"]),
        document=json.dumps(document, ensure_ascii=False).replace("<", "\\u003c"),
    )


def _deletion(deletion: dict[str, Any]) -> str:
    entry = deletion["entry"]
    facts = {
        "Requested": _time(deletion["requested"]),
        "Executed": _time(deletion["executed"]),
        "How": f"{escape(deletion['algorithm'])} (mempair_db {escape(deletion['version'])})",
        "Statement": escape(deletion["statement"]),
        "This record": f"ε = {escape(deletion['epsilon_record'])}, δ = {escape(deletion['delta'])}",
        "All of the epoch": f"ε = {escape(deletion['epsilon_epoch'])} so far, "
        f"never above {escape(deletion['epsilon_budget'])}, δ = {escape(deletion['delta'])}",
        "Queue erased": _time(deletion["queue_erased"]) or "not yet: the operator runs <code>mempair purge</code>",
        "Retrained since": _time(deletion["retrained_since"]) or "no",
        "Kept until": _time(deletion["kept_until"]),
        "Ledger entry": f"{entry['seq']}, tag <code>{escape(entry['tag'])}</code>",
    }
    if deletion["kind"] != "unlearned":
        del facts["All of the epoch"]
    if deletion["kind"] in ("cancelled", "never learned"):
        del facts["This record"]
    cells = "".join(f"<tr><td>{label}</td><td>{text}</td></tr>" for label, text in facts.items())
    return f"<h2>Row {escape(deletion['row'])}: {WORDS[deletion['kind']]}</h2><table>{cells}</table>"


def _items(texts: list[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _time(text: str | None) -> str:
    return escape(text[:19].replace("T", " ") + " UTC") if text else ""


def read(text: str) -> dict[str, Any]:
    """Return the document in a file: JSON, or a page that carries it and reads exactly as it should."""
    page = MARK.search(text)
    try:
        document = json.loads(page.group(1) if page else text)
    except ValueError:
        raise errors.VerificationFailed("The file holds no receipt.") from None
    if not isinstance(document, dict):
        raise errors.VerificationFailed("The file holds no receipt.")
    if page and not _reads_as(document, text):
        raise errors.VerificationFailed(
            "The page does not read as the receipt that it carries.",
            remedy="Somebody changed it, or a browser when saving it, or another version made it: ask for the JSON.",
        )
    return document


def _reads_as(document: dict[str, Any], text: str) -> bool:
    """Whether people are shown what is signed: a good receipt could be carried by a page that says something else."""
    try:
        return render(document).split() == text.split()
    except (KeyError, TypeError, AttributeError):
        return False
