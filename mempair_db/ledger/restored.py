"""Is this database an older copy? Compare its ledger with one exported later, and list the erasures to do again.

A restored backup has forgotten its last deletions: the rows are back, in the table and in the model. The exported
ledger knows that they were deleted, not which rows they were; receipts, where somebody kept them, know that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import psycopg

from mempair_db.database.queries import query
from mempair_db.errors import VerificationFailed
from mempair_db.ledger.entry import make_tag


class Erasure(NamedTuple):
    """A deletion that the exported ledger has and this database has not."""

    model: str
    seq: int
    at: str
    kind: str
    tag: str
    key: str | None  # if one of the receipts opens the tag


def erasures_to_redo(connection: psycopg.Connection[Any], file: Path, receipts: Iterable[Path] = ()) -> list[Erasure]:
    """Return what must be deleted again; raises if the two ledgers are no beginnings of one another."""
    keys = dict(_opened(receipts))
    missing: list[Erasure] = []
    for model, seq, digest in connection.execute(query("ledger_heads")).fetchall():
        _require_same_history(file, model, seq, digest)
        rows = duckdb.execute(
            'select seq, cast("at" as text), kind, lower(hex(tag)) from read_parquet($file)'
            " where model = $model and seq > $seq and kind in ('unlearned', 'cancelled') order by seq",
            {"file": str(file), "model": model, "seq": seq},
        ).fetchall()
        missing += [Erasure(model, number, at, kind, tag, keys.get(tag)) for number, at, kind, tag in rows]
    return missing


def _require_same_history(file: Path, model: str, seq: int, digest: bytes | None) -> None:
    found = duckdb.execute(
        "select hash from read_parquet($file) where model = $model and seq = $seq",
        {"file": str(file), "model": model, "seq": seq},
    ).fetchone()
    if found is not None and digest is not None and bytes(found[0]) != bytes(digest):
        raise VerificationFailed(
            f"Entry {seq} of {model} is another one in {file.name}.",
            remedy="They are not copies of one ledger at different times; verify both.",
        )


def _opened(receipts: Iterable[Path]) -> Iterable[tuple[str, str]]:
    """Yield (tag, key) of every deletion that a receipt proves."""
    for file in receipts:
        document = json.loads(file.read_text(encoding="utf-8"))
        for deletion in document.get("deletions", []):
            yield make_tag(bytes.fromhex(deletion["salt"]), document["key"]).hex(), document["key"]
