"""Rows into a Parquet file in tick order.

A table is mostly stored in the order in which it was learned, and Postgres joins it with `learned` in that order while
the join fits into memory. So rows are written as they come, in a thread beside the one that reads, and sorted by
DuckDB, which may spill to disk, only if a tick came out of order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from queue import Queue
from typing import Any, Final

import duckdb
import pyarrow.parquet as pq

from mempair_db.offline.progress import Advance

ROW_GROUP: Final = 50_000
AHEAD: Final = 2
"""Batches that may wait for the writer."""

# Doubles hardly repeat: a dictionary of them costs a quarter of the time and saves nothing.
OPTIONS: Final[dict[str, Any]] = {"compression": "lz4", "use_dictionary": ["c"]}


def write(batches: Iterable[Any], schema: Any, target: Path, advance: Advance) -> bool:
    """Write the batches as they come; return whether their ticks were in order."""
    ordered, last = True, 0
    with _Writer(target, schema) as writer:
        for batch in batches:
            ticks = batch.column("tick").to_numpy()
            if len(ticks):
                ordered = ordered and int(ticks[0]) > last and bool((ticks[1:] > ticks[:-1]).all())
                last = int(ticks[-1])
            writer.put(batch)
            advance(batch.num_rows)
    return ordered


def sort(duck: duckdb.DuckDBPyConnection, target: Path) -> None:
    """Replace the file by one in tick order."""
    unsorted = target.with_suffix(".unsorted")
    target.rename(unsorted)
    try:
        duck.execute(
            f"copy (select * from read_parquet({quoted(unsorted)}) order by tick) to {quoted(target)} "  # noqa: S608
            f"(format parquet, compression snappy, row_group_size {ROW_GROUP})"
        )
    finally:
        unsorted.unlink()


def quoted(path: Path) -> str:
    """Return a path as a literal of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


class _Writer:
    """A thread that writes what it is given; an error in it reaches the one who gives."""

    def __init__(self, target: Path, schema: Any) -> None:
        self._writer = pq.ParquetWriter(target, schema, **OPTIONS)
        self._queue: Queue[Any] = Queue(AHEAD)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def put(self, batch: Any) -> None:
        if self._error is not None:
            raise self._error
        self._queue.put(batch)

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()
        self._writer.close()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (batch := self._queue.get()) is not None:
            if self._error is None:
                try:
                    self._writer.write_batch(batch, row_group_size=ROW_GROUP)
                except BaseException as error:  # raised again in the reader's thread
                    self._error = error
