"""A receipt as a page for people. It carries the signed document, so the page itself can be verified."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Final

from jinja2 import TemplateError

from mempair_db import errors
from mempair_db.pages import template

MARK: Final = re.compile(r'<script type="application/json" id="receipt">(.*?)</script>', re.DOTALL)

KINDS: Final = {
    "unlearned": "unlearned",
    "retrained": "removed by exact retraining",
    "cancelled": "deleted before it was learned",
    "never learned": "had never been learned",
}

MEANS: Final = {
    "exact": "The model {model} is now the one that the other records alone give: nothing in it comes from this one.",
    "unlearned": "The model {model} has unlearned it under noise: beyond the small limits below, nobody can tell from "
    "the model whether it was ever there.",
    "retrained": "The model {model} was computed anew without it: nothing in it comes from this record.",
    "cancelled": "The model {model} had not learned it yet, and never will.",
    "never learned": "The model {model} had never learned it, so there was nothing to forget.",
}
"""What a deletion means, for people."""

SHARED: Final = (
    "The model {model} has forgotten it here, and not yet on every other server that shares the model: ask for this "
    "receipt again."
)


def render(document: dict[str, Any]) -> str:
    """Return the page."""
    shown = {"controller": None, "issuer": None, "signature": None} | document
    values = {"document": document, "receipt": shown, "sentence": sentence(document), "kinds": KINDS}
    return template.render("receipt.html", title="Deletion receipt", **values)


def sentence(document: dict[str, Any]) -> str:
    """Say first what happened, as a person understands it."""
    deletions = document["deletions"]
    last = max(deletions, key=lambda deletion: str(deletion["executed"]))
    exact = last["kind"] == "unlearned" and last["delta"] is None
    what = MEANS["exact" if exact else last["kind"]].format(model=document["model"])
    when = datetime.fromisoformat(last["executed"].replace("Z", "+00:00"))
    day = f"{when.day} {when:%B %Y, %H:%M} UTC"
    if any("shard" in deletion and deletion["everywhere"] is None for deletion in deletions):
        what = SHARED.format(model=document["model"])
    if len(deletions) == 1:
        return f"On {day} the record with {document['key_is']} = {document['key']} was deleted. {what}"
    who = f"{document['key_is']} = {document['key']}"
    return f"{len(deletions)} records with {who} were deleted, the last on {day}. {what}"


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
    except (KeyError, TypeError, ValueError, AttributeError, TemplateError):
        return False
