"""The SQL functions, for a Python program that has a DSN and nothing else: `Client`, and `AsyncClient` for asyncio.

    with Client(dsn) as client:                      # a pool of connections, for as long as the block lasts
        client.create_model("churn", "customers", target="churned", features=["age", "plan"])
        client.learn("churn", [{"id": 1, "age": 42, "plan": "pro", "churned": False}])
        client.predict("churn", {"age": 42, "plan": "pro"})
        client.predict_proba("kind", {"length": 3})  # of a model of several classes: {"rose": 0.9, "iris": 0.1}
        client.forget("churn", 1)
        client.receipt("churn", 1)                   # once a worker has applied it

Without the block every call opens a connection of its own. Both classes ask the same questions, which are written once:
a question is a generator that yields statements, is sent their rows, and returns the answer.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import numpy as np
import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from mempair_db.database.connect import connect, translated
from mempair_db.database.features import Features, feature_list
from mempair_db.database.install import install
from mempair_db.database.queries import query
from mempair_db.embedded import server
from mempair_db.errors import InvalidParameter, UnknownModel

Rows = list[dict[str, Any]]
Answer = TypeVar("Answer")
Statement = sql.SQL | sql.Composed
Question = Generator[tuple[Statement, Any], Rows, Answer]
Row = Mapping[str, Any]
OPTIONS: dict[str, Any] = {"application_name": "mempair client", "client_encoding": "UTF8"}


def _one(statement: str, *values: Any) -> Question[Any]:
    """Ask for the only value of the first row."""
    rows = yield sql.SQL(statement), values
    return next(iter(rows[0].values())) if rows else None


def _all(statement: str, *values: Any) -> Question[Rows]:
    rows = yield sql.SQL(statement), values
    return rows


def _table(name: str) -> Question[tuple[sql.Identifier, list[str]]]:
    """Return the table of a model, and its key columns."""
    rows = yield sql.SQL(query("client_table")), {"name": name}
    if not rows:
        raise UnknownModel(f"It was called {name!r}.", remedy="See mempair.model_status.")
    return sql.Identifier(rows[0]["schema"], rows[0]["relation"]), rows[0]["key_columns"]


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return Jsonb(value)
    plain = _plain(value)
    if isinstance(plain, list) and any(isinstance(each, float) for each in plain):
        return [each if each is None else float(each) for each in plain]  # an array has one type
    return plain


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _create(values: dict[str, Any]) -> Question[Any]:
    rows = yield sql.SQL(query("client_parameters")), ()
    known = [row["name"] for row in rows]
    for name in values:
        if known and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            remedy = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
            raise InvalidParameter(f"create_model has no parameter {name!r}.", remedy=remedy)
    for name, example in {"target": '"churned"', "features": '["age", "plan"]'}.items():
        if not values[name]:
            raise InvalidParameter(f"create_model needs {name!r}.", remedy=f"Such as {name}={example}.")
    arguments = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(key), sql.Placeholder(key)) for key in values
    )
    yield sql.SQL("select mempair.create_model({})").format(arguments), {k: _value(v) for k, v in values.items()}


def _of_row(statement: str, name: str, row: Row | Sequence[float]) -> Question[Rows]:
    """Ask something about a row: a mapping from columns to values, or the numbers of a model that has no others."""
    if not isinstance(row, Mapping):
        asked = sql.SQL(statement).format(row=sql.SQL("{}::float8[]").format(sql.Placeholder("row")))
        rows = yield asked, {"name": name, "row": [float(value) for value in row]}
        return rows
    table, _ = yield from _table(name)
    record = sql.SQL("jsonb_populate_record(null::{}, {})").format(table, sql.Placeholder("row"))
    rows = yield sql.SQL(statement).format(row=record), {"name": name, "row": Jsonb(dict(row), dumps=_dumps)}
    return rows


def _dumps(value: Any) -> str:
    return json.dumps(value, default=_as_json)


def _as_json(value: Any) -> Any:
    plain = _plain(value)
    return str(value) if plain is value else plain  # dates, decimals and UUIDs as Postgres reads them


def _predict(name: str, row: Row | Sequence[float]) -> Question[float]:
    rows = yield from _of_row("select mempair_predict(%(name)s, {row}) as answer", name, row)
    return float(rows[0]["answer"])


def _predict_class(name: str, row: Row | Sequence[float]) -> Question[str | None]:
    rows = yield from _of_row("select mempair_predict_class(%(name)s, {row}) as answer", name, row)
    found: str | None = rows[0]["answer"]
    return found


def _predict_proba(name: str, row: Row | Sequence[float]) -> Question[dict[str | None, float]]:
    rows = yield from _of_row("select * from mempair_predict_proba(%(name)s, {row})", name, row)
    return {each["class"]: each["probability"] for each in rows}


def _explain(name: str, row: Row) -> Question[Rows]:
    return (yield from _of_row("select * from mempair.explain(%(name)s, {row})", name, row))


def _learn(name: str, rows: Sequence[Row]) -> Question[int]:
    table, _ = yield from _table(name)
    for row in rows:
        columns = sql.SQL(", ").join(map(sql.Identifier, row))
        values = sql.SQL(", ").join(map(sql.Placeholder, row))
        insert = sql.SQL("insert into {} ({}) values ({})").format(table, columns, values)
        yield insert, {name: _value(value) for name, value in row.items()}
    return len(rows)


def _forget(name: str, key: Any) -> Question[int]:
    table, columns = yield from _table(name)
    values = key if isinstance(key, (list, tuple)) else [key]
    if len(values) != len(columns):
        raise InvalidParameter(f"the key of {name!r} is ({', '.join(columns)}).", remedy="Give a value for each.")
    where = sql.SQL(" and ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in columns)
    rows = yield sql.SQL("delete from {} where {} returning 1 as gone").format(table, where), list(values)
    return len(rows)


def _receipt(name: str, key: Any) -> Question[dict[str, Any] | None]:
    found: dict[str, Any] | None = yield from _one("select mempair.receipt(%s, %s::text)", name, str(key))
    return found


def _evaluate(name: str, where: str | None, which: str) -> Question[dict[str, Any]]:
    return (yield from _all("select * from mempair.evaluate(%s, %s, %s)", name, where, which))[0]


def _declared(name: str, table: str, target: str, features: Features, options: dict[str, Any]) -> dict[str, Any]:
    return {"model_name": name, "source": table, "target": target, "features": feature_list(features), **options}


class Client:
    """Declare models and ask them. As a context manager it keeps up to `connections` open."""

    def __init__(self, dsn: str | None = None, *, connections: int = 4) -> None:
        """Use this database, or the one the environment names, or the embedded server."""
        self.dsn = server.ensure(dsn)
        self.connections = connections
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None

    def __enter__(self) -> Client:
        """Open the pool."""
        with connect(self.dsn):  # whether the schema fits this code is asked once
            self._pool = ConnectionPool(self.dsn, min_size=1, max_size=self.connections, kwargs=OPTIONS, open=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def install(self) -> None:
        """Install schema mempair, or bring it up to date."""
        install(self.dsn)

    def create_model(self, name: str, table: str, *, target: str = "", features: Features = (), **options: Any) -> None:
        """Declare a model; `options` are the parameters of ``mempair.create_model``, and two are always needed."""
        self._ask(_create(_declared(name, table, target, features, options)))

    def drop_model(self, name: str, *, keep_ledger: bool = False) -> None:
        """Remove a model and what it learned."""
        self._ask(_one("select mempair.drop_model(%s, %s)", name, keep_ledger))

    def learn(self, name: str, rows: Sequence[Row]) -> int:
        """Insert rows into the model's table, in one transaction; a worker learns them."""
        return self._ask(_learn(name, rows))

    def predict(self, name: str, row: Row | Sequence[float]) -> float:
        """Predict a row that need not be in the table: columns and values, or the raw numbers in the model's order."""
        return self._ask(_predict(name, row))

    def predict_class(self, name: str, row: Row | Sequence[float]) -> str | None:
        """Return the most probable class of a row; None is any other than the positive one, where one was named."""
        return self._ask(_predict_class(name, row))

    def predict_proba(self, name: str, row: Row | Sequence[float]) -> dict[str | None, float]:
        """Return the probability of each class, the most probable first."""
        return self._ask(_predict_proba(name, row))

    def explain(self, name: str, row: Row) -> Rows:
        """Return what each feature adds to the row's score."""
        return self._ask(_explain(name, row))

    def forget(self, name: str, key: Any) -> int:
        """Delete the row with this key (a value, or one for each key column); a worker unlearns it."""
        return self._ask(_forget(name, key))

    def receipt(self, name: str, key: Any) -> dict[str, Any] | None:
        """Return what was done about a deleted row."""
        return self._ask(_receipt(name, key))

    def evaluate(self, name: str, where: str | None = None, which: str = "all") -> dict[str, Any]:
        """Return how good the model is on the rows of its table (`mempair.evaluate`); `where` is SQL."""
        return self._ask(_evaluate(name, where, which))

    def coefficients(self, name: str) -> Rows:
        """Return the weights with their standard errors."""
        return self._ask(_all("select * from mempair.coefficients(%s)", name))

    def status(self, name: str) -> str:
        """Return calibrating, learning, ready, exhausted, retraining, paused or failed."""
        return str(self._ask(_one("select mempair.status_of(mempair.find_model(%s))", name)))

    def _ask(self, question: Question[Answer]) -> Answer:
        with translated(), self._connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            try:
                statement, values = next(question)
                while True:
                    cursor.execute(statement, values)
                    statement, values = question.send(cursor.fetchall() if cursor.description else [])
            except StopIteration as end:
                answer: Answer = end.value
                return answer

    @contextmanager
    def _connection(self) -> Generator[psycopg.Connection[Any], None, None]:
        with self._pool.connection() if self._pool is not None else connect(self.dsn) as connection:
            yield connection


class AsyncClient:
    """The same for asyncio: `async with AsyncClient(dsn) as client: await client.predict(…)`."""

    def __init__(self, dsn: str | None = None, *, connections: int = 4) -> None:
        """Use this database, or the one the environment names, or the embedded server."""
        self.dsn = server.ensure(dsn)
        self.connections = connections
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] | None = None

    async def __aenter__(self) -> AsyncClient:
        """Open the pool."""
        with connect(self.dsn):
            pool = AsyncConnectionPool(self.dsn, min_size=1, max_size=self.connections, kwargs=OPTIONS, open=False)
        await pool.open()
        self._pool = pool
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def create_model(
        self, name: str, table: str, *, target: str = "", features: Features = (), **options: Any
    ) -> None:
        """Declare a model; `options` are the parameters of ``mempair.create_model``, and two are always needed."""
        await self._ask(_create(_declared(name, table, target, features, options)))

    async def drop_model(self, name: str, *, keep_ledger: bool = False) -> None:
        """Remove a model and what it learned."""
        await self._ask(_one("select mempair.drop_model(%s, %s)", name, keep_ledger))

    async def learn(self, name: str, rows: Sequence[Row]) -> int:
        """Insert rows into the model's table, in one transaction; a worker learns them."""
        return await self._ask(_learn(name, rows))

    async def predict(self, name: str, row: Row | Sequence[float]) -> float:
        """Predict a row that need not be in the table: columns and values, or the raw numbers in the model's order."""
        return await self._ask(_predict(name, row))

    async def predict_class(self, name: str, row: Row | Sequence[float]) -> str | None:
        """Return the most probable class of a row; None is any other than the positive one, where one was named."""
        return await self._ask(_predict_class(name, row))

    async def predict_proba(self, name: str, row: Row | Sequence[float]) -> dict[str | None, float]:
        """Return the probability of each class, the most probable first."""
        return await self._ask(_predict_proba(name, row))

    async def explain(self, name: str, row: Row) -> Rows:
        """Return what each feature adds to the row's score."""
        return await self._ask(_explain(name, row))

    async def forget(self, name: str, key: Any) -> int:
        """Delete the row with this key (a value, or one for each key column); a worker unlearns it."""
        return await self._ask(_forget(name, key))

    async def receipt(self, name: str, key: Any) -> dict[str, Any] | None:
        """Return what was done about a deleted row."""
        return await self._ask(_receipt(name, key))

    async def evaluate(self, name: str, where: str | None = None, which: str = "all") -> dict[str, Any]:
        """Return how good the model is on the rows of its table (`mempair.evaluate`); `where` is SQL."""
        return await self._ask(_evaluate(name, where, which))

    async def coefficients(self, name: str) -> Rows:
        """Return the weights with their standard errors."""
        return await self._ask(_all("select * from mempair.coefficients(%s)", name))

    async def status(self, name: str) -> str:
        """Return calibrating, learning, ready, exhausted, retraining, paused or failed."""
        return str(await self._ask(_one("select mempair.status_of(mempair.find_model(%s))", name)))

    async def _ask(self, question: Question[Answer]) -> Answer:
        with translated():
            async with self._connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                try:
                    statement, values = next(question)
                    while True:
                        await cursor.execute(statement, values)
                        statement, values = question.send(await cursor.fetchall() if cursor.description else [])
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        if self._pool is not None:
            async with self._pool.connection() as connection:
                yield connection
        else:
            async with await psycopg.AsyncConnection.connect(self.dsn, **OPTIONS) as connection:
                yield connection
