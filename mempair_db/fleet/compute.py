"""Dask: tasks that read some blocks of a shard under a snapshot that is held, and sums that are added in a tree.

A task opens its own connection, reads, and returns what can be added. It writes nothing, so one that was lost with its
worker is done again by another, and nothing in the result shows it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any, Final, TypeVar

import psycopg
from psycopg import IsolationLevel, sql

from mempair_db.database import arrays, models
from mempair_db.database.connect import connect, refuse_shadows
from mempair_db.database.models import Model
from mempair_db.database.packed import Rows
from mempair_db.database.queries import query
from mempair_db.database.source import LAST, chunks, size_of
from mempair_db.errors import ExtraMissing, InvalidParameter, MempairError
from mempair_db.fleet.config import Fleet, Place

BLOCKS: Final = 4_096  # of the table, 32 MB, a task
AT_ONCE: Final = 8  # sums that one task adds
RETRIES: Final = 2
PATIENCE: Final = 10  # seconds, with a scheduler
Result = TypeVar("Result")


class Computing:
    """A Dask client, or none yet: it is started when the first task is given to it."""

    def __init__(self, fleet: Fleet, client: Any = None) -> None:
        """Use the fleet's scheduler, or a cluster of processes here; or a client that the caller has."""
        self.fleet = fleet
        self._client, self._own = client, client is None
        self._cluster: Any = None

    @property
    def client(self) -> Any:
        """Dask's client."""
        if self._client is None:
            try:
                dask: Any = import_module("distributed")  # only who computes needs it
            except ImportError as error:
                raise ExtraMissing("Dask's distributed.", remedy="pip install 'mempair_db[fleet]'") from error
            if self.fleet.scheduler is None:
                self._cluster = dask.LocalCluster(
                    n_workers=self.fleet.workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=40
                )
            try:
                self._client = dask.Client(self._cluster or self.fleet.scheduler, timeout=PATIENCE)
            except (OSError, ValueError) as error:
                raise MempairError(
                    f"Dask's scheduler {self.fleet.scheduler} does not answer: {error}.",
                    remedy="Start it (`dask scheduler`), or leave it out of the file: then processes here compute.",
                ) from error
        return self._client

    def close(self) -> None:
        """End what was started here."""
        if self._own and self._client is not None:
            self._client.close()
            self._client = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def __enter__(self) -> Computing:
        """Use it as a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it with the block."""
        self.close()

    def submit(self, work: Callable[..., Any], shard: Place | None, *arguments: Any) -> Any:
        """Give one task to Dask; pinned ones run beside their shard only."""
        resources = {shard.name: 1} if self.fleet.pinned and shard is not None else None
        return self.client.submit(work, *arguments, pure=False, retries=RETRIES, resources=resources)

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for the results."""
        return list(self.client.gather(list(futures)))

    def add(self, futures: Sequence[Any]) -> Any:
        """Add results up in a tree; returns the sum."""
        left = list(futures)
        while len(left) > 1:
            groups = [left[i : i + AT_ONCE] for i in range(0, len(left), AT_ONCE)]
            left = [self.submit(added, None, *group) if len(group) > 1 else group[0] for group in groups]
        return left[0].result()


def added(first: Any, *others: Any) -> Any:
    """Return the sum of some results."""
    for other in others:
        first = operator.add(first, other)
    return first


def _first(shard: Place) -> str:
    """Return what a database is called at the beginning of a sentence."""
    return shard.called[0].upper() + shard.called[1:]


@contextmanager
def named(shard: Place) -> Iterator[None]:
    """Say of errors which database they come from."""
    try:
        yield
    except MempairError as error:
        if shard.called.lower() in error.facts.lower():
            raise
        remedy = error.remedy.replace("`mempair install`", "`mempair fleet init`")
        raise type(error)(f"{_first(shard)}: {error.facts}".rstrip(": "), remedy=remedy) from error
    except psycopg.Error as error:
        if (
            isinstance(error, psycopg.OperationalError) or not error.sqlstate
        ):  # of the connection, not of what was asked
            raise
        facts = f"{_first(shard)}: {error.diag.message_primary}."
        raise MempairError(facts, remedy=error.diag.message_hint or "") from error


@contextmanager
def reached(shard: Place) -> Iterator[None]:
    """Say which database cannot be reached; a DSN that is none is not repeated, it may have a password."""
    try:
        with named(shard):
            yield
    except psycopg.OperationalError as error:
        raise psycopg.OperationalError(f"{shard.called} cannot be reached: {error}") from error
    except psycopg.ProgrammingError as error:
        raise InvalidParameter(
            f"The DSN of {shard.called} is not one.", remedy="Write it as postgresql://user@host/database."
        ) from error


@contextmanager
def opened(shard: Place, *, autocommit: bool = True) -> Iterator[psycopg.Connection[Any]]:
    """Connect to a shard as a worker does."""
    with ExitStack() as stack:
        with reached(shard):
            there = connect(shard.dsn, autocommit=autocommit, application_name="mempair fleet")
            connection = stack.enter_context(there)
            connection.prepare_threshold = None
            arrays.register(connection)
            refuse_shadows(connection)
        yield connection


@contextmanager
def under(shard: Place, snapshot: str, model_id: int) -> Iterator[tuple[psycopg.Connection[Any], Model]]:
    """Look at a shard under a snapshot that another connection holds."""
    with opened(shard) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            connection.execute(sql.SQL("set transaction snapshot {}").format(snapshot))
            connection.execute(query("own_limits"))
            connection.execute("set local row_security = off")
            models.hold(connection, model_id)  # whoever waits for the table waits for the snapshot's owner, too
            model = models.look(connection, model_id)
            if model is None:
                raise LookupError(f"shard {shard.name} has no model number {model_id}")
            yield connection, model


def parts(connection: psycopg.Connection[Any], model: Model, blocks: int = BLOCKS) -> list[tuple[int, int]]:
    """Divide a shard's table into ranges of blocks, one a task; the last one takes what comes beyond."""
    bounds = [*range(0, max(size_of(connection, model)[0], 1), blocks), LAST]
    return list(pairwise(bounds))


def each(shard: Place, snapshot: str, model_id: int, part: tuple[int, int]) -> Iterator[tuple[Model, Rows]]:
    """Yield the rows in some blocks of a shard, some at a time."""
    with under(shard, snapshot, model_id) as (connection, model):
        for rows in chunks(connection, model, *part):
            yield model, rows


def share(connection: psycopg.Connection[Any]) -> str:
    """Let others see what this transaction sees, for as long as it lasts."""
    row = connection.execute(query("offline_share_snapshot")).fetchone()
    return str(row[0]) if row else ""
