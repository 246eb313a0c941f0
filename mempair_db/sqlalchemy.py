"""For SQLAlchemy: models that are declared beside a mapped class, and typed functions to ask them.

    class Customer(Base): ...

    MemoryPairModel("churn", Customer, target=Customer.churned, features=[Customer.age, Customer.plan])
    select(Customer.id, predict("churn", Customer))

`metadata.create_all` declares the model with its table, `drop_all` drops it; with Alembic, see `mempair_db.alembic`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Connection, Double, String, Table, event, inspect, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql import quoted_name
from sqlalchemy.sql.compiler import DDLCompiler
from sqlalchemy.sql.elements import TableValuedColumn
from sqlalchemy.sql.functions import GenericFunction

from mempair_db.database.features import Features, feature_list
from mempair_db.errors import NotInstalled, refuse_unknown

KEY: Final = "mempair_models"
"""Where models are kept: `MetaData.info`."""
COLUMNS: Final = frozenset(("key", "subject", "weight"))
"""Options that name columns."""
ALTERABLE: Final = (
    *("calibration_rows", "curves", "delta", "epsilon", "gamma", "keep_receipts", "lambda", "m"),
    *("on_exhausted", "on_null", "ridge", "serve_during_refresh", "unlearner"),
)
OPTIONS: Final = (
    *ALTERABLE,
    *("backfill", "categories", "class_weight", "clip", "kappa", "key", "loss", "positive", "subject", "tau", "weight"),
)
"""What may be given beside target and features."""


class mempair_predict(GenericFunction[float]):  # noqa: N801 - the name in SQL
    """``func.mempair_predict(name, row)``: the prediction for a row of the model's table, or an array of numbers."""

    type = Double()
    inherit_cache = True


class mempair_try_predict(GenericFunction[float]):  # noqa: N801
    """The same, but NULL where there is no prediction."""

    type = Double()
    inherit_cache = True


class mempair_predict_class(GenericFunction[str]):  # noqa: N801
    """``func.mempair_predict_class(name, row)``: the likeliest class."""

    type = String()
    inherit_cache = True


class predict_proba(GenericFunction[float]):  # noqa: N801
    """``func.mempair.predict_proba(name, row)``: the probability; an error for a model that has none."""

    type = Double()
    package = "mempair"
    identifier = "predict_proba"
    name = quoted_name("mempair.predict_proba", quote=False)
    inherit_cache = True


def row(entity: Any) -> TableValuedColumn[Any]:
    """Return the whole row of a mapped class, an alias of one, or a table."""
    selectable = inspect(entity).selectable
    valued: TableValuedColumn[Any] = selectable.table_valued()
    return valued


def predict(name: str, entity: Any) -> mempair_predict:
    """Return what the model predicts for each row of a mapped class."""
    return mempair_predict(name, row(entity))


def try_predict(name: str, entity: Any) -> mempair_try_predict:
    """Return the same, but NULL where there is no prediction."""
    return mempair_try_predict(name, row(entity))


def predict_class(name: str, entity: Any) -> mempair_predict_class:
    """Return the likeliest class of each row of a mapped class."""
    return mempair_predict_class(name, row(entity))


class Declaration:
    """A model as it is declared: what ``mempair.create_model`` is called with."""

    def __init__(
        self, name: str, source: str, target: str, features: Features, options: Mapping[str, Any] | None = None
    ) -> None:
        """Name a model of the table `source`, schema and name as SQL has them."""
        self.name = name
        self.source = source
        self.target = target
        self.features = feature_list(features)
        self.options = dict(options or {})
        refuse_unknown("create_model has no parameter", self.options, OPTIONS)
        positive = self.options.get("positive")
        if positive is not None:  # a value of the target, which the function takes as a text
            self.options["positive"] = str(positive).lower() if isinstance(positive, bool) else str(positive)


class MemoryPairModel(Declaration):
    """A model on the table of a mapped class; `options` are the other parameters of ``mempair.create_model``."""

    def __init__(self, name: str, table: Any, *, target: Any, features: Features, **options: Any) -> None:
        """Attach a model to a mapped class or a table; columns are given as attributes, columns or names."""
        found = table if isinstance(table, Table) else inspect(table).local_table
        for option in COLUMNS:
            if (given := options.get(option)) is not None:
                several = isinstance(given, list | tuple)
                options[option] = [_column(each) for each in given] if several else _column(given)
        if isinstance(features, Mapping):
            features = {_column(each): how for each, how in features.items()}
        listed = [_column(each) for each in feature_list(features)]
        super().__init__(name, qualified(found), _column(target), listed, options)
        found.metadata.info.setdefault(KEY, []).append(self)
        event.listen(found, "before_create", require_schema)
        event.listen(found, "after_create", CreateModel(self).execute_if(dialect="postgresql"))
        dropped = DropModel(name, if_exists=True)  # the table may have been there before its model was declared
        event.listen(found, "before_drop", dropped.execute_if(dialect="postgresql"))


class CreateModel(ExecutableDDLElement):
    """``select mempair.create_model(...)``."""

    def __init__(self, model: Declaration) -> None:
        """Create this model."""
        self.model = model


class AlterModel(ExecutableDDLElement):
    """``select mempair.alter_model(...)``."""

    def __init__(self, name: str, changes: Mapping[str, Any]) -> None:
        """Change these parameters."""
        refuse_unknown("alter_model has no parameter", changes, ALTERABLE)
        self.name = name
        self.changes = dict(changes)


class DropModel(ExecutableDDLElement):
    """``select mempair.drop_model(...)``."""

    def __init__(self, name: str, *, keep_ledger: bool = False, if_exists: bool = False) -> None:
        """Drop this model."""
        self.name = name
        self.keep_ledger = keep_ledger
        self.if_exists = if_exists


@compiles(CreateModel, "postgresql")
def _create(element: CreateModel, compiler: DDLCompiler, **_: Any) -> str:
    model = element.model
    fixed = {"model_name": model.name, "source": model.source, "target": model.target, "features": model.features}
    return _call(compiler, "create_model", fixed | model.options)


@compiles(AlterModel, "postgresql")
def _alter(element: AlterModel, compiler: DDLCompiler, **_: Any) -> str:
    return _call(compiler, "alter_model", {"model_name": element.name} | element.changes)


@compiles(DropModel, "postgresql")
def _drop(element: DropModel, compiler: DDLCompiler, **_: Any) -> str:
    dropped = _call(compiler, "drop_model", {"model_name": element.name, "keep_ledger": element.keep_ledger})
    if element.if_exists:
        dropped += f" WHERE EXISTS (SELECT FROM mempair.model WHERE name = {_literal(compiler, element.name)})"
    return dropped


def _call(compiler: DDLCompiler, function: str, arguments: Mapping[str, Any]) -> str:
    """Return the call with literals, which offline mode needs."""
    quote = compiler.preparer.quote
    listed = ", ".join(f"{quote(name)} => {_literal(compiler, value)}" for name, value in arguments.items())
    return f"SELECT mempair.{function}({listed})"


def _literal(compiler: DDLCompiler, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, timedelta):
        return f"make_interval(secs => {value.total_seconds()!r})"
    if isinstance(value, Mapping):
        return _literal(compiler, json.dumps(value, ensure_ascii=False)) + "::jsonb"
    if isinstance(value, list | tuple):
        return f"ARRAY[{', '.join(_literal(compiler, each) for each in value)}]::text[]"
    return str(compiler.sql_compiler.render_literal_value(str(value), String()))


def require_schema(_: Any, connection: Any, **__: Any) -> None:
    """Refuse to declare a model where our schema is not; a connection that only prints is not asked."""
    if not isinstance(connection, Connection) or connection.dialect.name != "postgresql":
        return
    if connection.execute(text("select pg_catalog.to_regnamespace('mempair')")).scalar() is None:
        raise NotInstalled(
            remedy="Run `mempair install`, or let the project's Alembic history bring it: sql/README.md."
        )


def qualified(table: Table) -> str:
    """Return a table's name as SQL would have it, quoted where need be."""
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415

    plain = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]  # a "%" is doubled for others
    return str(plain.identifier_preparer.format_table(table))


def _column(given: Any) -> str:
    """Return the name of a column: an attribute's may differ from its key."""
    if isinstance(given, str):
        return given
    expression = given.__clause_element__() if hasattr(given, "__clause_element__") else given
    return str(expression.name)
