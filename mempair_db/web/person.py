"""A person's request: is the row there, who has learned it, what was deleted when, and the receipt.

Keys come and go in forms, never in addresses: those are kept in histories and logs.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

import psycopg
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from mempair_db import errors
from mempair_db.database.connect import connect
from mempair_db.database.queries import query
from mempair_db.ledger import receipts
from mempair_db.pages import receipt as receipt_page
from mempair_db.web.labels import stamp
from mempair_db.web.look import Part
from mempair_db.web.models import GRANT
from mempair_db.web.site import Form, Site, page, required, site

ASK: Final = (
    "Connect as the schema's owner, or let this role ask: "
    "`grant execute on function mempair.request(text), mempair.receipt(text, text, boolean) to {role}`."
)


def ask(request: Request) -> Response:
    """The form alone."""
    with site(request).looking() as look:
        who = look.part(lambda: look.rows("who")[0], GRANT)
    return page(request, "request", who=who, key="", found=None, summary=None)


def answer(request: Request, form: Form) -> Response:
    """What is known about the key."""
    key = form.get("key", "").strip()
    if not key:
        return ask(request)
    with site(request).looking() as look:
        who = look.part(lambda: look.rows("who")[0], GRANT)
        found = look.part(lambda: [{**row, **state(row)} for row in look.rows("request", key=key)], ASK)
    rows = sorted(found.value or [], key=lambda row: row["short"] == "nothing there")
    return page(request, "request", who=who, key=key, found=Part(rows, found.missing), summary=summary(key, rows))


def summary(key: str, rows: list[dict[str, Any]]) -> tuple[str, str]:
    """Say first, in one sentence, how things are with a person."""
    known = [row["model"] for row in rows if row["learned"]]
    tables = sorted({row["source"] for row in rows if row["in_table"]})
    if any(row["tone"] == "bad" for row in rows):
        return "bad", f"“{key}” is gone from a table and still in a model: that must be repaired."
    if any(row["short"] == "deletion waits" for row in rows):
        return "wait", f"“{key}” was deleted, and not every model has forgotten it yet."
    if known or tables:
        learned = f"known to {', '.join(known)}" if known else "known to no model"
        return "known", f"“{key}” is in {', '.join(tables) or 'no table'}, and {learned}."
    if any(row["receipts"] for row in rows):
        return "good", f"Nothing of “{key}” is left in any model here: it was deleted and forgotten."
    return "good", f"Nothing is known about “{key}” here."


SENTENCES: Final = {
    "unknown": ("wait", "Table {source} cannot be read, so nothing can be said of it."),
    "deletion waits": ("wait", "It was deleted from {source}. Model {model} forgets it as soon as a worker runs."),
    "there": ("known", "It is in {source}, and model {model} has learned it."),
    "in the table only": (
        "known",
        "It is in {source}, and model {model} has not learned it: it has no label, or a worker has not run since.",
    ),
    "still in the model": (
        "bad",
        "It is no longer in {source}, but model {model} still knows it: a deletion went around the triggers. "
        "Run `mempair reconcile`.",
    ),
    "forgotten": ("good", "It was deleted, and model {model} forgot it on {when} UTC. There is a receipt."),
    "nothing there": ("good", "It is not in {source}, model {model} does not know it, and no receipt is kept for it."),
}
"""Where a person may stand with a model."""


def state(row: dict[str, Any]) -> dict[str, str]:
    """Say in one sentence where a person stands with a model."""
    short = "nothing there"
    if row["deletions_waiting"]:
        short = "deletion waits"
    elif row["in_table"]:
        short = "there" if row["learned"] else "in the table only"
    elif row["learned"] and row["in_table"] == 0:
        short = "still in the model"
    elif row["receipts"]:
        short = "forgotten"
    elif row["in_table"] is None:
        short = "unknown"
    tone, text = SENTENCES[short]
    return {"tone": tone, "short": short, "text": text.format(**row, when=stamp(row["executed_at"]))}


def receipt(request: Request, form: Form) -> Response:
    """The receipt: on a page, or as a file."""
    here = site(request)
    document = issue(here, required(form, "model"), required(form, "key"))
    form_wanted = form.get("as", "page")
    name = quote(f"receipt-{document['model']}-{document['key']}", safe="")[:120]
    if form_wanted == "json":
        text = json.dumps(document, indent=2, ensure_ascii=False)
        return _attachment(text, f"{name}.json", "application/json")
    if form_wanted == "html":
        return _attachment(receipt_page.render(document), f"{name}.html", "text/html")
    key = here.key()
    return page(
        request,
        "receipt",
        document=document,
        receipt={"controller": None, "issuer": None, "signature": None} | document,
        sentence=receipt_page.sentence(document),
        kinds=receipt_page.KINDS,
        own_key=str(key.public) if key else "",
    )


def issue(here: Site, model: str, key: str) -> receipts.Document:
    """Return the receipt, signed where this server has a key; reading it keeps it."""
    signer = here.key()
    with connect(here.dsn(), application_name="mempair web") as connection:
        connection.read_only = True
        try:
            if signer is not None:
                document = receipts.issue(connection, model, key, signer)
            else:
                row = connection.execute(query("cli_receipt"), {"name": model, "key": key}).fetchone()
                document = row[0] if row else None
        except psycopg.errors.InsufficientPrivilege as error:
            raise errors.NoReceipt(
                f"Role {connection.info.user} may not issue one: {error.diag.message_primary}.",
                remedy=ASK.format(role=connection.info.user),
            ) from error
    if document is None:
        raise errors.NoReceipt(
            f"Model {model!r} keeps none for {key!r}.",
            remedy="The row was not deleted, the worker has not run yet, or the receipt was consumed or expired.",
        )
    return document


def check(request: Request) -> Response:
    """A page that checks a receipt in the browser; nothing of it is sent to the server."""
    key = site(request).key()
    return page(request, "check", own_key=str(key.public) if key else "")


def _attachment(text: str, name: str, kind: str) -> Response:
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    if kind == "text/html":  # carries its own style and script, by their digests
        headers["content-security-policy"] = "default-src 'none'; sandbox"
        return HTMLResponse(text, headers=headers)
    return Response(text, headers=headers, media_type=f"{kind}; charset=utf-8")
