"""The digest of an exact model's state, published in the ledger by every batch that forgets: receipts name the entry.

    SHA-256(0x04 ‖ salt ‖ length ‖ constants ‖ sums)        constants as `mempair.model.constants::text`, in UTF-8

The state is a function of the rows that are there, so who has an export with the rows computes sums and digest anew.
The salt lies beside the state and goes when that state does: without it the digest says nothing. With it, who knows all
rows but one that was deleted later could try what that one was. A model without a state has no constants and no sums.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import Final

KINDS: Final = ("attested", "purged")  # entries that may have one; purges of earlier releases did
UNCHANGED: Final = (*KINDS, "config")  # entries after which the state is what it was
_SAID: Final = re.compile(r"; sha256 of the state: ([0-9a-f]{64})\Z")


def of_state(salt: bytes, constants: str | None, sums: bytes | None) -> str:
    """Return the digest in hexadecimal.

    >>> of_state(b"salt", "{}", bytes(8))[:16]
    '875b3819378be72e'
    """
    text = (constants or "").encode()
    return hashlib.sha256(b"\x04" + salt + struct.pack(">i", len(text)) + text + (sums or b"")).hexdigest()


def detail(digest: str) -> str:
    """Return what an entry says of it."""
    return f"constants and sums; sha256 of the state: {digest}"


def said(kind: str, detail: str | None) -> str | None:
    """Return the digest that an entry publishes, if it does.

    >>> said("attested", detail("ab" * 32)) == "ab" * 32
    True
    >>> said("config", detail("ab" * 32)), said("purged", "queue tables truncated")
    (None, None)
    """
    found = _SAID.search(detail or "") if kind in KINDS else None
    return found[1] if found else None
