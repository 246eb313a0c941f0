"""A signed deletion receipt: the database's document, proofs of inclusion, a checkpoint, a signature.

`mempair.receipt` says what was done. Here each ledger entry gets a proof that it is under a signed Merkle root, and the
whole is signed: SHA-256 of the canonical JSON (keys sorted, no spaces, UTF-8; no floats, numbers with a fraction are
texts) in a signed note. Who has the public key and the key value checks all of it without the database.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg

from mempair_db import __version__, errors
from mempair_db.database.queries import query
from mempair_db.ledger import digest, merkle, notes, says, verify
from mempair_db.ledger.entry import UNIX, Entry, make_tag, short_key
from mempair_db.ledger.keys import PublicKey, SigningKey
from mempair_db.ledger.notes import Checkpoint
from mempair_db.ledger.says import BY_RETRAIN

DOCUMENT: Final = "mempair deletion receipt"
VERSIONS: Final = (1, 2)  # 2: an entry may be about several rows
FIRST: Final = (
    "document",
    "version",
    "model",
    "source",
    "key_is",
    "key",
    "issued",
    "controller",
    "issuer",
    "deletions",
)
DELETION: Final = (
    *("row", "kind", "requested", "executed", "algorithm", "version", "statement"),
    *("epsilon_record", "epsilon_epoch", "epsilon_budget", "delta"),
)
Document = dict[str, Any]


def issue(
    connection: psycopg.Connection[Any], name: str, key_value: str, key: SigningKey, *, consume: bool = False
) -> Document | None:
    """Return the signed receipt, or None if there is nothing to certify. Consumed only if the caller commits."""
    connection.execute("set transaction isolation level repeatable read")
    row = connection.execute(query("ledger_receipt"), {"name": name, "key": key_value, "consume": consume}).fetchone()
    if row is None or row[0] is None:
        return None
    document: Document = row[0]
    leaves: list[bytes] = []
    retrains: dict[int, Entry] = {}  # how the epochs ended their retrains, by epoch
    published: list[Entry] = []  # entries with a digest of the state
    auditor = verify.Auditor()
    for entry in verify.ledger_rows(connection, document["model_id"]):
        if not auditor.feed([entry]):
            break
        leaves.append(merkle.leaf_hash(entry.body))
        if entry.kind == "retrained":
            retrains[entry.epoch] = Entry(*entry[:12])
        elif digest.said(entry.kind, entry.detail):
            published.append(Entry(*entry[:12]))
    _, _, counters = verify.find(connection, name)[-1]
    auditor.finish(counters).require(name)  # never certify a ledger that does not hold
    for deletion in document["deletions"]:
        deletion["proof"] = _proof(leaves, deletion["entry"]["seq"])
        done = retrains.get(deletion["entry"]["epoch"])
        if deletion["entry"]["detail"] == BY_RETRAIN and done is not None:
            deletion["retrain"] = {"entry": _fields(done), "proof": _proof(leaves, done.seq)}
        state = next((one for one in published if one.seq > deletion["entry"]["seq"]), None)
        if state is not None:
            deletion["state"] = {"entry": _fields(state), "proof": _proof(leaves, state.seq)}
    document["deletions"] = [_in_order(deletion, DELETION) for deletion in document["deletions"]]
    checkpoint = Checkpoint(notes.origin(key.public, document["model_id"], name), len(leaves), auditor.tree.root())
    document["issuer"] = f"mempair_db {__version__}"
    document["public_key"] = str(key.public)
    document["checkpoint"] = notes.sign(checkpoint.text(), key)
    document["signature"] = notes.sign(_digest_text(document), key)
    return _in_order(document, FIRST)


def _proof(leaves: Sequence[bytes], seq: int) -> list[str]:
    return [base64.b64encode(node).decode() for node in merkle.inclusion_proof(leaves, seq - 1)]


def _fields(entry: Entry) -> Document:
    """Return an entry as a document has it; the time to the microsecond, as text."""
    at = entry.at if isinstance(entry.at, datetime) else UNIX + timedelta(microseconds=entry.at)
    return {**entry._asdict(), "at": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}", "tag": entry.tag.hex() if entry.tag else None}


def _in_order(fields: Document, order: Sequence[str]) -> Document:
    """Put what people look for first; the signature does not depend on the order."""
    return dict(sorted(fields.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def canonical(document: Document) -> bytes:
    """Return the bytes that are signed: everything but the signature itself."""
    content = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _digest_text(document: Document) -> str:
    return f"{DOCUMENT}\nsha256 {hashlib.sha256(canonical(document)).hexdigest()}\n"


def check(document: Document, keys: Sequence[PublicKey], key_value: str | None = None) -> list[str]:
    """Check a receipt offline and return what holds; the first thing that does not raises VerificationFailed."""
    try:
        return _check(document, keys, key_value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.VerificationFailed(f"This is no complete receipt ({type(error).__name__}: {error}).") from error


def _check(document: Document, keys: Sequence[PublicKey], key_value: str | None) -> list[str]:
    if document["document"] != DOCUMENT or document["version"] not in VERSIONS:
        raise errors.VerificationFailed("This is no receipt of a version that is known here.")
    if notes.open_note(document["signature"], keys) != _digest_text(document):
        raise errors.VerificationFailed("The receipt was changed after it was signed.")
    checkpoint = Checkpoint.open(document["checkpoint"], keys)
    origins = {notes.origin(key, document["model_id"], document["model"]) for key in keys}
    if checkpoint.origin not in origins:
        raise errors.VerificationFailed(f"The checkpoint is of another ledger: {checkpoint.origin}.")
    good = ["the signature is by a key you trust, and nothing was changed since"]
    if key_value is not None:
        if short_key(key_value, document.get("encoding", "UTF8")) != document["key"]:
            raise errors.VerificationFailed("The receipt is for another key value than yours.")
        good.append("it is for your key value")
    for deletion in document["deletions"]:
        entry = _included(deletion, checkpoint, document["model_id"])
        if entry.tag is None or entry.tag != opened_tag(deletion, document["key"]):
            raise errors.VerificationFailed(f"The tag of ledger entry {entry.seq} is not made from the key value.")
        says.require_same(deletion, entry)
        if entry.detail == BY_RETRAIN:
            _require_retrain(deletion, entry, checkpoint, document["model_id"])
        if "state" in deletion:
            _require_digest(deletion["state"], entry, checkpoint, document["model_id"])
        good.append(
            f"row {deletion['row']} ({deletion['kind']}): done {deletion['executed']}, {says.promise(deletion)}; "
            f"ledger entry {entry.seq} says the same, carries the key's tag and is under the signed root"
        )
    return good


def remarks(document: Document) -> list[str]:
    """Say what a good receipt does not prove, and what its reader should not miss."""
    found = [
        f"row {deletion['row']}: that it was asked for at {deletion['requested']} is what the database said"
        for deletion in document["deletions"]
        if deletion["requested"]
    ]
    found += [
        f"row {deletion['row']}: ledger entry {deletion['state']['entry']['seq']} has the digest of the state then, "
        "which an export made before the state changed again can confirm"
        for deletion in document["deletions"]
        if "state" in deletion
    ]
    found += [
        f"row {deletion['row']}: "
        + (
            f"that every shard had published without it at {deletion['everywhere']} is what the database said"
            if deletion["everywhere"]
            else f"shard {deletion['shard']} has forgotten it, another one had NOT published without it yet"
        )
        for deletion in document["deletions"]
        if "shard" in deletion
    ]
    found += [
        f"row {deletion['row']}: the receipt names no digest of the state, so the model after it was not committed to"
        for deletion in document["deletions"]
        if deletion["entry"]["detail"] == "exact" and "state" not in deletion
    ]
    if document["present_again"]:
        count = document["present_again"]
        found.append(f"{count} of these rows were in the model again when the receipt was issued: they are NOT gone")
    return found


def _included(proved: Document, checkpoint: Checkpoint, model_id: int) -> Entry:
    """Return an entry that is under the signed root."""
    fields = proved["entry"]
    at = datetime.fromisoformat(fields["at"].replace("Z", "+00:00"))
    entry = Entry(**{**fields, "at": at, "tag": bytes.fromhex(fields["tag"]) if fields["tag"] else None})
    proof = [base64.b64decode(node, validate=True) for node in proved["proof"]]
    leaf = merkle.leaf_hash(entry.body())
    if entry.model_id != model_id:
        raise errors.VerificationFailed(f"Ledger entry {entry.seq} is of another model.")
    if not merkle.included(leaf, entry.seq - 1, checkpoint.size, proof, checkpoint.root):
        raise errors.VerificationFailed(f"Ledger entry {entry.seq} is not under the signed root.")
    return entry


def _require_digest(state: Document, entry: Entry, checkpoint: Checkpoint, model_id: int) -> None:
    """The state whose digest a receipt names is one after the deletion."""
    found = _included(state, checkpoint, model_id)
    if digest.said(found.kind, found.detail) is None or found.seq <= entry.seq:
        raise errors.VerificationFailed(f"Ledger entry {found.seq} has no digest of the state after entry {entry.seq}.")


def opened_tag(deletion: Document, key: str) -> bytes | None:
    """Return the ledger's tag that a receipt opens: the key's own; or, of an entry about several rows, their root."""
    tag, rows = make_tag(bytes.fromhex(deletion["salt"]), key), deletion["entry"]["rows"]
    if rows == 1:
        return tag if deletion.get("path") is None else None
    path = [bytes.fromhex(node) for node in deletion["path"]]
    return merkle.root_from(merkle.leaf_hash(tag), deletion["place"], rows, path)


def _require_retrain(deletion: Document, entry: Entry, checkpoint: Checkpoint, model_id: int) -> None:
    """A deletion "by exact retrain" is one only if that retrain is in the ledger, in its epoch, after it."""
    if "retrain" not in deletion:
        raise errors.VerificationFailed(f'Ledger entry {entry.seq} says "{BY_RETRAIN}", and no retrain follows it.')
    done = _included(deletion["retrain"], checkpoint, model_id)
    if (done.kind, done.epoch) != ("retrained", entry.epoch) or done.seq <= entry.seq:
        raise errors.VerificationFailed(f"Ledger entry {done.seq} is not the retrain that entry {entry.seq} speaks of.")
