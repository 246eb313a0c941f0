"""The pages' templates, in `templates/`. Every value is escaped unless it is markup that a template made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates"), encoding="utf-8"),
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


ENVIRONMENT.filters["moment"] = moment
