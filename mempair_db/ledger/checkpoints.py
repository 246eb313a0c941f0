"""Checkpoints of ledgers: make, keep, and hold a ledger against them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from mempair_db import errors
from mempair_db.ledger import merkle, notes, verify
from mempair_db.ledger.keys import PublicKey, SigningKey
from mempair_db.ledger.notes import Checkpoint
from mempair_db.ledger.verify import Verdict


def read(files: Iterable[Path], keys: Sequence[PublicKey]) -> list[Checkpoint]:
    """Read signed checkpoints from files."""
    return [checkpoint for file in files for checkpoint in read_if_there(file, keys, required=True)]


def read_if_there(file: Path | None, keys: Sequence[PublicKey], *, required: bool = False) -> list[Checkpoint]:
    """Read a signed checkpoint from a file that may not be there yet."""
    if file is None or not (required or file.exists()):
        return []
    try:
        return [Checkpoint.open(file.read_text(encoding="utf-8"), keys)]
    except (OSError, UnicodeDecodeError) as error:
        raise errors.VerificationFailed(f"{file} cannot be read: {error}.") from error


def make(connection: psycopg.Connection[Any], name: str, key: SigningKey, earlier: Iterable[Checkpoint] = ()) -> str:
    """Verify the ledger, also against earlier checkpoints, and return a signed checkpoint of it as it is."""
    connection.execute("set transaction isolation level repeatable read read only")
    model_id, _, counters = verify.find(connection, name)[-1]
    origin = notes.origin(key.public, model_id, name)
    for checkpoint in earlier:
        if checkpoint.origin != origin:
            raise errors.VerificationFailed(
                f"The checkpoint that is there is of {checkpoint.origin}, not of {origin}.",
                remedy="Keep the checkpoints of each model in a file of their own.",
            )
    rows = verify.ledger_rows(connection, model_id)
    verdict = verify.verify_rows(rows, counters=counters, checkpoints=earlier)
    verdict.require(name)
    return notes.sign(Checkpoint(origin, verdict.entries, verdict.root).text(), key)


def replace(file: Path, note: str) -> None:
    """Write the note in one step: whoever reads the file sees the old one or the new one."""
    try:
        descriptor, fresh = tempfile.mkstemp(dir=file.absolute().parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            output.write(note)
            output.flush()
            os.fsync(output.fileno())
        Path(fresh).chmod(0o644)
        Path(fresh).replace(file)
    except OSError as error:
        raise errors.MempairError(f"{file} cannot be written: {error}.", remedy="Choose another file.") from error


def verify_all(
    connection: psycopg.Connection[Any], name: str | None, signed: Sequence[Checkpoint]
) -> list[tuple[int, str, Verdict]]:
    """Verify the ledgers of a name or all, each against its own checkpoints; one of no ledger here is a failure.

    A name has several ledgers where a model was dropped, its ledger kept, and another one called so.
    """
    connection.execute("set transaction isolation level repeatable read read only")
    found = verify.find(connection, name)
    _require_owners(signed, [(number, model) for number, model, _ in found])
    return [
        (
            number,
            model,
            verify.verify_rows(
                verify.ledger_rows(connection, number), counters=counters, checkpoints=_of(signed, number, model)
            ),
        )
        for number, model, counters in found
    ]


def verify_file(file: Path, signed: Sequence[Checkpoint]) -> list[tuple[int, str, Verdict]]:
    """Verify every ledger of an exported Parquet file, without a database."""
    found = verify.parquet_models(file)
    _require_owners(signed, found)
    counters = verify.parquet_counters(file.with_name("model.parquet"))
    return [
        (
            number,
            model,
            verify.verify_parquet(file, number, counters=counters.get(number), checkpoints=_of(signed, number, model)),
        )
        for number, model in found
    ]


def decided(first: Checkpoint, second: Checkpoint) -> bool:
    """Whether two signed heads agree, as far as they tell without the ledger; raises if both cannot be true."""
    if first.origin != second.origin:
        raise errors.VerificationFailed(
            f"They are of two ledgers: {first.origin} and {second.origin}.", remedy="Compare heads of one ledger."
        )
    if first.size == second.size and first.root != second.root:
        raise errors.VerificationFailed(
            f"Two heads of {first.origin} are signed, both of {first.size} entries, with different roots.",
            remedy="Whoever has the key has shown two ledgers: keep both files, they prove it.",
        )
    return first.size == second.size


def _of(signed: Iterable[Checkpoint], number: int, model: str) -> list[Checkpoint]:
    return [checkpoint for checkpoint in signed if checkpoint.origin.endswith(notes.log_name(number, model))]


def _require_owners(signed: Iterable[Checkpoint], models: Sequence[tuple[int, str]]) -> None:
    for checkpoint in signed:
        if not any(_of([checkpoint], number, model) for number, model in models):
            raise errors.VerificationFailed(
                f"There is no ledger {checkpoint.origin}, and a signed checkpoint has {checkpoint.size} entries of it.",
                remedy="Name the model the checkpoint was made of; if it is gone, so is what it recorded.",
            )


def extends(old: Checkpoint, new: Checkpoint, proof: Sequence[bytes]) -> bool:
    """Check with a consistency proof alone, without the ledger, that one checkpoint is a beginning of the other."""
    return old.origin == new.origin and merkle.consistent(old.size, new.size, old.root, new.root, proof)
