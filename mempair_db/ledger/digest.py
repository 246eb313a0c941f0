"""The digest of an exact model's state, published in the ledger: receipts name the entry.

    SHA-256(0x04 ‖ salt ‖ length ‖ constants ‖ sums)        constants as `mempair.model.constants::text`, in UTF-8

The state is a function of the rows that are there, so who has an export with the rows computes sums and digest anew.
The salt lies beside the state and goes when that state does: without it the digest says nothing. With it, who knows all
rows but one that was deleted later could try what that one was.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from typing import Any, Final

import psycopg

from mempair_db.database.queries import query

MARK: Final = "; sha256 of the state: "


def of_state(salt: bytes, constants: str, sums: bytes) -> str:
    """Return the digest in hexadecimal.

    >>> of_state(b"salt", "{}", bytes(8))[:16]
    '875b3819378be72e'
    """
    text = constants.encode()
    return hashlib.sha256(b"\x04" + salt + struct.pack(">i", len(text)) + text + sums).hexdigest()


def publish(connection: psycopg.Connection[Any], model_id: int) -> str:
    """Return what an entry says of an exact model's present state, and keep the salt beside the state."""
    row = connection.execute(query("state_to_digest"), {"model": model_id}, binary=True).fetchone()
    if row is None:
        return ""
    constants, sums, salt = row
    if salt is None:
        salt = secrets.token_bytes(32)
        connection.execute(query("keep_salt"), {"model": model_id, "salt": salt})
    return MARK + of_state(salt, constants, sums)


def said(detail: str | None) -> str | None:
    """Return the digest that an entry publishes, if it does.

    >>> said("queue tables truncated; sha256 of the state: ab12"), said("queue tables truncated")
    ('ab12', None)
    """
    _, found, text = (detail or "").partition(MARK)
    return text if found else None
