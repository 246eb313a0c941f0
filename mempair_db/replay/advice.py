"""From simulated scenarios to parameters for a stated need, and a page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from string import Template
from typing import Any

from mempair_db.replay.report import PAGE
from mempair_db.replay.simulate import Result
from mempair_db.replay.svg import Plot, Series, figure


@dataclass(frozen=True)
class Advice:
    """The parameters that serve a need best, and how it was decided."""

    need: str
    best: Result | None
    reason: str

    def sql(self) -> str:
        """Return the parameters as they go into mempair.create_model."""
        if self.best is None:
            return ""
        s = self.best.scenario
        parts = [f"epsilon => {s.epsilon:g}", f"gamma => {s.gamma:g}", f"lambda => {self.best.lam:.6g}"]
        parts += [f"m => {s.m}"] if s.m else []
        return ", ".join([*parts, f"unlearner => '{s.unlearner}'"])


def advise(results: Sequence[Result], most_loss: float) -> Advice:
    """Choose, among results that lose at most `most_loss` at their worst moment, the one with the fewest retrains.

    The loss counts from the best untouched model of all, so that a large λ pays for the accuracy it gives up. Noise is
    chance, so two standard errors are added to it.
    """
    need = f"{results[0].scenario.a_day:g} deletions a day, at most {most_loss:g} lost"
    top = max(r.untouched for r in results)
    good = [r for r in results if top - r.fit + 2 * r.error <= most_loss]
    if not good:
        nearest = min(top - r.fit for r in results)
        reason = (
            f"none of {len(results)} scenarios keeps it; the nearest loses {nearest:.4f}. Allow more loss or a larger "
            "epsilon, gather more rows, or let retrains serve every deletion (a small gamma does that)"
        )
        return Advice(need, None, reason)
    best = min(good, key=lambda r: (round(r.retrains, 3), top - r.fit))
    reason = (
        f"{len(good)} of {len(results)} scenarios keep it; this one loses {top - best.fit:.4f} at its worst moment and "
        f"needs {best.retrains:.1f} exact retrains a month"
    )
    reason += f" ({best.an_epoch} deletions an epoch)" if best.an_epoch else ", or fewer: waiting deletions share one"
    return Advice(need, best, reason)


def render(source: str, results: Sequence[Result], advice: Advice | None) -> str:
    """Return a page with the answer, the plots and the table."""
    answer = ""
    if advice is not None:
        answer = f"<p><b>{escape(advice.need)}</b>: {escape(advice.reason)}.</p>"
        answer += f"<p><code>{escape(advice.sql())}</code></p>" if advice.best is not None else ""
    body = (
        f"<section><h2>Answer</h2>{answer or '<p>No need was stated.</p>'}</section>"
        f"<section><h2>Accuracy against retrains</h2>{figure(_trade(results))}</section>"
        f"<section><h2>Capacity</h2>{figure(_capacity(results))}</section>"
        f"<section><h2>Noise</h2>{figure(_noise(results))}</section>"
        f"<section><h2>All scenarios</h2>{_table([r.row() for r in results])}</section>"
    )
    rows = results[0].rows
    subtitle = f"{source}: {rows} rows learned, every fifth row held out; the table is taken to stay this size."
    template = Template(PAGE.read_text(encoding="utf-8"))
    return template.substitute(title="What would happen", subtitle=escape(subtitle), body=body)


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
        "Capacity", text, "λ", "deletions an epoch", _series(results, "gamma", "γ", "lam", "capacity"), log_x=True
    )


def _noise(results: Sequence[Result]) -> Plot:
    low, high = min(r.noise for r in results), max(r.noise for r in results)
    text = (
        f"One deletion's noise is typically {low:.3g} to {high:.3g} long; compare with the length of the model itself."
    )
    series = [*_series(results, "gamma", "γ", "lam", "noise"), _lengths(results)]
    return Plot("Noise of one deletion", text, "λ", "length", series, log_x=True)


def _lengths(results: Sequence[Result]) -> Series:
    lengths = sorted({r.lam: r.size for r in results}.items())
    return Series("the model's length", [a for a, _ in lengths], [b for _, b in lengths], tone="3")


def varying(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Separate columns that differ between rows from those that are the same in all of them.

    >>> varying([{"a": 1, "b": 2}, {"a": 1, "b": 3}])
    ([{'b': 2}, {'b': 3}], {'a': 1})
    """
    same = {name: value for name, value in rows[0].items() if len(rows) > 1 and all(r[name] == value for r in rows)}
    return [{name: value for name, value in row.items() if name not in same} for row in rows], same


def _table(rows: Sequence[dict[str, Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in row.values()) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
