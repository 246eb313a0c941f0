"""The SQL files and which version they are. They are inside the package in a wheel, at the root in a checkout."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mempair_db import __version__

PACKAGE = Path(__file__).resolve().parent.parent


class Stamp(NamedTuple):
    """Which schema this code, or a database, has: the newest migration, the release, and a digest of all functions."""

    revision: str
    release: str
    functions: str

    def __str__(self) -> str:
        """As it is written in the database, where every role can read it: the comment on mempair.alembic_version."""
        return " ".join(self)


@cache
def stamp() -> Stamp:
    """Return the version of the schema that this code needs."""
    listing = "\n".join(f"{file.name} {digest(file)}" for file in sql_files())
    return Stamp(revision_of(revisions()[-1]), __version__, hashlib.sha256(listing.encode()).hexdigest())


def directory(name: str) -> Path:
    """Return the folder `sql` or `migrations`."""
    packaged = PACKAGE / name
    return packaged if packaged.is_dir() else PACKAGE.parent / name


def sql_files() -> list[Path]:
    """Return the files that define functions and views, in the order in which they are applied."""
    return sorted(directory("sql").glob("*.sql"))


def digest(file: Path) -> str:
    """Return what tells one version of a file from another."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def revisions() -> list[Path]:
    """Return the migrations, oldest first. Each has its SQL beside it; a file without is not ours."""
    scripts = (directory("migrations") / "versions").glob("[0-9]*.py")
    return sorted(script for script in scripts if script.with_suffix(".sql").exists())


def revision_of(script: Path) -> str:
    """Return the identifier of a migration: in a user's history there are not only ours."""
    return f"mempair_{script.name[:4]}"
