"""The worker's SQL: every query has a name and a comment in `sql/queries/*.sql`.

A query starts at a line ``-- name --`` (letters, digits, underscores) and ends at the next one.
"""

from __future__ import annotations

import re
from functools import cache

from mempair_db.database.resources import directory

HEADER = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def load() -> dict[str, str]:
    """Read all queries once; a name may occur once."""
    queries: dict[str, str] = {}
    for file in sorted(directory("sql").glob("queries/*.sql")):
        _, *parts = HEADER.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in queries:
                raise ValueError(f"query {name} is defined twice, the second time in {file.name}")
            queries[name] = text.strip()
    return queries


def query(name: str) -> str:
    """Return the text of one query."""
    return load()[name]
