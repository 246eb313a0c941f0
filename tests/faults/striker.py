"""A worker process that kills itself at a named point: striker.py DSN POINT HIT once|forever|mutant."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from mempair_db.database import faults
from mempair_db.worker import batch
from mempair_db.worker.loop import Worker


def strike(point: str, hit: int) -> Callable[[str], None]:
    left = [None] * hit

    def hook(name: str) -> None:
        if name == point:
            left.pop()
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def mutate() -> None:
    """Make the worker wrong: it commits the state first, and empties the queue in a second transaction."""
    late: list[tuple[Any, ...]] = []
    whole, move = batch.apply_batch, batch.empty_queue

    def keep(_connection: Any, *rest: Any) -> None:
        late.append(rest)

    def split(connection: Any, model_id: int) -> Any:
        outcome = whole(connection, model_id)
        faults.point("between")
        while late:
            with connection.transaction():
                move(connection, *late.pop())
        return outcome

    vars(batch).update(empty_queue=keep, apply_batch=split)


def main(dsn: str, point: str, hit: str, mode: str) -> None:
    faults.hook = strike(point, int(hit))
    if mode == "mutant":
        mutate()
    worker = Worker(dsn, idle=0.02)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    if mode == "forever":
        worker.run()
    else:
        worker.run_once()


if __name__ == "__main__":
    main(*sys.argv[1:])
