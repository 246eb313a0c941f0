"""From simulated scenarios to parameters for a stated need.

The exact pair, unless it is too wide or published models must not be compared; of the certified unlearners, passive;
and nothing at all if the model is not better than the constant prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mempair_db.measure.exact_trial import Trial
from mempair_db.measure.scores import Scores
from mempair_db.measure.simulate import Result
from mempair_db.pair.exact import RIDGE

PASSIVE: Final = (
    "Of the certified unlearners take passive, unless you want the paper's step: symmetric needs twice the noise, and "
    "its step comes closer to the replay for few rows once a deletion has emptied the window (mempair bench fidelity)."
)

REMEDY: Final = (
    "Allow more loss or a larger epsilon, gather more rows, or let retrains serve every deletion (a small gamma does "
    "that)"
)


@dataclass(frozen=True)
class Advice:
    """The parameters that serve a need best, and how it was decided."""

    need: str
    best: Result | None
    reason: str
    exact: bool = False
    ridge: float = RIDGE

    @property
    def found(self) -> bool:
        """Whether anything is recommended."""
        return self.exact or self.best is not None

    def sql(self) -> str:
        """Return the parameters as they go into mempair.create_model."""
        if self.exact:
            return "unlearner => 'exact'" + (f", ridge => {self.ridge:g}" if self.ridge != RIDGE else "")
        if self.best is None:
            return ""
        s = self.best.scenario
        parts = [f"epsilon => {s.epsilon:g}", f"gamma => {s.gamma:g}", f"lambda => {self.best.lam:.6g}"]
        parts += [f"m => {s.m}"] if s.m else []
        return ", ".join([*parts, f"unlearner => '{s.unlearner}'"])


def advise(
    results: Sequence[Result], most_loss: float, exact: Sequence[Trial] = (), *, published: bool = False
) -> Advice:
    """Choose the exact pair where it serves; not if it is `published`, so that others can compare two of its states."""
    need = f"{results[0].scenario.a_day:g} deletions a day, at most {most_loss:g} lost"
    refused = "published models are not to be compared" if published else _refused(exact)
    if exact and refused is None:
        return _exact(need, exact)
    certified = _certified(need, results, most_loss)
    return replace(certified, reason=f"not exact, since {refused}; {certified.reason}") if refused else certified


def _refused(exact: Sequence[Trial]) -> str | None:
    for trial in exact:
        if trial.measured is None:
            return trial.refused
        if not trial.measured.equal:
            return "its bytes after the deletions are not those of the rows that are left: a bug, please report it"
    return None


def _exact(need: str, exact: Sequence[Trial]) -> Advice:
    """Judge the exact pair after the pattern of deletions that it bears worst."""
    trial, m = max(((t, t.measured) for t in exact if t.measured), key=lambda pair: pair[1].after.loss)
    if not m.after.beats_base:
        reason = f"nothing: these features predict no better than the {_constant(m.after)} does ({_said(m.after)})"
        return Advice(need, None, f"{reason}, and a certified model only adds noise")
    reason = (
        f"exact, with no noise, no budget and no retrain; {_said(m.after)}; after {trial.deletions} deletions equal in "
        f"every byte to a model of the rows that are left; {m.deletion:.2g} s a deletion, {m.refresh:.2g} s a refresh"
    )
    return Advice(need, None, reason, exact=True, ridge=trial.ridge)


def _said(s: Scores) -> str:
    if s.auc is None:
        return f"{s.loss:.4f} of the variance is unexplained, by the mean alone {s.base:.4f}"
    return f"log loss {s.loss:.4f} where the base rate has {s.base:.4f}, AUC {s.auc:.4f}, accuracy {s.fit:.4f}"


def _constant(s: Scores) -> str:
    return "mean" if s.auc is None else "base rate"


def _certified(need: str, results: Sequence[Result], most_loss: float) -> Advice:
    """Choose, among results that lose at most `most_loss` at their worst moment, the one with the fewest retrains.

    The loss counts from the best untouched model of all, so that a large λ pays for the accuracy it gives up. Noise is
    chance, so two standard errors are added to it.
    """
    results = [r for r in results if r.scenario.unlearner == "passive"] or results
    top = max(r.untouched for r in results)
    better = [r for r in results if r.scores.beats_base]
    good = [r for r in better if top - r.fit + 2 * r.error <= most_loss]
    if not better:
        best = min(results, key=lambda r: r.scores.loss)
        reason = f"at its worst moment none of {len(results)} scenarios is surely better than the "
        return Advice(need, None, f"{reason}{_constant(best.scores)} ({_said(best.scores)}). {REMEDY}")
    if not good:
        nearest = min(top - r.fit for r in better)
        reason = f"none of {len(results)} scenarios keeps it; the nearest loses {nearest:.4f}. {REMEDY}"
        return Advice(need, None, reason)
    best = min(good, key=lambda r: (round(r.retrains, 3), top - r.fit))
    reason = (
        f"{len(good)} of {len(results)} scenarios keep it; this one loses {top - best.fit:.4f} at its worst moment and "
        f"needs {best.retrains:.1f} exact retrains a month"
    )
    reason += f" ({best.an_epoch} deletions an epoch)" if best.an_epoch else ", or fewer: waiting deletions share one"
    return Advice(need, best, f"{reason}; {_said(best.scores)}")


def varying(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Separate columns that differ between rows from those that are the same in all of them.

    >>> varying([{"a": 1, "b": 2}, {"a": 1, "b": 3}])
    ([{'b': 2}, {'b': 3}], {'a': 1})
    """
    same = {name: value for name, value in rows[0].items() if len(rows) > 1 and all(r[name] == value for r in rows)}
    return [{name: value for name, value in row.items() if name not in same} for row in rows], same
