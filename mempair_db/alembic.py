"""For Alembic: operations on models, and autogenerate that finds them. Import it in the project's env.py.

    op.create_mempair_model("churn", "customers", target="churned", features=["age", "plan"])
    op.alter_mempair_model("churn", {"gamma": 0.2}, existing={"gamma": 0.1})
    op.drop_mempair_model("churn")

The schema itself is a branch of the project's history when `VERSIONS` is one of its `version_locations`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from alembic.autogenerate import comparators, renderers
from alembic.autogenerate.api import AutogenContext, RevisionContext
from alembic.operations import MigrateOperation, Operations
from alembic.operations.ops import UpgradeOps
from alembic.util import CommandError, langhelpers
from sqlalchemy import text

from mempair_db.database.features import Features
from mempair_db.database.queries import query
from mempair_db.database.resources import directory
from mempair_db.sqlalchemy import ALTERABLE, KEY, AlterModel, CreateModel, Declaration, DropModel, require_schema

VERSIONS: Final = directory("migrations") / "versions"

BRANCH: Final = "mempair"
KIND: Final[Any] = "mempair_model"
"""The type of a model, for a project's `include_name`."""
# Since 1.18 what is registered like this would run before the tables are compared.
_priority = getattr(langhelpers, "DispatchPriority", None)
LAST: Final[dict[str, Any]] = {"priority": _priority.LAST} if _priority else {}
# A parameter of create_model that says what is done at creation, and leaves nothing to compare.
MOMENTARY: Final = "backfill"
# Every driver sends texts for these; a bare interval would be a timedelta to asyncpg.
SAME: Final = text(
    "select to_regclass(cast(:named as text))::text = cast(:source as text), "
    "cast(cast(:kept as text) as interval) = cast(cast(:old as text) as interval)"
)
log = logging.getLogger("alembic.autogenerate.compare.mempair")


@Operations.register_operation("create_mempair_model")
class CreateModelOp(MigrateOperation):
    """Declare a model."""

    def __init__(self, model: Declaration) -> None:
        """Declare this one."""
        self.model = model

    @classmethod
    def create_mempair_model(
        cls, operations: Operations, name: str, table: str, *, target: str, features: Features, **options: Any
    ) -> Any:
        """Declare a model on a table; `options` are the other parameters of ``mempair.create_model``."""
        return operations.invoke(cls(Declaration(name, table, target, features, options)))

    def reverse(self) -> DropModelOp:
        """Drop it."""
        return DropModelOp(self.model.name, keep_ledger=True, existing=self.model)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` and `compare_metadata` say."""
        return ("add_mempair_model", self.model.name)


@Operations.register_operation("drop_mempair_model")
class DropModelOp(MigrateOperation):
    """Remove a model and what it learned."""

    def __init__(
        self, name: str, *, keep_ledger: bool = False, if_exists: bool = False, existing: Declaration | None = None
    ) -> None:
        """Remove the model of this name; `existing` is what its reverse would declare."""
        self.name = name
        self.keep_ledger = keep_ledger
        self.if_exists = if_exists
        self.existing = existing

    @classmethod
    def drop_mempair_model(
        cls, operations: Operations, name: str, *, keep_ledger: bool = False, if_exists: bool = False
    ) -> Any:
        """Remove a model; its ledger too, unless it is kept."""
        return operations.invoke(cls(name, keep_ledger=keep_ledger, if_exists=if_exists))

    def reverse(self) -> CreateModelOp | NothingOp:
        """Declare it again: it will learn its table anew."""
        if self.existing is None:
            raise NotImplementedError(f"how model {self.name!r} was declared is not known here")
        return CreateModelOp(self.existing) if self.existing.source else NothingOp()

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` and `compare_metadata` say."""
        return ("remove_mempair_model", self.name)


class NothingOp(MigrateOperation):
    """The way back from dropping a model whose table was gone."""


@Operations.register_operation("alter_mempair_model")
class AlterModelOp(MigrateOperation):
    """Change parameters of a model."""

    def __init__(self, name: str, changes: Mapping[str, Any], existing: Mapping[str, Any] | None = None) -> None:
        """Change parameters that had the values of `existing`."""
        self.name = name
        self.changes = dict(changes)
        self.existing = dict(existing or {})

    @classmethod
    def alter_mempair_model(
        cls, operations: Operations, name: str, changes: Mapping[str, Any], *, existing: Mapping[str, Any] | None = None
    ) -> Any:
        """Change parameters of a model: those of ``mempair.alter_model``."""
        return operations.invoke(cls(name, changes, existing))

    def reverse(self) -> AlterModelOp:
        """Change them back."""
        return AlterModelOp(self.name, self.existing, self.changes)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` and `compare_metadata` say."""
        return ("modify_mempair_model", self.name, self.existing, self.changes)


@Operations.implementation_for(CreateModelOp)
def _create(operations: Operations, operation: CreateModelOp) -> None:
    if not operations.get_context().as_sql:
        require_schema(None, operations.get_bind())
    operations.execute(CreateModel(operation.model))


@Operations.implementation_for(DropModelOp)
def _drop(operations: Operations, operation: DropModelOp) -> None:
    operations.execute(DropModel(operation.name, keep_ledger=operation.keep_ledger, if_exists=operation.if_exists))


@Operations.implementation_for(AlterModelOp)
def _alter(operations: Operations, operation: AlterModelOp) -> None:
    operations.execute(AlterModel(operation.name, operation.changes))


@renderers.dispatch_for(CreateModelOp)
def _render_create(context: AutogenContext, operation: CreateModelOp) -> str:
    model = operation.model
    arguments = {"target": model.target, "features": model.features} | model.options
    return _rendered(context, "create_mempair_model", [model.name, model.source], arguments)


@renderers.dispatch_for(DropModelOp)
def _render_drop(context: AutogenContext, operation: DropModelOp) -> str:
    said = {"keep_ledger": operation.keep_ledger, "if_exists": operation.if_exists}
    named = {name: True for name, is_so in said.items() if is_so}
    return _rendered(context, "drop_mempair_model", [operation.name], named)


@renderers.dispatch_for(NothingOp)
def _render_nothing(_: AutogenContext, __: NothingOp) -> str:
    return "pass  # the model that was dropped had lost its table before"


@renderers.dispatch_for(AlterModelOp)
def _render_alter(context: AutogenContext, operation: AlterModelOp) -> str:
    return _rendered(
        context, "alter_mempair_model", [operation.name, operation.changes], {"existing": operation.existing}
    )


def _rendered(context: AutogenContext, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> str:
    context.imports.add("import mempair_db.alembic  # noqa: F401 - its operations")
    if any("timedelta" in repr(value) for value in (*positional, *named.values())):
        context.imports.add("import datetime")
    # A keyword of Python, such as lambda, can only be passed in a dictionary.
    plain = {key: value for key, value in named.items() if key != "lambda"}
    parts = [*map(repr, positional), *(f"{key}={value!r}" for key, value in plain.items())]
    if "lambda" in named:
        parts.append(f"**{ {'lambda': named['lambda']}!r}")
    return f"op.{name}({', '.join(parts)})"


@comparators.dispatch_for("schema", **LAST)
def _compare(context: AutogenContext, upgrade: UpgradeOps, _: Any) -> None:
    """Compare the models of the metadata with those of the database. Their tables exist before, and go after."""
    if context.connection is None or context.dialect is None or context.dialect.name != "postgresql":
        return
    several = context.metadata if isinstance(context.metadata, Sequence) else [context.metadata]
    declared = {model.name: model for each in several if each is not None for model in each.info.get(KEY, ())}
    existing = _existing(context, declared)
    # Who compares all schemas would otherwise drop the tables of ours, which his metadata does not know.
    upgrade.ops[:] = [each for each in upgrade.ops if getattr(each, "schema", None) != "mempair"]
    for name, model in existing.items():
        if name not in declared or not _alterable(model, declared[name]):
            log.info("Detected removed or remade model %r", name)
            # What has been forgotten stays in evidence, unless whoever reads the revision takes that out.
            gone = DropModelOp(name, keep_ledger=True, if_exists=not model.source, existing=model)
            upgrade.ops.insert(0, gone)
    for name, model in declared.items():
        known = existing.get(name)
        if known is None or not _alterable(known, model):
            log.info("Detected added or remade model %r", name)
            upgrade.ops.append(CreateModelOp(model))
            continue
        changes = {key: value for key, value in _said(model).items() if known.options.get(key) != value}
        if changes:
            log.info("Detected changed parameters of model %r: %s", name, ", ".join(changes))
            # Another unlearner brings defaults of its own: the way back says all that there was.
            undone = {*changes, *(known.options.keys() & ALTERABLE if "unlearner" in changes else ())}
            upgrade.ops.append(AlterModelOp(name, changes, {key: known.options.get(key) for key in sorted(undone)}))
    if upgrade.ops and "revision_context" in context.opts:
        _place(context.opts["revision_context"], declares=any(isinstance(each, CreateModelOp) for each in upgrade.ops))


def _place(revision: RevisionContext, *, declares: bool) -> None:
    """Keep a revision out of our folder, and behind our branch if it declares a model."""
    history, new = revision.script_directory, revision.generated_revisions[-1]
    try:
        history.get_revision(BRANCH)
    except CommandError:  # the schema is no part of the project's history
        return
    if new.version_path is None and all(BRANCH in each.branch_labels for each in history.get_revisions("heads")):
        raise CommandError(
            "The project has no revision of its own yet, so that this one would be written into mempair_db's folder. "
            "Say where it belongs: --head base --branch-label own --version-path, with a folder of version_locations."
        )
    if declares and not new.depends_on:
        new.depends_on = BRANCH


def _said(model: Declaration) -> dict[str, Any]:
    """Return the parameters that a declaration speaks of: None is the default, which the database has filled in."""
    return {key: value for key, value in model.options.items() if value is not None and key != MOMENTARY}


def _alterable(old: Declaration, new: Declaration) -> bool:
    """Whether one model becomes the other by altering parameters."""
    if (old.source, old.target, old.features) != (new.source, new.target, new.features):
        return False
    return all(old.options.get(key) == value for key, value in _said(new).items() if key not in ALTERABLE)


def _existing(context: AutogenContext, declared: Mapping[str, Declaration]) -> dict[str, Declaration]:
    """Return the models of the database, with what is the same said as the metadata says it."""
    connection = context.connection
    if connection is None or connection.execute(text("select to_regclass('mempair.model')")).scalar() is None:
        return {}
    found = {}
    for row in connection.execute(text(query("alembic_models"))).mappings():
        if not context.run_name_filters(row["name"], KIND, {}):  # the project has its own include_name
            continue
        source, options = row["source"], dict(row["parameters"])
        if row["name"] in declared:
            model = declared[row["name"]]
            kept = model.options.get("keep_receipts", options["keep_receipts"])  # '90 days', timedelta(90)
            as_text = f"{kept.total_seconds()} seconds" if isinstance(kept, timedelta) else kept
            values = {"named": model.source, "source": source, "kept": as_text, "old": options["keep_receipts"]}
            same_table, same_time = connection.execute(SAME, values).one()
            source = model.source if same_table else source  # public.customers and customers
            options["keep_receipts"] = kept if same_time else options["keep_receipts"]
            if sorted(key := model.options.get("key") or ()) == sorted(options["key"]):
                options["key"] = key
        found[row["name"]] = Declaration(row["name"], source or "", row["target"], row["features"], options)
    return found
