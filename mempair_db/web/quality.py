"""How good every model is now, and was before: measured at most once in a while, since it reads the whole table."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any, Final

from mempair_db.web.look import Look, Part, Rows

PAUSE: Final = 15.0  # seconds between two measurements of a model
PATIENCE: Final = 5_000  # milliseconds that a measurement may take
KEPT: Final = 200
MEASURES: Final = (("auc", "AUC"), ("accuracy", "accuracy"), ("r2", "R²"))


@dataclass
class Measured:
    """The newest evaluation of one model, and its main figure over time."""

    figures: Part[dict[str, Any]]
    of: datetime | None  # the publication that was measured
    taken: float
    days: Rows = field(default_factory=list)  # rows of each day, judged before they were learned
    history: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))  # since the page was started

    @property
    def line(self) -> tuple[str, list[float]]:
        """The figure over time, with its name: by day where two are known, else since the page was started."""
        for key, name in (("accuracy", "accuracy"), ("loss", "loss")):
            values = [float(day[key]) for day in self.days if day[key] is not None]
            if len(values) > 1:
                return f"{name} of each day's rows before they were learned", values
        return (self.main[0] if self.main else ""), list(self.history)

    @property
    def main(self) -> tuple[str, float] | None:
        """The figure that says most, with its name."""
        found = self.figures.value or {}
        return next(((name, float(found[key])) for key, name in MEASURES if found.get(key) is not None), None)


class Quality:
    """Evaluations of all models, shared by all pages."""

    def __init__(self) -> None:
        """Begin without any."""
        self._measured: dict[int, Measured] = {}
        self._lock = Lock()

    def of(self, model: int) -> Measured | None:
        """Return what is known of a model."""
        return self._measured.get(model)

    def measure(self, look: Look, models: list[dict[str, Any]]) -> bool:
        """Measure the models that were published since; True if anything is new. One caller at a time."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return sum(self._measure(look, model) for model in models if model["predicts"]) > 0
        finally:
            self._lock.release()

    def _measure(self, look: Look, model: dict[str, Any]) -> bool:
        number, before = model["model_id"], self._measured.get(model["model_id"])
        if before is not None and (
            before.of == model["last_published"] or time.monotonic() - before.taken < PAUSE or before.figures.missing
        ):
            return False
        patience, look.patience = look.patience, PATIENCE
        figures = look.part(lambda: look.rows("evaluate", name=model["model"])[0])
        look.patience = patience
        days = look.part(lambda: look.rows("progressive", name=model["model"])).value or []
        fresh = Measured(figures, model["last_published"], time.monotonic(), days)
        if before is not None:
            fresh.history.extend(before.history)
        if fresh.main is not None:
            fresh.history.append(fresh.main[1])
        self._measured[number] = fresh
        return True
