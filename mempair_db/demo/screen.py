"""How the demo looks: titled statements, tables without lines, plain sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table


class Screen:
    """A console that tells a story."""

    def __init__(self, console: Console) -> None:
        """Tell it on this console."""
        self.console = console

    def title(self, text: str, *statements: str) -> None:
        """Begin a part, with the SQL it is about."""
        code = Syntax("\n\n".join(statements), "sql", background_color="default", word_wrap=True)
        self.console.print()
        self.console.print(Panel(code, title=f"[bold]{text}", title_align="left"))

    def say(self, text: str) -> None:
        """Print a sentence."""
        self.console.print(text, highlight=False)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows under a head."""
        table = Table(*head, box=None, header_style="bold")
        for row in rows:
            table.add_row(*(cell(value) for value in row))
        self.console.print(table, highlight=False)

    def answer(self, connection: psycopg.Connection[Any], statement: str) -> None:
        """Print what a statement returns."""
        cursor = connection.execute(statement)
        self.table([column.name for column in cursor.description or ()], cursor)

    def points(self, head: str, texts: Iterable[str]) -> None:
        """Print a list of sentences."""
        table = Table.grid(padding=(0, 1))
        for text in texts:
            table.add_row("  -", text)
        self.say(head)
        self.console.print(table, highlight=False)


def cell(value: object) -> str:
    """Return a value as a table shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value)
