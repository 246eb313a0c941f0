"""Progress that a caller may show: `bars(what, total)` gives a function to call with every step forward.

A total of 0 is one that nobody knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]
Bars = Callable[[str, int], AbstractContextManager[Advance]]
EVERY: Final = 10.0  # seconds between two lines


@contextmanager
def silent(_what: str, _total: int) -> Iterator[Advance]:
    """Show nothing."""
    yield lambda _steps: None


def shown_on(console: Console, after: float = 0.0) -> Bars:
    """Show bars that disappear when they are done; only of what takes longer than `after` seconds."""

    @contextmanager
    def bars(what: str, total: int) -> Iterator[Advance]:
        title = TextColumn("{task.description}", markup=False)
        columns = (title, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress, began = Progress(*columns, console=console, transient=True), time.monotonic()
        task = progress.add_task(what, total=total or None)

        def show() -> None:
            if console.is_terminal and time.monotonic() - began >= after:
                progress.start()

        def advance(steps: int) -> None:
            progress.advance(task, steps)
            show()

        show()
        try:
            yield advance
        finally:
            if progress.live.is_started:
                progress.stop()

    return bars


def told(say: Callable[[str], None], every: float = EVERY) -> Bars:
    """Say in a line now and then how much is done, and how much time is left."""

    @contextmanager
    def bars(what: str, total: int) -> Iterator[Advance]:
        began = spoke = time.monotonic()
        done = 0

        def advance(steps: int) -> None:
            nonlocal spoke, done
            now = time.monotonic()
            done += steps
            if now - spoke < every:
                return
            spoke = now
            left = timedelta(seconds=round((now - began) * max(total - done, 0) / max(done, 1)))
            say(f"{what}: {done} of {total} rows, {left} left" if total else f"{what}: {done} rows")

        yield advance

    return bars
