"""`mempair bench regret`: the paper's experiment. What online learners lose on real streams, against hindsight.

    cumulative      R_T = Σ f_t(θ_t) − f_t(w*),   w* = argmin Σ f_t, the best static model in hindsight
    instantaneous   the same, per event, over the last tenth of the stream
    dynamic         Σ f_t(θ_t) − f_t(w_k),        w_k the best model of the last rows; P_T = Σ‖w_{k+1} − w_k‖

f_t(θ) = ℓ(θᵀx_t, y_t) + (λ/2)‖θ‖² is taken before row t is learned, with the same λ for every learner. Each learner has
a grid of four or five settings, and the one with the lowest loss on the first order of the rows is used for every
order. That is tuning in hindsight, alike for all; `anchored, default` is not tuned at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np

from mempair_db.bench import data, plots
from mempair_db.bench.report import Result, machine
from mempair_db.measure import kernels
from mempair_db.measure import regret as audit
from mempair_db.offline.stream import Stream
from mempair_db.pair import baselines, comparators, events, printed
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.curvature import dot
from mempair_db.pair.losses import value
from mempair_db.pair.state import Vector, empty

LAM: Final = 1e-3
SETS: Final = {"mnist 3v8": 12_000, "mnist even/odd": 12_000, "adult": 32_561, "covtype": 90_000, "elec2": 45_312}
"""Real sets and how many of their rows are learned."""

WIDE: Final = 200
"""From this many features on, settings are tuned on the first `TUNING` rows alone."""

TUNING: Final = 2_000
STRETCHES: Final = 20

Run = Callable[[Stream], Vector]
"""Learns a stream and returns every f_t(θ_t)."""


@dataclass(frozen=True)
class Learner:
    """An online learner and its grid, setting → run."""

    name: str
    grid: Mapping[str, Run]


def run(*, folder: Path | None = None, quick: bool = False, seeds: int = 3) -> Result:
    """Measure every set; `quick` only shows that it works."""
    at = machine()
    wanted = [name for name in data.names(folder) if folder is None or name in SETS]
    tables: list[dict[str, Any]] = []
    pictures: list[dict[str, Any]] = []
    streams = [data.load(name, folder) for name in (wanted[-2:] if quick else wanted)]
    streams.append(data.rotating(400 if quick else 20_000))
    for rows in streams:
        most = 150 if quick else SETS.get(rows.name)
        found, drawn = _one(rows, most, 1 if quick or rows.in_order else seeds)
        tables.append(found)
        pictures += drawn
    return {
        "bench": "regret",
        "quick": quick,
        "machine": at,
        "tables": [*tables, {"title": "Grids", "rows": _grids()}],
        "goals": [],
        "notes": [
            f"λ = {LAM} for every learner and comparator. Sets of more than {WIDE} features are tuned on their first "
            f"{TUNING:,} rows, the others on all rows, in the first order.",
            "A bound stands for the first order: `live` is Theorem C with ‖w*‖ known, `Theorem 1` and `adaptive` are "
            "the paper's, as printed.",
        ],
        "plots": pictures,
    }


def learners() -> list[Learner]:
    """Return all contestants; the first one is the Memory Pair as it is shipped."""
    schedules = ("newton", "strongly_convex", "adaptive", "curvature")
    return [
        Learner("anchored, default", {"κ = 1": _anchored(1.0)}),
        Learner("anchored", {f"κ = {kappa:g}": _anchored(kappa) for kappa in (0.1, 0.3, 1.0, 3.0, 10.0)}),
        Learner("paper, per step", {name: _paper("step", name) for name in schedules}),
        Learner("paper, mini-batch", {name: _paper("minibatch", name) for name in schedules}),
        Learner("AdaGrad", {f"rate {r:g}": _baseline(baselines.AdaGrad, rate=r) for r in (0.1, 0.3, 1.0, 3.0, 10.0)}),
        Learner(
            "SGD",
            {
                **{f"rate {r:g}/√t": _baseline(baselines.SGD, rate=r) for r in (1.0, 3.0, 10.0, 30.0)},
                "1/(λt)": _baseline(baselines.SGD),
            },
        ),
        Learner(
            "Online Newton Step",
            {
                f"rate {r:g}": _baseline(baselines.OnlineNewtonStep, rate=r, epsilon=1.0)
                for r in (0.3, 1.0, 3.0, 10.0, 30.0)
            },
        ),
    ]


def _one(rows: data.Rows, most: int | None, seeds: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run every learner on every order of a set."""
    first = data.encode(rows.shuffled(0, most), Parameters(lam=LAM))
    d = first.epoch.d
    tuning = first.part(0, TUNING) if d > WIDE else first
    orders = [np.random.default_rng(seed).permutation(len(first)) for seed in range(1, seeds)]
    streams = [first, *(replace(first, X=first.X[order], y=first.y[order]) for order in orders)]
    best = comparators.best_static(first.X, first.y, "logistic", LAM)
    against = [comparators.row_losses(s.X, s.y, best, "logistic", LAM) for s in streams]
    proven = audit.measure(first)
    rolling, path = _rolling(first) if rows.in_order else (None, 0.0)
    table, curves = [], {}
    for learner in learners():
        setting, play = _tuned(learner, tuning)
        lost = [play(stream) for stream in streams]
        regret = [f - w for f, w in zip(lost, against, strict=True)]
        table.append(
            {"learner": learner.name, "setting": setting, **_figures(regret)}
            | ({"dynamic": float((lost[0] - rolling).sum())} if rolling is not None else {})
        )
        curves[learner.name] = regret[0]
    last = proven.last
    promises = {"live bound": last.bound, "Theorem 1": last.paper_bound, "adaptive": last.paper_adaptive_bound}
    dynamic = {"P_T": path, "Theorem 2": proven.paper_dynamic_bound} if rolling is not None else {}
    said = "; ".join(f"{name} {figure:,.1f}" for name, figure in (promises | dynamic).items())
    orders_said = "in time order" if rows.in_order else f"{len(streams)} orders"
    title = f"{rows.name}: {len(first):,} rows, d = {d}, {orders_said}; {said}"
    return {"title": title, "rows": table}, _pictures(rows.name, curves, proven)


def _figures(regret: list[Vector]) -> dict[str, float]:
    """Return medians over the orders, and the spread of the cumulative regret."""
    total = [float(r.sum()) for r in regret]
    n = len(regret[0])
    return {
        "regret": float(np.median(total)),
        "lowest": min(total),
        "highest": max(total),
        "per event": float(np.median(total)) / n,
        "last tenth, per event": float(np.median([r[-max(1, n // 10) :].mean() for r in regret])),
    }


def _tuned(learner: Learner, stream: Stream) -> tuple[str, Run]:
    """Return the setting with the lowest loss; one that diverges never wins."""
    if len(learner.grid) == 1:
        return next(iter(learner.grid.items()))
    with np.errstate(over="ignore", invalid="ignore"):
        totals = {setting: float(play(stream).sum()) for setting, play in learner.grid.items()}
    chosen = min(totals, key=lambda setting: totals[setting] if np.isfinite(totals[setting]) else np.inf)
    return chosen, learner.grid[chosen]


def _rolling(stream: Stream) -> tuple[Vector, float]:
    """Return what the rolling comparator loses on every row, and its path length."""
    stride = max(1, len(stream) // STRETCHES)
    ws = comparators.rolling(stream.X, stream.y, "logistic", LAM, window=2 * stride, stride=stride)
    each = ws[np.arange(len(stream)) // stride]
    return comparators.row_losses(stream.X, stream.y, each, "logistic", LAM), comparators.path_length(ws)


def _anchored(kappa: float) -> Run:
    def play(stream: Stream) -> Vector:
        k = constants_for(Parameters(lam=LAM, kappa=kappa), LAM)
        out = np.zeros(len(stream))
        kernels.trace(empty(stream.epoch.d, stream.parameters.tau), k, stream.ops, stream.X, stream.y, out)
        return out

    return play


def _paper(pairs: str, schedule: str) -> Run:
    def play(stream: Stream) -> Vector:
        k = constants_for(Parameters(lam=LAM, mode="paper", m=1, pairs=pairs, schedule=schedule), LAM)
        out = np.zeros(len(stream))
        state = empty(stream.epoch.d, stream.parameters.tau)
        _trace_printed()(state, k, stream.ops, stream.X, stream.y, out, *events.room_for(state, k))
        return out

    return play


@cache
def _trace_printed() -> Callable[..., None]:
    """Compile Algorithm 1 with a trace of f_t(θ_t), as `kernels.trace` does for the anchored mode."""
    learn = printed.learn

    @numba.njit(error_model="numpy")
    def trace(state: Any, k: Any, ops: Any, X: Any, y: Any, out: Any, room: Any, inverse: Any) -> None:
        for i in range(ops.shape[0]):
            theta = state.theta
            out[i] = value(k.loss, k.clip, dot(theta, X[i]), y[i]) + 0.5 * k.lam * dot(theta, theta)
            learn(state, k, ops[i : i + 1], X[i : i + 1], y[i : i + 1], room, inverse)

    return trace


def _baseline(kind: type[baselines.Baseline], **options: float) -> Run:
    def play(stream: Stream) -> Vector:
        learner = kind(stream.epoch.d, "logistic", lam=LAM, **options)
        return learner.run(stream.X, stream.y)

    return play


def _grids() -> list[dict[str, Any]]:
    return [{"learner": one.name, "settings": "; ".join(one.grid)} for one in learners()]


def _pictures(name: str, curves: dict[str, Vector], proven: audit.Regret) -> list[dict[str, Any]]:
    """Draw cumulative regret with all bounds, and instantaneous regret as means over fortieths of the stream."""
    n = len(next(iter(curves.values())))
    clocks = list(range(1, n + 1))
    total = [plots.line(label, clocks, np.cumsum(r).tolist()) for label, r in curves.items()]
    bounds = [
        plots.line(label, [p.clock for p in proven.curve], [getattr(p, field) for p in proven.curve], "--")
        for label, field in (
            ("live bound", "bound"),
            ("Theorem 1 as printed", "paper_bound"),
            ("adaptive bound as printed", "paper_adaptive_bound"),
        )
    ]
    width = max(1, n // 40)
    middles = [i + width / 2 for i in range(0, n - width + 1, width)]
    now = [
        plots.line(label, middles, [float(r[i : i + width].mean()) for i in range(0, n - width + 1, width)])
        for label, r in curves.items()
    ]
    return [
        plots.plot(f"{name} cumulative", f"{name}: cumulative regret", "rows", "regret", total + bounds, "xy"),
        plots.plot(f"{name} instantaneous", f"{name}: regret per event", "rows", "regret per event", now),
    ]
