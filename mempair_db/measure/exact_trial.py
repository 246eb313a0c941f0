"""The exact pair in `mempair simulate`: the same rows and a month of the same deletions, without noise or budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mempair_db.measure.scores import Scores
from mempair_db.measure.simulate import Scenario, Simulator
from mempair_db.offline.progress import Bars, silent
from mempair_db.offline.table import Table
from mempair_db.pair import encode
from mempair_db.pair.exact import RIDGE
from mempair_db.pair.exact_model import ExactPair
from mempair_db.pair.exact_parameters import ExactParameters

RIDGES: Final = (RIDGE, 1.0)  # the default's, and one that is recommended where it is better by a tenth of the loss
BETTER: Final = 0.9
ALONE: Final = 10  # deletions that are timed one by one; the others come together


@dataclass(frozen=True)
class Measured:
    """An exact pair before and after the deletions."""

    before: Scores
    after: Scores
    equal: bool  # in every byte, to the state that the rows that are left have
    deletion: float  # seconds, each for itself and the weights solved
    refresh: float  # seconds


@dataclass(frozen=True)
class Trial:
    """What the exact pair comes to with one pattern of deletions, or why it is out of the question."""

    pattern: str
    deletions: int
    width: int
    refused: str | None = None
    measured: Measured | None = None
    ridge: float = RIDGE

    def row(self) -> dict[str, Any]:
        """Return it as one row of a table."""
        facts = {"unlearner": "exact", "pattern": self.pattern, "deletions": self.deletions, "width": self.width}
        if self.measured is None:
            return {**facts, "refused": self.refused}
        m = self.measured
        return {
            **facts,
            "ridge": self.ridge,
            "before": round(m.before.fit, 4),
            "after": round(m.after.fit, 4),
            **m.after.row(),
            "bytes equal": m.equal,
            "seconds a deletion": round(m.deletion, 4),
            "seconds a refresh": round(m.refresh, 3),
        }


def trials(
    table: Table, wanted: Sequence[Scenario], *, delta: float = 1e-6, seed: int = 0, bars: Bars = silent
) -> list[Trial]:
    """Try the exact pair with every pattern of deletions that the scenarios have."""
    simulator = Simulator(table.imputed(), delta)
    patterns = list({scenario.pattern: scenario for scenario in wanted}.values())
    found = []
    with bars("Trying the exact pair", len(patterns)) as advance:
        for scenario in patterns:
            found.append(_try(simulator, table, scenario, np.random.default_rng(seed)))
            advance(1)
    return found


def _try(simulator: Simulator, table: Table, scenario: Scenario, rng: np.random.Generator) -> Trial:
    train = simulator.train
    x, y, c = _take(table, train)
    chosen = train[simulator.month(scenario, rng)]
    width = encode.fit(x, c, y, regression=table.regression, curves=encode.curves_for(x.shape[1])).d
    if width > encode.WIDEST:
        refused = f"it would be {width:,} numbers wide, and {encode.WIDEST:,} is the most"
        return Trial(scenario.pattern, len(chosen), width, refused)
    left = _Left(table, train)
    pair, before = _taught(simulator, table, left)
    width = width if pair.reference is None else pair.reference.d  # points in time may not bend
    deletion = _delete(pair, left, chosen)
    equal = pair.verify(*left.rows())
    after = _judged(simulator, table, pair)
    if before is None or after is None:
        return Trial(scenario.pattern, len(chosen), width, f"{pair.n} rows are too few for its width of {width}")
    started = time.perf_counter()
    pair.refresh(*left.rows())
    refresh = time.perf_counter() - started
    measured = Measured(before, after, equal, deletion, refresh)
    return Trial(scenario.pattern, len(chosen), width, None, measured, pair.parameters.ridge)


def _taught(simulator: Simulator, table: Table, left: _Left) -> tuple[ExactPair, Scores | None]:
    """Return a pair that has learned the rows, with the ridge that suits them, and how good it is."""
    loss = "squared" if table.regression else "logistic"
    # Half the rows may be deleted, and it must not fall back behind its calibration.
    rows = min(500, len(left.places) // 2)
    parameters = ExactParameters(loss=loss, calibration_rows=rows, times=table.times)
    found = []
    for ridge in RIDGES:
        pair = ExactPair(replace(parameters, ridge=ridge), rows=left.rows)
        pair.learn_many(*left.rows())
        found.append((pair, _judged(simulator, table, pair)))
    (_, usual), (_, weaker) = found
    return found[usual is not None and weaker is not None and weaker.loss < BETTER * usual.loss]


class _Left:
    """The rows that are there; an exact pair asks for them when it refreshes itself."""

    def __init__(self, table: Table, places: npt.NDArray[np.int64]) -> None:
        self.table, self.places = table, places

    def without(self, gone: npt.NDArray[np.int64]) -> None:
        self.places = np.setdiff1d(self.places, gone)

    def rows(self) -> tuple[Any, Any, Any]:
        return _take(self.table, self.places)


def _delete(pair: ExactPair, left: _Left, chosen: npt.NDArray[np.int64]) -> float:
    """Delete the rows, the first of them alone; return the seconds that such a one takes."""
    alone, together = chosen[:ALONE], chosen[ALONE:]
    seconds = []
    for place in alone:
        one = np.array([place])
        left.without(one)
        rows = _take(left.table, one)
        started = time.perf_counter()
        pair.unlearn_many(*rows)
        _ = pair.weights
        seconds.append(time.perf_counter() - started)
    left.without(together)
    pair.unlearn_many(*_take(left.table, together))
    return float(np.mean(seconds)) if seconds else 0.0


def _judged(simulator: Simulator, table: Table, pair: ExactPair) -> Scores | None:
    if not pair.ready:
        return None
    x, _, c = _take(table, simulator.test)
    return simulator.targets.scores([pair.predict_many(x, c)])


def _take(table: Table, places: npt.NDArray[np.int64]) -> tuple[Any, Any, Any]:
    return table.x[places], table.y[places], [table.c[i] for i in places.tolist()] if table.texts else ()
