"""Is this database an older copy? Compare its ledger with an exported one, and list the erasures to do again.

A restored backup has forgotten its last deletions: the rows are back, in the table and in the model. The exported
ledger knows that they were deleted, not which rows they were; receipts, where somebody kept them, know that. A copy
that went on after it was restored may have more entries than the file: what counts is up to where both are the same.
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
from mempair_db.ledger import verify
from mempair_db.ledger.receipts import opened_tag

ERASURES = ("unlearned", "cancelled", "updated")


class Erasure(NamedTuple):
    """A deletion or an update that the exported ledger has and this database has not: what was there before is back."""

    model: str
    seq: int
    at: str
    kind: str
    tag: str
    rows: int  # of the entry, that no receipt names
    key: str | None  # if one of the receipts opens the tag


class Behind(NamedTuple):
    """What was found of one model."""

    model: str
    here: int  # entries in the database
    there: int  # in the file
    shared: int  # up to where the two are the same
    number: int  # of the model: a name may have had several

    @property
    def parted(self) -> bool:
        """Whether both went on differently: this database is a copy that was restored."""
        return self.shared < min(self.here, self.there)


def compare(connection: psycopg.Connection[Any], file: Path, name: str | None = None) -> list[Behind]:
    """Hold every ledger of the database against the file's; raises if the file cannot tell."""
    known = {
        number: (model, entries) for number, model, entries in connection.execute(query("ledger_sizes")).fetchall()
    }
    there = dict(_models(file))
    wanted = [
        number
        for number in {*known, *there}
        if name is None or name in (there.get(number), known.get(number, ("",))[0])
    ]
    absent = [known[number][0] for number in wanted if number not in there]
    if absent or not wanted:
        raise VerificationFailed(
            f"{file.name} has no ledger of {', '.join(absent) or name or 'any model'}, so it tells nothing about it.",
            remedy="Take an export that has it, or name the model to compare with --model.",
        )
    return [
        _compare(connection, file, number, there[number], known.get(number, ("", 0))[1]) for number in sorted(wanted)
    ]


def _models(file: Path) -> list[tuple[int, str]]:
    """Return the models in the file, whose own chains must hold."""
    try:
        found = verify.parquet_models(file)
        for number, model in found:
            verify.verify_parquet(file, number).require(f"{model} in {file.name}")
    except duckdb.Error as error:
        raise VerificationFailed(
            f"{file} is no exported ledger: {str(error).splitlines()[0]}.",
            remedy="Give the ledger.parquet of an export.",
        ) from error
    return found


def _compare(connection: psycopg.Connection[Any], file: Path, number: int, model: str, here: int) -> Behind:
    hashes = [bytes(row.hash) for row in verify.parquet_rows(file, number)]
    shared = 0
    for seq, digest in connection.execute(query("ledger_hashes"), {"model": number}).fetchall():
        if seq > len(hashes) or hashes[seq - 1] != bytes(digest):
            break
        shared = seq
    if shared == 0 < min(here, len(hashes)):
        raise VerificationFailed(
            f"The ledger of {model} and the one in {file.name} have no common beginning.",
            remedy="They are not copies of one ledger at different times; verify both.",
        )
    return Behind(model, here, len(hashes), shared, number)


def erasures_to_redo(
    connection: psycopg.Connection[Any], file: Path, receipts: Iterable[Path] = (), name: str | None = None
) -> tuple[list[Behind], list[Erasure]]:
    """Return where each ledger stands, and what must be deleted again."""
    keys = _opened(receipts)
    found = compare(connection, file, name)
    missing: list[Erasure] = []
    for model, _, _, shared, number in found:
        at = verify.moment(duckdb, file)
        rows = duckdb.execute(
            f"select seq, cast({at} as text), kind, coalesce(lower(hex(tag)), ''), rows from read_parquet($file)"  # noqa: S608
            " where model_id = $number and seq > $seq and kind in $kinds order by seq",
            {"file": str(file), "number": number, "seq": shared, "kinds": list(ERASURES)},
        ).fetchall()
        for seq, moment, kind, tag, count in rows:
            named = keys.get(tag, [])
            missing += [Erasure(model, seq, moment, kind, tag, 1, key) for key in named]
            if len(named) < count:
                missing.append(Erasure(model, seq, moment, kind, tag, count - len(named), None))
    return found, missing


def _opened(receipts: Iterable[Path]) -> dict[str, list[str]]:
    """Return of every ledger tag the keys that receipts prove to be behind it, each once."""
    found: dict[str, dict[int, str]] = {}
    for file in receipts:
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            for deletion in document.get("deletions", []):
                tag = opened_tag(deletion, document["key"])
                if tag is not None:
                    found.setdefault(tag.hex(), {})[deletion.get("place") or 0] = document["key"]
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise VerificationFailed(f"{file} is no receipt ({type(error).__name__}: {error}).") from error
    return {tag: list(keys.values()) for tag, keys in found.items()}
