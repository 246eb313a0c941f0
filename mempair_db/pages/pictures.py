"""The report's plots: which figures, and what each shows in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from mempair_db.measure.audit import Audit
from mempair_db.pages.svg import Plot, Series, figure
from mempair_db.pages.template import span
from mempair_db.pair import odometer

if TYPE_CHECKING:
    from mempair_db.pages.report import Deletion


def forgotten(deletions: Sequence[Deletion]) -> Markup:
    """Deletions served, over time."""
    times = [d.at.timestamp() for d in deletions]
    counts = list(range(1, len(deletions) + 1))
    text = (
        f"The number of deletions served grows from 1 on {deletions[0].at:%Y-%m-%d} to {len(deletions)} on "
        f"{deletions[-1].at:%Y-%m-%d}."
    )
    series = [Series("deletions served", times, counts, "step")]
    return figure(Plot("Deletions served over time", text, "time (UTC)", "deletions", series, times=True))


def waited(requests: Sequence[tuple[datetime, float]], deadline: float) -> Markup:
    """How long each deletion took from the request to its execution, against the deadline."""
    times = [at.timestamp() for at, _ in requests]
    seconds = [max(taken, 1e-3) for _, taken in requests]
    late = sum(taken > deadline for taken in seconds)
    text = (
        f"From request to done it took {span(median(seconds))} in the middle and {span(max(seconds))} at most; the "
        f"deadline is {span(deadline)}. {f'{late} were late.' if late else 'None was late.'}"
    )
    series = [
        Series("from request to done", times, seconds, "dots"),
        Series("deadline", [times[0], times[-1]], [deadline, deadline], tone="limit"),
    ]
    labels = ("when it was done (UTC)", "seconds")
    return figure(Plot("From request to done", text, *labels, series, log_y=True, times=True))


def budget(deletions: Sequence[Deletion], delta: float, promised: float) -> Markup:
    """ε of all deletions of the epoch, after each of them."""
    numbers = list(range(1, len(deletions) + 1))
    epsilon = [odometer.epsilon_of(d.spent / odometer.UNITS, delta) for d in deletions]
    epochs = len({d.epoch for d in deletions})
    again = f" It starts again from zero with each of {epochs} epochs." if epochs > 1 else ""
    text = (
        f"After the last deletion ε is {epsilon[-1]:.3f} for all deletions of its epoch together; the promise is "
        f"{promised:g}, the dashed line.{again}"
    )
    series = [
        Series("ε of all deletions of the epoch", numbers, epsilon, "step"),
        Series("promised ε", [numbers[0], numbers[-1]], [promised, promised], tone="limit"),
    ]
    return figure(
        Plot("Budget spent, deletion by deletion", text, "deletions of all epochs, in the order served", "ε", series)
    )


def of_audit(result: Audit) -> list[tuple[str, Markup]]:
    """Return the titles and figures of what an audit has measured."""
    figures = [
        ("Distance to the true replay", _leave_one_out(result.figures.get("leave_one_out"))),
        ("Can it be told apart?", _empirical(result.figures.get("empirical"))),
        ("Regret and its bound", _regret(result.figures.get("regret"))),
        ("How many deletions before it hurts", _deletion_curve(result.figures.get("deletion_curve"))),
    ]
    return [(title, figure) for title, figure in figures if figure]


def _leave_one_out(found: dict[str, Any] | None) -> Markup:
    if found is None:
        return Markup()
    left = found["left"]
    worst = max(left, key=lambda one: one["ratio"])
    ends = [min(one["tick"] for one in left), max(one["tick"] for one in left)]
    reasons = sorted({one["why"] for one in left})
    series = [
        Series(
            why,
            [one["tick"] for one in left if one["why"] == why],
            [one["ratio"] for one in left if one["why"] == why],
            "dots",
            str(1 + i % 5),
        )
        for i, why in enumerate(reasons)
    ]
    series.append(Series("proved bound", ends, [1.0, 1.0], tone="limit"))
    text = (
        f"{len(left)} rows were left out one at a time. After a deletion, before its noise, the model is at most "
        f"{worst['ratio']:.3f} of the proved distance from the replay without the row (tick {worst['tick']})."
    )
    return figure(
        Plot("Distance to the true replay", text, "tick at which the row was learned", "share of the bound", series)
    )


def _empirical(found: list[dict[str, Any]] | None) -> Markup:
    if not found:
        return Markup()
    places = list(range(1, len(found) + 1))
    names = "; ".join(
        f"{i}: {one['name']}, ε ≥ {one['epsilon']:.2f}, claimed {one['claimed']:.2f}"
        for i, one in zip(places, found, strict=True)
    )
    series = [
        Series("lower limit of ε, 95 %", places, [max(one["epsilon"], 1e-3) for one in found], "dots", "1"),
        Series("claimed ε", places, [one["claimed"] for one in found], "dots", "2"),
    ]
    text = f"Two worlds, with the row and without it, and a test that tries to tell them apart. {names}."
    return figure(
        Plot("Empirical against claimed ε", text, "test, by its number in the text below", "ε", series, log_y=True)
    )


def _regret(found: dict[str, Any] | None) -> Markup:
    if found is None:
        return Markup()
    curve = found["curve"]
    clock = [point["clock"] for point in curve]
    series = [
        Series("measured regret", clock, [point["regret"] for point in curve]),
        Series("live bound (Theorem C)", clock, [point["bound"] for point in curve], tone="limit"),
        Series("the paper's Theorem 1, as printed", clock, [point["paper_bound"] for point in curve], tone="3"),
    ]
    last = curve[-1]
    text = (
        f"After {last['clock']} ticks the served models have lost {last['regret']:.4g} more than the best fixed "
        f"model in hindsight; the live bound says at most {last['bound']:.4g}. Against a comparator that follows the "
        f"data, with path length {found['path_length']:.3g}, it is {found['dynamic']:.4g}."
    )
    return figure(
        Plot(
            "Regret and its bound",
            text,
            "ticks: rows learned in the epoch so far",
            "regret",
            series,
            log_y=_positive(curve),
        )
    )


def _positive(curve: list[dict[str, Any]]) -> bool:
    return all(point["regret"] > 0 for point in curve)


def _deletion_curve(found: dict[str, Any] | None) -> Markup:
    if found is None:
        return Markup()
    ms = [step["m"] for step in found["steps"]]
    fits = [step["fit"] for step in found["steps"]]
    span = [min(fits), max(step["retrained"] for step in found["steps"])]
    series = [
        Series(f"{found['metric']} after m deletions", ms, fits),
        Series("after an exact retrain", ms, [step["retrained"] for step in found["steps"]], tone="3"),
        Series("capacity m*", [found["capacity"]] * 2, span, tone="limit"),
    ]
    text = (
        f"With {found['rows']} rows the capacity is {found['capacity']:.1f} deletions an epoch. Held-out "
        f"{found['metric']} is {fits[0]:.3f} after {ms[0]} and {fits[-1]:.3f} after {ms[-1]} deletions; retrained, "
        f"{found['steps'][-1]['retrained']:.3f}. The paper's formula, as printed, says {found['paper_capacity']:.1f}."
    )
    return figure(
        Plot(
            "Accuracy after m deletions",
            text,
            "deletions m since the last retrain",
            found["metric"],
            series,
            log_x=True,
        )
    )
