"""Progress that a caller may show: `bars(what, total)` gives a function to call with every step forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]
Bars = Callable[[str, int], AbstractContextManager[Advance]]


@contextmanager
def silent(_what: str, _total: int) -> Iterator[Advance]:
    """Show nothing."""
    yield lambda _steps: None


def shown_on(console: Console) -> Bars:
    """Show bars that disappear when they are done."""

    @contextmanager
    def bars(what: str, total: int) -> Iterator[Advance]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(what, total=total)
            yield lambda steps: progress.advance(task, steps)

    return bars
