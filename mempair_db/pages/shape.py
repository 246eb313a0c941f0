"""The shape of a feature as a picture: what each of its values adds to the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import escape

from mempair_db.errors import InvalidParameter
from mempair_db.pages import template
from mempair_db.pages.svg import Plot, Series, draw

TONES = 5
STYLE = Path(template.__file__).parent / "templates" / "style.css"


def picture(model: str, feature: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG that stands alone; `rows` are those of mempair.curve."""
    points = [row for row in rows if row["x"] is not None]
    if not points:
        raise InvalidParameter(
            f"{feature} is a text, and has no curve.", remedy="Leave out --out: its levels are a table."
        )
    series = []
    for place, name in enumerate(dict.fromkeys(row["class"] for row in points)):
        own = [row for row in points if row["class"] == name]
        label, tone = name or feature, str(1 + place % TONES)
        series.append(Series(label, [row["x"] for row in own], [row["contribution"] for row in own], tone=tone))
    low, high = min(row["contribution"] for row in points), max(row["contribution"] for row in points)
    text = f"What {feature} adds to the score of model {model}: from {low:.3g} to {high:.3g}."
    plot = Plot(f"{feature} in {model}", text, feature, "adds to the score", series)
    head, rest = str(draw(plot)).split(">", 1)
    style = STYLE.read_text(encoding="utf-8")
    end = rest.rindex("</svg>")
    legend = _legend(series) if len(series) > 1 else ""
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{style}</style>{rest[:end]}{legend}{rest[end:]}'


def _legend(series: Sequence[Series]) -> str:
    """Return the names of the classes, each in the colour of its line."""
    names = "".join(f'<tspan dx="10" style="fill: var(--c{each.tone})">{escape(each.label)}</tspan>' for each in series)
    return f'<text x="60" y="12" style="font-size: 12px">{names}</text>'
