"""Install the schema on all databases of a fleet, and declare models on all shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mempair_db.database import revision
from mempair_db.database.connect import connect
from mempair_db.database.install import install
from mempair_db.database.queries import query
from mempair_db.errors import InvalidParameter
from mempair_db.fleet.compute import opened
from mempair_db.fleet.config import Fleet, Place
from mempair_db.fleet.coordinator import coordinator


def init(fleet: Fleet) -> list[dict[str, Any]]:
    """Install or upgrade everywhere; return what every database now has."""
    lines = []
    for place in (fleet.coordinator, *fleet.shards):
        install(place.dsn)
        with connect(place.dsn, checked=False) as connection:
            found = revision.installed(connection)
            version = connection.info.server_version
        have = found.revision if found else ""
        lines.append({"database": place.name, "schema": have, "postgres": f"{version // 10000}.{version % 10000}"})
    return lines


def create(fleet: Fleet, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """Declare a model on every shard that does not have it yet, and at the coordinator; return the new shards.

    Rows that are there are read when the fleet has chosen its constants, not before.
    """
    if parameters.get("unlearner") not in (None, "exact"):
        raise InvalidParameter("A fleet's models are exact: noise does not add up.", remedy="Leave --unlearner out.")
    declared = dict(parameters) | {"model_name": name, "unlearner": "exact", "backfill": False}
    new = [place.name for place in fleet.shards if _declare(place, name, declared)]
    with coordinator(fleet) as known:
        known.declare(name, declared, fleet.names)
    return new


def _declare(place: Place, name: str, declared: Mapping[str, Any]) -> bool:
    """Declare a model on one shard, in one transaction; False if it is there already."""
    with opened(place, autocommit=False) as connection:
        row = connection.execute(query("fleet_find"), {"name": name}).fetchone()
        if row is not None:
            if row[1] != place.name:
                is_of = f"of the fleet's shard {row[1]}" if row[1] else "of its own, of no fleet"
                raise InvalidParameter(
                    f"Shard {place.name} has a model {name!r} already, one {is_of}.", remedy="Choose another name."
                )
            return False
        created: Any = connection.execute(query("cli_create_model"), declared).fetchone()
        connection.execute(query("fleet_join"), {"model": created[0], "shard": place.name})
    return True


def drop(fleet: Fleet, name: str) -> None:
    """Drop a model on every shard, and at the coordinator."""
    for place in fleet.shards:
        with opened(place, autocommit=False) as connection:
            if connection.execute(query("fleet_find"), {"name": name}).fetchone() is not None:
                connection.execute(query("cli_drop_model"), {"name": name, "keep": False})
    with coordinator(fleet) as known:
        known.do("fleet_forget", name=name)
