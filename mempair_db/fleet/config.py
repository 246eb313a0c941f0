"""The file that says what a fleet is.

[coordinator]
env = "FLEET_COORDINATOR"            # a variable that has the DSN; or dsn = "postgresql://…"

[[shard]]
name = "eu"
env = "FLEET_EU"

[[shard]]
name = "us"
dsn = "postgresql://mempair@us.example/shop"

[dask]
scheduler = "tcp://scheduler:8786"   # without it: a cluster of processes on this machine
workers = 2                          # how many, there
pinned = false                       # true: rows of a shard are read only by workers started with --resources "eu=1"
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from mempair_db.errors import ExtraMissing, InvalidParameter


@dataclass(frozen=True)
class Place:
    """A database: by a DSN, or by the name of a variable that has it, which is read where it is used."""

    name: str
    given: str | None = None
    env: str | None = None

    @property
    def dsn(self) -> str:
        """Where it is."""
        if self.given is not None:
            return self.given
        found = os.environ.get(self.env or "")
        if not found:
            raise InvalidParameter(
                f"{self.name} is to be found in the variable {self.env}, which is not set.",
                remedy=f"Set {self.env} to its DSN, also for Dask's workers.",
            )
        return found


@dataclass(frozen=True)
class Fleet:
    """All that the file says."""

    coordinator: Place
    shards: tuple[Place, ...]
    scheduler: str | None = None
    workers: int = 2
    pinned: bool = False

    @property
    def names(self) -> list[str]:
        """The shards' names."""
        return [shard.name for shard in self.shards]


def read(path: Path) -> Fleet:
    """Read the file, and say what is wrong with it."""
    parser = _parser()
    try:
        values = parser.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidParameter(
            f"There is no file {path}.", remedy="Write one ([coordinator], [[shard]], [dask]), or name it with --fleet."
        ) from error
    except (parser.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidParameter(f"{path} is not TOML: {error}.") from error
    return parse(values, str(path))


def parse(values: Mapping[str, Any], path: str = "the fleet's file") -> Fleet:
    """Make a fleet of what the file says."""
    _known(values, {"coordinator", "shard", "dask"}, path)
    shards = values.get("shard", [])
    if not isinstance(shards, list) or not shards:
        raise InvalidParameter(f"{path} has no shard.", remedy="Add a [[shard]] with name, and dsn or env, for each.")
    places = tuple(_place(shard, f"shard {i + 1} of {path}") for i, shard in enumerate(shards))
    names = [place.name for place in places]
    for name in {name for name in names if names.count(name) > 1}:
        raise InvalidParameter(f"{path} has two shards with the name {name}.", remedy="Give each its own.")
    if "coordinator" not in values:
        raise InvalidParameter(
            f"{path} has no [coordinator].", remedy="A shard's database can be it, or one of its own."
        )
    dask = values.get("dask", {})
    _known(dask, {"scheduler", "workers", "pinned"}, f"[dask] of {path}")
    coordinator = _place({"name": "coordinator", **values["coordinator"]}, f"[coordinator] of {path}")
    return Fleet(coordinator, places, **{name: dask[name] for name in dask})


def _place(values: Mapping[str, Any], where: str) -> Place:
    _known(values, {"name", "dsn", "env"}, where)
    name = values.get("name")
    if not isinstance(name, str) or not name or not name.isidentifier():
        raise InvalidParameter(f"{where} has no name made of letters, digits and underscores, but {name!r}.")
    if ("dsn" in values) == ("env" in values):
        raise InvalidParameter(f"{where} needs dsn or env, one of the two.")
    return Place(name, values.get("dsn"), values.get("env"))


def _known(values: Mapping[str, Any], names: set[str], where: str) -> None:
    for name in sorted(set(values) - names):
        raise InvalidParameter(
            f"{where} has {name}, which means nothing.", remedy=f"Known: {', '.join(sorted(names))}."
        )


def _parser() -> Any:
    try:
        return import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise ExtraMissing("tomli.", remedy="pip install 'mempair_db[fleet]'") from error
