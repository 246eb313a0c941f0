"""Verify a ledger without trusting the database that holds it.

What each check catches: numbering, a removed entry; body and hash, an edited one; the chain, a removed, inserted or
moved one; sums, a spend that was not entered; the model's counters, a tail that was cut off. Somebody who rewrites the
whole chain *and* the model's counters passes all of them: that is what signed checkpoints are for.
`mempair.verify_odometer` does the same, except for checkpoints, inside the server, in the same words.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from mempair_db import errors
from mempair_db.database.queries import query
from mempair_db.database.resources import directory
from mempair_db.ledger import merkle
from mempair_db.ledger.entry import GENESIS, chain, encode, microseconds
from mempair_db.ledger.notes import Checkpoint

CHUNK: Final = 20_000
SKEW: Final = 300_000_000  # microseconds that the clocks of server and workers may differ by


class Row(NamedTuple):
    """An entry as it is stored, with its hashes; a bad one may have anything in it."""

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
    body: bytes
    prev: bytes
    hash: bytes


COLUMNS: Final = Row._fields


class Counters(NamedTuple):
    """What the model's own state says of the current epoch and the last entry."""

    epoch: int
    clock: int
    spent: int
    cap: int | None
    deletions: int
    last_seq: int
    last_hash: bytes | None


@dataclass
class Verdict:
    """What was found out about one ledger."""

    entries: int = 0
    seq: int | None = None  # the first bad entry
    problem: str | None = None
    root: bytes = b""
    ended: bool = False  # whether something else than the entries says that the last one is the last
    checkpoints: list[int] = field(default_factory=list)  # sizes of those that hold

    def require(self, name: str) -> None:
        """Raise unless all is well."""
        if self.problem is not None:
            raise errors.VerificationFailed(
                f"Ledger of {name}, entry {self.seq}: {self.problem}.",
                remedy="Compare with a backup or an export from before; do not trust later entries.",
            )


class Auditor:
    """Takes one model's entries in order and stops at the first that is wrong."""

    def __init__(self, checkpoints: Iterable[Checkpoint] = ()) -> None:
        """Compare with these checkpoints on the way."""
        self.verdict = Verdict()
        self.tree = merkle.Tree()
        self._wanted = sorted(checkpoints, key=lambda checkpoint: checkpoint.size)
        self._model_id: int | None = None
        self._head = GENESIS
        self._epoch = self._clock = self._spent = self._deletions = self._latest = 0
        self._cap: int | None = None
        self._timeless = False  # an exact model has no clock
        self._check_checkpoints()

    def feed(self, rows: Iterable[Row]) -> bool:
        """Check these entries; False once something is wrong."""
        for row in rows:
            problem = self._problem(row)
            if problem is not None:
                return self._fail(row.seq, problem)
            self.verdict.entries += 1
            self.tree.add(merkle.leaf_hash(row.body))
            if self._wanted and not self._check_checkpoints():
                return False
        return True

    def finish(self, counters: Counters | None = None) -> Verdict:
        """Compare the end with the model's counters, if they are known, and with checkpoints of more entries."""
        verdict = self.verdict
        if verdict.problem is None and self._wanted:
            size = self._wanted[0].size
            self._fail(verdict.entries + 1, f"it is missing: a signed checkpoint has {size} entries")
        verdict.ended = counters is not None or verdict.entries in verdict.checkpoints
        if verdict.problem is None and counters is not None:
            epoch = self._epoch if verdict.entries else counters.epoch
            sums = (epoch, self._clock, self._spent, self._cap, self._deletions)
            if (counters.last_seq, counters.last_hash or GENESIS) != (verdict.entries, self._head):
                self._fail(counters.last_seq, "it is not the last entry, as the model's state says it is")
            elif counters[:5] != sums:
                self._fail(counters.last_seq, "the model's counters are not the sums up to it")
        verdict.root = self.tree.root()
        return verdict

    def _fail(self, seq: int, problem: str) -> bool:
        self.verdict.seq, self.verdict.problem = seq, problem
        return False

    def _check_checkpoints(self) -> bool:
        while self._wanted and self._wanted[0].size == self.tree.size:
            checkpoint = self._wanted.pop(0)
            if checkpoint.root != self.tree.root():
                problem = "it or one before it is not what a signed checkpoint of as many entries has"
                return self._fail(checkpoint.size, problem)
            self.verdict.checkpoints.append(checkpoint.size)
        return True

    def _problem(self, row: Row) -> str | None:
        """Say what is wrong with the next entry, and take it into the sums."""
        self._model_id = self._model_id or row.model_id
        problem = None
        if row.model_id != self._model_id:
            problem = "it is of another model"
        elif row.seq != self.verdict.entries + 1:
            problem = "entries are missing before this one"
        elif row.body != _encoded(row):
            problem = "its body is not that of its columns"
        elif row.prev != self._head:
            problem = "it does not follow from the entry before"
        elif row.hash != chain(row.prev, row.body):
            problem = "its hash is not that of its body"
        elif row.epoch < self._epoch:
            problem = "its epoch is before that of the entry before"
        elif _moment(row.at) < self._latest - SKEW:
            problem = "it is older than an entry before it"
        if problem is not None:
            return problem
        self._head, self._latest = row.hash, max(self._latest, _moment(row.at))
        if row.epoch > self._epoch:
            self._epoch, self._clock, self._spent, self._deletions, self._cap = row.epoch, 0, 0, 0, None
            self._timeless = False
        return self._sums(row)

    def _sums(self, row: Row) -> str | None:
        self._spent += row.rho
        if row.rho_spent != self._spent:
            return "its running total is not the sum"
        if row.kind == "calibrated":
            self._cap, self._timeless = row.rho_cap, (row.detail or "").startswith("exact")
        elif row.rho_cap is not None and row.rho_cap != self._cap:
            return "its cap is not that of its epoch"
        if row.rho and (self._cap is None or row.rho_spent > self._cap):
            return "it spends more than its epoch's cap"
        if row.kind in ("learned", "retrained") and not self._timeless:
            self._clock += row.rows
            if row.clock != self._clock:
                return "its clock is not the number of rows learned"
        elif row.kind == "unlearned" and row.rho:
            self._deletions += 1
        return None


def _moment(at: datetime | int) -> int:
    return at if isinstance(at, int) else microseconds(at)


def _encoded(row: Row) -> bytes | None:
    try:
        return encode(*row[:12])
    except (struct.error, TypeError, AttributeError):  # a value that the column cannot have
        return None


def verify_rows(
    rows: Iterable[Row], *, counters: Counters | None = None, checkpoints: Iterable[Checkpoint] = ()
) -> Verdict:
    """Verify one model's entries, from wherever they come."""
    auditor = Auditor(checkpoints)
    auditor.feed(rows)
    return auditor.finish(counters)


def ledger_rows(connection: psycopg.Connection[Any], model_id: int) -> Iterator[Row]:
    """Read a model's entries in order; a million of them do not have to fit into memory."""
    with connection.cursor(name="mempair_ledger", binary=True) as cursor:
        cursor.itersize = CHUNK
        cursor.execute(query("ledger_entries"), {"model": model_id})
        yield from map(Row._make, cursor)


def find(connection: psycopg.Connection[Any], name: str | None = None) -> list[tuple[int, str, Counters | None]]:
    """Return (id, name, counters) of the models called so, or of all, oldest first; a dropped one has no counters."""
    found = connection.execute(query("ledger_models"), {"name": name}).fetchall()
    if name is not None and not found:
        raise errors.UnknownModel(f"There is no model {name!r}.", remedy="`mempair model list` lists them.", whole=True)
    return [(number, model, Counters(*rest) if rest[0] is not None else None) for number, model, *rest in found]


def verify_database(connection: psycopg.Connection[Any], name: str, checkpoints: Iterable[Checkpoint] = ()) -> Verdict:
    """Verify a model's ledger and counters, as one snapshot has them."""
    connection.execute("set transaction isolation level repeatable read read only")
    model_id, _, counters = find(connection, name)[-1]
    return verify_rows(ledger_rows(connection, model_id), counters=counters, checkpoints=checkpoints)


def parquet_rows(path: Path | str, model_id: int | None = None) -> Iterator[Row]:
    """Read the ledger from an exported Parquet file: the columns of `COLUMNS`, of one model if its number is given."""
    import duckdb  # noqa: PLC0415 - only who reads files needs it

    with duckdb.connect() as duck:
        columns = ", ".join(f"epoch_us({moment(duck, path)})" if name == "at" else f'"{name}"' for name in COLUMNS)
        statement = f"select {columns} from read_parquet($1) where $2 is null or model_id = $2 order by model_id, seq"  # noqa: S608
        found = duck.execute(statement, [str(path), model_id])
        while chunk := found.fetchmany(CHUNK):
            yield from map(Row._make, chunk)


def moment(duck: Any, path: Path | str) -> str:
    """Return the name of the column with an entry's time; exports before 0.2 called it by a word that SQL reserves."""
    names = {name for name, *_ in duck.execute("describe from read_parquet($1)", [str(path)]).fetchall()}
    return "entered_at" if "entered_at" in names else '"at"'


def parquet_models(path: Path | str) -> list[tuple[int, str]]:
    """Return (id, name) of the models in an exported ledger, which has their names in the column `model`."""
    import duckdb  # noqa: PLC0415

    with duckdb.connect() as duck:
        return duck.execute(
            "select distinct model_id, model from read_parquet($1) order by model_id", [str(path)]
        ).fetchall()


def parquet_counters(path: Path) -> dict[int, Counters]:
    """Return what the models of an export say of their last entries; nothing if the file is not there."""
    import duckdb  # noqa: PLC0415

    if not path.exists():
        return {}
    columns = "id, epoch, clock, spent, cap, deletions, ledger_seq, ledger_hash"
    with duckdb.connect() as duck:
        rows = duck.execute(f"select {columns} from read_parquet($1)", [str(path)]).fetchall()  # noqa: S608
    return {number: Counters(*rest) for number, *rest in rows}


def verify_parquet(
    path: Path | str,
    model_id: int | None = None,
    *,
    counters: Counters | None = None,
    checkpoints: Iterable[Checkpoint] = (),
) -> Verdict:
    """Verify an exported ledger without any database; `counters`, if the export has them, find a cut tail too."""
    return verify_rows(parquet_rows(path, model_id), counters=counters, checkpoints=checkpoints)


def duckdb_macros() -> str:
    """Return the SQL that defines `ledger_body(...)` in DuckDB."""
    return (directory("sql") / "duckdb" / "ledger.sql").read_text(encoding="utf-8")
