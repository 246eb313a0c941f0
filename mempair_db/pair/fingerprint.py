"""A keyed 64-bit fingerprint of a payload: what is unlearned must be what was learned.

    h_j(w) = ((a_j0 + Σ_i a_ji·w_i) mod 2^64) >> 32      w_i the payload as 32-bit words, a_j random 64-bit, j = 1, 2

is strongly universal (Dietzfelbinger 1996): for two payloads chosen without knowing a, the two halves agree with
probability 2^−64. The a follow from the model's secret. A text becomes two words by a keyed BLAKE2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .encode import Matrix, Texts, Vector

_LOW = np.uint64(32)
BLOCK = 1024  # rows at once: to take new memory for all rows of a batch costs more than to hash them


def fingerprints(secret: bytes, x: Matrix, y: Vector, c: Texts = ()) -> npt.NDArray[np.int64]:
    """Return a fingerprint for every row.

    >>> marks = fingerprints(bytes(32), np.array([[1.0], [1.0], [-1.0]]), np.ones(3), [["a"], ["a"], ["a"]])
    >>> bool(marks[0] == marks[1]), bool(marks[0] == marks[2])
    (True, False)
    """
    keys = _keys(secret, 2 * (x.shape[1] + 1 + (len(c[0]) if len(c) else 0)))
    found = np.empty(len(x), np.uint64)
    known: dict[str | None, tuple[int, int]] = {}
    for begin in range(0, len(x), BLOCK):
        block = slice(begin, begin + BLOCK)
        # + 0.0: an UPDATE from −0 to 0 changes nothing to Postgres, and so is not captured.
        words = np.ascontiguousarray(np.column_stack([x[block], y[block]]) + 0.0).view("<u4")
        if len(c):
            words = np.concatenate([words, _texts(secret, c[block], known)], axis=1)
        with np.errstate(over="ignore"):
            hashed = words.astype(np.uint64) @ keys[:, 1:].T + keys[:, 0]
        found[block] = (hashed[:, 0] >> _LOW << _LOW) | (hashed[:, 1] >> _LOW)
    return found.view(np.int64)


def _keys(secret: bytes, words: int) -> npt.NDArray[np.uint64]:
    stream = hashlib.shake_256(b"fingerprint" + secret).digest(16 * (words + 1))
    return np.frombuffer(stream, "<u8").reshape(2, words + 1).astype(np.uint64)


def _texts(secret: bytes, c: Texts, known: dict[str | None, tuple[int, int]]) -> npt.NDArray[np.uint32]:
    """Two words for every text; equal texts are hashed once."""
    rows = [[_words(secret, value, known) for value in values] for values in c]
    return np.array(rows, np.uint32).reshape(len(c), -1)


def _words(secret: bytes, value: str | None, known: dict[str | None, tuple[int, int]]) -> Sequence[int]:
    if value not in known:
        data = b"\x00" if value is None else b"\x01" + value.encode()
        digest = hashlib.blake2b(data, digest_size=8, key=secret).digest()
        known[value] = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little"))
    return known[value]
