"""What is printed about a model: its name can be anything, and is shown whole."""

from __future__ import annotations

import io
import logging

from rich.console import Console

from mempair_db.cli.common import table
from mempair_db.worker.logs import Lines


def test_a_models_name_cannot_forge_a_line_of_the_log() -> None:
    record = logging.LogRecord("mempair", logging.INFO, "", 0, "failed: %s", ("a\nb",), None)
    record.model = "Ünïcödé モデル\n2026-01-01 info applied\x1b[31m"
    line = Lines().format(record)
    assert line.endswith(r"failed: a\nb model=Ünïcödé モデル\n2026-01-01 info applied\x1b[31m")


def test_a_long_name_is_whole_in_a_narrow_terminal() -> None:
    console = Console(width=30, record=True, file=io.StringIO())
    console.print(table([{"model": "q" * 40, "status": "ready", "reason": "b" * 40}]))
    assert console.export_text().count("q") == 40
