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
from typing import Any, Final

from mempair_db.errors import ExtraMissing, InvalidParameter

COORDINATOR: Final = "coordinator"


@dataclass(frozen=True)
class Place:
    """A database: by a DSN, or by the name of a variable that has it, which is read where it is used."""

    name: str
    given: str | None = None
    env: str | None = None

    @property
    def called(self) -> str:
        """What messages call it."""
        return f"shard {self.name}" if self.name != COORDINATOR else "the coordinator"

    @property
    def dsn(self) -> str:
        """Where it is."""
        if self.given is not None:
            return self.given
        found = os.environ.get(self.env or "")
        if not found:
            raise InvalidParameter(
                f"The DSN of {self.called} is to be found in the variable {self.env}, which is not set.",
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
    if COORDINATOR not in values:
        raise InvalidParameter(
            f"{path} has no [coordinator].", remedy="A shard's database can be it, or one of its own."
        )
    given = _known(values[COORDINATOR], {"dsn", "env"}, f"[coordinator] of {path}")
    dask = _known(values.get("dask", {}), set(DASK), f"[dask] of {path}")
    for name, value in dask.items():
        if type(value) is not DASK[name] or value in (0, ""):
            raise InvalidParameter(f"[dask] of {path} has {name} = {value!r}.", remedy=f"Give {SAID[DASK[name]]}.")
    return Fleet(_place({"name": COORDINATOR, **given}, f"[coordinator] of {path}"), places, **dask)


DASK: Final[dict[str, type]] = {"scheduler": str, "workers": int, "pinned": bool}
SAID: Final = {str: "an address, such as tcp://scheduler:8786", int: "a number above 0", bool: "true or false"}


def _place(values: Any, where: str) -> Place:
    _known(values, {"name", "dsn", "env"}, where)
    name = values.get("name")
    if not isinstance(name, str) or not name or not name.isidentifier():
        found = f", but {name!r}" if name else ""
        raise InvalidParameter(
            f"{where} has no name made of letters, digits and underscores{found}.", remedy='Add name = "eu".'
        )
    if ("dsn" in values) == ("env" in values):
        raise InvalidParameter(
            f"{where} needs dsn or env, one of the two.",
            remedy='Add dsn = "postgresql://…", or env = "NAME" of a variable that has it.',
        )
    for key in {"dsn", "env"} & set(values):
        if not isinstance(values[key], str) or not values[key]:
            raise InvalidParameter(f"{where} has a {key} that is no text.", remedy="Put it into quotation marks.")
    return Place(name, values.get("dsn"), values.get("env"))


def _known(values: Any, names: set[str], where: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise InvalidParameter(f"{where} is no table.", remedy="Write [coordinator], [[shard]] and [dask].")
    for name in sorted(set(values) - names):
        raise InvalidParameter(
            f"{where} has {name}, which means nothing.", remedy=f"Known: {', '.join(sorted(names))}."
        )
    return dict(values)


def _parser() -> Any:
    try:
        return import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise ExtraMissing("tomli.", remedy="pip install 'mempair_db[fleet]'") from error
