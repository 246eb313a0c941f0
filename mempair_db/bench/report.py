"""What every benchmark reports: the machine, tables of rows, and goals that were met or not.

A result is a plain dict, ready for JSON:

    {"bench": name, "quick": bool, "machine": machine(), "tables": [{"title": …, "rows": [{column: value}]}],
     "goals": [goal(…)], "notes": [text]}
"""

from __future__ import annotations

import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from ..errors import ExtraMissing

Result = dict[str, Any]
Contestant = Callable[[], float]
"""Does some work and returns the seconds that one unit of it took."""

PACKAGES: Final = ("mempair_db", "numpy", "numba", "river", "scikit-learn", "psycopg", "duckdb")


def machine() -> dict[str, Any]:
    """Say where the figures come from: the processor, how busy it was, and the versions that ran."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def extra(module: str, name: str = "bench") -> ModuleType:
    """Import a package that only an extra of mempair_db brings."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissing(f"{module} is not installed.", remedy=f"pip install 'mempair_db[{name}]'") from error


def timed(units: int, work: Callable[[], object]) -> Contestant:
    """Return a contestant that does so many units of work in one go."""

    def seconds() -> float:
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) / units

    return seconds


def side_by_side(contestants: Mapping[str, Contestant], repeats: int) -> dict[str, float]:
    """Return each contestant's median of seconds, taken in turns so that a busy moment hits all of them.

    A first round, not counted, compiles and warms up.
    """
    rounds = [{name: seconds() for name, seconds in contestants.items()} for _ in range(repeats + 1)]
    return {name: statistics.median(found[name] for found in rounds[1:]) for name in contestants}


def goal(text: str, measured: float, *, least: float | None = None, most: float | None = None) -> dict[str, Any]:
    """State a goal and whether the measured figure meets it.

    >>> goal("faster than before", 3.0, least=2.0)["met"]
    True
    """
    met = (least is None or measured >= least) and (most is None or measured <= most)
    return {"goal": text, "least": least, "most": most, "measured": measured, "met": met}


def render(result: Result, console: Console) -> None:
    """Print a result for people."""
    at = result["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in at["packages"].items())
    console.print(f"{at['processor']}, {at['cores']} cores, load {at['load']}, Python {at['python']}, {packages}")
    for part in result["tables"]:
        console.print()
        console.print(table(part["rows"], part["title"]))
    for item in result["goals"]:
        mark = "[green]met[/]" if item["met"] else "[red]not met[/]"
        console.print(f"{mark}: {item['goal']}, measured {number(item['measured'])}")
    for note in result["notes"]:
        console.print(note)
    if result["quick"]:
        console.print("[yellow]A quick run: it shows that everything works, its figures mean nothing.[/]")


def table(rows: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """Return rows as a table for the terminal."""
    shown = Table(title=title or None, title_justify="left", header_style="bold", box=None)
    for column in rows[0] if rows else ():
        shown.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        shown.add_row(*map(number, row.values()))
    return shown


def number(value: Any) -> str:
    """Write a figure with three digits that mean something, anything else as it is.

    >>> number(0.00123456), number(1234.5), number(784), number("river")
    ('0.00123', '1,234', '784', 'river')
    """
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
