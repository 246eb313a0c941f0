"""`mempair export`: one moment of the database as a folder of Parquet files and a DuckDB file.

    model.parquet     one row a model: what was declared, the epoch's constants, the carried state
    curvature.parquet    the curvature pairs
    ledger.parquet    the odometer's ledger, with the bytes that its hashes cover
    request.parquet   when deletions were asked for and executed, as far as receipts are kept; no keys
    learned.parquet   the ticks of the rows the epoch still knows; no keys
    rows_<id>.parquet only if asked for: key, features and target of those rows, in tick order. Personal data.
    sums.parquet      every sum of an exact model, with its name; its rows have columns of the user's own names
    held_keys.parquet only with the rows: which keys the tables of schema mempair hold
    mempair.duckdb    all of it as tables, with the views of views.sql and verify.sql; opens from any folder
    verify.sql        `duckdb < verify.sql` computes the sums anew and verifies the ledger; README says more
    verify_live.sql   the same on the live server, through DuckDB's postgres extension

Everything streams, a batch at a time; what DuckDB has to sort may spill into the folder, and takes `MEMORY` at most.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import IsolationLevel, sql
from psycopg.rows import dict_row

from mempair_db.database.connect import connect
from mempair_db.database.queries import query
from mempair_db.errors import InvalidParameter, MempairError, UnknownModel, VerificationFailed
from mempair_db.offline import live, names, script
from mempair_db.offline import route as routes
from mempair_db.offline.progress import Bars, silent
from mempair_db.offline.route import Route
from mempair_db.offline.rowfile import quoted
from mempair_db.pair.reference import Reference

FORMAT: Final = 2
MEMORY: Final = "512MB"
DATABASE: Final = "mempair.duckdb"
VIEWS: Final = Path(__file__).with_name("views.sql")
README: Final = Path(__file__).with_name("export.txt")
COMMENTS: Final = Path(__file__).with_name("comments.sql")
OLDEST: Final = "v1.0.0"  # the storage that the oldest DuckDB we support can read
TABLES: Final = ("model", "curvature", "request", "ledger", "learned", "sums", "held_keys")

FLOATS, TEXTS = pa.list_(pa.float64()), pa.list_(pa.string())
TIME = pa.timestamp("us")  # UTC; with a time zone Python would need pytz to fetch one
# The columns of model.parquet, by type.
_COLUMNS: Final = (
    (
        pa.int64(),
        "format id m tau calibration_rows version epoch clock rows_learned cap spent deletions largest ledger_seq "
        "changes_waiting deletions_waiting learned_rows receipts_kept rejected_rows queue_bytes reference_rows",
    ),
    (
        pa.string(),
        "name source_schema source_table target positive loss unlearner on_null on_exhausted constants status reason "
        "server_version promise shard published controller",
    ),
    (pa.float64(), "epsilon delta gamma chosen_lambda kappa clip deadline_seconds"),
    (pa.binary(), "tally block checkpoint ledger_hash sums digest_salt"),
    (pa.bool_(), "ready"),
    (FLOATS, "anchor theta"),
    (pa.list_(pa.int64()), "served_sums"),
    (TEXTS, "key_columns features numeric_features text_features"),
    (TIME, "created_at oldest_deletion exported_at"),
)
MODEL = pa.schema([(name, kind) for kind, names in _COLUMNS for name in names.split()])
REQUEST = pa.schema(
    [
        ("model_id", pa.int64()),
        ("ledger_seq", pa.int64()),
        ("requested_at", TIME),
        ("executed_at", TIME),
        ("kind", pa.string()),
    ]
)
SUMS = pa.schema([("model_id", pa.int64()), ("place", pa.int64()), ("name", pa.string()), ("value", pa.int64())])
KEYS = pa.schema([("model_id", pa.int64()), ("held_in", pa.string()), ("row_key", pa.string())])
WINDOW = pa.schema([("model_id", pa.int64()), ("slot", pa.int64()), ("v", FLOATS), ("r", FLOATS)])


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    models: int
    entries: int
    rows: int
    route: str


def export(
    dsn: str,
    folder: Path,
    *,
    name: str | None = None,
    rows: bool = False,
    route: str | None = None,
    partitions: int = 1,
    bars: Bars = silent,
) -> Exported:
    """Write one model, or all of them, to `folder`, which must be new or empty.

    With `partitions` the rows of an exact model are in so many files, by a hash of their keys.
    """
    with _private(folder), _allowed(), connect(dsn) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.execute(query("own_limits"))
        connection.execute("set local extra_float_digits = 1")  # what is published goes as JSON: all of its digits
        models = _models(connection, name)
        if partitions > 1:
            models = [{**m, "rows_files": f"rows_{m['id']}.parquet/*/*.parquet"} for m in models]
        snapshot = connection.execute(query("offline_share_snapshot")).fetchone()
        way = routes.choose(connection.info.dsn if dsn == "" else dsn, (snapshot or ("",))[0], route)
        try:
            return _write(connection, way, folder, models, name=name, rows=rows, partitions=partitions, bars=bars)
        finally:
            way.close()


@contextmanager
def _allowed() -> Iterator[None]:
    """Say who may export, where Postgres only says that someone may not."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise MempairError(
            f"This role may not export: {error.diag.message_primary}.",
            remedy="Connect as the schema's owner; for --rows, as a role that may also read the table.",
        ) from error


def _models(connection: psycopg.Connection[Any], name: str | None) -> list[dict[str, Any]]:
    cursor = connection.cursor(row_factory=dict_row)
    if name is not None:
        connection.execute("select mempair.find_model(%s)", [name])
    models = cursor.execute(query("offline_models"), {"name": name}).fetchall()
    if not models:
        raise UnknownModel("This database has no model.", remedy="Create one with mempair.create_model.", whole=True)
    return models


def _write(
    connection: psycopg.Connection[Any],
    way: Route,
    folder: Path,
    models: list[dict[str, Any]],
    *,
    name: str | None,
    rows: bool,
    partitions: int,
    bars: Bars,
) -> Exported:
    numbers = [model["id"] for model in models]
    cursor = connection.cursor(row_factory=dict_row)
    window = cursor.execute(query("offline_window"), {"models": numbers}).fetchall()
    requests = cursor.execute(query("offline_requests"), {"models": numbers}).fetchall()
    numbers += [] if name else [number for (number,) in connection.execute(query("offline_former"))]
    size = connection.execute(query("offline_ledger_size"), {"models": numbers}).fetchone()
    entries = int(size[0]) if size else 0
    with duckdb.connect(str(folder / DATABASE), config={"storage_compatibility_version": OLDEST}) as duck:
        _limit(duck, folder)
        _store(duck, "model", [{**model, "format": FORMAT} for model in models], MODEL)
        _store(duck, "curvature", window, WINDOW)
        _store(duck, "request", requests, REQUEST)
        _store(duck, "held_keys", [], KEYS)
        _store(duck, "sums", [line for model in models for line in _sums(model)], SUMS)
        text = sql.SQL(query("offline_ledger")).format(models=sql.Literal(numbers)).as_string(connection)
        with bars("Exporting the ledger", entries) as advance, way.read(duck, text, advance) as stream:
            duck.execute(
                "create table ledger as select model, model_id, seq, make_timestamp(moment) as entered_at, "  # noqa: S608
                f"* exclude (model, model_id, seq, moment) from {stream} order by model_id, seq"
            )
        duck.execute("create table learned (model_id bigint, tick bigint)")
        written = 0
        for model in models:
            if script.is_exact(model):
                written += _exact_rows(connection, way, duck, folder, model, partitions, bars) if rows else 0
                continue
            found = _rows(connection, way, duck, folder, model, bars) if rows else 0
            _ticks(connection, way, duck, model, found, bars)
            written += found
        for file in (VIEWS, COMMENTS):
            duck.execute(file.read_text(encoding="utf-8"))
        duck.execute(script.checks(models, rows))
        for table in TABLES:
            target = quoted(folder / f"{table}.parquet")
            duck.execute(f"copy {table} to {target} (format parquet, compression zstd)")
    (folder / "verify.sql").write_text(script.script(models, rows), encoding="utf-8")
    (folder / "verify_live.sql").write_text(live.script_of(models), encoding="utf-8")
    (folder / "README").write_text(README.read_text(encoding="utf-8"), encoding="utf-8")
    return Exported(folder, len(models), entries, written, way.name)


def _exact_rows(
    connection: psycopg.Connection[Any],
    way: Route,
    duck: duckdb.DuckDBPyConnection,
    folder: Path,
    model: dict[str, Any],
    partitions: int,
    bars: Bars,
) -> int:
    """Write the rows of an exact model's table under the user's own names; return how many there are."""
    view = sql.Identifier("mempair", f"source_{model['id']}")
    statement = sql.SQL(query("offline_exact_rows")).format(rows=view, model=sql.Literal(model["id"]))
    target = folder / f"rows_{model['id']}.parquet"
    chosen = ", ".join(f"{place} as {script.name(title)}" for title, place in script.columns(model))
    text = statement.as_string(connection)
    with (
        bars(f"Exporting the rows of {model['name']}", model["learned_rows"]) as advance,
        way.read(duck, text, advance) as stream,
    ):
        if partitions > 1:
            divided = f"select {chosen}, hash(row_key) % {partitions} as mempair_part from {stream}"  # noqa: S608
            duck.execute(f"copy ({divided}) to {quoted(target)} (format parquet, partition_by (mempair_part))")
        else:
            duck.execute(f"copy (select {chosen} from {stream}) to {quoted(target)} (format parquet)")  # noqa: S608
    files = sorted(target.glob("*/*.parquet")) if partitions > 1 else [target]
    if partitions == 1:
        _rows_table(duck, model, target)
    elif files:  # too many to have them twice; without the folder beside it the database has no rows
        table = f"rows_{model['id']}"
        duck.execute(f"create view {table} as from {script.read(script.rows_of(model))}")
    keys = connection.execute(query("offline_held_keys"), {"model": model["id"]}).fetchall()
    held = [{"model_id": model["id"], "held_in": place, "row_key": key} for place, key in keys]
    _store(duck, "held_keys", held, KEYS, more=True)
    return sum(int(pq.read_metadata(file).num_rows) for file in files)


def _rows_table(duck: duckdb.DuckDBPyConnection, model: dict[str, Any], file: Path) -> None:
    """Keep the rows in the database too: a view of the file would work in its folder alone."""
    table = f"rows_{model['id']}"
    duck.execute(f"create table {table} as from read_parquet({quoted(file)})")
    duck.execute(f"comment on table {table} is {script.literal('The rows of ' + model['name'] + '. Personal data.')}")


def _sums(model: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sums of an exact model, each with its name."""
    if model["sums"] is None:
        return []
    reference = Reference.from_json(json.loads(model["constants"]))
    labels = names.of_sums(reference, model["numeric_features"], model["text_features"])
    values = np.frombuffer(model["sums"], "<i8").tolist()
    if len(values) != len(labels):
        facts = f"Model {model['name']} has {len(values)} sums, its constants ask for {len(labels)}."
        raise VerificationFailed(facts, remedy=f"`mempair verify {model['name']} --repair` asks for a refresh.")
    return [
        {"model_id": model["id"], "place": place, "name": label, "value": value}
        for place, (label, value) in enumerate(zip(labels, values, strict=True), start=1)
    ]


def _rows(
    connection: psycopg.Connection[Any],
    way: Route,
    duck: duckdb.DuckDBPyConnection,
    folder: Path,
    model: dict[str, Any],
    bars: Bars,
) -> int:
    """Write the surviving rows of one model in tick order; return how many there are."""
    extractors = {f: sql.Identifier("mempair", f"{f}_{model['id']}") for f in ("key", "x", "c", "y")}
    source = sql.Identifier(model["source_schema"], model["source_table"])
    statement = sql.SQL(query("offline_rows")).format(source=source, model=sql.Literal(model["id"]), **extractors)
    target = folder / f"rows_{model['id']}.parquet"
    with bars(f"Exporting the rows of {model['name']}", model["learned_rows"]) as advance:
        way.write_rows(duck, statement.as_string(connection), target, advance)
    _rows_table(duck, model, target)
    return int(pq.read_metadata(target).num_rows)


def _ticks(
    connection: psycopg.Connection[Any],
    way: Route,
    duck: duckdb.DuckDBPyConnection,
    model: dict[str, Any],
    found: int,
    bars: Bars,
) -> None:
    """Note the ticks of the rows the model knows: from its rows, if they are all there, else from the server."""
    number, total = model["id"], model["learned_rows"]
    if found == total:
        source = f"(select {number}, tick from rows_{number})" if total else "(select 0, 0 where false)"  # noqa: S608
        duck.execute(f"insert into learned from {source} order by 2")
        return
    text = sql.SQL(query("offline_ticks")).format(model=sql.Literal(number)).as_string(connection)
    with bars(f"Exporting the order of {model['name']}", total) as advance, way.read(duck, text, advance) as stream:
        duck.execute(f"insert into learned select * from {stream} order by tick")  # noqa: S608


def _store(
    duck: duckdb.DuckDBPyConnection, table: str, rows: list[dict[str, Any]], schema: pa.Schema, *, more: bool = False
) -> None:
    """Make a table of these rows, or add `more` to it."""
    known = [{name: row.get(name) for name in schema.names} for row in rows]
    duck.register("given", pa.Table.from_pylist(known, schema=schema))
    duck.execute(f"insert into {table} from given" if more else f"create table {table} as from given")
    duck.unregister("given")


def _limit(duck: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Keep to the memory limit, spill next to the result, find its files by name, and never reach for a network."""
    duck.execute(f"set memory_limit = '{MEMORY}'")
    duck.execute(f"set temp_directory = {quoted(folder / 'spill')}")
    duck.execute(f"set file_search_path = {quoted(folder)}")
    duck.execute("set preserve_insertion_order = true")
    duck.execute("set TimeZone = 'UTC'")


@contextmanager
def _private(folder: Path) -> Iterator[None]:
    """Make the folder and everything written in it readable by its owner only; take it back if that fails.

    Not by the umask, which other threads have too: nobody else enters the folder while its files are written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidParameter(f"{folder} is there already and not empty.", remedy="Choose a new folder for --out.")
    existed = folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        yield
        for path in folder.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if existed:
            folder.mkdir(mode=0o700)
        raise
    finally:
        shutil.rmtree(folder / "spill", ignore_errors=True)
