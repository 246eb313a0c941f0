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
from typing import Any, Final

import psycopg
from psycopg import errors as pg

from mempair_db import __version__
from mempair_db.catalog.connect import connect
from mempair_db.catalog.queries import query
from mempair_db.worker import batch
from mempair_db.worker.purge import purge
from mempair_db.worker.record import Outcome
from mempair_db.worker.retrain import retrain

log = logging.getLogger("mempair.worker")

BUSY: Final = 0.002  # seconds between looks while there is work
IDLE: Final = 0.2
LONGEST_BACKOFF: Final = 30.0
HEARTBEAT: Final = 10.0

# Another transaction was in the way; the same transaction, tried again, will find its place.
PASSING = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable, pg.QueryCanceled)


class Worker:
    """Applies captured changes until told to stop. Any number of workers may share a database."""

    def __init__(
        self,
        dsn: str,
        *,
        model_id: int | None = None,
        idle: float = IDLE,
        report: Callable[[int, Outcome], None] | None = None,
    ) -> None:
        """Work on every model, or on one; `report` hears of everything that was done."""
        self.dsn = dsn
        self.model_id = model_id
        self.idle = idle
        self.report = report or (lambda _model, _outcome: None)
        self.id = uuid.uuid4()
        self._stop = threading.Event()
        self._unpurged: set[int] = set()
        self._beat = 0.0

    def stop(self) -> None:
        """Finish the batch under way, then return from `run`."""
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
            except psycopg.OperationalError as error:
                failures += 1
                pause = min(LONGEST_BACKOFF, 0.1 * 2**failures) * random.uniform(0.5, 1.0)  # noqa: S311
                log.warning("connection lost (%s), trying again in %.1f s", type(error).__name__, pause)
                self._stop.wait(pause)

    def run_once(self) -> None:
        """Work until nothing is left to do, then return."""
        with connect(self.dsn, autocommit=True, application_name="mempair worker") as connection:
            batch.prepare(connection)
            while self.round(connection) and not self._stop.is_set():
                pass

    def round(self, connection: psycopg.Connection[Any]) -> bool:
        """Give every model one turn; True if any of them had work."""
        worked = False
        for model_id, status, on_exhausted in connection.execute(query("models"), {"model": self.model_id}).fetchall():
            try:
                outcome = self._turn(connection, model_id, status, on_exhausted)
            except PASSING as error:
                log.info("model %s: %s, will be tried again", model_id, type(error).__name__)
                worked = True
                continue
            if outcome.worked:
                self.report(model_id, outcome)
                worked = True
        return worked

    def _turn(self, connection: psycopg.Connection[Any], model_id: int, status: str, on_exhausted: str) -> Outcome:
        if status == "exhausted":
            return retrain(connection, model_id, "budget exhausted") if on_exhausted == "retrain" else Outcome()
        outcome = batch.apply_batch(connection, model_id)
        if outcome.unlearned or outcome.cancelled or outcome.retrained:
            self._unpurged.add(model_id)
        elif not outcome.worked and model_id in self._unpurged and purge(connection, model_id):
            self._unpurged.discard(model_id)
        return outcome

    def _serve(self, connection: psycopg.Connection[Any]) -> None:
        pause = BUSY
        try:
            while not self._stop.is_set():
                self._heartbeat(connection)
                pause = BUSY if self.round(connection) else min(self.idle, pause * 1.5)
                self._stop.wait(pause)
        finally:
            if not connection.broken:
                connection.execute(query("sign_off"), {"id": self.id})

    def _heartbeat(self, connection: psycopg.Connection[Any]) -> None:
        if time.monotonic() - self._beat > HEARTBEAT:
            who = {"id": self.id, "host": socket.gethostname(), "pid": os.getpid(), "version": __version__}
            connection.execute(query("heartbeat"), who)
            self._beat = time.monotonic()
