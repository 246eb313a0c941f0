"""Small plots as SVG text: no library, no script; colours come from the page, so that they follow light and dark.

Every plot is a figure with a text alternative and its numbers in a table below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from itertools import pairwise
from typing import Final

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 42
MOST_ROWS: Final = 40


@dataclass(frozen=True)
class Series:
    """One line or cloud of points. `style`: line, step or dots; `tone`: 1 to 5, or limit."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: str = "line"
    tone: str = "1"


@dataclass(frozen=True)
class Plot:
    """What is to be drawn, and the words for whoever cannot see it."""

    title: str
    text: str  # the text alternative: what the picture shows
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    times: bool = False  # x is seconds since 1970


def figure(plot: Plot) -> str:
    """Return the figure with its legend and table."""
    legend = "".join(f'<li class="t{escape(s.tone)} {s.style}">{escape(s.label)}</li>' for s in plot.series)
    return (
        f"<figure>{draw(plot)}<ul class=legend>{legend}</ul><figcaption>{escape(plot.text)}</figcaption>"
        f"<details><summary>The same figures as a table</summary>{_table(plot)}</details></figure>"
    )


def draw(plot: Plot) -> str:
    """Return the SVG alone."""
    x = _axis([v for s in plot.series for v in s.xs], LEFT, WIDTH - RIGHT, plot.log_x)
    y = _axis([v for s in plot.series for v in s.ys], HEIGHT - BOTTOM, TOP, plot.log_y)
    words = escape(f"{plot.title}. {plot.text}", quote=True)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}">',
        f"<title>{escape(plot.title)}</title>",
        *(_tick_y(y.at(v), short(v)) for v in y.ticks),
        *(_tick_x(x.at(v), _moment(v, x) if plot.times else short(v)) for v in x.ticks),
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(plot.x_label)}</text>",
        f'<text class="label" transform="translate(12 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(plot.y_label)}</text>',
        *(_mark(s, x, y) for s in plot.series),
        "</svg>",
    ]
    return "".join(parts)


@dataclass(frozen=True)
class Axis:
    """Maps numbers to places."""

    low: float
    high: float
    ticks: list[float]
    at: Callable[[float], float]


def _axis(values: Sequence[float], begin: float, end: float, log: bool) -> Axis:
    known = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0 if log else 0.0]
    if log:
        low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)) + 1e-9)
        high = max(high, low + 1)
        step = max(1, math.ceil((high - low) / 5))
        ticks = [10.0**e for e in range(low, high + 1, step)]
        return Axis(
            10.0**low, 10.0**high, ticks, lambda v: _place(math.log10(max(v, 10.0**low)), low, high, begin, end)
        )
    bottom, top = min(known), max(known)
    bottom = 0.0 if 0.0 < bottom < 0.6 * top else bottom
    ticks = nice_ticks(bottom, top)
    bottom, top = min(bottom, ticks[0]), max(top, ticks[-1])
    return Axis(bottom, top, ticks, lambda v: _place(v, bottom, top, begin, end))


def _place(v: float, low: float, high: float, begin: float, end: float) -> float:
    share = (v - low) / (high - low) if high > low else 0.5
    return begin + min(1.05, max(-0.05, share)) * (end - begin)


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers that cover the range.

    >>> nice_ticks(0.0, 87.0)
    [0.0, 50.0, 100.0]
    >>> nice_ticks(3.0, 3.0)
    [2.0, 3.0, 4.0]
    """
    if high <= low:
        return [low - 1.0, low, low + 1.0]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def short(v: float) -> str:
    """Write a number in few characters.

    >>> [short(v) for v in (0.0, 12000.0, 0.25, 1e-6, 2.5e6, -3.0)]
    ['0', '12k', '0.25', '1e-06', '2.5M', '−3']
    """
    if v == 0:
        return "0"
    size = abs(v)
    if size >= 1e6:
        text = f"{v / 1e6:g}M" if size < 1e9 else f"{v:.0e}"
    elif size >= 1e4:
        text = f"{v / 1e3:g}k"
    else:
        text = f"{v:.4g}"
    return text.replace("-", "−", 1) if v < 0 else text


def _moment(v: float, axis: Axis) -> str:
    when, span = datetime.fromtimestamp(v, timezone.utc), axis.high - axis.low
    return f"{when:%d %b}" if span > 2 * 86_400 else f"{when:%H:%M}" if span > 600 else f"{when:%H:%M:%S}"


def _tick_y(at: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
    )


def _tick_x(at: float, text: str) -> str:
    if not LEFT - 1 <= at <= WIDTH - RIGHT + 1:
        return ""
    anchor = "end" if at > WIDTH - RIGHT - 20 else "middle"
    return f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">{text}</text>'


def _mark(series: Series, x: Axis, y: Axis) -> str:
    points = [(x.at(a), y.at(b)) for a, b in zip(series.xs, series.ys, strict=True) if math.isfinite(b)]
    tone = f"t{series.tone}"
    if series.style == "dots" or len(points) == 1:  # a line through one point would be invisible
        return "".join(f'<circle class="{tone}" cx="{a:.1f}" cy="{b:.1f}" r="3.5"/>' for a, b in points)
    if series.style == "step":
        stairs = [points[0]] if points else []
        for (_, before), (a, b) in pairwise(points):
            stairs += [(a, before), (a, b)]
        points = stairs
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    return f'<polyline class="{tone}" points="{path}"/>'


def _table(plot: Plot) -> str:
    """Return the numbers, thinned to a readable number of rows."""
    xs = sorted({v for s in plot.series for v in s.xs})
    kept = xs if len(xs) <= MOST_ROWS else [xs[round(i * (len(xs) - 1) / (MOST_ROWS - 1))] for i in range(MOST_ROWS)]
    columns = [_by_place(s) for s in plot.series]
    head = "".join(f'<th scope="col">{escape(s.label)}</th>' for s in plot.series)
    body = "".join(
        f'<tr><th scope="row">{_stamp(v) if plot.times else f"{v:g}"}</th>'
        + "".join(f"<td>{', '.join(f'{y:.5g}' for y in c.get(v, ()))}</td>" for c in columns)
        + "</tr>"
        for v in kept
    )
    note = "" if len(kept) == len(xs) else f"<p>{len(kept)} of {len(xs)} points.</p>"
    top = f'<thead><tr><th scope="col">{escape(plot.x_label)}</th>{head}</tr></thead>'
    return f"<div class=wide><table>{top}<tbody>{body}</tbody></table></div>{note}"


def _by_place(series: Series) -> dict[float, list[float]]:
    """Return the values at each x; a cloud of points may have several."""
    found: dict[float, list[float]] = {}
    for x, y in zip(series.xs, series.ys, strict=True):
        found.setdefault(x, []).append(y)
    return found


def _stamp(v: float) -> str:
    return f"{datetime.fromtimestamp(v, timezone.utc):%Y-%m-%d %H:%M:%S}"
