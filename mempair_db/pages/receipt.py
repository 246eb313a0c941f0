"""A receipt as a page for people. It carries the signed document, so the page itself can be verified."""

from __future__ import annotations

import json
import re
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


def render(document: dict[str, Any]) -> str:
    """Return the page."""
    return template.render("receipt.html", title="Deletion receipt", receipt=document, kinds=KINDS)


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
    except (KeyError, TypeError, AttributeError, TemplateError):
        return False
