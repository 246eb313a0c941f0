"""Install the schema on all databases of a fleet, and declare models on all shards."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from psycopg import sql
from psycopg.types.json import Jsonb

from mempair_db.database import revision
from mempair_db.database.connect import connect, translated
from mempair_db.database.install import install
from mempair_db.database.queries import query
from mempair_db.errors import InvalidParameter
from mempair_db.fleet.compute import named, opened, reached
from mempair_db.fleet.config import Fleet, Place
from mempair_db.fleet.coordinator import coordinator

UNCHANGED: Final = dict.fromkeys(
    (
        *("epsilon", "delta", "lambda", "m", "unlearner", "on_exhausted", "ridge", "curves", "on_null", "gamma"),
        *("serve_during_refresh", "calibration_rows", "keep_receipts"),
    )
)


def init(fleet: Fleet) -> list[dict[str, Any]]:
    """Install or upgrade everywhere; return what every database now has."""
    lines = []
    for place in (fleet.coordinator, *fleet.shards):
        with reached(place):
            install(place.dsn)
        with connect(place.dsn, checked=False) as connection:
            found = revision.installed(connection)
            version = connection.info.server_version
        have = found.revision if found else ""
        lines.append({"database": place.name, "schema": have, "postgres": f"{version // 10000}.{version % 10000}"})
    return lines


def create(fleet: Fleet, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """Declare a model on every shard that does not have it yet, and at the coordinator; return the new shards.

    What `parameters` leave out is as create_model has it. Rows that are there are read when the fleet has chosen its
    constants, not before.
    """
    if parameters.get("unlearner") not in (None, "exact"):
        raise InvalidParameter("A fleet's models are exact: noise does not add up.", remedy="Leave --unlearner out.")
    given = dict(parameters) | {"model_name": name, "unlearner": "exact", "backfill": False}
    with coordinator(fleet) as known:
        declared = known.declared(name)
        new = []
        for place in fleet.shards:
            is_new, declared = _declare(place, name, given, declared)
            new += [place.name] if is_new else []
        known.declare(name, declared or {}, fleet.names)
    return new


def _declare(
    place: Place, name: str, given: Mapping[str, Any], expected: dict[str, Any] | None
) -> tuple[bool, dict[str, Any]]:
    """Declare a model on one shard, in one transaction; return whether it is new, and what it is."""
    with named(place), opened(place, autocommit=False) as connection:
        row = connection.execute(query("fleet_find"), {"name": name}).fetchone()
        if row is not None and row[1] != place.name:
            is_of = f"of the fleet's shard {row[1]}" if row[1] else "of its own, of no fleet"
            raise InvalidParameter(
                f"Shard {place.name} has a model {name!r} already, one {is_of}.", remedy="Choose another name."
            )
        if row is None:
            arguments = sql.SQL(", ").join(
                sql.SQL("{} => {}").format(sql.Identifier(key), sql.Placeholder(key)) for key in given
            )
            created: Any = connection.execute(
                sql.SQL("select mempair.create_model({})").format(arguments), given
            ).fetchone()
            connection.execute(query("fleet_join"), {"model": created[0], "shard": place.name})
        declared: Any = connection.execute(query("fleet_declared"), {"name": name}).fetchone()
        _refuse(place, declared[0], expected)  # nothing stays of what is refused
        return row is None, declared[0]


def _refuse(place: Place, declared: dict[str, Any], expected: dict[str, Any] | None) -> None:
    """Refuse what is not the same on all shards."""
    other = [key for key in declared if expected is not None and declared[key] != expected.get(key)]
    if other and expected is not None:
        said = "; ".join(f"{key} is {declared[key]}, elsewhere {expected.get(key)}" for key in other)
        raise InvalidParameter(
            f"On shard {place.name} the model would be another one than on the others: {said}.",
            remedy="Give the same parameters and the same columns; `mempair fleet model drop` begins anew.",
        )


def alter(fleet: Fleet, name: str, changes: Mapping[str, Any]) -> bool:
    """Change a model on every shard, or on none; True if the fleet is to be refreshed for it.

    Every shard has changed before any commits. Killed between two commits, some shards have: no refresh begins until
    the same command was given again.
    """
    with coordinator(fleet) as known, known.alone(name):
        model = known.model(name)
        declared: Any = None
        with ExitStack() as shards:
            for place in fleet.shards:
                connection = shards.enter_context(opened(place, autocommit=False))
                with named(place), translated():
                    connection.execute(query("fleet_alters"))
                    connection.execute(query("cli_alter_model"), {**UNCHANGED, **changes, "model_name": name})
                row: Any = connection.execute(query("fleet_declared"), {"name": name}).fetchone()
                _refuse(place, row[0], declared)
                declared = row[0]
        known.do("fleet_altered", name=name, declared=Jsonb(declared), why=f"altered: {_changed(changes)}")
        return declared != model.declared and model.generation > 0


def _changed(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in changes.items() if value is not None)


def drop(fleet: Fleet, name: str) -> None:
    """Drop a model on every shard, and at the coordinator."""
    for place in fleet.shards:
        with opened(place, autocommit=False) as connection:
            if connection.execute(query("fleet_find"), {"name": name}).fetchone() is not None:
                connection.execute(query("cli_drop_model"), {"name": name, "keep": False})
    with coordinator(fleet) as known:
        known.do("fleet_forget", name=name)
