"""The ledger, its signed checkpoints, and the keys that sign them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mempair_db import errors
from mempair_db.cli.common import AsJson, Dsn, Name, group, model_id, rows, say, show
from mempair_db.database.connect import connect
from mempair_db.embedded import server
from mempair_db.ledger import checkpoints, keys, notes
from mempair_db.ledger.keys import PublicKey
from mempair_db.ledger.verify import Verdict

odometer_app = group("odometer", "The ledger of what was learned, forgotten and spent.", speaks=True)
keys_app = group("keys", "The key that signs checkpoints and receipts. It never enters the database.")

KeyFile = Annotated[
    Path | None, typer.Option("--key", help="The signing key's file. Default: keys/signing.key under MEMPAIR_HOME.")
]
PublicKeys = Annotated[
    list[str] | None,
    typer.Option("--public-key", help="A public key to trust, or a file with one. Default: that of the signing key."),
]


def trusted(public_keys: list[str] | None, key: Path | None = None) -> list[PublicKey]:
    """Return the public keys to check signatures with."""
    if not public_keys:
        return [keys.load(key or keys.default_path()).public]
    texts = (Path(text).read_text(encoding="utf-8") if Path(text).is_file() else text for text in public_keys)
    return [PublicKey.parse(text) for text in texts]


@keys_app.command("new")
def keys_new(
    name: Annotated[str, typer.Option(help="Who signs, such as db.example.org; no spaces, no '+'.")] = "mempair",
    key: KeyFile = None,
) -> None:
    """Make a signing key and print its public key, which the receivers of receipts need."""
    path = key or keys.default_path()
    print(keys.create(name, path).public)  # noqa: T201
    say(f"The private key is in {path}. Back it up; publish the line above.")


@keys_app.command("show")
def keys_show(key: KeyFile = None) -> None:
    """Print the public key."""
    print(keys.load(key or keys.default_path()).public)  # noqa: T201


@odometer_app.command("show")
def odometer_show(
    name: Name,
    last: Annotated[int, typer.Option(help="Newest entries to show.")] = 20,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest entries of a model's ledger."""
    entries = rows(dsn, "odometer", name=name, last=last)
    if not entries:
        model_id(server.ensure(dsn), name)
    show(entries, as_json)


@odometer_app.command("verify")
def odometer_verify(
    name: Annotated[str | None, typer.Argument(help="The model's name. Default: all.")] = None,
    checkpoint: Annotated[list[Path] | None, typer.Option(help="A signed checkpoint; may be repeated.")] = None,
    public_key: PublicKeys = None,
    file: Annotated[Path | None, typer.Option("--file", help="An exported Parquet file instead of a database.")] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Check numbering, bytes, chain, sums, the model's counters and signed checkpoints; exit code 5 if one fails."""
    signed = checkpoints.read(checkpoint or [], trusted(public_key) if checkpoint else [])
    if file is not None:
        verdicts = checkpoints.verify_file(file, signed)
    else:
        with connect(server.ensure(dsn)) as connection:
            verdicts = checkpoints.verify_all(connection, name, signed)
    fields = [
        {
            "model": model,
            "entries": verdict.entries,
            "checkpoints": ", ".join(map(str, verdict.checkpoints)),
            "verdict": f"entry {verdict.seq}: {verdict.problem}" if verdict.problem else _good(verdict),
            "number": number,
        }
        for number, model, verdict in verdicts
    ]
    show(fields, as_json)
    for _, model, verdict in verdicts:
        verdict.require(model)
    open_ends = [model for _, model, verdict in verdicts if not verdict.ended]
    if file is not None and open_ends and not file.with_name("model.parquet").exists():
        raise errors.VerificationFailed(
            f"Nothing says that the ledger of {', '.join(open_ends)} does not go on after its last entry.",
            remedy="Keep the export's model.parquet beside it, or give a signed checkpoint of all entries.",
        )


def _good(verdict: Verdict) -> str:
    return "good" if verdict.ended else "good as far as it goes"


@odometer_app.command("behind", hidden=True)  # what it was called first
@odometer_app.command("restored")
def odometer_restored(
    file: Annotated[Path, typer.Argument(help="The ledger.parquet of an export made later.")],
    receipt: Annotated[list[Path] | None, typer.Option(help="A receipt, to name the row; may be repeated.")] = None,
    model: Annotated[str | None, typer.Option(help="Compare this model only.")] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether this database is an older copy, and which erasures must be done again; exit code 5 if it is."""
    from mempair_db.ledger.restored import erasures_to_redo  # noqa: PLC0415 - DuckDB takes a moment to import

    with connect(server.ensure(dsn)) as connection:
        found, missing = erasures_to_redo(connection, file, receipt or [], model)
    if missing or as_json:
        show([erasure._asdict() for erasure in missing], as_json)
    for one in found:
        if one.parted:
            text = (
                f"was restored from a copy with {one.shared} entries, and went on: {one.here} here, {one.there} there"
            )
        elif one.shared < one.there:
            text = f"is behind: {one.here} entries here, {one.there} there"
        else:
            text = f"has all {one.there} entries of the file"
        say(f"{one.model} {text}.")
    if not missing:
        say("No erasure is missing here.")
    raise typer.Exit(5 if any(one.shared < one.there for one in found) else 0)


@odometer_app.command("compare")
def odometer_compare(
    one: Annotated[Path, typer.Argument(help="A signed checkpoint.")],
    other: Annotated[Path, typer.Argument(help="Another one of the same ledger, from elsewhere.")],
    file: Annotated[Path | None, typer.Option("--file", help="An exported ledger instead of a database.")] = None,
    public_key: PublicKeys = None,
    dsn: Dsn = None,
) -> None:
    """Compare two signed heads of one ledger: if both cannot be true, exit code 5, and the two prove who lied.

    Heads of different sizes are held against the ledger, which must begin with the one and with the other.
    """
    first, second = checkpoints.read([one, other], trusted(public_key))
    if not checkpoints.decided(first, second):
        if file is not None:
            verdicts = checkpoints.verify_file(file, [first, second])
        else:
            with connect(server.ensure(dsn)) as connection:
                verdicts = checkpoints.verify_all(connection, None, [first, second])
        for number, name, verdict in verdicts:
            if first.origin.endswith(notes.log_name(number, name)):
                verdict.require(name)
    say(f"{first.size} and {second.size} entries of {first.origin}: one ledger.")


@odometer_app.command("attest")
def odometer_attest(name: Name, dsn: Dsn = None) -> None:
    """Enter a salted commitment to the model's present state: a restored copy of it can then be told from another."""
    (entry,) = rows(dsn, "attest_state", name=name)
    say(f"Entry {entry['entry']} fixes the state of {name}; sign a checkpoint now.")


@odometer_app.command("checkpoint")
def odometer_checkpoint(
    name: Name,
    to: Annotated[Path | None, typer.Option("--to", help="Where to keep it: outside the database.")] = None,
    key: KeyFile = None,
    dsn: Dsn = None,
) -> None:
    """Sign the ledger as it is; a checkpoint already in FILE must be a beginning of it."""
    signer = keys.load(key or keys.default_path())
    with connect(server.ensure(dsn)) as connection:
        note = checkpoints.make(connection, name, signer, checkpoints.read_if_there(to, [signer.public]))
    if to is None:
        print(note, end="")  # noqa: T201
    else:
        checkpoints.replace(to, note)
        say(f"Signed {note.splitlines()[1]} entries of {name} in {to}.")
