"""The SQL functions, for a Python program that has a DSN and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from mempair_db.database.connect import connect
from mempair_db.database.install import install
from mempair_db.embedded import server


class Client:
    """Declare models and ask them; one short connection per call."""

    def __init__(self, dsn: str | None = None) -> None:
        """Use this database, or the one the environment names, or the embedded server."""
        self.dsn = server.ensure(dsn)

    def install(self) -> None:
        """Install schema mempair, or bring it up to date."""
        install(self.dsn)

    def create_model(self, name: str, table: str, *, target: str, features: Sequence[str], **options: Any) -> None:
        """Declare a model; `options` are the parameters of ``mempair.create_model``."""
        values = {"model_name": name, "source": table, "target": target, "features": list(features), **options}
        if isinstance(values.get("categories"), dict):
            values["categories"] = Jsonb(values["categories"])
        arguments = sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(key), sql.Placeholder(key)) for key in values
        )
        with connect(self.dsn) as connection:
            connection.execute(sql.SQL("select mempair.create_model({})").format(arguments), values)

    def drop_model(self, name: str, *, keep_ledger: bool = False) -> None:
        """Remove a model and what it learned."""
        self._ask("select mempair.drop_model(%s, %s)", name, keep_ledger)

    def predict(self, name: str, features: Sequence[float]) -> float:
        """Predict from the raw values of the model's numeric features, in its order."""
        return float(self._ask("select mempair_predict(%s, %s::float8[])", name, list(features)))

    def status(self, name: str) -> str:
        """Return calibrating, learning, ready, exhausted, retraining, paused or failed."""
        return str(self._ask("select mempair.status_of(mempair.find_model(%s))", name))

    def receipt(self, name: str, key: str) -> dict[str, Any] | None:
        """Return what was done about a deleted row."""
        receipt: dict[str, Any] | None = self._ask("select mempair.receipt(%s, %s)", name, key)
        return receipt

    def _ask(self, statement: str, *values: Any) -> Any:
        with connect(self.dsn) as connection:
            row = connection.execute(statement, values).fetchone()
        return row[0] if row else None
