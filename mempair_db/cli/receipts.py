"""Receipts: `mempair receipt MODEL KEY` issues one, `mempair receipt verify FILE` checks one offline."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mempair_db import errors
from mempair_db.cli.common import Dsn, Name, app, query, say
from mempair_db.cli.evidence import KeyFile, PublicKeys, trusted
from mempair_db.database.connect import connect
from mempair_db.embedded import server
from mempair_db.ledger import keys, receipts
from mempair_db.pages import receipt as page


class Format(str, Enum):
    """How a receipt is printed."""

    json = "json"
    html = "html"


class IssuesByDefault(TyperGroup):
    """`receipt churn 42` is `receipt issue churn 42`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in where it was left out."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["issue", *args]
        return super().parse_args(ctx, args)


receipt_app = typer.Typer(
    cls=IssuesByDefault, no_args_is_help=True, help="Signed receipts of deletions: `mempair receipt MODEL KEY`."
)
app.add_typer(receipt_app, name="receipt")


@receipt_app.command("issue")
def issue(
    name: Name,
    key_value: Annotated[str, typer.Argument(metavar="KEY", help="The deleted row's key, or the person's.")],
    form: Annotated[Format, typer.Option("--format", help="json for machines, html for people.")] = Format.json,
    consume: Annotated[bool, typer.Option("--consume", help="Delete it from the database once it is printed.")] = False,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="What the database says, without a signature.")] = False,
    key: KeyFile = None,
    dsn: Dsn = None,
) -> None:
    """Print the signed receipt of a deletion."""
    if unsigned and (consume or form is Format.html):
        raise errors.InvalidParameter("--unsigned goes with neither --consume nor --format html.")
    try:
        signer = None if unsigned else keys.load(key or keys.default_path())
    except errors.InvalidKey as error:
        remedy = f"{error.remedy} Or go without a signature: --unsigned."
        raise errors.InvalidKey(error.facts, remedy=remedy) from error
    heard: list[tuple[str, str]] = []  # the server says why there is none
    with connect(server.ensure(dsn)) as connection:
        connection.add_notice_handler(lambda said: heard.append((said.message_primary or "", said.message_hint or "")))
        if signer is None:
            row = connection.execute(query("receipt"), {"name": name, "key": key_value}).fetchone()
            document = row[0] if row else None
        else:
            document = receipts.issue(connection, name, key_value, signer, consume=consume)
        if document is None:
            why, hint = heard[-1] if heard else (f"there is no receipt of {key_value!r} for model {name!r}", "")
            raise errors.NoReceipt(f"{why}.", remedy=hint, whole=True)
        text = page.render(document) if form is Format.html else json.dumps(document, indent=2, ensure_ascii=False)
        print(text)  # noqa: T201
        sys.stdout.flush()  # consumed only if it could be printed: the transaction ends after this


@receipt_app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="A receipt, JSON or HTML; - reads standard input.")],
    key_value: Annotated[str | None, typer.Option("--key-value", help="Your own key value.")] = None,
    public_key: PublicKeys = None,
) -> None:
    """Check a receipt offline: signature, ledger entries, proofs and tags; exit code 5 if one fails."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.VerificationFailed(f"{file} cannot be read: {error}.") from error
    document = page.read(text)
    believed = trusted(public_key)
    whose = "--public-key" if public_key else f"this machine's own signing key, {keys.default_path()}"
    say(f"Checked with {', '.join(map(str, believed))} from {whose}.")
    say("The key that a receipt prints proves nothing: take the issuer's from somewhere else.")
    for line in receipts.check(document, believed, key_value):
        print(f"good: {line}")  # noqa: T201
    for line in receipts.remarks(document):
        print(f"note: {line}")  # noqa: T201
    if key_value is None:
        say(f"Not checked: that {document['key']!r} is your key value; give --key-value.")
