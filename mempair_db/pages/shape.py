"""The shape of a feature as a picture: what each of its values adds to the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import escape

from mempair_db.errors import InvalidParameter
from mempair_db.pages import template
from mempair_db.pages.svg import Plot, Series, draw

TONES = 5  # no two lines look alike: of more classes those are drawn that the feature moves most
LONGEST = 16  # characters of a class in the legend
STYLE = Path(template.__file__).parent / "templates" / "style.css"


def picture(model: str, feature: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG that stands alone; `rows` are those of mempair.curve."""
    points = [row for row in rows if row["x"] is not None]
    if not points:
        raise InvalidParameter(
            f"{feature} is a text, and has no curve.", remedy="Leave out --out: its levels are a table."
        )
    classes: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in points:
        classes.setdefault(row["class"], []).append(row)
    moved = sorted(classes, key=lambda name: _span(classes[name]), reverse=True)[:TONES]
    points = [row for row in points if row["class"] in moved]
    series = []
    for place, name in enumerate(name for name in classes if name in moved):
        xs, ys = [row["x"] for row in classes[name]], [row["contribution"] for row in classes[name]]
        series.append(Series(name or feature, xs, ys, tone=str(1 + place)))
    low, high = min(row["contribution"] for row in points), max(row["contribution"] for row in points)
    text = f"What {feature} adds to the score of model {model}: from {low:.3g} to {high:.3g}."
    plot = Plot(f"{feature} in {model}", text, feature, "adds to the score", series)
    head, rest = str(draw(plot)).split(">", 1)
    style = STYLE.read_text(encoding="utf-8")
    end = rest.rindex("</svg>")
    legend = _legend(series, len(classes) - len(series)) if len(series) > 1 else ""
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{style}</style>{rest[:end]}{legend}{rest[end:]}'


def _span(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return how far a feature moves the score of a class."""
    added = [row["contribution"] for row in rows]
    return float(max(added) - min(added))


def _legend(series: Sequence[Series], more: int) -> str:
    """Return the names of the classes, each in the colour of its line, and how many are left out."""
    names = "".join(
        f'<tspan dx="10" style="fill: var(--c{each.tone})">{escape(each.label[:LONGEST])}</tspan>' for each in series
    )
    if more:
        names += f'<tspan dx="10">and {more} that it moves less</tspan>'
    return f'<text x="60" y="12" style="font-size: 12px">{names}</text>'
