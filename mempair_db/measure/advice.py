"""From simulated scenarios to parameters for a stated need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mempair_db.measure.simulate import Result

PASSIVE: Final = (
    "Of the certified unlearners take passive, unless you want the paper's step: symmetric needs twice the noise, and "
    "its step comes closer to the replay for few rows once a deletion has emptied the window (mempair bench fidelity)."
)


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


def varying(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Separate columns that differ between rows from those that are the same in all of them.

    >>> varying([{"a": 1, "b": 2}, {"a": 1, "b": 3}])
    ([{'b': 2}, {'b': 3}], {'a': 1})
    """
    same = {name: value for name, value in rows[0].items() if len(rows) > 1 and all(r[name] == value for r in rows)}
    return [{name: value for name, value in row.items() if name not in same} for row in rows], same
