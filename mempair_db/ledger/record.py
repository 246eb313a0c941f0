"""What a transaction leaves in writing: ledger entries, receipts, rejected rows. Collected, then written at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

import psycopg

from mempair_db import __version__
from mempair_db.database import models
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger.append import Ledger
from mempair_db.ledger.entry import new_tag

MUCH: Final = 20_000  # receipts and refused rows, kept until they are written
MANY: Final = 1_000  # applied rows whose dead versions would slow every later look at the queue: purge them too


@dataclass
class Outcome:
    """What one transaction did to a model."""

    learned: int = 0
    unlearned: int = 0
    cancelled: int = 0
    rejected: int = 0
    retrained: bool = False
    notes: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)  # where the model stands afterwards, for the metrics

    @property
    def worked(self) -> bool:
        """Whether anything changed, so that it is worth looking again at once."""
        return bool(self.learned or self.unlearned or self.cancelled or self.rejected or self.notes)


class Record:
    """The writing of one transaction on one model, whose state row is locked."""

    def __init__(self, model: Model) -> None:
        """Continue the model's ledger."""
        self.model = model
        self.outcome = Outcome()
        self.at = datetime.now(timezone.utc)
        self._ledger = Ledger(model.id, model.ledger_seq, model.ledger_hash, self.at)
        self._receipts: list[tuple[Any, ...]] = []
        self._gone: list[str] = []  # deleted rows, which are not to stay among the refused ones
        self._rejected: list[tuple[Any, ...]] = []

    def enter(self, kind: str, *, clock: int | None = None, rho_spent: int | None = None, **fields: Any) -> int:
        """Add a ledger entry; clock and total are the model's present ones unless given."""
        engine = self.model.engine
        clock = engine.clock if clock is None else clock
        rho_spent = engine.spent if rho_spent is None else rho_spent
        return self._ledger.append(kind, epoch=self.model.epoch, clock=clock, rho_spent=rho_spent, **fields)

    def deletion(
        self, entry: str, kind: str, key: str, requested: datetime | None, subject: str | None, **fields: Any
    ) -> None:
        """Add the entry of one deleted row, and the receipt that can open its tag with the key, or with the subject."""
        tag, salt = new_tag(key if subject is None else subject)
        seq = self.enter(entry, rows=1, tag=tag, **fields)
        promise = self.model.terms
        terms = (promise["unlearner"], promise["epsilon"], promise["delta"], __version__)
        self._gone.append(key)
        self._receipts.append((self.model.id, key, subject, tag, salt, seq, requested, self.at, kind, *terms))
        if entry == "unlearned":
            self.outcome.unlearned += 1
        else:
            self.outcome.cancelled += 1

    def reject(self, seq: int, key: str, op: int, reason: str) -> None:
        """Keep key and reason of an event that was refused, never its values."""
        self._rejected.append((self.model.id, seq, key, op, self.model.named(reason)))
        self.outcome.rejected += 1

    def flush(self, connection: psycopg.Connection[Any]) -> None:
        """Write what has been collected so far, if it is much: a million deletions need not fit into memory."""
        if len(self._receipts) + len(self._rejected) >= MUCH:
            self._write_lists(connection)

    def note(self, text: str) -> None:
        """Tell whoever watches the worker."""
        self.outcome.notes.append(text)

    def write(self, connection: psycopg.Connection[Any]) -> None:
        """Write everything, and with it the state it describes."""
        if self.outcome.rejected:
            self.enter("rejected", rows=self.outcome.rejected)
        if self.model.held is not None and self.model.forgets:
            self.enter("config", detail=f"version {self.model.held} is published no more: rows in it have gone")
        self._write_lists(connection)
        if self._ledger.seq == self.model.ledger_seq:  # a state changes with an entry or not at all: so an attested
            models.save_row(connection, self.model)  # one cannot be exchanged
        else:
            point("ledger written")
            self.model.ledger_seq, self.model.ledger_hash = self._ledger.seq, self._ledger.head
            models.save(connection, self.model)
        if self.outcome.unlearned or self.outcome.cancelled or self.outcome.retrained or self.outcome.learned >= MANY:
            connection.execute(query("mark_unpurged"), {"model": self.model.id})
        point("state written")
        self.outcome.figures = self.model.engine.figures()

    def append(self, connection: psycopg.Connection[Any]) -> None:
        """Write ledger entries about what changes no state, which so stays the one that was attested."""
        self._ledger.write(connection)
        self.model.ledger_seq, self.model.ledger_hash = self._ledger.seq, self._ledger.head
        values = {"model": self.model.id, "ledger_seq": self._ledger.seq, "ledger_hash": self._ledger.head}
        connection.execute(query("save_ledger"), values)

    def _write_lists(self, connection: psycopg.Connection[Any]) -> None:
        """Write receipts, refused rows and ledger entries, and begin new lists."""
        if self._gone:
            connection.execute(query("forget_rejected"), {"model": self.model.id, "keys": self._gone})
        for name, rows in (("copy_receipts", self._receipts), ("copy_rejected", self._rejected)):
            if rows:
                with connection.cursor().copy(query(name)) as copy:
                    for row in rows:
                        copy.write_row(row)
        point("receipts written")
        if not self._ledger.empty:
            self._ledger.write(connection)
        self._gone, self._receipts, self._rejected = [], [], []
