"""What a client asks: a question is a generator that yields statements, is sent their rows, and returns the answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from mempair_db.database.features import Features, feature_list
from mempair_db.database.queries import query
from mempair_db.errors import InvalidParameter, UnknownModel, refuse_unknown

Rows = list[dict[str, Any]]
Answer = TypeVar("Answer")
Statement = sql.SQL | sql.Composed
Question = Generator[tuple[Statement, Any], Rows, Answer]
Row = Mapping[str, Any]
log = logging.getLogger("mempair.client")


class Remark(NamedTuple):
    """What the server said about a statement that it carried out."""

    message: str
    hint: str
    warning: bool

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.message}. {self.hint}" if self.hint else self.message


class Remarks(list[Remark]):
    """Listens to a connection, and tells the log."""

    def __call__(self, said: psycopg.errors.Diagnostic) -> None:
        """Hear a NOTICE or a WARNING."""
        warning = said.severity_nonlocalized == "WARNING"
        self.append(Remark(said.message_primary or "", said.message_hint or "", warning))
        log.log(logging.WARNING if warning else logging.INFO, "%s", self[-1])


def one(statement: str, *values: Any) -> Question[Any]:
    """Ask for the only value of the first row."""
    rows = yield sql.SQL(statement), values
    return next(iter(rows[0].values())) if rows else None


def several(statement: str, *values: Any) -> Question[Rows]:
    """Ask for all rows."""
    rows = yield sql.SQL(statement), values
    return rows


class _Table(NamedTuple):
    """The table of a model."""

    name: sql.Identifier
    key: list[str]
    columns: list[str]


def _table(name: str) -> Question[_Table]:
    rows = yield sql.SQL(query("client_table")), {"name": name}
    if not rows:
        raise UnknownModel(f"There is no model {name!r}.", remedy="See mempair.model_status.", whole=True)
    row = rows[0]
    return _Table(sql.Identifier(row["schema"], row["relation"]), row["key_columns"], row["columns"])


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return Jsonb(value)
    plain = _plain(value)
    if isinstance(plain, list) and any(isinstance(each, float) for each in plain):
        return [each if each is None else float(each) for each in plain]  # an array has one type
    return plain


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def create(values: dict[str, Any]) -> Question[None]:
    """Ask for a model."""
    yield from _check_parameters("create_model", values)
    for name, example in {"target": '"churned"', "features": '["age", "plan"]'}.items():
        if not values[name]:
            raise InvalidParameter(f"create_model needs {name!r}.", remedy=f"Such as {name}={example}.", whole=True)
    yield from _call("create_model", values)


def alter(values: dict[str, Any]) -> Question[None]:
    """Ask for other parameters."""
    yield from _check_parameters("alter_model", values)
    yield from _call("alter_model", values)


def _check_parameters(function: str, values: dict[str, Any]) -> Question[None]:
    """Refuse what the function has no parameter for, and name the nearest that it has."""
    rows = yield sql.SQL(query("client_parameters")), {"function": function}
    known = sorted(row["name"] for row in rows)
    if known:
        refuse_unknown(f"{function} has no parameter", values, known)


def _call(function: str, values: dict[str, Any]) -> Question[None]:
    arguments = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(key), sql.Placeholder(key)) for key in values
    )
    statement = sql.SQL("select {}({})").format(sql.Identifier("mempair", function), arguments)
    yield statement, {name: _value(value) for name, value in values.items()}


def _of_row(statement: str, name: str, row: Any) -> Question[Rows]:
    """Ask something about a row: a mapping from columns to values, or the numbers of a model that has no others."""
    if row is None or isinstance(row, str):
        raise InvalidParameter(f"{row!r} is not a row.", remedy='Write one as {"age": 42, "plan": "pro"}.', whole=True)
    if not isinstance(row, Mapping):
        asked = sql.SQL(statement).format(row=sql.SQL("{}::float8[]").format(sql.Placeholder("row")))
        rows = yield asked, {"name": name, "row": [float(value) for value in row]}
        return rows
    table = yield from _table(name)
    refuse_unknown(f"The table of {name!r} has no column", row, table.columns)
    if all(value is None for value in row.values()):  # to Postgres that is no row, of which nothing can be told
        raise InvalidParameter("The row has no value.", remedy="Give one at least, if only the key.", whole=True)
    record = sql.SQL("jsonb_populate_record(null::{}, {})").format(table.name, sql.Placeholder("row"))
    rows = yield sql.SQL(statement).format(row=record), {"name": name, "row": Jsonb(dict(row), dumps=_dumps)}
    return rows


def _dumps(value: Any) -> str:
    return json.dumps(value, default=_as_json)


def _as_json(value: Any) -> Any:
    plain = _plain(value)
    return str(value) if plain is value else plain  # dates, decimals and UUIDs as Postgres reads them


def predict(name: str, row: Row | Sequence[float]) -> Question[float]:
    """Ask for a number."""
    rows = yield from _of_row("select mempair_predict(%(name)s, {row}) as answer", name, row)
    return float(rows[0]["answer"])


def predict_class(name: str, row: Row | Sequence[float]) -> Question[str | None]:
    """Ask for the likeliest class."""
    rows = yield from _of_row("select mempair_predict_class(%(name)s, {row}) as answer", name, row)
    found: str | None = rows[0]["answer"]
    return found


def predict_proba(name: str, row: Row | Sequence[float]) -> Question[dict[str | None, float]]:
    """Ask for the probability of every class."""
    rows = yield from _of_row("select * from mempair_predict_proba(%(name)s, {row})", name, row)
    return {each["class"]: each["probability"] for each in rows}


def explain(name: str, row: Row) -> Question[Rows]:
    """Ask what each feature adds."""
    return (yield from _of_row("select * from mempair.explain(%(name)s, {row})", name, row))


def learn(name: str, rows: Sequence[Row]) -> Question[int]:
    """Insert rows."""
    table, _, _ = yield from _table(name)
    if isinstance(rows, Mapping) or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidParameter("learn takes a list of rows.", remedy='Such as [{"id": 1, "age": 42}].', whole=True)
    for row in rows:
        columns = sql.SQL(", ").join(map(sql.Identifier, row))
        values = sql.SQL(", ").join(map(sql.Placeholder, row))
        insert = sql.SQL("insert into {} ({}) values ({})").format(table, columns, values)
        yield insert, {name: _value(value) for name, value in row.items()}
    return len(rows)


def forget(name: str, key: Any) -> Question[int]:
    """Delete a row."""
    table, columns, _ = yield from _table(name)
    values = key if isinstance(key, (list, tuple)) else [key]
    if len(values) != len(columns):
        raise InvalidParameter(
            f"The key of {name!r} is ({', '.join(columns)}).", remedy="Give a value for each.", whole=True
        )
    where = sql.SQL(" and ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in columns)
    rows = yield sql.SQL("delete from {} where {} returning 1 as gone").format(table, where), list(values)
    return len(rows)


def receipt(name: str, key: Any) -> Question[dict[str, Any] | None]:
    """Ask what was done about a deleted row."""
    written = json.dumps([str(value) for value in key]) if isinstance(key, (list, tuple)) else str(key)
    found: dict[str, Any] | None = yield from one("select mempair.receipt(%s, %s::text)", name, written)
    return found


def evaluate(name: str, where: str | None, which: str) -> Question[dict[str, Any]]:
    """Ask how good a model is."""
    return (yield from several("select * from mempair.evaluate(%s, %s, %s)", name, where, which))[0]


def declared(name: str, table: str, target: str, features: Features, options: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model to be."""
    return {"model_name": name, "source": table, "target": target, "features": feature_list(features), **options}
