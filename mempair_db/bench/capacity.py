"""`mempair bench capacity`: what m deletions cost, against an exact retrain without the same rows.

    all together   every deletion spends ρ_tot/m: the m deletions together are (ε, δ); this is what is enforced
    per record     every deletion spends the whole ρ_tot: each deleted row by itself is (ε, δ), all of them are not

`extra loss` is the mean loss of held-out rows beyond that of the retrained model; γ bounds its expectation while
m ≤ `capacity`. `measured` is the largest m of a grid up to which the extra loss stays within γ. The three formulas are
those of `measure.capacity`: `capacity` is enforced, the others are not. `paper_capacity` has the printed noise,
S = G/λ; with the anchored mode's small noise and no regret of learning, the same formula promises far too much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mempair_db.bench import data, plots
from mempair_db.bench.report import Result, goal, machine
from mempair_db.measure import regret as audit
from mempair_db.measure.capacity import HeldOut, capacity_at, learn, noise_scale, paper_capacity, unlearn
from mempair_db.offline.stream import Stream
from mempair_db.pair import bounds, comparators, odometer
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.state import State

LAM: Final = 0.01
DELTA: Final = 1e-6
GAMMA: Final = 0.1
EPSILONS: Final = (1.0, 4.0, 8.0)
DELETIONS: Final = (1, 10, 100, 1_000)
OFTEN: Final = 6
"""Times as many draws at the capacity, where a promise about the mean is tested."""

SETS: Final = {"adult": 32_561, "covtype": 90_000}
Places = npt.NDArray[np.int64]


class After(NamedTuple):
    """Accuracy and loss after some deletions, as means over draws of the noise, and the loss's standard error."""

    accuracy: float
    loss: float
    error: float


@dataclass(frozen=True)
class Case:
    """A learned stream, the rows held out from it, and exact retrains that are made once."""

    name: str
    stream: Stream
    learned: State
    held_out: HeldOut
    draws: int

    def with_promise(self, epsilon: float, unlearner: bounds.Unlearner) -> Case:
        """Return the same model under another promise; what it learned does not depend on that."""
        p = replace(self.stream.parameters, epsilon=epsilon, unlearner=unlearner)
        k = constants_for(p, LAM)
        cap = odometer.to_units(odometer.rho_of(epsilon, DELTA))
        epoch = replace(self.stream.epoch, constants=k, cap=cap)
        return replace(self, stream=replace(self.stream, parameters=p, epoch=epoch))

    def retrained(self, chosen: Places) -> tuple[float, float]:
        """Return accuracy and loss of the exact retrain without these rows."""
        return self._measure(learn(self.stream, self.stream.X, self.stream.y, without=chosen))

    def after(self, chosen: Places, share: int, times: int = 1) -> After:
        """Return how good the model is after these deletions, each with ρ_tot/share."""
        s = self.stream
        sigma = noise_scale(s, len(s), share)
        X, y = s.X[chosen], s.y[chosen]
        found = [self._measure(unlearn(s, self.learned, X, y, sigma)) for _ in range(times * self.draws)]
        accuracy, loss = np.mean(found, axis=0)
        error = np.std([one for _, one in found], ddof=1) / math.sqrt(len(found))
        return After(float(accuracy), float(loss), float(error))

    def _measure(self, state: State) -> tuple[float, float]:
        return self.held_out.fit(state.theta), self.held_out.loss(state.theta, self.stream.epoch.constants)


def run(*, folder: Path | None = None, quick: bool = False, draws: int = 5) -> Result:
    """Measure every set; `quick` only shows that it works."""
    at = machine()
    deletions = DELETIONS[:2] if quick else DELETIONS
    tables: list[dict[str, Any]] = []
    pictures: list[dict[str, Any]] = []
    measured: list[dict[str, Any]] = []
    for case in _cases(folder, quick, 2 if quick else draws):
        tables.append({"title": f"{_said(case)}: after m random deletions", "rows": _grid(case, deletions)})
        tables.append({"title": f"{_said(case)}: patterns, ε = 1, all together", "rows": _patterns(case, deletions)})
        tables.append(
            {"title": f"{_said(case)}: regret, m deletions half-way", "rows": _regret(case, deletions, quick)}
        )
        found, picture = _measured(case, quick)
        measured += found
        pictures.append(picture)
    tables.append(
        {"title": f"Measured capacity: the largest m with an extra loss within γ = {GAMMA}", "rows": measured}
    )
    # A model of few rows has no capacity at all: its deletions are served by a retrain, and nothing is promised.
    promised = [row["extra loss at capacity"] - 2.0 * row["± error"] for row in measured if row["capacity"] >= 1]
    return {
        "bench": "capacity",
        "quick": quick,
        "machine": at,
        "tables": tables,
        "goals": [
            goal(
                f"extra loss at m = capacity, less two errors, within γ = {GAMMA}",
                max(promised, default=0.0),
                most=GAMMA,
            )
        ],
        "notes": [
            f"λ = {LAM}, δ = {DELTA}, γ = {GAMMA}; means over {draws} draws of noise; one retrain a choice of rows.",
            "`paper` rows are Algorithm 1 as printed: noise for S = G/λ.",
        ],
        "plots": pictures,
    }


def _cases(folder: Path | None, quick: bool, draws: int) -> Iterator[Case]:
    names = [name for name in data.names(folder) if folder is None or name in SETS]
    for name in names[:1] if quick else names:
        rows = data.load(name, folder).shuffled(0, SETS.get(name))
        train, test = rows.split()
        yield _case(name, train, test, draws)
    for name, turns in (("drifting", 0.25), ("rotating", 2.0)):
        rows = data.rotating(600 if quick else 30_000, turns=turns)
        train, test = rows.split()
        newest = np.arange(len(test) * 4 // 5, len(test))  # a drifting model is asked about what comes next
        yield _case(name, train, test.take(newest), draws)


def _case(name: str, train: data.Rows, test: data.Rows, draws: int) -> Case:
    parameters = Parameters(lam=LAM, delta=DELTA, gamma=GAMMA)
    stream = data.encode(train, parameters)
    test_rows = data.with_epoch(test, parameters, stream.epoch)
    learned = learn(stream, stream.X, stream.y)
    return Case(name, stream, learned, HeldOut(test_rows.X, test_rows.y, regression=False), draws)


def _said(case: Case) -> str:
    return f"{case.name} ({len(case.stream):,} rows, d = {case.stream.epoch.d})"


def _grid(case: Case, deletions: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return accuracy and extra loss for every m, ε, unlearner and reading."""
    table = []
    rng = np.random.default_rng(1)
    for m in _possible(case, deletions):
        chosen = rng.choice(len(case.stream), m, replace=False)
        exact, exact_loss = case.retrained(chosen)
        for epsilon in EPSILONS:
            row: dict[str, Any] = {"m": m, "ε": epsilon, "retrained": exact, "its loss": exact_loss}
            for unlearner in ("symmetric", "passive"):
                promised = case.with_promise(epsilon, unlearner)
                for reading, share in (("together", m), ("per record", 1)):
                    accuracy, loss, _ = promised.after(chosen, share)
                    row[f"{unlearner}, {reading}"] = accuracy
                    row[f"{unlearner}, {reading}: extra loss"] = loss - exact_loss
            row["paper"] = _printed(case, epsilon, chosen)
            table.append(row)
    return table


def _printed(case: Case, epsilon: float, chosen: Places) -> float:
    """Return the accuracy of Algorithm 1 as printed after the same deletions, all together."""
    p = replace(case.stream.parameters, epsilon=epsilon, mode="paper", m=len(chosen), pairs="minibatch")
    k = constants_for(p, LAM)
    s = replace(case.stream, parameters=p, epoch=replace(case.stream.epoch, constants=k))
    sigma = odometer.sigma(k.G / k.lam, odometer.to_units(odometer.rho_of(epsilon, DELTA)) // len(chosen))
    learned = learn(s, s.X, s.y)
    found = [case.held_out.fit(unlearn(s, learned, s.X[chosen], s.y[chosen], sigma).theta) for _ in range(case.draws)]
    return float(np.mean(found))


def _patterns(case: Case, deletions: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return what deletions cost that are not random."""
    s = case.stream
    lost = comparators.row_losses(s.X, s.y, case.learned.theta, "logistic", LAM)
    positive = np.flatnonzero(s.y > 0)
    rng = np.random.default_rng(2)
    choose: dict[str, Callable[[int], Places]] = {
        "random": lambda m: rng.choice(len(s), m, replace=False),
        "one class": lambda m: positive[:m],
        "oldest": np.arange,
        "newest": lambda m: np.arange(len(s) - m, len(s)),
        "highest loss": lambda m: np.argsort(-lost)[:m],
    }
    table = []
    for pattern, choice in choose.items():
        for m in _possible(case, deletions):
            chosen = choice(m)
            exact, exact_loss = case.retrained(chosen)
            row: dict[str, Any] = {"pattern": pattern, "m": m, "retrained": exact}
            for unlearner in ("symmetric", "passive"):
                accuracy, loss, _ = case.with_promise(1.0, unlearner).after(chosen, m)
                row |= {unlearner: accuracy, f"{unlearner}: extra loss": loss - exact_loss}
            table.append(row)
    return table


def _regret(case: Case, deletions: tuple[int, ...], quick: bool) -> list[dict[str, Any]]:
    """Return the regret of the whole stream with its bound; the deletions come half-way."""
    found = []
    for m in (0, *_possible(case, deletions)):
        for epsilon in EPSILONS[: 1 if quick or m == 0 else None]:
            measured = audit.measure(case.with_promise(epsilon, "symmetric").stream, deletions=m)
            end = measured.last
            found.append(
                {"m": m, "ε": epsilon, "regret": end.regret, "live bound": end.bound, "as printed": end.paper_bound}
            )
    return found


def _measured(case: Case, quick: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return where each promise breaks, beside where the formulas see it."""
    rng = np.random.default_rng(3)
    most = len(case.stream) // (8 if quick else 4)
    ms = sorted({round(2.0 ** (i / 2)) for i in range(2 * int(math.log2(most)) + 1)})[:: 4 if quick else 1]
    rows = {m: rng.choice(len(case.stream), m, replace=False) for m in ms}
    exact = {m: case.retrained(chosen)[1] for m, chosen in rows.items()}
    table, lines = [], []
    for epsilon in EPSILONS:
        for unlearner in ("symmetric", "passive"):
            promised = case.with_promise(epsilon, unlearner)
            s = promised.stream
            extra: dict[int, float] = {}
            for m in ms:
                extra[m] = promised.after(rows[m], m).loss - exact[m]
                if extra[m] > 4.0 * GAMMA:
                    break
            within = [m for m in extra if all(extra[i] <= GAMMA for i in extra if i <= m)]
            capacity = capacity_at(s, len(s))
            at = max(1, min(math.floor(capacity), len(s) // 2))
            chosen = rng.choice(len(s), at, replace=False)
            there = promised.after(chosen, at, times=OFTEN)
            table.append(
                {
                    "set": case.name,
                    "ε": epsilon,
                    "unlearner": unlearner,
                    "measured": max(within, default=0),
                    "capacity": capacity,
                    "regret_capacity": _regret_capacity(s),
                    "paper_capacity": paper_capacity(s, len(s), case.learned),
                    "paper's formula, our noise": _optimistic(s),
                    "extra loss at capacity": there.loss - case.retrained(chosen)[1],
                    "± error": there.error,
                }
            )
            lines.append(
                plots.line(f"ε = {epsilon:g}, {unlearner}", list(extra), [max(v, 1e-6) for v in extra.values()])
            )
    lines.append(plots.line("γ", [1, max(ms)], [GAMMA, GAMMA], "--"))
    title = f"{case.name}: loss beyond an exact retrain"
    return table, plots.plot(case.name, title, "deletions", "extra loss", lines, "xy")


def _optimistic(s: Stream) -> float:
    """Return the paper's m for a learner without regret, S_N = 0, and the noise of the anchored mode: it forgets d."""
    k, p = s.epoch.constants, s.parameters
    sigma = noise_scale(s, len(s), 1)
    at_one = bounds.paper_capacity(
        N=len(s), G=k.G, D=k.diameter, c=1.0, C=1.0, sigma=sigma, delta_B=p.delta, gamma=p.gamma, S_N=0.0
    )
    return float(at_one ** (2.0 / 3.0))


def _regret_capacity(s: Stream) -> float:
    k, p = s.epoch.constants, s.parameters
    rho_tot = s.epoch.cap / odometer.UNITS
    return bounds.regret_capacity(len(s), s.epoch.d, k.G, k.lam, p.gamma, rho_tot, p.unlearner)


def _possible(case: Case, deletions: tuple[int, ...]) -> list[int]:
    return [m for m in deletions if m <= len(case.stream) // 4]
