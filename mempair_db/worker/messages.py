"""What a worker says about itself: where it works and at what, now and then that it is still there, and what it did."""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import errors as pg

from mempair_db import __version__
from mempair_db.database.queries import query
from mempair_db.errors import MempairError
from mempair_db.ledger.record import Outcome

log = logging.getLogger("mempair.worker")

QUIET: Final = 600.0  # seconds without a line after which it says that it is idle
# Something was done to the model's table. A name in braces is the model's, quoted so that it can be pasted.
GONE: Final = "Something that it reads was dropped: select mempair.drop_model('{model}'), and create it again."
HIDDEN: Final = (
    "A worker's role needs its grants: mempair grant --worker ROLE. The owner of schema mempair must read the whole"
    " table: grant select on it, or, where policies hide rows, alter table ... no force row level security. Then"
    " select mempair.resume_model('{model}')."
)
REMEDIES: Final = {
    pg.UndefinedTable: GONE,
    pg.UndefinedFunction: GONE,
    pg.UndefinedColumn: GONE,
    pg.InsufficientPrivilege: HIDDEN,
}
KINDS: Final = ("learned", "unlearned", "cancelled", "rejected", "retrained")


class Messages:
    """Counts what is done, and puts it into lines."""

    def __init__(self) -> None:
        """Begin with nothing done."""
        self.began = self.worked = self.spoke = time.monotonic()
        self.done: Counter[str] = Counter()
        self.met = False  # whether a database was reached

    def hello(self, connection: psycopg.Connection[Any], model_id: int | None) -> None:
        """Say which database this is, how many models it has, and what is done with them."""
        info = connection.info
        (models,) = connection.execute(query("count_models"), {"model": model_id}).fetchone() or (0,)
        log.info(
            "worker %s in database %s at %s:%s as %s: %s; learning what is inserted, forgetting what is deleted",
            *(__version__, info.dbname, info.host or "the local socket", info.port, info.user, some(models, "model")),
        )
        self.spoke, self.met = time.monotonic(), True

    def count(self, outcome: Outcome) -> None:
        """Remember what a transaction did."""
        self.done.update({kind: int(getattr(outcome, kind)) for kind in KINDS})
        self.worked = self.spoke = time.monotonic()

    def idle(self) -> None:
        """Say that there is nothing to do, if nothing was said for long."""
        if time.monotonic() - self.spoke > QUIET:
            log.info("idle for %.0f minutes; %s", (time.monotonic() - self.worked) / 60, self.summary())
            self.spoke = time.monotonic()

    def goodbye(self) -> None:
        """Say what was done in all."""
        log.info("the worker ends after %.0f s; %s", time.monotonic() - self.began, self.summary())

    def summary(self) -> str:
        """Return what was done so far."""
        facts = [f"{self.done[kind]} {kind}" for kind in KINDS if self.done[kind]]
        if not self.met:
            return "it never reached its database"
        return "so far: " + ", ".join(facts) if facts else "nothing was to be done so far"


def some(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count} {what}" if count == 1 else f"{count or 'no'} {what}s"


def reason(error: Exception) -> str:
    """Return why a model failed, in one line, and no value of a row: what Postgres says of bad data quotes it."""
    name = type(error).__name__
    if isinstance(error, psycopg.Error):
        quoted = (error.sqlstate or "").startswith("22")
        text = f"SQLSTATE {error.sqlstate}" if quoted else str(error).strip().split("\n")[0]
    elif isinstance(error, MempairError):
        text = str(error).strip().split("\n")[0]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        text = ", ".join(f"{Path(frame.filename).name} line {frame.lineno}" for frame in frames[-1:])
    return f"{name}: {text}"[:500]


def failure_of(model: str, error: Exception) -> str:
    """Return why a model could not be worked on, and what to do, in at most 500 characters."""
    remedy = next((text for kind, text in REMEDIES.items() if isinstance(error, kind)), "")
    remedy = remedy.format(model=model.replace("'", "''"))
    if isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("MP"):  # our own say what to do
        remedy = error.diag.message_hint or ""
    return f"{reason(error)[:250]}. {remedy}"[:500] if remedy else reason(error)


def cause(error: Exception) -> str:
    """Return why a connection failed, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2]) or type(error).__name__
