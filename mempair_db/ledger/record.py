"""What a transaction leaves in writing: ledger entries, receipts, rejected rows. Collected, then written at once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, Final

import psycopg

from mempair_db import __version__
from mempair_db.database import arrays, models
from mempair_db.database.exact import Exact
from mempair_db.database.faults import point
from mempair_db.database.models import Model
from mempair_db.database.queries import query
from mempair_db.ledger import digest, kept, merkle
from mempair_db.ledger.append import Ledger
from mempair_db.ledger.entry import new_tags
from mempair_db.ledger.kept import Kept

MUCH: Final = 20_000  # receipts and refused rows, kept until they are written
MANY: Final = 1_000  # applied rows whose dead versions would slow every later look at the queue: purge them too
FEW: Final = 20  # deletions that get an entry each
TOGETHER: Final = 1_024  # deletions that share one entry, at most: a receipt has log₂ of it hashes


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
        self._ledger = Ledger(model.id, self.at)
        self._written = False  # whether any entry is
        self._receipts: list[Kept] = []
        self._collected = 0  # how many receipts those are
        self._rejected: list[tuple[Any, ...]] = []
        self._looked_at_anew: list[str] = []

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
        (tag,), (salt,) = new_tags([key if subject is None else subject])
        place = self.enter(entry, rows=1, tag=tag, **fields)
        self._keep(entry, Kept(place, kind, [key], [subject], [salt], [requested], None))

    def deletions(
        self,
        entry: str,
        kind: str,
        keys: Sequence[str],
        requested: Sequence[datetime | None],
        subjects: Sequence[str | None],
        *,
        detail: str,
    ) -> None:
        """Add deletions that cost nothing; many of them share an entry, whose tag is the Merkle root of their tags."""
        if len(keys) <= FEW:
            for key, at, subject in zip(keys, requested, subjects, strict=True):
                self.deletion(entry, kind, key, at, subject, detail=detail)
            return
        parts = -(-len(keys) // TOGETHER)
        for first, last in pairwise(len(keys) * part // parts for part in range(parts + 1)):
            some = slice(first, last)
            self._together(entry, kind, keys[some], requested[some], subjects[some], detail)

    def _together(
        self,
        entry: str,
        kind: str,
        keys: Sequence[str],
        requested: Sequence[datetime | None],
        subjects: Sequence[str | None],
        detail: str,
    ) -> None:
        named = [key if subject is None else subject for key, subject in zip(keys, subjects, strict=True)]
        tags, salts = new_tags(named)
        root, paths = merkle.all_proofs([merkle.leaf_hash(tag) for tag in tags])
        number = self.enter(entry, rows=len(keys), tag=root, detail=detail)
        self._keep(entry, Kept(number, kind, keys, subjects, salts, requested, paths))

    def _keep(self, entry: str, receipts: Kept) -> None:
        rows = len(receipts.keys)
        self._receipts.append(receipts)
        self._collected += rows
        if entry == "unlearned":
            self.outcome.unlearned += rows
        else:
            self.outcome.cancelled += rows

    def reject(self, seq: int, key: str, op: int, reason: str) -> None:
        """Keep key and reason of an event that was refused, never its values."""
        self._rejected.append((self.model.id, seq, key, op, self.model.named(reason)))
        self.outcome.rejected += 1

    def forget_refused(self, keys: Sequence[str]) -> None:
        """Take rows that went or changed off the list of refused ones; what is refused in this transaction stays."""
        self._looked_at_anew += keys

    def flush(self, connection: psycopg.Connection[Any]) -> None:
        """Write what has been collected so far, if it is much: a million deletions need not fit into memory."""
        if self._collected + len(self._rejected) >= MUCH:
            self._write_lists(connection, self._write_entries(connection))

    def note(self, text: str) -> None:
        """Tell whoever watches the worker."""
        self.outcome.notes.append(text)

    def write(self, connection: psycopg.Connection[Any]) -> None:
        """Write everything, and with it the state it describes."""
        if self.outcome.rejected:
            self.enter("rejected", rows=self.outcome.rejected)
        if self.model.held is not None and self.model.forgets:
            self.enter("config", detail=f"version {self.model.held} is published no more: rows in it have gone")
        done = self.outcome
        erases = bool(done.unlearned or done.cancelled or done.retrained or done.learned >= MANY)
        if erases:
            self._enter_digest(connection)
        with connection.pipeline():  # the server writes one thing while the next is computed
            entries = self._write_entries(connection)
            if self._written:
                models.save(connection, self.model, erases=erases)
            else:  # a state changes with an entry or not at all: so an attested one cannot be exchanged
                models.save_row(connection, self.model)
            point("state written")
        self._write_lists(connection, entries)
        self.outcome.figures = self.model.engine.figures()

    def _enter_digest(self, connection: psycopg.Connection[Any]) -> None:
        """Commit to the state of an exact model right after what was forgotten: the receipts name the entry."""
        engine = self.model.engine
        if isinstance(engine, Exact):
            engine.salt = secrets.token_bytes(32)
            self.enter("attested", detail=digest.detail(digest.of_state(engine.salt, *engine.stored(connection))))

    def _write_entries(self, connection: psycopg.Connection[Any]) -> psycopg.Cursor[Any] | None:
        """Write the ledger entries, and take rows that went off the list of refused ones; see `Ledger.write`."""
        answer = None
        if len(self._ledger):
            answer, self._written = self._ledger.write(connection), True
            point("ledger written")
        self.forget_refused([key for receipts in self._receipts for key in receipts.keys])
        if self._looked_at_anew:
            keys = arrays.Keys(self._looked_at_anew)
            connection.execute(query("forget_rejected"), {"model": self.model.id, "keys": keys})
        return answer

    def _write_lists(self, connection: psycopg.Connection[Any], answer: psycopg.Cursor[Any] | None) -> None:
        """Write receipts, which name their entries, and refused rows, and begin new lists."""
        first, self.model.ledger_seq = (answer.fetchone() if answer else None) or (0, self.model.ledger_seq)
        if self._receipts:
            self._write_receipts(connection, first)
        point("receipts written")
        if self._rejected:
            with connection.cursor().copy(query("copy_rejected")) as copy:
                for row in self._rejected:
                    copy.write_row(row)
        self._receipts, self._collected, self._rejected, self._looked_at_anew = [], 0, [], []

    def _write_receipts(self, connection: psycopg.Connection[Any], first: int) -> None:
        """Write the receipts."""
        promise = self.model.terms
        terms = kept.Terms(
            self.model.id, self.at, promise["unlearner"], promise["epsilon"], promise["delta"], __version__
        )
        with connection.cursor().copy(query("copy_receipts")) as copy:
            for part in kept.pack(terms, self._receipts, first):  # the server writes one while the next is packed
                copy.write(part)
