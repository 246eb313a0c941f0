"""The pages' templates, in `templates/`. Every value is escaped unless it is markup that a template made."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES: Final = Path(__file__).with_name("templates")
ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
    autoescape=True,
    undefined=StrictUndefined,  # a misspelt name is an error, not a gap in a page
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.policies["json.dumps_kwargs"] = {"ensure_ascii": False}  # and in the order it has


def render(name: str, /, **values: Any) -> Markup:
    """Fill a template in."""
    return Markup(ENVIRONMENT.get_template(name).render(values))  # noqa: S704 - autoescape made it


def moment(text: str | None) -> str:
    """Write the time of a JSON document for people.

    >>> moment("2026-11-17T16:00:00.25+00:00")
    '2026-11-17 16:00:00 UTC'
    """
    return text[:19].replace("T", " ") + " UTC" if text else ""


def span(length: timedelta | float | None) -> str:
    """Write a length of time in one unit.

    >>> [span(n) for n in (None, 0.02, 5, 300, 9000, 200000, 2592000)]
    ['', 'under 1 s', '5 s', '5 min', '2.5 h', '2.3 days', '30 days']
    """
    if length is None:
        return ""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 1:
        return "under 1 s"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or (size == 60 and seconds >= 120):
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


@cache
def asset(name: str) -> Markup:
    """Return a style or a script of ours as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))  # noqa: S704 - our own file


@cache
def digest(name: str) -> str:
    """Return how a page's policy names a style or script that stands in the page itself."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(asset(name).encode()).digest()).decode()}'"


ENVIRONMENT.filters["moment"] = moment
ENVIRONMENT.globals.update(asset=asset, digest=digest)
