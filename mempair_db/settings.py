"""Where things come from: the folder of our own files, and the database to talk to.

Pure functions of their arguments and the environment; nothing here touches a disk or a network.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

# The variables that name a server, a database or a user. The others (PGSSLMODE, PGPASSFILE, PGTZ, ...)
# only say how to connect: on their own they must not keep the embedded server from being used.
LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE")

# Postgres refuses to run as root, and root's data directory lies where no other account may enter.
ROOT_HOME = Path("/var/lib/mempair")


def is_root() -> bool:
    """Whether this process is root, so that the embedded server must run as someone else."""
    return os.name == "posix" and os.geteuid() == 0


def home() -> Path:
    """The folder of the embedded server: `MEMPAIR_HOME`, else the platform's user data directory.

    For root it is `/var/lib/mempair`: the embedded server then runs as an unprivileged account,
    which cannot enter root's own data directory.
    """
    if chosen := os.environ.get("MEMPAIR_HOME"):
        return Path(chosen).expanduser()
    if is_root():
        return ROOT_HOME
    return platformdirs.user_data_path("mempair", appauthor=False)


def dsn(option: str | None = None) -> str | None:
    """The database to use: `option`, else `MEMPAIR_DSN`, else libpq's own variables, else None.

    An empty string leaves everything to libpq; None means that nothing was chosen: use the embedded server.
    """
    if option is not None:
        return option
    if chosen := os.environ.get("MEMPAIR_DSN"):
        return chosen
    if any(os.environ.get(variable) for variable in LIBPQ_VARIABLES):
        return ""
    return None
