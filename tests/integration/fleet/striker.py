"""An exchange or a refresh that kills its process at a point: striker.py FLEET.toml POINT exchange|refresh."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from mempair_db.database import faults
from mempair_db.fleet import config
from mempair_db.fleet.exchange import exchanging
from mempair_db.fleet.refresh import refresh_fleet


def main(file: str, point: str, what: str) -> None:
    def strike(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.hook = strike
    dask: Any = import_module("distributed")
    with (
        dask.Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0") as client,
        exchanging(config.read(Path(file)), client) as ready,
    ):
        if what == "refresh":
            refresh_fleet(ready.computing, ready.known, "churn", "test")
        ready.once("churn")


if __name__ == "__main__":
    main(*sys.argv[1:])
