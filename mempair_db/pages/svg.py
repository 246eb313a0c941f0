"""Small plots as SVG text: no library, no script; colours come from the page, so that they follow light and dark.

Every plot is a figure with a text alternative and its numbers in a table below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import Final

from markupsafe import Markup

from mempair_db.pages import template

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 68, 14, 12, 42
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
    """What is to be drawn, and the text for whoever cannot see it."""

    title: str
    text: str  # the text alternative: what the picture shows
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    times: bool = False  # x is seconds since 1970


def figure(plot: Plot) -> Markup:
    """Return the figure with its legend and table; of one point only what it says, for there is nothing to see."""
    xs = sorted({v for s in plot.series for v in s.xs})
    if max((len(set(zip(s.xs, s.ys, strict=True))) for s in plot.series if s.tone != "limit"), default=0) < 2:
        return Markup('<p class="soft">{}</p>').format(plot.text)
    return template.render("figure.html", plot=plot, drawn=draw(plot), rows=_rows(plot, xs), points=len(xs))


def draw(plot: Plot) -> Markup:
    """Return the SVG alone."""
    across = [v for s in plot.series for v in s.xs]
    x = _times(across) if plot.times else _axis(across, LEFT, WIDTH - RIGHT, plot.log_x)
    y = _axis([v for s in plot.series for v in s.ys], HEIGHT - BOTTOM, TOP, plot.log_y)
    ticks = [(round(x.at(v), 1), _moment(v, x.ticks) if plot.times else short(v)) for v in x.ticks]
    return template.render(
        "plot.svg",
        plot=plot,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        top=TOP,
        bottom=HEIGHT - BOTTOM,
        rungs=[(round(y.at(v), 1), short(v)) for v in y.ticks],
        ticks=[(at, text) for at, text in ticks if LEFT - 1 <= at <= WIDTH - RIGHT + 1],
        marks=[_mark(s, x, y) for s in plot.series],
    )


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
    bottom = 0.0 if 0.0 < bottom < 0.6 * top or 0.0 < bottom == top else bottom
    ticks = nice_ticks(bottom, top)
    bottom, top = min(bottom, ticks[0]), max(top, ticks[-1])
    return Axis(bottom, top, ticks, lambda v: _place(v, bottom, top, begin, end))


STEPS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200)
DAY: Final = 86_400


def _times(values: Sequence[float]) -> Axis:
    """Return an axis of seconds since 1970, with ticks at whole minutes, hours, days or years."""
    known = [v for v in values if math.isfinite(v)] or [0.0]
    bottom, top = min(known), max(known)
    days = all(v % DAY == 0 for v in known)
    if bottom == top:
        bottom, top = bottom - DAY / 2, top + DAY / 2
    ticks = _moments(bottom, top, at_least=DAY if days else 1)
    return Axis(bottom, top, ticks, lambda v: _place(v, bottom, top, LEFT, WIDTH - RIGHT))


def _moments(low: float, high: float, at_least: int = 1, count: int = 4) -> list[float]:
    """Return round points in time inside the range, few of them.

    >>> [f"{datetime.fromtimestamp(v, timezone.utc):%d %H:%M}" for v in _moments(90_000.0, 150_000.0)]
    ['02 06:00', '02 12:00']
    >>> [v / DAY for v in _moments(0.0, 1.0 * DAY, at_least=DAY)]
    [0.0, 1.0]
    """
    raw = max((high - low) / count, at_least)
    if raw > 300 * DAY:
        years = math.ceil(raw / (366 * DAY))
        first, last = (datetime.fromtimestamp(v, timezone.utc).year for v in (low, high))
        starts = [datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() for year in range(first + 1, last + 1, years)]
        return starts or [low]
    step = next((s for s in STEPS if s >= raw), 0) or DAY * math.ceil(raw / DAY)
    return [i * float(step) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


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


def _moment(v: float, ticks: Sequence[float]) -> str:
    when, step = datetime.fromtimestamp(v, timezone.utc), min((b - a for a, b in pairwise(ticks)), default=DAY)
    if step > 300 * DAY:
        return f"{when:%Y}"
    return f"{when:%d %b}" if step >= DAY else f"{when:%H:%M}" if step >= 60 else f"{when:%H:%M:%S}"


@dataclass(frozen=True)
class Mark:
    """A series where it is drawn."""

    tone: str
    dots: bool
    points: list[tuple[float, float]]


def _mark(series: Series, x: Axis, y: Axis) -> Mark:
    pairs = zip(series.xs, series.ys, strict=True)
    points = [(round(x.at(a), 1), round(y.at(b), 1)) for a, b in pairs if math.isfinite(b)]
    dots = series.style == "dots" or len(points) == 1  # a line through one point would be invisible
    if series.style == "step" and not dots:
        stairs = points[:1]
        for (_, before), (a, b) in pairwise(points):
            stairs += [(a, before), (a, b)]
        points = stairs
    return Mark(series.tone, dots, points)


def _rows(plot: Plot, xs: list[float]) -> list[tuple[str, list[str]]]:
    """Return the numbers of each place, thinned to a readable number of places."""
    kept = xs if len(xs) <= MOST_ROWS else [xs[round(i * (len(xs) - 1) / (MOST_ROWS - 1))] for i in range(MOST_ROWS)]
    columns = [_by_place(s) for s in plot.series]
    return [
        (_stamp(v) if plot.times else f"{v:g}", [", ".join(f"{y:.5g}" for y in c.get(v, ())) for c in columns])
        for v in kept
    ]


def _by_place(series: Series) -> dict[float, list[float]]:
    """Return the values at each x; a cloud of points may have several."""
    found: dict[float, list[float]] = {}
    for x, y in zip(series.xs, series.ys, strict=True):
        found.setdefault(x, []).append(y)
    return found


def _stamp(v: float) -> str:
    return f"{datetime.fromtimestamp(v, timezone.utc):%Y-%m-%d %H:%M:%S}"
