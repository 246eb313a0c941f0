"""The worker: look at every model in turn, and sleep the longer the longer there was nothing to do."""

from __future__ import annotations

import contextlib
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
from psycopg.rows import class_row
from threadpoolctl import threadpool_limits

from mempair_db import __version__
from mempair_db.database import revision
from mempair_db.database.connect import connect
from mempair_db.database.queries import query
from mempair_db.ledger.record import Outcome
from mempair_db.offline.progress import Bars, told
from mempair_db.worker import batch
from mempair_db.worker import changes as queue
from mempair_db.worker.messages import Messages, cause, failure_of
from mempair_db.worker.metrics import Metrics
from mempair_db.worker.purge import PURGE_AFTER, Purges, compact
from mempair_db.worker.retrain import retrain

log = logging.getLogger("mempair.worker")

BUSY: Final = 0.0002  # seconds between looks while there is work
PATIENCE: Final = 0.1  # after so much of the time that was quiet, look again; at the latest after IDLE
IDLE: Final = 0.2
QUIET: Final = 0.1  # seconds without work before what was applied is erased: no deletion of a series waits for that
LONGEST_BACKOFF: Final = 30.0
LONGEST_REST: Final = 300.0  # of a failed model
HEARTBEAT: Final = 10.0
EXPIRY: Final = 3600.0  # seconds between looks for receipts that were kept long enough
LAG: Final = 1.0
DRIFT: Final = 60.0  # seconds between looks at how well new rows are predicted
SCHEMA: Final = 10.0  # seconds between looks for tables whose definition changed
BACKLOG = 1_000_000  # waiting changes
LEARNED_ROW = 3_000_000  # what reading one again costs, in squares of waiting changes
BACKLOG_BYTES = 50 << 20  # a queue that is smaller has no such backlog, and is not counted
COMPACT: Final = 60.0  # seconds between joining the keys of many small batches
SELDOM: Final = 2.0  # longest pause between looks at a queue whose rows wait for more of them

# Another transaction was in the way, or took too long; the same transaction, tried again, will find its place.
PASSING = (pg.SerializationFailure, pg.DeadlockDetected, pg.QueryCanceled)
# The server has no room, or is a standby that is not promoted yet; nothing is lost, and only an operator can help.
NOT_NOW = (pg.DiskFull, pg.OutOfMemory, pg.ConfigurationLimitExceeded, pg.ReadOnlySqlTransaction)


class Turn(NamedTuple):
    """A model whose turn it is."""

    id: int
    name: str
    phase: str
    retrain_requested: str | None
    failure: str | None
    reason: str | None
    on_exhausted: str
    unlearner: str
    learned: int
    waiting: int
    queued: bool = True  # whether the queue has pages at all
    unpurged: float | None = None  # age of the oldest erased payload in them, in seconds

    @property
    def why_retrain(self) -> str | None:
        """Why the table is to be read anew, if nobody has asked for it yet.

        To find its 100,000 rows a batch looks at all that waits, about 0.35 µs a row. So n waiting rows cost 1.7 n² ps
        more than to read the table, where every learned row costs 5 µs. A model that halts is never retrained unasked.
        """
        if self.phase == "exhausted":
            return self.reason if self.on_exhausted == "retrain" else None
        allowed = self.on_exhausted == "retrain" or self.unlearner == "exact" or self.learned == 0
        if allowed and self.waiting >= BACKLOG and self.waiting**2 >= LEARNED_ROW * self.learned:
            return f"{self.waiting} changes wait, a replay of the table is quicker"
        return None


def one_thread() -> contextlib.AbstractContextManager[object]:
    """Keep linear algebra to one thread: in the small products of a batch others only wait, and keep a core busy."""
    limited: contextlib.AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return limited


class Worker:
    """Applies captured changes until told to stop. Any number of workers may share a database."""

    def __init__(
        self,
        dsn: str | Callable[[], str],
        *,
        model_id: int | None = None,
        idle: float = IDLE,
        purge_after: float = PURGE_AFTER,
        report: Callable[[int, Outcome], None] | None = None,
        metrics: Metrics | None = None,
        bars: Bars | None = None,
    ) -> None:
        """Work on every model, or on one; `report` hears of everything that was done.

        `bars` show how far the reading of a table has come; without them the log does.

        A `dsn` that is a function is asked again for every connection: an embedded server may have moved.
        """
        self._dsn = dsn
        self.model_id = model_id
        self.idle = idle
        self.report = report
        self.metrics = metrics
        self.bars = told(log.info) if bars is None else bars
        self.id = uuid.uuid4()
        self._stop = threading.Event()
        self._purges = Purges(purge_after)
        self._looks: dict[int, tuple[float, float]] = {}  # queues that only wait: when to look again, and the pause
        self._rests: dict[int, tuple[float, float]] = {}  # failed models: until when, and how long the pause was
        self._locked: set[int] = set()  # models whose tables were locked at the last look
        self._done: dict[str, float] = {}
        self._worked: dict[int, float] = {}  # when a model last had work
        self._quiet = 0.0  # how long it must have had none before it is purged
        self.messages = Messages()
        self.failed: dict[str, str] = {}  # models that could not be worked on the last time, and why

    @property
    def dsn(self) -> str:
        """Where to connect to, now."""
        return self._dsn if isinstance(self._dsn, str) else self._dsn()

    def stop(self) -> None:
        """Finish the transaction under way, then return from `run`."""
        self._stop.set()

    def run(self) -> None:
        """Work until `stop`; a lost connection is opened again, ever more patiently."""
        failures, greeted = 0, False
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                with one_thread(), connect(self.dsn, autocommit=True, application_name="mempair worker") as connection:
                    batch.prepare(connection)
                    if failures or not greeted:
                        self.messages.hello(connection, self.model_id)
                    greeted = True
                    self._serve(connection)
            except (psycopg.OperationalError, *NOT_NOW) as error:
                failures = failures + 1 if time.monotonic() - began < LONGEST_BACKOFF else 1
                pause = min(LONGEST_BACKOFF, 0.1 * 2**failures) * random.uniform(0.5, 1.0)  # noqa: S311
                log.warning("%s: %s; trying again in %.1f s", type(error).__name__, cause(error), pause)
                self._stop.wait(pause)
        self.messages.goodbye()

    def run_once(self) -> dict[str, str]:
        """Work until nothing is left to do; return the models that failed, and why."""
        self._looks.clear()  # who calls again wants to know now, also of a queue whose rows only waited
        with one_thread(), connect(self.dsn, autocommit=True, application_name="mempair worker") as connection:
            batch.prepare(connection)
            connection.execute(query("expire_receipts"))
            while self.round(connection) and not self._stop.is_set():
                pass
        return self.failed

    def round(self, connection: psycopg.Connection[Any]) -> bool:
        """Give every model one turn; True if any of them had work."""
        worked = locked = False
        if self._due("sources", HEARTBEAT):
            connection.execute(query("mark_dropped_sources"))
        where = {"model": self.model_id, "bytes": BACKLOG_BYTES}
        for turn in connection.cursor(row_factory=class_row(Turn)).execute(query("models"), where).fetchall():
            if self._stop.is_set() or self._resting(turn):
                continue
            began = time.monotonic()
            try:
                outcome = self._turn(connection, turn)
            except pg.LockNotAvailable:  # somebody is changing this table; the other models are served meanwhile
                self._in_the_way(turn)
                locked = True
                continue
            except PASSING as error:
                log.info("%s, will be tried again", type(error).__name__, extra={"model": turn.name})
                worked = True
                continue
            except Exception as error:  # (one model's trouble is not another's)
                if connection.broken or connection.closed or isinstance(error, NOT_NOW):
                    raise
                self._fail(connection, turn, error)
                continue
            self._rests.pop(turn.id, None)
            self.failed.pop(turn.name, None)
            self._locked.discard(turn.id)
            if outcome.worked:
                self._tell(turn, outcome, time.monotonic() - began)
                worked = True
        if locked and not worked:
            self._stop.wait(self.idle)
        return worked or locked

    def _in_the_way(self, turn: Turn) -> None:
        """Say once that a model's table is locked."""
        if turn.id not in self._locked:
            log.info("its table is locked, waiting", extra={"model": turn.name})
            self._locked.add(turn.id)

    def _resting(self, turn: Turn) -> bool:
        """Whether the model failed, and is not to be tried again yet; resuming it clears the failure, and ends that."""
        if turn.failure is None:
            self._rests.pop(turn.id, None)
            return False
        return time.monotonic() < self._rests.get(turn.id, (0.0, 0.0))[0]

    def _fail(self, connection: psycopg.Connection[Any], turn: Turn, error: Exception) -> None:
        """Say why the model could not be worked on, and try again later, ever more patiently."""
        _, pause = self._rests.get(turn.id, (0.0, 0.5))
        pause = min(LONGEST_REST, 2 * pause)
        self._rests[turn.id] = (time.monotonic() + pause, pause)
        self._done.pop(f"schema {turn.id}", None)  # or the next turn would find nothing wrong
        failure = self.failed[turn.name] = failure_of(turn.name, error)
        log.error("%s, trying again in %.0f s", failure, pause, extra={"model": turn.name})
        with contextlib.suppress(psycopg.Error):
            connection.execute(query("save_failure"), {"model": turn.id, "failure": failure})

    def _turn(self, connection: psycopg.Connection[Any], turn: Turn) -> Outcome:
        if turn.retrain_requested is None and self._due(f"schema {turn.id}", SCHEMA):
            changed = connection.execute(query("request_for_schema_changes"), {"model": turn.id}).fetchone()
            turn = turn._replace(retrain_requested=changed[0] if changed else None)
        why = turn.why_retrain
        if turn.retrain_requested is None and why is not None:
            connection.execute(query("request_retrain"), {"model": turn.id, "why": why})
        if turn.retrain_requested or why:
            outcome = retrain(connection, turn.id, dsn=self.dsn, give_up=self._stop.is_set, bars=self.bars)
        elif turn.queued and self._may_look(turn) and queue.waits(connection, turn.id):
            outcome = batch.apply_batch(connection, turn.id)
            self._looked(turn, outcome)
        else:
            outcome = Outcome()
        if outcome.worked:
            self._worked[turn.id] = time.monotonic()
        idle = time.monotonic() - self._worked.get(turn.id, 0.0) >= self._quiet and not outcome.worked
        self._purges.step(connection, turn.id, turn.unpurged, idle=idle)
        if not outcome.worked and self._due(f"compact {turn.id}", COMPACT) and turn.learned:
            compact(connection, turn.id)
        if turn.failure is not None and not outcome.worked:
            connection.execute(query("save_failure"), {"model": turn.id, "failure": None})
        return outcome

    def _may_look(self, turn: Turn) -> bool:
        return time.monotonic() >= self._looks.get(turn.id, (0.0, 0.0))[0]

    def _looked(self, turn: Turn, outcome: Outcome) -> None:
        """Look less and less often at a queue whose rows only wait: every look locks the model, which is a write."""
        if outcome.worked or turn.unpurged is not None or turn.phase != "calibrating":
            self._looks.pop(turn.id, None)
        else:
            _, pause = self._looks.get(turn.id, (0.0, self.idle / 2))
            pause = min(SELDOM, 2 * pause)
            self._looks[turn.id] = (time.monotonic() + pause, pause)

    def _tell(self, turn: Turn, outcome: Outcome, seconds: float) -> None:
        facts = {
            kind: getattr(outcome, kind) for kind in ("learned", "unlearned", "cancelled", "rejected", "retrained")
        }
        extra = {"model": turn.name, "seconds": round(seconds, 4), **{k: v for k, v in facts.items() if v}}
        log.info("; ".join(outcome.notes) or "applied", extra=extra)
        self.messages.count(outcome)
        if self.metrics:
            self.metrics.count(turn.name, outcome, seconds)
        if self.report:
            self.report(turn.id, outcome)

    def _serve(self, connection: psycopg.Connection[Any]) -> None:
        worked, self._quiet = time.monotonic(), QUIET
        try:
            while not self._stop.is_set():
                if self._due("heartbeat", HEARTBEAT):
                    revision.require(connection)  # the schema may have been upgraded meanwhile
                    who = {"id": self.id, "host": socket.gethostname(), "pid": os.getpid(), "version": __version__}
                    connection.execute(query("heartbeat"), who)
                if self._due("receipts", EXPIRY):
                    connection.execute(query("expire_receipts"))
                if self.metrics and self._due("lag", LAG):
                    self.metrics.lag(connection)
                if self.metrics and self._due("drift", DRIFT):
                    self.metrics.drift(connection)
                if self.round(connection):
                    worked = time.monotonic()
                self.messages.idle()
                self._stop.wait(min(self.idle, max(BUSY, PATIENCE * (time.monotonic() - worked))))
        finally:
            if not connection.broken and not connection.closed:
                connection.execute(query("sign_off"), {"id": self.id})

    def _due(self, what: str, every: float) -> bool:
        now = time.monotonic()
        if now - self._done.get(what, -every) < every:
            return False
        self._done[what] = now
        return True
