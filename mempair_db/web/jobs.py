"""Verifications under way: each in a thread of its own, with progress that pages can show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Thread
from typing import TYPE_CHECKING

import psycopg

from mempair_db import errors

if TYPE_CHECKING:
    from mempair_db.offline.progress import Advance
    from mempair_db.verify.checks import Report


@dataclass
class Job:
    """One verification: how far it is, and what it found."""

    model: int
    name: str
    begun: float
    total: int = 0
    done: int = 0
    seconds: float | None = None  # how long it took
    report: Report | None = None
    failure: str = ""

    @property
    def share(self) -> float:
        """How much of the table is read."""
        return min(1.0, self.done / self.total) if self.total else 0.0


class Jobs:
    """The newest verification of every model."""

    def __init__(self, dsn: Callable[[], str], notes: dict[str, str]) -> None:
        """Say in `notes` when something moves."""
        self._dsn, self._notes = dsn, notes
        self._jobs: dict[int, Job] = {}
        self._lock = Lock()

    def of(self, model: int) -> Job | None:
        """Return the newest one of a model."""
        return self._jobs.get(model)

    def begin(self, model: int, name: str) -> Job:
        """Verify a model, unless that is under way."""
        with self._lock:
            job = self._jobs.get(model)
            if job is not None and job.seconds is None:
                return job
            job = self._jobs[model] = Job(model, name, time.monotonic())
        Thread(target=self._run, args=(job,), name=f"verify {model}", daemon=True).start()
        return job

    def _run(self, job: Job) -> None:
        from mempair_db.verify.checks import verify  # noqa: PLC0415 - numba takes a moment to import

        @contextmanager
        def bars(_what: str, total: int) -> Iterator[Advance]:
            job.total = total

            def advance(steps: int) -> None:
                job.done += steps
                self._note(job)

            yield advance

        try:
            job.report = verify(self._dsn(), job.model, bars)
        except psycopg.errors.InsufficientPrivilege as error:
            job.failure = f"{error.diag.message_primary}. Connect as the schema's owner to verify."
        except (psycopg.Error, errors.MempairError, OSError) as error:
            job.failure = str(error)
        job.seconds = time.monotonic() - job.begun
        self._note(job)

    def _note(self, job: Job) -> None:
        self._notes[f"verify {job.model}"] = f"{job.begun} {job.share:.2f} {job.seconds}"
