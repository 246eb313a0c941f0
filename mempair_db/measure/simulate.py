"""`mempair simulate`: what would happen on these rows with other parameters, before anything is in production?

For each scenario the model is calibrated and learns four of five rows; the fifth is held out. Then one epoch's budget
is used up: as many rows as it allows are deleted, in the scenario's pattern, with noise, `draws` times over. So

    fit          held-out accuracy (or explained variance) at its worst moment, right before the retrain
    scores       log loss and AUC then, beside the log loss of the constant prediction
    retrains     deletions a month / deletions an epoch: how often the budget is spent, at this size of the table
    noise        σ√d, the typical length of one deletion's noise, against ‖θ‖

An epoch that allows none (m* < 1) serves every deletion by a retrain. Everything follows from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mempair_db.errors import InvalidParameter
from mempair_db.measure.capacity import HELD_OUT, HeldOut, learn, noise_scale
from mempair_db.measure.regret import NAMES
from mempair_db.measure.scores import Scores, Targets
from mempair_db.offline.progress import Bars, silent
from mempair_db.offline.stream import Stream
from mempair_db.offline.table import Table
from mempair_db.pair import comparators, events, noise, odometer
from mempair_db.pair.calibration import Epoch, Parameters, calibrate
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.state import State, Vector, copy

DAYS: Final = 30
PATTERNS: Final = ("random", "one class", "newest", "highest loss")
MOST_SCENARIOS: Final = 500


@dataclass(frozen=True)
class Scenario:
    """One choice of everything."""

    epsilon: float = 1.0
    gamma: float = 0.1
    lam: float | None = None
    m: int | None = None
    unlearner: str = "symmetric"
    pattern: str = "random"
    a_day: float = 1.0


@dataclass(frozen=True)
class Result:
    """What a scenario comes to."""

    scenario: Scenario
    lam: float
    d: int
    rows: int
    untouched: float
    fit: float
    error: float  # standard error of `fit`
    scores: Scores  # when `fit` is measured
    retrained: float
    capacity: float
    an_epoch: int
    retrains: float  # a month
    noise: float
    size: float  # ‖θ‖

    def row(self) -> dict[str, Any]:
        """Return it as one row of a table."""
        s = self.scenario
        return {
            "epsilon": s.epsilon,
            "gamma": s.gamma,
            "lambda": round(self.lam, 6),
            "m": s.m or "auto",
            "unlearner": s.unlearner,
            "pattern": s.pattern,
            "per day": s.a_day,
            "before": round(self.untouched, 4),
            "at worst": round(self.fit, 4),
            **self.scores.row(),
            "retrained": round(self.retrained, 4),
            "capacity": round(self.capacity, 1),
            "epoch": self.an_epoch,
            "retrains": round(self.retrains, 1),
            "noise": round(self.noise, 4),
            "theta": round(self.size, 4),
        }


def scenarios(**choices: Sequence[Any]) -> list[Scenario]:
    """Return every combination of the choices.

    >>> [s.gamma for s in scenarios(gamma=[0.1, 0.2], epsilon=[1.0])]
    [0.1, 0.2]
    """
    names = list(choices)
    found = [Scenario(**dict(zip(names, values, strict=True))) for values in product(*choices.values())]
    if not 0 < len(found) <= MOST_SCENARIOS:
        raise InvalidParameter(f"{len(found)} scenarios.", remedy=f"Choose between 1 and {MOST_SCENARIOS}.")
    for scenario in found:
        if scenario.pattern not in PATTERNS:
            raise InvalidParameter(f"pattern is {scenario.pattern!r}.", remedy=f"Choose among {', '.join(PATTERNS)}.")
        if not scenario.a_day > 0:
            raise InvalidParameter(f"{scenario.a_day} deletions a day.", remedy="Give a positive number.")
    return found


def simulate(
    table: Table,
    wanted: Sequence[Scenario],
    *,
    delta: float = 1e-6,
    draws: int = 5,
    seed: int = 0,
    bars: Bars = silent,
) -> list[Result]:
    """Run every scenario."""
    if len(table) < 100:
        raise InvalidParameter(f"{len(table)} usable rows.", remedy="Give at least 100.")
    simulator = Simulator(table, delta)
    results: dict[str, Result] = {}  # by what they say: a chosen λ may be one of those given
    with bars("Simulating", len(wanted)) as advance:
        for scenario in wanted:
            result = simulator.run(scenario, draws, np.random.default_rng(seed))
            results.setdefault(str(result.row()), result)
            advance(1)
    return list(results.values())


class Simulator:
    """Keeps what scenarios share: the split of the rows, and what was learned for each λ."""

    def __init__(self, table: Table, delta: float) -> None:
        """Hold out every fifth row."""
        test = np.arange(len(table)) % HELD_OUT == HELD_OUT - 1
        self.table, self.delta = table, delta
        self.train, self.test = np.flatnonzero(~test), np.flatnonzero(test)
        self.targets = Targets.of(table.y[test], table.y[~test], regression=table.regression)
        self._epochs: dict[tuple[Any, ...], Epoch] = {}
        self._learned: dict[tuple[Any, ...], tuple[Stream, State, HeldOut]] = {}

    def run(self, scenario: Scenario, draws: int, rng: np.random.Generator) -> Result:
        """Use up one budget, several times, and look at the damage."""
        parameters = self._parameters(scenario)
        stream, learned, held_out = self._learn(parameters)
        pair = CertifiedPair(parameters)
        pair.restore(stream.epoch, learned, odometer.Odometer(stream.epoch.cap))
        monthly = scenario.a_day * DAYS
        some = np.full(min(len(stream) // 2, 100_000), events.DELETE, np.int16)
        an_epoch = pair.affordable(some)
        count = min(an_epoch, math.ceil(monthly))
        thetas, sigma, retrained = [learned.theta], 0.0, held_out.fit(learned.theta)
        if count:
            chosen = self._chosen(scenario.pattern, stream, learned, count, rng)
            thetas = [self._forget(pair, stream, chosen, rng).theta for _ in range(draws)]
            retrained = held_out.fit(learn(stream, stream.X, stream.y, without=chosen).theta)
            sigma = noise_scale(stream, len(stream), max(1, stream.epoch.cap // pair.price(len(stream))))
        fits = [held_out.fit(theta) for theta in thetas]
        return Result(
            scenario=scenario,
            lam=stream.lam,
            d=stream.epoch.d,
            rows=len(stream),
            untouched=held_out.fit(learned.theta),
            fit=float(np.mean(fits)),
            error=float(np.std(fits, ddof=1)) / math.sqrt(len(fits)) if len(fits) > 1 else 0.0,
            scores=self.targets.scores([self._predict(stream, held_out, theta) for theta in thetas]),
            retrained=retrained,
            capacity=pair.capacity(),
            an_epoch=an_epoch,
            retrains=monthly / an_epoch if an_epoch else monthly,
            noise=sigma * math.sqrt(stream.epoch.d),
            size=float(np.linalg.norm(learned.theta)),
        )

    def month(self, scenario: Scenario, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return a month's deletions, places among the learned rows: with the same seed, `run` deletes some of them."""
        stream, learned, _ = self._learn(self._parameters(scenario))
        count = min(math.ceil(scenario.a_day * DAYS), len(stream) // 2)
        return self._chosen(scenario.pattern, stream, learned, count, rng)

    def _parameters(self, scenario: Scenario) -> Parameters:
        return Parameters(
            loss="huber" if self.table.regression else "logistic",
            epsilon=scenario.epsilon,
            delta=self.delta,
            gamma=scenario.gamma,
            lam=scenario.lam,
            m=scenario.m,
            unlearner=scenario.unlearner,  # type: ignore[arg-type]
        )

    def _learn(self, parameters: Parameters) -> tuple[Stream, State, HeldOut]:
        """Calibrate and learn, once for each λ; ε, γ and m change the budget alone."""
        table = self.table
        choice = (parameters.lam, parameters.gamma if parameters.lam is None else None)
        if choice not in self._epochs:
            c = [table.c[i] for i in self.train]
            declared: list[list[str] | None] = [None] * len(table.texts)
            self._epochs[choice] = calibrate(parameters, table.x[self.train], c, table.y[self.train], declared=declared)
        cap = odometer.to_units(odometer.rho_of(parameters.epsilon, parameters.delta))
        constants = self._epochs[choice].constants._replace(symmetric=parameters.unlearner == "symmetric")
        epoch = replace(self._epochs[choice], cap=cap, constants=constants)
        key = (constants.lam,)
        if key not in self._learned:
            (train_x, train_y), (test_x, test_y) = (self._encode(epoch, rows) for rows in (self.train, self.test))
            stream = Stream(parameters, epoch, np.ones(len(train_y), np.int16), train_x, train_y, True)
            held_out = HeldOut(test_x, test_y, table.regression)
            self._learned[key] = (stream, learn(stream, train_x, train_y), held_out)
        stream, learned, held_out = self._learned[key]
        return replace(stream, parameters=parameters, epoch=epoch), copy(learned), held_out

    def _encode(self, epoch: Epoch, rows: npt.NDArray[np.int64]) -> tuple[Any, Any]:
        c = [self.table.c[i] for i in rows]
        return epoch.encoding.encode(self.table.x[rows], c), epoch.encoding.encode_target(self.table.y[rows])

    @staticmethod
    def _predict(stream: Stream, held_out: HeldOut, theta: Vector) -> Vector:
        z = held_out.X @ theta
        return stream.epoch.encoding.decode_target(z) if held_out.regression else np.exp(-np.logaddexp(0.0, -z))

    @staticmethod
    def _forget(pair: CertifiedPair, stream: Stream, chosen: npt.NDArray[np.int64], rng: np.random.Generator) -> State:
        state = copy(pair.arrays)
        sigma = noise_scale(stream, len(stream), max(1, stream.epoch.cap // pair.price(len(stream))))
        # A model's noise has no seed, for who knows it can subtract it. Here nothing is to be hidden, and the same
        # question must get the same answer.
        steps = np.rint(rng.normal(0.0, noise.STEPS, (len(chosen), stream.epoch.d)))
        drawn = noise.Noise(steps, np.full(len(chosen), sigma / noise.STEPS))
        ops = np.full(len(chosen), events.DELETE, np.int16)
        events.apply(state, stream.epoch.constants, ops, stream.X[chosen], stream.y[chosen], *drawn)
        return state

    @staticmethod
    def _chosen(
        pattern: str, stream: Stream, learned: State, count: int, rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Return the rows that are deleted."""
        n, k = len(stream), stream.epoch.constants
        if pattern == "newest":
            return np.arange(n - count, n)
        if pattern == "highest loss":
            loss = comparators.value(NAMES[k.loss], stream.X @ learned.theta, stream.y, k.clip)  # type: ignore[arg-type]
            return np.argsort(-loss, kind="stable")[:count]
        pool = np.arange(n)
        if pattern == "one class":
            middle = float(np.median(stream.y)) if stream.parameters.regression else 0.0
            pool = np.flatnonzero(stream.y > middle)
        return rng.permutation(pool)[:count]
