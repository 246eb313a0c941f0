"""Signed notes and checkpoints, in the text formats that transparency-log tools read.

note        lines of text, an empty line, then for each signature: — <key name> <base64(key id ‖ signature)>
checkpoint  a note whose text is three lines: origin (which log), number of entries, base64 of the Merkle root
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from mempair_db import errors
from mempair_db.ledger.keys import PublicKey, SigningKey


def sign(text: str, key: SigningKey) -> str:
    """Return the text with its signature."""
    if not text.endswith("\n") or any(ord(c) < 32 and c != "\n" for c in text):
        raise ValueError("a note's text ends with a newline and has no other control characters")
    signature = base64.b64encode(key.public.id + key.sign(text.encode())).decode()
    return f"{text}\n— {key.public.name} {signature}\n"


def open_note(note: str, keys: Iterable[PublicKey]) -> str:
    """Return the text of a note that one of these keys signed; signatures by other keys are ignored."""
    text, separator, signatures = note.rpartition("\n\n")
    if not separator or not signatures.endswith("\n"):
        raise errors.VerificationFailed("This is no signed note: there is no signature under an empty line.")
    text += "\n"
    known = {(key.name, key.id): key for key in keys}
    good = False
    for line in signatures[:-1].split("\n"):
        name, key_id, signature = _signature(line)
        key = known.get((name, key_id))
        if key is None:
            continue
        if not key.verifies(signature, text.encode()):
            raise errors.VerificationFailed(f"The signature of {name} is wrong: the text was changed after signing.")
        good = True
    if not good:
        names = ", ".join(f"{name}+{key_id.hex()}" for name, key_id in known) or "none"
        raise errors.VerificationFailed(f"No signature by a key we trust ({names}).")
    return text


def _signature(line: str) -> tuple[str, bytes, bytes]:
    try:
        dash, name, encoded = line.split(" ")
        data = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        raise errors.VerificationFailed(f"A signature line is malformed: {line[:80]!r}.") from None
    if dash != "—" or len(data) < 5:
        raise errors.VerificationFailed(f"A signature line is malformed: {line[:80]!r}.")
    return name, data[:4], data[4:]


@dataclass(frozen=True)
class Checkpoint:
    """So many entries of this log have this Merkle root."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """Return the text to be signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def open(cls, note: str, keys: Iterable[PublicKey]) -> Checkpoint:
        """Read a signed checkpoint."""
        lines = open_note(note, keys).split("\n")
        try:
            origin, size, root = lines[:3]
            checkpoint = cls(origin, int(size), base64.b64decode(root, validate=True))
        except (ValueError, binascii.Error):
            raise errors.VerificationFailed("The signed text is no checkpoint.") from None
        if str(checkpoint.size) != size or checkpoint.size < 0 or len(checkpoint.root) != 32:
            raise errors.VerificationFailed("The signed text is no checkpoint.")
        return checkpoint


def origin(key: PublicKey, model_id: int, model: str) -> str:
    """Name a model's log: a name can be used again after a drop, a number cannot."""
    return key.name + log_name(model_id, model)


def log_name(model_id: int, model: str) -> str:
    """Return the part of an origin that does not depend on who signs."""
    return f"/{model_id}/{quote(model, safe='')}"
