"""Read a model's whole table: in parts, each on a connection of its own that sees the caller's snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from queue import Queue
from typing import Any, Final, TypeVar

import psycopg
from psycopg import IsolationLevel, sql

from mempair_db.database import packed
from mempair_db.database.connect import connect
from mempair_db.database.models import Model
from mempair_db.database.packed import Rows
from mempair_db.database.queries import query

READERS: Final = 2
SMALL: Final = 2_000  # blocks; another connection does not pay below
LAST: Final = 4_294_967_295  # the largest block number
AT_ONCE: Final = 64 << 10  # bytes of the table in one value: larger ones cost the server a third more

Result = TypeVar("Result")


def each_chunk(
    connection: psycopg.Connection[Any], model: Model, dsn: str | None, work: Callable[[Rows], Result]
) -> Iterator[Result]:
    """Yield what `work` makes of every chunk of labelled rows, in any order. With a `dsn` several run at once.

    Where the server or the role has no room for other connections, or somebody waits to change the table, this
    connection reads everything.
    """
    blocks, _ = size_of(connection, model)
    with ExitStack() as opened:
        parts = _parts(opened, connection, model, dsn, blocks) if dsn is not None and blocks >= SMALL else []
        if parts:
            yield from _Readers(parts, work).run()
        else:
            yield from map(work, chunks(connection, model, 0, LAST))


def size_of(connection: psycopg.Connection[Any], model: Model) -> tuple[int, int]:
    """Return the most blocks that one of the tables behind the source has, and the bytes of all of them."""
    blocks, size = connection.execute(query("source_blocks"), {"model": model.id}).fetchone() or (0, 0)
    return int(blocks), int(size)


def _parts(
    opened: ExitStack, connection: psycopg.Connection[Any], model: Model, dsn: str, blocks: int
) -> list[Iterator[Rows]]:
    """Begin to read every part on a connection of its own under this one's snapshot, or none.

    All of them have every lock that they need before any is waited for. This one has locked the table: who waits to
    change it waits for this one, and a reader that waited for them would wait for ever.
    """
    shared = connection.execute(query("offline_share_snapshot")).fetchone()
    bounds = [blocks * i // READERS for i in range(READERS)] + [LAST]
    parts: list[Iterator[Rows]] = []
    try:
        with ExitStack() as opening:
            for first, last in pairwise(bounds):
                reader = opening.enter_context(connect(dsn, application_name="mempair reader"))
                reader.isolation_level = IsolationLevel.REPEATABLE_READ
                reader.prepare_threshold = None
                opening.enter_context(reader.transaction())
                reader.execute(sql.SQL("set transaction snapshot {}").format(str(shared[0]) if shared else ""))
                reader.execute(query("own_limits"))
                reader.execute(query("wait_for_no_lock"))
                reader.execute("set local row_security = off")
                parts.append(chunks(reader, model, first, last))
            opened.push(opening.pop_all())
    except psycopg.OperationalError:
        return []
    return parts


class _Readers:
    """Parts of the table that are read at once: they hand over what was made of them."""

    def __init__(self, parts: list[Iterator[Rows]], work: Callable[[Rows], Any]) -> None:
        self.parts, self.work = parts, work
        self.results: Queue[tuple[str, Any]] = Queue(maxsize=2 * READERS)
        self.stop = threading.Event()

    def run(self) -> Iterator[Any]:
        """Yield the results of all parts; the first error of any of them is raised here."""
        with ThreadPoolExecutor(len(self.parts)) as threads:
            for part in self.parts:
                threads.submit(self._read, part)
            running = len(self.parts)
            try:
                while running:
                    kind, result = self.results.get()
                    running -= kind != "chunk"
                    if kind == "error":
                        raise result
                    if kind == "chunk":
                        yield result
            finally:
                self._end(running)

    def _end(self, running: int) -> None:
        """Let readers that wait for room in the queue go."""
        self.stop.set()
        while running:
            kind, _ = self.results.get()
            running -= kind != "chunk"

    def _read(self, part: Iterator[Rows]) -> None:
        try:
            for rows in part:
                if self.stop.is_set():
                    break
                self.results.put(("chunk", self.work(rows)))
            self.results.put(("end", None))
        except BaseException as error:  # raised again by whoever takes the results
            self.results.put(("error", error))


def chunks(connection: psycopg.Connection[Any], model: Model, first: int, last: int) -> Iterator[Rows]:
    """Return the rows in some blocks of the source, about eight megabytes of the table at a time.

    Every chunk has its own learned keys, and a deletion reads all that may have its own: chunks are few. A cursor, so
    that the connection can be used between two of them. It has all its locks when this returns.
    """
    blocks, size = size_of(connection, model)
    end = max(first, min(last, blocks) - 1)
    step = max(1, AT_ONCE * blocks // max(size, 1))
    values = {"first": first, "end": end, "last": last, "step": step}
    connection.execute(model.statement("open_part"), values, binary=True)
    return _fetched(connection, model)


def _fetched(connection: psycopg.Connection[Any], model: Model) -> Iterator[Rows]:
    with connection.cursor(binary=True) as cursor:
        while found := cursor.execute(query("fetch_part"), binary=True).fetchall():
            data = b"".join([some for _, some in found if some])
            if data:
                yield packed.unpack(data, sum(count for count, _ in found), model.number_count, model.text_count)
        cursor.execute(query("close_part"))
