"""Read a model's whole table: in parts, each on a connection of its own that sees the caller's snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from queue import Queue
from typing import Any, Final, TypeVar

import psycopg
from psycopg import IsolationLevel, sql

from mempair_db.database import arrays
from mempair_db.database.connect import connect
from mempair_db.database.models import Model
from mempair_db.database.queries import query

READERS: Final = 2
SMALL: Final = 2_000  # blocks; another connection does not pay below
LAST: Final = 4_294_967_295  # the largest block number

Row = tuple[Any, ...]  # row_key, x, c, y as they came
Result = TypeVar("Result")


def each_chunk(
    connection: psycopg.Connection[Any], model: Model, dsn: str | None, work: Callable[[list[Row]], Result]
) -> Iterator[Result]:
    """Yield what `work` makes of every chunk of labelled rows, in any order. With a `dsn` several run at once."""
    size = connection.execute(query("source_blocks"), {"model": model.id}).fetchone()
    blocks = size[0] if size else 0
    if dsn is None or blocks < SMALL:
        yield from map(work, _chunks(connection, model, 0, LAST))
        return
    shared = connection.execute(query("offline_share_snapshot")).fetchone()
    readers = _Readers(dsn, model, str(shared[0]) if shared else "", work)
    bounds = [blocks * i // READERS for i in range(READERS)] + [LAST]
    yield from readers.run(list(pairwise(bounds)))


class _Readers:
    """Connections that read parts of the table under one snapshot, and hand over what was made of them."""

    def __init__(self, dsn: str, model: Model, snapshot: str, work: Callable[[list[Row]], Any]) -> None:
        self.dsn, self.model, self.snapshot, self.work = dsn, model, snapshot, work
        self.results: Queue[tuple[str, Any]] = Queue(maxsize=2 * READERS)
        self.stop = threading.Event()

    def run(self, parts: list[tuple[int, int]]) -> Iterator[Any]:
        """Yield the results of all parts; the first error of any of them is raised here."""
        with ThreadPoolExecutor(len(parts)) as threads:
            for first, last in parts:
                threads.submit(self._read, first, last)
            running = len(parts)
            try:
                while running:
                    kind, result = self.results.get()
                    if kind == "error":
                        raise result
                    if kind == "chunk":
                        yield result
                    else:
                        running -= 1
            finally:
                self._end(running)

    def _end(self, running: int) -> None:
        """Let readers that wait for room in the queue go."""
        self.stop.set()
        while running:
            kind, _ = self.results.get()
            running -= kind != "chunk"

    def _read(self, first: int, last: int) -> None:
        try:
            with connect(self.dsn, application_name="mempair reader") as reader:
                reader.isolation_level = IsolationLevel.REPEATABLE_READ
                reader.prepare_threshold = None
                with reader.transaction():
                    reader.execute(sql.SQL("set transaction snapshot {}").format(self.snapshot))
                    reader.execute(query("own_limits"))
                    reader.execute("set local row_security = off")
                    for rows in _chunks(reader, self.model, first, last):
                        if self.stop.is_set():
                            break
                        self.results.put(("chunk", self.work(rows)))
            self.results.put(("end", None))
        except BaseException as error:  # raised again by whoever takes the results
            self.results.put(("error", error))


def _chunks(connection: psycopg.Connection[Any], model: Model, first: int, last: int) -> Iterator[list[Row]]:
    """Yield the rows in some blocks of the source, 50,000 at a time."""
    values = {"first": f"({first},0)", "last": f"({last},0)"}
    connection.execute(model.statement("open_part"), values)
    while rows := arrays.fetch(connection, model.statement("fetch_source")):
        yield rows
    connection.execute(query("close_source"))
