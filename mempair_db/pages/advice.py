"""What simulated scenarios say, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mempair_db.measure.advice import Advice
from mempair_db.measure.exact_trial import Trial
from mempair_db.measure.simulate import Result
from mempair_db.pages import template
from mempair_db.pages.svg import Plot, Series, figure


def render(source: str, results: Sequence[Result], advice: Advice | None, exact: Sequence[Trial] = ()) -> str:
    """Return a page with the answer, the plots and the table."""
    rows = [result.row() for result in results]
    return template.render(
        "advice.html",
        title="What would happen",
        subtitle=f"{source}: {results[0].rows} rows learned, every fifth row held out; "
        "the table is taken to stay this size.",
        advice=advice,
        figures=[
            ("Accuracy against retrains", figure(_trade(results))),
            ("Capacity", figure(_capacity(results))),
            ("Noise", figure(_noise(results))),
        ],
        exact=[list(trial.row().items()) for trial in exact],
        head=list(rows[0]),
        rows=[list(row.values()) for row in rows],
    )


def _grouped(results: Sequence[Result], by: str) -> dict[Any, list[Result]]:
    groups: dict[Any, list[Result]] = {}
    for r in results:
        groups.setdefault(getattr(r.scenario, by), []).append(r)
    return groups


def _series(results: Sequence[Result], by: str, label: str, x: str, y: str) -> list[Series]:
    found = []
    for i, (value, group) in enumerate(_grouped(results, by).items()):
        points = sorted((float(getattr(r, x)), float(getattr(r, y))) for r in group)
        name = f"{label} {value:g}" if isinstance(value, float) else f"{value}"
        found.append(Series(name, [a for a, _ in points], [b for _, b in points], "dots", str(1 + i % 5)))
    return found


def _trade(results: Sequence[Result]) -> Plot:
    best, calm = max(results, key=lambda r: r.fit), min(results, key=lambda r: r.retrains)
    text = (
        f"The best fit at the worst moment is {best.fit:.4f}, with {best.retrains:.1f} retrains a month; the fewest "
        f"retrains are {calm.retrains:.1f} a month, with a fit of {calm.fit:.4f}."
    )
    by = "unlearner" if len(_grouped(results, "unlearner")) > 1 else "pattern"
    series = _series(results, by, by, "retrains", "fit")
    return Plot("Fit against retrains", text, "exact retrains a month", "fit at worst", series, log_x=True)


def _capacity(results: Sequence[Result]) -> Plot:
    low, high = min(r.capacity for r in results), max(r.capacity for r in results)
    text = f"An epoch serves between {low:.1f} and {high:.1f} deletions; it grows with λ and with γ."
    return Plot(
        "Capacity",
        text,
        "λ (ridge)",
        "deletions an epoch",
        _series(results, "gamma", "γ", "lam", "capacity"),
        log_x=True,
    )


def _noise(results: Sequence[Result]) -> Plot:
    low, high = min(r.noise for r in results), max(r.noise for r in results)
    text = (
        f"One deletion's noise is typically {low:.3g} to {high:.3g} long; compare with the length of the model itself."
    )
    series = [*_series(results, "gamma", "γ", "lam", "noise"), _lengths(results)]
    return Plot("Noise of one deletion", text, "λ (ridge)", "length", series, log_x=True)


def _lengths(results: Sequence[Result]) -> Series:
    lengths = sorted({r.lam: r.size for r in results}.items())
    return Series("the model's length", [a for a, _ in lengths], [b for _, b in lengths], tone="3")
