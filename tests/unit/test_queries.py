"""Every named query is used, and every name that is used exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mempair_db
from mempair_db.database.queries import load

CALLS = {"query": 0, "statement": 0, "rows": 1, "_rows": 0, "do": 0}
"""The functions that take a query's name, and where they take it."""
PREFIXES = {"cli": "cli_", "web": "web_"}


def asked_for(file: Path) -> Iterator[str]:
    """Yield a pattern for every name that the file may ask for. A variable may hold any text of its function."""
    prefix = PREFIXES.get(file.parent.name, "")
    for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef) and function.name not in CALLS:
            for given in filter(None, map(argument, ast.walk(function))):
                for pattern in patterns(function if isinstance(given, ast.Name) else given):
                    yield prefix + pattern


def argument(node: ast.AST) -> ast.expr | None:
    """Return what stands where a query's name belongs, if this is such a call."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    place = CALLS.get(name, len(node.args))
    if name == "rows" and node.args and isinstance(node.args[0], ast.Constant):
        place = 0  # where the connection is an object, its method takes the name first
    return node.args[place] if place < len(node.args) else None


def patterns(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.JoinedStr) and isinstance(part.values[0], ast.Constant):
            yield "".join(
                re.escape(str(piece.value)) if isinstance(piece, ast.Constant) else r"\w+" for piece in part.values
            )
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            yield re.escape(part.value)


def test_no_query_is_dead() -> None:
    folder = Path(mempair_db.__file__).parent
    used = {pattern for file in folder.rglob("*.py") for pattern in asked_for(file)}
    alive = re.compile("|".join(f"(?:{pattern})" for pattern in sorted(used)))
    assert [name for name in load() if not alive.fullmatch(name)] == []
