"""How rows leave Postgres: as Arrow batches through ADBC, or through DuckDB's own postgres extension.

ADBC works with any DuckDB and needs no download. The extension is used only where a wheel of exactly DuckDB's version
is installed (`duckdb-extension-postgres-scanner`): another version is refused by DuckDB. Both read the snapshot of the
transaction that counted the rows, so an export is one moment of the database however long it takes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from adbc_driver_postgresql import dbapi

from mempair_db.database.queries import query
from mempair_db.offline import rowfile
from mempair_db.offline.progress import Advance

EXTENSION: Final = "duckdb_extension_postgres_scanner"


class Adbc:
    """Reads with `adbc-driver-postgresql`."""

    name = "adbc"

    def __init__(self, dsn: str, snapshot: str) -> None:
        """Open a read-only transaction on that snapshot."""
        self._connection = dbapi.connect(dsn)
        with self._connection.cursor() as cursor:
            cursor.execute("set local idle_in_transaction_session_timeout = 0")  # nothing that has to wait comes before
            cursor.execute("set transaction isolation level repeatable read read only")
            cursor.execute(f"set transaction snapshot '{snapshot}'")
            # Also memory to join the table with `learned`: a spilled join gives the rows in another order.
            cursor.execute(query("own_limits"))
            cursor.fetchone()

    @contextmanager
    def read(self, duck: duckdb.DuckDBPyConnection, statement: str, advance: Advance) -> Iterator[str]:
        """Make the statement's rows the DuckDB relation whose name is given; one batch is in memory at a time."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            reader = cursor.fetch_record_batch()
            duck.register("stream", pa.RecordBatchReader.from_batches(reader.schema, _counted(reader, advance)))
            try:
                yield "stream"
            finally:
                duck.unregister("stream")

    def write_rows(self, duck: duckdb.DuckDBPyConnection, statement: str, target: Path, advance: Advance) -> None:
        """Write the statement's rows to a Parquet file in the order of their ticks."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            reader = cursor.fetch_record_batch()
            ordered = rowfile.write(reader, reader.schema, target, advance)
        if not ordered:
            rowfile.sort(duck, target)

    def close(self) -> None:
        """End the transaction."""
        self._connection.close()


class Extension:
    """Reads with DuckDB's postgres extension."""

    name = "postgres extension"

    def __init__(self, dsn: str, snapshot: str, library: Path) -> None:
        """Remember where to read; a DuckDB connection attaches itself when it reads."""
        self._dsn, self._snapshot, self._library = dsn, snapshot, library

    @contextmanager
    def read(self, duck: duckdb.DuckDBPyConnection, statement: str, _advance: Advance) -> Iterator[str]:
        """Make the statement's rows the DuckDB relation whose name is given; it does not say how far it is."""
        duck.execute(f"load {_quoted(str(self._library))}")
        duck.execute(f"attach {_quoted(self._dsn)} as production (type postgres, read_only)")
        try:
            duck.execute("begin")
            share = _quoted(f"set transaction snapshot {_quoted(self._snapshot)}")
            duck.execute(f"call postgres_execute('production', {share})")
            yield f"postgres_query('production', {_quoted(statement)})"
            duck.execute("commit")
        except BaseException:
            duck.execute("rollback")
            raise
        finally:
            duck.execute("detach production")

    def write_rows(self, duck: duckdb.DuckDBPyConnection, statement: str, target: Path, advance: Advance) -> None:
        """Write the statement's rows to a Parquet file in the order of their ticks."""
        with self.read(duck, statement, advance) as rows:
            duck.execute(
                f"copy (select * from {rows} order by tick) to {rowfile.quoted(target)} "  # noqa: S608
                f"(format parquet, compression snappy, row_group_size {rowfile.ROW_GROUP})"
            )

    def close(self) -> None:
        """Nothing is kept open."""


Route = Adbc | Extension


def choose(dsn: str, snapshot: str, wanted: str | None = None) -> Route:
    """Return the route: the extension where its version is DuckDB's, else ADBC; `wanted` insists on one of them."""
    library = extension() if wanted != "adbc" else None
    return Extension(dsn, snapshot, library) if library is not None else Adbc(dsn, snapshot)


def extension() -> Path | None:
    """Return the extension's file, if a wheel with exactly DuckDB's version is installed."""
    spec = importlib.util.find_spec(EXTENSION)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}"
    return next(iter(folder.glob("postgres_scanner.duckdb_extension")), None)


def _counted(reader: Any, advance: Advance) -> Iterator[Any]:
    for batch in reader:
        advance(batch.num_rows)
        yield batch


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
