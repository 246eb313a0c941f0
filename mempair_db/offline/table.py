"""Rows to try things out on: a CSV or Parquet file, or a table of the database, as arrays; read by DuckDB.

Numbers, booleans, dates and times become numbers as they do in a model; texts become categories. Rows with a missing
value are left out, as `on_null => 'skip'` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import psycopg
from adbc_driver_postgresql import dbapi
from psycopg import sql

from mempair_db.database.connect import connect
from mempair_db.errors import InvalidParameter, UnknownColumn
from mempair_db.pair.encode import usable_target
from mempair_db.pair.encoding import Matrix
from mempair_db.pair.state import Vector

# Without booleans: DuckDB takes Yes and No for some, and then nobody finds the 'Yes' that --positive names.
TYPES: Final = ["NULL", "BIGINT", "DOUBLE", "TIME", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "VARCHAR"]
CSV: Final = f"read_csv(?, auto_type_candidates = {TYPES})"
READERS: Final = {".csv": CSV, ".tsv": CSV, ".gz": CSV, ".parquet": "read_parquet(?)"}
NUMBERS: Final = ("BOOLEAN", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT")  # and everything that ends in INT or INTEGER
TIMES: Final = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_NS", "TIMESTAMP_S", "TIMESTAMP_MS")


@dataclass(frozen=True)
class Table:
    """Rows in the order of the source."""

    x: Matrix
    c: list[tuple[str | None, ...]]
    y: Vector
    numbers: list[str]
    texts: list[str]
    regression: bool
    skipped: int  # rows without a target, or with a missing value where those are skipped
    times: list[int] = field(default_factory=list)  # places of the numbers that are points in time

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.y)

    def imputed(self) -> Table:
        """Return it with the middle for missing numbers and a text of its own for missing texts."""
        middle = np.array([np.median(known) if len(known := x[np.isfinite(x)]) else 0.0 for x in self.x.T])
        filled = np.where(np.isfinite(self.x), self.x, middle) if self.numbers else self.x
        return replace(self, x=filled, c=[tuple("" if text is None else text for text in row) for row in self.c])


def load(
    source: str,
    target: str,
    *,
    features: Sequence[str] | None = None,
    positive: str | None = None,
    dsn: str | None = None,
    limit: int = 100_000,
    on_null: str = "skip",
) -> Table:
    """Read at most `limit` rows; those with missing values only if they are to be imputed."""
    if on_null not in ("skip", "impute"):
        raise InvalidParameter(f"on_null is {on_null!r}.", remedy="It is skip or impute.")
    with duckdb.connect() as duck:
        duck.execute("set TimeZone = 'UTC'")
        _open(duck, source, dsn, limit)
        kinds = {name: kind for name, kind, *_ in duck.execute("describe given").fetchall()}
        for name in (target, *(features or ())):
            if name not in kinds:
                said = f"{source} has no column {name!r}."
                raise UnknownColumn(said, remedy=f"It has {', '.join(kinds)}.", whole=True)
        wanted = [name for name in (features or kinds) if name != target]
        numbers = [name for name in wanted if _is_number(kinds[name])]
        texts = [name for name in wanted if kinds[name].startswith(("VARCHAR", "ENUM"))]
        unusable = set(wanted) - {*numbers, *texts}
        if features and unusable:
            name = min(unusable)
            raise InvalidParameter(f"Column {name!r} has type {kinds[name]}.", remedy="Use numbers, times and texts.")
        regression = positive is None and _is_number(kinds[target]) and not _is_binary(duck, target)
        return _table(duck, target, kinds, numbers, texts, positive, regression, on_null == "impute")


def _open(duck: duckdb.DuckDBPyConnection, source: str, dsn: str | None, limit: int) -> None:
    file = Path(source)
    if file.exists():
        reader = READERS.get(file.suffix.lower())
        if reader is None:
            raise InvalidParameter(f"{source} is neither CSV nor Parquet.", remedy=f"Use {', '.join(READERS)}.")
        duck.execute(f"create table given as select * from {reader} limit {int(limit)}", [source])  # noqa: S608
        return
    if dsn is None or file.suffix.lower() in READERS:
        raise InvalidParameter(f"There is no file {source}.", remedy="Name a file, or a table of the database.")
    name = _relation(dsn, source)
    with dbapi.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"select * from {name} limit {int(limit)}")  # noqa: S608
        duck.register("stream", cursor.fetch_record_batch())
        duck.execute("create table given as select * from stream")
        duck.unregister("stream")


def _relation(dsn: str, source: str) -> str:
    """Return a table's name as it goes into a query: as SQL understands it, or to the letter without quotes."""
    letter = sql.Identifier(*source.split(".")).as_string(None)
    with connect(dsn, autocommit=True, checked=False) as connection:
        for name in (source, letter):
            try:
                [(found,)] = connection.execute("select to_regclass(%s)::text", [name]).fetchall()
            except (psycopg.errors.InvalidName, psycopg.errors.SyntaxError):
                continue
            if found is not None:
                return str(found)
    raise InvalidParameter(
        f"There is neither a file nor a table {source}.",
        remedy="Name a CSV or Parquet file, or a table of the database.",
    )


def _table(
    duck: duckdb.DuckDBPyConnection,
    target: str,
    kinds: dict[str, str],
    numbers: list[str],
    texts: list[str],
    positive: str | None,
    regression: bool,
    imputes: bool,
) -> Table:
    expressions = [_number(name, kinds[name]) for name in numbers] + [f"{_quoted(name)}::varchar" for name in texts]
    expressions.append(_number(target, kinds[target]) if regression else _label(duck, target, positive))
    columns = _complete_rows(duck, expressions, [target] if imputes else [*numbers, *texts, target])
    masks = [np.ma.getmaskarray(column) for column in columns]
    y = np.asarray(columns.pop(), float)
    filled = [np.ma.filled(column.astype(float), np.nan) for column in columns[: len(numbers)]]
    x = np.column_stack(filled) if numbers else np.zeros((len(y), 0))
    named = [
        [None if gone else str(text) for text, gone in zip(column.tolist(), mask.tolist(), strict=True)]
        for column, mask in zip(columns[len(numbers) :], masks[len(numbers) :], strict=False)
    ]
    c: list[tuple[str | None, ...]] = list(zip(*named, strict=True)) if texts else [()] * len(y)
    good = (np.isfinite(x).all(axis=1) | imputes) & usable_target(y)
    (total,) = duck.execute("select count(*) from given").fetchone() or (0,)
    return Table(
        x=np.ascontiguousarray(x[good]),
        c=[row for row, keep in zip(c, good.tolist(), strict=True) if keep],
        y=y[good],
        numbers=numbers,
        texts=texts,
        regression=regression,
        skipped=int(total) - int(good.sum()),
        times=[place for place, name in enumerate(numbers) if kinds[name] in TIMES],
    )


def _label(duck: duckdb.DuckDBPyConnection, target: str, positive: str | None) -> str:
    """Return the target as +1 and −1."""
    chosen = positive if positive is not None else _positive(duck, target)
    column = f"{_quoted(target)}::varchar"
    if duck.execute(f"select 1 from given where {column} = ? limit 1", [chosen]).fetchone() is None:  # noqa: S608
        raise InvalidParameter(
            f"No row has {target} = {chosen!r}, the value that counts as yes.",
            remedy=f"Values that are there: {', '.join(_values(duck, target))}, …",
            whole=True,
        )
    literal = "'" + chosen.replace("'", "''") + "'"
    return f"case when {column} = {literal} then 1.0 else -1.0 end"


def _complete_rows(duck: duckdb.DuckDBPyConnection, expressions: list[str], needed: list[str]) -> list[Any]:
    """Return the columns, without the rows in which something is missing."""
    named = ", ".join(f"{expression} as c{i}" for i, expression in enumerate(expressions))
    present = " and ".join(f"{_quoted(name)} is not null" for name in needed)
    found = duck.execute(f"select {named} from given where {present}").fetchnumpy()  # noqa: S608
    return [found[f"c{i}"] for i in range(len(expressions))]


def _is_number(kind: str) -> bool:
    return kind.startswith(NUMBERS) or kind.endswith(("INT", "INTEGER")) or kind in TIMES


def _number(name: str, kind: str) -> str:
    return f"epoch({_quoted(name)})::double" if kind in TIMES else f"{_quoted(name)}::double"


def _is_binary(duck: duckdb.DuckDBPyConnection, target: str) -> bool:
    return len(_values(duck, target)) <= 2


def _values(duck: duckdb.DuckDBPyConnection, target: str) -> list[str]:
    column = _quoted(target)
    statement = f"select distinct {column}::varchar from given where {column} is not null order by 1 limit 3"  # noqa: S608
    return [str(value) for (value,) in duck.execute(statement).fetchall()]


def _positive(duck: duckdb.DuckDBPyConnection, target: str) -> str:
    """Return the value that counts as +1: the later of two, such as true or 1."""
    values = _values(duck, target)
    if len(values) != 2:
        raise InvalidParameter(
            f"Column {target!r} has {'one value' if len(values) == 1 else 'more than two values'}.",
            remedy="Name the one to predict with --positive.",
        )
    return values[-1]


def _quoted(name: Any) -> str:
    return '"' + str(name).replace('"', '""') + '"'
