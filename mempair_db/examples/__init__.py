"""Examples that run: `python -m mempair_db.examples.retention DSN`. Each makes a table of its own, and leaves it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import psycopg

from mempair_db.client import Client
from mempair_db.errors import UnknownModel
from mempair_db.worker.loop import Worker

WAITS: Final = """
select exists (select from mempair.model_status
               where model like 'example%' and (pending_changes > 0 or retrain_requested is not null))
"""


def main(run: Callable[[Client], dict[str, Any]]) -> None:
    """Run an example in the database that the first argument names, or in the one that `Client` finds."""
    client = Client(sys.argv[1] if len(sys.argv) > 1 else None)
    client.install()
    with client:
        for name, found in run(client).items():
            print(f"{name}: {found}")


def afresh(client: Client, *models: str) -> None:
    """Remove what an earlier run left."""
    for name in models:
        with suppress(UnknownModel):
            client.drop_model(name)


def work(client: Client) -> None:
    """Apply what waits, or see another worker do it. In production `mempair worker` does that all the time."""
    with psycopg.connect(client.dsn, autocommit=True) as session:
        while not Worker(client.dsn).run_once() and session.execute(WAITS).fetchone() == (True,):
            time.sleep(0.1)
