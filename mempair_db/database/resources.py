"""Where the SQL files are: inside the package in a wheel, at the repository's root in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def directory(name: str) -> Path:
    """Return the folder `sql` or `migrations`."""
    packaged = PACKAGE / name
    return packaged if packaged.is_dir() else PACKAGE.parent / name


def sql_files() -> list[Path]:
    """Return the files that define functions and views, in the order in which they are applied."""
    return sorted(directory("sql").glob("*.sql"))
