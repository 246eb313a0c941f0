"""Pictures of a model: its quality, its curves, what it has spent, and small ones that stand in a line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from markupsafe import Markup

from mempair_db.pages import template
from mempair_db.pages.svg import Plot, Series, figure

SPARK: Final = (120, 28)
TONES: Final = 5  # colours of lines
LEAST: Final = 0.05  # a smaller change does not fill the height: it would look like a fall


def roc(points: Sequence[dict[str, Any]], auc: float | None) -> Markup:
    """Positives found against false alarms, over all thresholds."""
    known = [p for p in points if p["false_positives"] is not None and p["true_positives"] is not None]
    series = [
        Series(
            "this model", [0.0, *(p["false_positives"] for p in known)], [0.0, *(p["true_positives"] for p in known)]
        ),
        Series("a coin", [0.0, 1.0], [0.0, 1.0], tone="limit"),
    ]
    text = (
        f"Of two rows, one positive and one not, the model ranks the positive one higher {100 * auc:.0f} times in 100."
        if auc is not None
        else "All rows have the same label, so there is nothing to tell apart."
    )
    labels = ("share of the others taken for positives", "share of the positives found")
    return figure(Plot("ROC curve", text, *labels, series))


def calibration(deciles: Sequence[dict[str, Any]], *, regression: bool) -> Markup:
    """What was predicted against what was observed, in ten groups of rows."""
    known = [d for d in deciles if d["predicted"] is not None and d["observed"] is not None]
    xs, ys = [d["predicted"] for d in known], [d["observed"] for d in known]
    ends = [min([*xs, *ys], default=0.0), max([*xs, *ys], default=1.0)] if regression else [0.0, 1.0]
    series = [Series("ten groups of rows", xs, ys, "dots"), Series("as predicted", ends, ends, tone="limit")]
    worst = max((abs(a - b) for a, b in zip(xs, ys, strict=True)), default=0.0)
    text = f"Where the model says so much, so much is observed: the ten groups are at most {worst:.3g} off."
    what = "predicted value" if regression else "predicted probability"
    return figure(Plot("Calibration", text, what, "observed value" if regression else "observed share", series))


def progressive(days: Sequence[dict[str, Any]]) -> Markup:
    """The loss of each day's rows, judged before they were learned."""
    times = [
        datetime(day["day"].year, day["day"].month, day["day"].day, tzinfo=timezone.utc).timestamp() for day in days
    ]
    losses, last = [float(day["loss"]) for day in days], days[-1]
    right = f", {100 * last['accuracy']:.0f} % of them right" if last["accuracy"] is not None else ""
    text = (
        f"The {last['rows']:,} new rows of {last['day']} had a loss of {losses[-1]:.3f} before they were "
        f"learned{right}; counts carry a little noise, so that a deletion need not undo them."
    )
    series = [Series("loss of the day's new rows", times, losses)]
    return figure(Plot("New rows, before they were learned", text, "day (UTC)", "loss", series, times=True))


@dataclass(frozen=True)
class Shape:
    """How one number enters the score: a line with bends."""

    feature: str
    lowest: float
    highest: float
    slope: float
    bends: list[tuple[float, float]]  # where, and by how much the slope changes
    seconds: float = 0.0  # how many a unit is, if the number is a time

    def at(self, x: float) -> float:
        """Return what the value adds, compared with the middle of the range."""
        return self._raw(x) - self._raw((self.lowest + self.highest) / 2)

    def _raw(self, x: float) -> float:
        return self.slope * x + sum(change * max(x - knot, 0.0) for knot, change in self.bends)


SECONDS: Final = {"date": 86_400.0, "timestamp": 1.0, "timestamptz": 1.0}


def shapes(coefficients: Sequence[dict[str, Any]], types: dict[str, str | None]) -> list[Shape]:
    """Return the shapes of all numbers that have one; `types` are those of the table's columns."""
    found = []
    for row in coefficients:
        if row["kind"] == "number" and row["lowest"] is not None and math.isfinite(row["lowest"]):
            bends = [
                (float(k["level"]), float(k["weight"]))
                for k in coefficients
                if k["kind"] == "knot" and k["feature"] == row["feature"]
            ]
            seconds = SECONDS.get(types.get(row["feature"].removesuffix(":cyclical")) or "", 0.0)
            found.append(Shape(row["feature"], row["lowest"], row["highest"], row["weight"], sorted(bends), seconds))
    return [shape for shape in found if shape.bends]


def curve(shapes: Sequence[Shape], classes: Sequence[str | None] = (None,)) -> Markup:
    """What each value of a number adds to the score; of several classes to that of each."""
    first, series = shapes[0], []
    for tone, (shape, name) in enumerate(zip(shapes, classes, strict=True), start=1):
        inside = [knot for knot, _ in shape.bends if shape.lowest < knot < shape.highest]
        xs = sorted({shape.lowest, *inside, shape.highest})
        ys, unit = [shape.at(x) for x in xs], shape.seconds or 1.0
        series.append(Series("added" if name is None else name, [x * unit for x in xs], ys, tone=str(tone)))
    low, high = (ends(y for one in series for y in one.ys) for ends in (min, max))
    whose = "the score" if classes[0] is None else "the score of a class"
    text = f"{first.feature} adds between {low:.3g} and {high:.3g} to {whose}; beyond the ends it is clamped."
    labels = (first.feature, "added to the score")
    return figure(Plot(f"Shape of {first.feature}", text, *labels, series, times=first.seconds > 0))


def spark(values: Sequence[float], words: str) -> Markup:
    """A line without axes, as high as a line of text; nothing below two points."""
    width, height = SPARK
    known = [v for v in values if math.isfinite(v)]
    if len(known) < 2:
        return Markup()
    middle, half = (min(known) + max(known)) / 2, max((max(known) - min(known)) / 2, LEAST / 2)
    low, rise = middle - half, (height - 6) / (2 * half)
    step = (width - 6) / (len(known) - 1)
    points = [(round(3 + i * step, 1), round(height - 3 - (v - low) * rise, 1)) for i, v in enumerate(known)]
    return template.render("spark.svg", points=points, width=width, height=height, words=words)


@dataclass(frozen=True)
class Bar:
    """A signed number as a bar from the middle, with its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None

    def drawn(self, most: float) -> Markup:
        """Draw it; `most` reaches the end."""
        scale = 95.0 / most if most > 0 else 0.0
        end = 100 + self.value * scale
        whisker = None
        if self.low is not None and self.high is not None:
            whisker = tuple(round(min(199.0, max(1.0, 100 + v * scale)), 1) for v in (self.low, self.high))
        x, width = round(min(100.0, end), 1), round(max(abs(end - 100), 0.5), 1)
        return template.render("bar.svg", x=x, width=width, positive=self.value >= 0, whisker=whisker)


def bars(found: Sequence[Bar]) -> list[Markup]:
    """Draw bars to one scale."""
    most = max((max(abs(v) for v in (b.value, b.low or 0.0, b.high or 0.0)) for b in found), default=0.0)
    return [bar.drawn(most) for bar in found]


def gauge(share: float, words: str) -> Markup:
    """How much of a budget is spent."""
    full = min(1.0, max(0.0, share))
    tone = "good" if full < 0.6 else "wait" if full < 0.9 else "bad"
    return template.render("gauge.svg", width=round(300 * full, 1), tone=tone, words=words)
