"""The SQL functions, for a Python program that has a DSN and nothing else: `Client`, and `AsyncClient` for asyncio.

    with Client(dsn) as client:                      # a pool of connections, for as long as the block lasts
        client.create_model("churn", "customers", target="churned", features=["age", "plan"])
        client.learn("churn", [{"id": 1, "age": 42, "plan": "pro", "churned": False}])
        client.predict("churn", {"age": 42, "plan": "pro"})
        client.predict_proba("kind", {"length": 3})  # of a model of several classes: {"rose": 0.9, "iris": 0.1}
        client.forget("churn", 1)
        client.receipt("churn", 1)                   # once a worker has applied it

Without the block every call opens a connection of its own. What the server remarks (of what kind a new model is, which
column is missing, why there is no receipt) goes to the log `mempair.client`, warnings as such; `create_model` and
`alter_model` return it too. Both classes ask the same questions, which are written once (`questions`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from mempair_db.client import questions
from mempair_db.client.questions import Answer, Question, Remark, Remarks, Row, Rows
from mempair_db.database.connect import connect, translated
from mempair_db.database.features import Features
from mempair_db.database.install import install
from mempair_db.embedded import server

OPTIONS: dict[str, Any] = {"application_name": "mempair client", "client_encoding": "UTF8"}


class Client:
    """Declare models and ask them. As a context manager it keeps up to `connections` open."""

    def __init__(self, dsn: str | None = None, *, connections: int = 4) -> None:
        """Use this database, or the one the environment names, or the embedded server."""
        self.dsn = server.ensure(dsn)
        self.connections = connections
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None

    def __enter__(self) -> Client:
        """Open the pool."""
        with connect(self.dsn) as first:  # asked once: whether the schema fits this code, whether this is a pooler
            options = OPTIONS | {"prepare_threshold": first.prepare_threshold}
        self._pool = ConnectionPool(self.dsn, min_size=1, max_size=self.connections, kwargs=options, open=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def install(self) -> None:
        """Install schema mempair, or bring it up to date."""
        install(self.dsn)

    def create_model(
        self, name: str, table: str, *, target: str = "", features: Features = (), **options: Any
    ) -> list[Remark]:
        """Declare a model; `options` are the parameters of ``mempair.create_model``, and two are always needed.

        Return what the server says of it: what it will predict and why, its features, the rows that wait, what is odd.
        """
        remarks = Remarks()
        self._ask(questions.create(questions.declared(name, table, target, features, options)), remarks)
        return remarks

    def alter_model(self, name: str, **options: Any) -> list[Remark]:
        """Change parameters of a model (``mempair.alter_model``), which serves meanwhile; return what is said of it."""
        remarks = Remarks()
        self._ask(questions.alter({"model_name": name, **options}), remarks)
        return remarks

    def drop_model(self, name: str, *, keep_ledger: bool = False) -> None:
        """Remove a model and what it learned."""
        self._ask(questions.one("select mempair.drop_model(%s, %s)", name, keep_ledger))

    def learn(self, name: str, rows: Sequence[Row]) -> int:
        """Insert rows into the model's table, in one transaction; a worker learns them."""
        return self._ask(questions.learn(name, rows))

    def predict(self, name: str, row: Row | Sequence[float]) -> float:
        """Predict a row that need not be in the table: columns and values, or the raw numbers in the model's order."""
        return self._ask(questions.predict(name, row))

    def predict_class(self, name: str, row: Row | Sequence[float]) -> str | None:
        """Return the most probable class of a row; None is any other than the positive one, where one was named."""
        return self._ask(questions.predict_class(name, row))

    def predict_proba(self, name: str, row: Row | Sequence[float]) -> dict[str | None, float]:
        """Return the probability of each class, the most probable first."""
        return self._ask(questions.predict_proba(name, row))

    def explain(self, name: str, row: Row) -> Rows:
        """Return what each feature adds to the row's score."""
        return self._ask(questions.explain(name, row))

    def forget(self, name: str, key: Any) -> int:
        """Delete the row with this key (a value, or one for each key column); a worker unlearns it."""
        return self._ask(questions.forget(name, key))

    def receipt(self, name: str, key: Any) -> dict[str, Any] | None:
        """Return what was done about a deleted row."""
        return self._ask(questions.receipt(name, key))

    def evaluate(self, name: str, where: str | None = None, which: str = "all") -> dict[str, Any]:
        """Return how good the model is on the rows of its table (`mempair.evaluate`); `where` is SQL."""
        return self._ask(questions.evaluate(name, where, which))

    def coefficients(self, name: str) -> Rows:
        """Return the weights with their standard errors."""
        return self._ask(questions.several("select * from mempair.coefficients(%s)", name))

    def status(self, name: str) -> str:
        """Return calibrating, learning, ready, exhausted, retraining, paused or failed."""
        return str(self._ask(questions.one("select mempair.status_of(mempair.find_model(%s))", name)))

    def _ask(self, question: Question[Answer], remarks: Remarks | None = None) -> Answer:
        hear = Remarks() if remarks is None else remarks
        with translated(), self._connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            connection.add_notice_handler(hear)
            try:
                statement, values = next(question)
                while True:
                    cursor.execute(statement, values)
                    statement, values = question.send(cursor.fetchall() if cursor.description else [])
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            finally:
                connection.remove_notice_handler(hear)

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
        with connect(self.dsn) as first:
            options = OPTIONS | {"prepare_threshold": first.prepare_threshold}
        pool = AsyncConnectionPool(self.dsn, min_size=1, max_size=self.connections, kwargs=options, open=False)
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
    ) -> list[Remark]:
        """Declare a model; `options` are the parameters of ``mempair.create_model``, and two are always needed.

        Return what the server says of it: what it will predict and why, its features, the rows that wait, what is odd.
        """
        remarks = Remarks()
        await self._ask(questions.create(questions.declared(name, table, target, features, options)), remarks)
        return remarks

    async def alter_model(self, name: str, **options: Any) -> list[Remark]:
        """Change parameters of a model (``mempair.alter_model``), which serves meanwhile; return what is said of it."""
        remarks = Remarks()
        await self._ask(questions.alter({"model_name": name, **options}), remarks)
        return remarks

    async def drop_model(self, name: str, *, keep_ledger: bool = False) -> None:
        """Remove a model and what it learned."""
        await self._ask(questions.one("select mempair.drop_model(%s, %s)", name, keep_ledger))

    async def learn(self, name: str, rows: Sequence[Row]) -> int:
        """Insert rows into the model's table, in one transaction; a worker learns them."""
        return await self._ask(questions.learn(name, rows))

    async def predict(self, name: str, row: Row | Sequence[float]) -> float:
        """Predict a row that need not be in the table: columns and values, or the raw numbers in the model's order."""
        return await self._ask(questions.predict(name, row))

    async def predict_class(self, name: str, row: Row | Sequence[float]) -> str | None:
        """Return the most probable class of a row; None is any other than the positive one, where one was named."""
        return await self._ask(questions.predict_class(name, row))

    async def predict_proba(self, name: str, row: Row | Sequence[float]) -> dict[str | None, float]:
        """Return the probability of each class, the most probable first."""
        return await self._ask(questions.predict_proba(name, row))

    async def explain(self, name: str, row: Row) -> Rows:
        """Return what each feature adds to the row's score."""
        return await self._ask(questions.explain(name, row))

    async def forget(self, name: str, key: Any) -> int:
        """Delete the row with this key (a value, or one for each key column); a worker unlearns it."""
        return await self._ask(questions.forget(name, key))

    async def receipt(self, name: str, key: Any) -> dict[str, Any] | None:
        """Return what was done about a deleted row."""
        return await self._ask(questions.receipt(name, key))

    async def evaluate(self, name: str, where: str | None = None, which: str = "all") -> dict[str, Any]:
        """Return how good the model is on the rows of its table (`mempair.evaluate`); `where` is SQL."""
        return await self._ask(questions.evaluate(name, where, which))

    async def coefficients(self, name: str) -> Rows:
        """Return the weights with their standard errors."""
        return await self._ask(questions.several("select * from mempair.coefficients(%s)", name))

    async def status(self, name: str) -> str:
        """Return calibrating, learning, ready, exhausted, retraining, paused or failed."""
        return str(await self._ask(questions.one("select mempair.status_of(mempair.find_model(%s))", name)))

    async def _ask(self, question: Question[Answer], remarks: Remarks | None = None) -> Answer:
        hear = Remarks() if remarks is None else remarks
        with translated():
            async with self._connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                connection.add_notice_handler(hear)
                try:
                    statement, values = next(question)
                    while True:
                        await cursor.execute(statement, values)
                        statement, values = question.send(await cursor.fetchall() if cursor.description else [])
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer
                finally:
                    connection.remove_notice_handler(hear)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        if self._pool is not None:
            async with self._pool.connection() as connection:
                yield connection
        else:
            async with await psycopg.AsyncConnection.connect(self.dsn, **OPTIONS) as connection:
                yield connection
