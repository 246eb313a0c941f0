"""How far something has come: a bar in a terminal, a line in a log now and then, nothing else in a pipe."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from mempair_db.offline import progress


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    yield now
    monkeypatch.undo()


def test_a_log_says_now_and_then_how_many_rows_are_done_and_how_long_it_takes(seconds: list[float]) -> None:
    lines: list[str] = []
    with progress.told(lines.append)("Reading the table of churn", 1000) as advance:
        for _ in range(10):
            seconds[0] += 6.0
            advance(100)
    assert lines == [
        "Reading the table of churn: 200 of 1000 rows, 0:00:48 left",
        "Reading the table of churn: 400 of 1000 rows, 0:00:36 left",
        "Reading the table of churn: 600 of 1000 rows, 0:00:24 left",
        "Reading the table of churn: 800 of 1000 rows, 0:00:12 left",
        "Reading the table of churn: 1000 of 1000 rows, 0:00:00 left",
    ]
    with progress.told(lines.append)("Reading", 0) as advance:
        seconds[0] += 11.0
        advance(7)
    assert lines[-1] == "Reading: 7 rows"


@pytest.mark.parametrize(("terminal", "pause", "shown"), [(True, 1.5, True), (True, 0.1, False), (False, 1.5, False)])
def test_a_bar_is_shown_in_a_terminal_if_it_takes_long(
    seconds: list[float], terminal: bool, pause: float, shown: bool
) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=100)
    with progress.shown_on(console, after=1.0)("Reading the table of [odd]", 3000) as advance:
        seconds[0] += pause
        advance(1000)
    assert ("Reading the table of [odd]" in written.getvalue()) == shown
    assert ("1000/3000" in written.getvalue()) == shown
    assert shown or written.getvalue() == ""
