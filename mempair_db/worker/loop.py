"""The worker: look at every model in turn, and sleep a little longer each time there is nothing to do."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as pg

from mempair_db import __version__
from mempair_db.database.connect import connect
from mempair_db.database.queries import query
from mempair_db.ledger.record import Outcome
from mempair_db.worker import batch
from mempair_db.worker.metrics import Metrics
from mempair_db.worker.purge import purge
from mempair_db.worker.retrain import retrain

log = logging.getLogger("mempair.worker")

BUSY: Final = 0.002  # seconds between looks while there is work
IDLE: Final = 0.2
LONGEST_BACKOFF: Final = 30.0
HEARTBEAT: Final = 10.0
EXPIRY: Final = 3600.0  # seconds between looks for receipts that were kept long enough
LAG: Final = 1.0
BACKLOG = 1_000_000  # waiting changes
LEARNED_ROW = 3_000_000  # what reading one again costs, in squares of waiting changes
BACKLOG_BYTES = 50 << 20  # a queue that is smaller has no such backlog, and is not counted
MANY: Final = 1_000  # applied rows whose dead versions would slow every later look at the queue: purge them too

# Another transaction was in the way, or took too long; the same transaction, tried again, will find its place.
PASSING = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable, pg.QueryCanceled)
# The server has no room; nothing is lost, and only an operator can help.
STARVED = (pg.DiskFull, pg.OutOfMemory, pg.ConfigurationLimitExceeded)


class Turn(NamedTuple):
    """A model whose turn it is."""

    id: int
    name: str
    status: str
    reason: str | None
    on_exhausted: str
    learned: int
    waiting: int

    @property
    def overwhelmed(self) -> bool:
        """Whether a replay of the table is quicker than the queue.

        To find its 100,000 rows a batch looks at all that waits, about 0.35 µs a row. So n waiting rows cost 1.7 n² ps
        more than to read the table, where every learned row costs 5 µs. A model that halts is never retrained unasked.
        """
        allowed = self.on_exhausted == "retrain" or self.learned == 0
        return allowed and self.waiting >= BACKLOG and self.waiting**2 >= LEARNED_ROW * self.learned


class Worker:
    """Applies captured changes until told to stop. Any number of workers may share a database."""

    def __init__(
        self,
        dsn: str | Callable[[], str],
        *,
        model_id: int | None = None,
        idle: float = IDLE,
        report: Callable[[int, Outcome], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Work on every model, or on one; `report` hears of everything that was done.

        A `dsn` that is a function is asked again for every connection: an embedded server may have moved.
        """
        self._dsn = dsn
        self.model_id = model_id
        self.idle = idle
        self.report = report
        self.metrics = metrics
        self.id = uuid.uuid4()
        self._stop = threading.Event()
        self._unpurged: set[int] = set()
        self._done: dict[str, float] = {}

    @property
    def dsn(self) -> str:
        """Where to connect to, now."""
        return self._dsn if isinstance(self._dsn, str) else self._dsn()

    def stop(self) -> None:
        """Finish the transaction under way, then return from `run`."""
        self._stop.set()

    def run(self) -> None:
        """Work until `stop`; a lost connection is opened again, ever more patiently."""
        failures = 0
        while not self._stop.is_set():
            try:
                with connect(self.dsn, autocommit=True, application_name="mempair worker") as connection:
                    batch.prepare(connection)
                    failures = 0
                    self._serve(connection)
            except (psycopg.OperationalError, *STARVED) as error:
                failures += 1
                pause = min(LONGEST_BACKOFF, 0.1 * 2**failures) * random.uniform(0.5, 1.0)  # noqa: S311
                log.warning("%s, trying again in %.1f s", type(error).__name__, pause)
                self._stop.wait(pause)

    def run_once(self) -> None:
        """Work until nothing is left to do, then return."""
        with connect(self.dsn, autocommit=True, application_name="mempair worker") as connection:
            batch.prepare(connection)
            connection.execute(query("expire_receipts"))
            while self.round(connection) and not self._stop.is_set():
                pass

    def round(self, connection: psycopg.Connection[Any]) -> bool:
        """Give every model one turn; True if any of them had work."""
        worked = False
        if self._due("sources", HEARTBEAT):
            connection.execute(query("mark_dropped_sources"))
        where = {"model": self.model_id, "bytes": BACKLOG_BYTES}
        for row in connection.execute(query("models"), where).fetchall():
            turn = Turn(*row)
            began = time.monotonic()
            try:
                outcome = self._turn(connection, turn)
            except PASSING as error:
                log.info("%s, will be tried again", type(error).__name__, extra={"model": turn.name})
                worked = True
                continue
            if outcome.worked:
                self._tell(turn, outcome, time.monotonic() - began)
                worked = True
            if self._stop.is_set():
                break
        return worked

    def _turn(self, connection: psycopg.Connection[Any], turn: Turn) -> Outcome:
        if turn.status == "exhausted" and turn.on_exhausted == "retrain":
            connection.execute(query("begin_retrain"), {"model": turn.id})
        elif turn.status == "exhausted":
            return Outcome()
        if turn.status in ("exhausted", "retraining"):
            outcome = retrain(connection, turn.id, turn.reason or "requested", self._stop.is_set)
        elif turn.overwhelmed:
            why = f"{turn.waiting} changes wait, a replay of the table is quicker"
            outcome = retrain(connection, turn.id, why, self._stop.is_set)
        else:
            outcome = batch.apply_batch(connection, turn.id)
        if outcome.unlearned or outcome.cancelled or outcome.notes or outcome.learned >= MANY:
            self._unpurged.add(turn.id)
        elif not outcome.worked and turn.id in self._unpurged and purge(connection, turn.id):
            self._unpurged.discard(turn.id)
        return outcome

    def _tell(self, turn: Turn, outcome: Outcome, seconds: float) -> None:
        facts = {
            kind: getattr(outcome, kind) for kind in ("learned", "unlearned", "cancelled", "rejected", "retrained")
        }
        extra = {"model": turn.name, "seconds": round(seconds, 4), **{k: v for k, v in facts.items() if v}}
        log.info("; ".join(outcome.notes) or "applied", extra=extra)
        if self.metrics:
            self.metrics.count(turn.name, outcome, seconds)
        if self.report:
            self.report(turn.id, outcome)

    def _serve(self, connection: psycopg.Connection[Any]) -> None:
        pause = BUSY
        try:
            while not self._stop.is_set():
                if self._due("heartbeat", HEARTBEAT):
                    who = {"id": self.id, "host": socket.gethostname(), "pid": os.getpid(), "version": __version__}
                    connection.execute(query("heartbeat"), who)
                if self._due("receipts", EXPIRY):
                    connection.execute(query("expire_receipts"))
                if self.metrics and self._due("lag", LAG):
                    self.metrics.lag(connection)
                pause = BUSY if self.round(connection) else min(self.idle, pause * 1.5)
                self._stop.wait(pause)
        finally:
            if not connection.broken and not connection.closed:
                connection.execute(query("sign_off"), {"id": self.id})

    def _due(self, what: str, every: float) -> bool:
        now = time.monotonic()
        if now - self._done.get(what, -every) < every:
            return False
        self._done[what] = now
        return True
