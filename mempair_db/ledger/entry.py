"""The odometer's ledger: canonical bytes, a chain of hashes, and the salted tags that receipts open.

body = every field in the order of `Entry`, each as a 4-byte big-endian length and its bytes; NULL is length −1.
       Integers are 8 bytes big-endian, times are microseconds since 1970-01-01 UTC, texts are UTF-8.
hash = SHA-256(0x02 ‖ prev ‖ body), prev = the entry before, 32 zero bytes for the first. The Merkle tree over the same
       bodies uses 0x00 and 0x01, so no hash of the one can pass for a hash of the other.
tag  = HMAC-SHA-256(salt, key): who has the receipt has the salt; without it the tag is noise
       of an entry about several deleted rows: the Merkle root over their tags, and each receipt has its path to it

The same bytes are made in Postgres by `mempair.ledger_body` and in DuckDB by the macro of `sql/duckdb/ledger.sql`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import struct
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

GENESIS: Final = bytes(32)
LONGEST_KEY: Final = 1_000  # bytes; mempair.short_key
UNIX: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

_FRONT = struct.Struct(">iqiqiq")  # model_id, seq, at, each with its length
_MIDDLE = struct.Struct(">iqiqiqiqiq")  # epoch, clock, rows, rho, rho_spent
_NUMBER = struct.Struct(">iq")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)
_INNER, _OUTER = (bytes(i ^ pad for i in range(256)) for pad in (0x36, 0x5C))  # RFC 2104
_INNER_PAD, _OUTER_PAD = b"\x36" * 32, b"\x5c" * 32


class Entry(NamedTuple):
    """One line of the ledger, without its hashes."""

    model_id: int
    seq: int
    at: datetime | int  # a time, or its microseconds since 1970
    kind: str
    epoch: int
    clock: int
    rows: int
    rho: int
    rho_spent: int
    rho_cap: int | None
    tag: bytes | None
    detail: str | None

    def body(self) -> bytes:
        """Return the canonical bytes."""
        return encode(*self)


def encode(
    model_id: int,
    seq: int,
    at: datetime | int,
    kind: str,
    epoch: int,
    clock: int,
    rows: int,
    rho: int,
    rho_spent: int,
    rho_cap: int | None,
    tag: bytes | None,
    detail: str | None,
) -> bytes:
    """Return the canonical bytes of an entry."""
    moment = at if isinstance(at, int) else microseconds(at)
    text = kind.encode()
    return b"".join(
        (
            _FRONT.pack(8, model_id, 8, seq, 8, moment),
            _LENGTH.pack(len(text)),
            text,
            _MIDDLE.pack(8, epoch, 8, clock, 8, rows, 8, rho, 8, rho_spent),
            _NULL if rho_cap is None else _NUMBER.pack(8, rho_cap),
            _NULL if tag is None else _LENGTH.pack(len(tag)) + tag,
            _NULL if detail is None else _text(detail),
        )
    )


def _text(value: str) -> bytes:
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


def microseconds(at: datetime) -> int:
    """Return the exact time since 1970, also before it.

    >>> microseconds(datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc))
    -1
    """
    gap = at - UNIX
    return (gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds


def chain(prev: bytes, body: bytes) -> bytes:
    """Return the hash of the next entry."""
    return hashlib.sha256(b"\x02" + prev + body).digest()


def make_tag(salt: bytes, key: str) -> bytes:
    """Return the tag that this salt opens."""
    return hmac.digest(salt, key.encode(), "sha256")


def short_key(key: str, encoding: str = "UTF8") -> str:
    """Return a key value as a database of this encoding stores it: a digest if it is longer than 1,000 bytes."""
    text = key.encode(re.sub(r"^WIN(?=\d)", "cp", encoding))  # the others are called as in Postgres
    return key if len(text) <= LONGEST_KEY else f"sha256:{hashlib.sha256(text).hexdigest()}"


def new_tags(keys: Sequence[str]) -> tuple[list[bytes], list[bytes]]:
    """Return (tags, salts) for deleted rows: HMAC written out, which takes half the time of `make_tag` for each."""
    random, sha = secrets.token_bytes(32 * len(keys)), hashlib.sha256
    salts = [random[i : i + 32] for i in range(0, len(random), 32)]
    tags = [
        sha(salt.translate(_OUTER) + _OUTER_PAD + sha(salt.translate(_INNER) + _INNER_PAD + text).digest()).digest()
        for salt, text in zip(salts, [key.encode() for key in keys], strict=True)
    ]
    return tags, salts
