"""Examples that run: `python -m mempair_db.examples.retention DSN`. Each makes a table of its own, and leaves it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mempair_db.client import Client
from mempair_db.errors import UnknownModel
from mempair_db.worker.loop import Worker


def main(run: Callable[[Client], Any]) -> None:
    """Run an example in the database that the first argument names, or in the one that `Client` finds."""
    client = Client(sys.argv[1] if len(sys.argv) > 1 else None)
    client.install()
    with client:
        print(run(client))


def afresh(client: Client, *models: str) -> None:
    """Remove what an earlier run left."""
    for name in models:
        with suppress(UnknownModel):
            client.drop_model(name)


def work(client: Client) -> None:
    """Apply what waits. In production `mempair worker` does that all the time."""
    Worker(client.dsn).run_once()
