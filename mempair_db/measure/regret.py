"""Regret on the rows in order: what the served models lost, against the best model in hindsight.

    static     R_T = Σ f_t(θ_t) − f_t(w*),    w* = argmin Σ f_t
    dynamic    Σ f_t(θ_t) − f_t(w_k),         w_k the best model of the last rows;  P_T = Σ‖w_{k+1} − w_k‖

f_t(θ_t) is taken before row t is learned. Theorem C bounds the static regret on the path that happened (theory 3.5),
with deletions or without; the paper's bounds are evaluated beside it as printed, and nothing is enforced by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mempair_db.measure.kernels import trace
from mempair_db.offline.progress import Bars, silent
from mempair_db.offline.stream import Stream
from mempair_db.pair import bounds, comparators, events, noise, odometer
from mempair_db.pair.losses import CODES
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.state import Vector

POINTS: Final = 40
NAMES: Final = {code: name for name, code in CODES.items()}


@dataclass(frozen=True)
class Point:
    """The regret after some ticks."""

    clock: int
    regret: float
    bound: float
    paper_bound: float
    paper_adaptive_bound: float


@dataclass(frozen=True)
class Regret:
    """A regret curve and what it ends in."""

    curve: list[Point]
    deletions: int
    comparator_norm: float
    dynamic: float
    path_length: float
    paper_dynamic_bound: float
    whole: bool

    @property
    def last(self) -> Point:
        """The regret at the end."""
        return self.curve[-1]

    @property
    def holds(self) -> bool:
        """Whether the regret of the whole stream stayed under Theorem C's bound."""
        return self.last.regret <= self.last.bound + 1e-9 * abs(self.last.bound)


def measure(stream: Stream, *, deletions: int = 0, seed: int = 0, bars: Bars = silent) -> Regret:
    """Learn the stream again and measure; with `deletions`, as many random rows are unlearned half-way, with noise."""
    pair = CertifiedPair(stream.parameters)
    pair.start(stream.epoch)
    k = stream.epoch.constants
    losses, states = _run(stream, pair, deletions, seed, bars)
    there = stream.ops == events.INSERT
    X, y = stream.X[there], stream.y[there]
    loss = NAMES[k.loss]
    static = comparators.best_static(X, y, loss, k.lam, k.clip)  # type: ignore[arg-type]
    against = np.zeros(len(stream))
    against[there] = comparators.row_losses(X, y, static, loss, k.lam, k.clip)  # type: ignore[arg-type]
    total = np.cumsum(losses - against)
    norm = float(np.linalg.norm(static))
    curve = []
    for clock, tally in states:
        live = tally["jump_const"] + norm * tally["jump_slope"]
        pull = k.M + k.lam * (clock - tally["rows"])
        bound = bounds.regret_bound(tally["past"] + tally["anchor_sum"], tally["excess"], live, pull, norm)
        curve.append(Point(clock, float(total[clock - 1]), float(bound), *_printed(k, clock, tally, deletions, stream)))
    dynamic, path = _dynamic(X, y, loss, k, losses[there])
    paper = bounds.paper_dynamic_regret_bound(k.G, k.lam, 1.0 / (k.M + k.lam), len(stream), path_length=path)
    return Regret(curve, deletions, norm, dynamic, path, paper, stream.whole)


Sums = dict[str, Any]


def _run(
    stream: Stream, pair: CertifiedPair, deletions: int, seed: int, bars: Bars
) -> tuple[Vector, list[tuple[int, Sums]]]:
    """Learn in stretches; return every f_t(θ_t) and the running sums at the end of each stretch."""
    k, losses, states = stream.epoch.constants, np.zeros(len(stream)), []
    half = len(stream) // 2
    ends = sorted({half, *np.linspace(1, len(stream), POINTS + 1).astype(int)[1:].tolist()} - {0})
    begin = 0
    with bars("Measuring regret", len(stream)) as advance:
        for end in ends:
            s = slice(begin, end)
            trace(pair.arrays, k, stream.ops[s], stream.X[s], stream.y[s], losses[s])
            if end == half and deletions:
                _delete(stream.part(0, half), pair, deletions, seed)
            states.append((int(end), {name: pair.tally(name) for name in _SUMS}))
            advance(end - begin)
            begin = end
    return losses, states


def _delete(past: Stream, pair: CertifiedPair, deletions: int, seed: int) -> None:
    """Unlearn random rows of the past, each with the noise of an equal share of the budget."""
    rows = np.flatnonzero(past.ops == events.INSERT)
    chosen = np.random.default_rng(seed).choice(rows, min(deletions, len(rows)), replace=False)
    k, clock = past.epoch.constants, len(past)
    reach = bounds.sensitivity(k.G, k.lam, clock, k.t0, past.parameters.unlearner, past.epoch.d)
    drawn = noise.of_scale(odometer.sigma(reach, max(1, past.epoch.cap // deletions)), len(chosen), past.epoch.d)
    ops = np.full(len(chosen), events.DELETE, np.int16)
    events.apply(pair.arrays, k, ops, past.X[chosen], past.y[chosen], *drawn)


def _dynamic(X: Vector, y: Vector, loss: str, k: Any, losses: Vector) -> tuple[float, float]:
    """Return the dynamic regret and the comparator's path length."""
    stride = max(1, len(X) // 20)
    ws = comparators.rolling(X, y, loss, k.lam, window=2 * stride, stride=stride, clip=k.clip)  # type: ignore[arg-type]
    best = 0.0
    for i, w in zip(range(0, len(X), stride), ws, strict=True):
        here = slice(i, i + stride)
        best += float(comparators.row_losses(X[here], y[here], w, loss, k.lam, k.clip).sum())  # type: ignore[arg-type]
    return float(losses.sum()) - best, comparators.path_length(ws)


def _printed(k: Any, clock: int, tally: Sums, deletions: int, stream: Stream) -> tuple[float, float]:
    """Return Theorem 1 and the adaptive bound as printed, with H between 1/(M + λ) and 1/λ."""
    m = max(deletions, 1)
    sigma = odometer.sigma(k.G / k.lam, max(1, stream.epoch.cap // m))
    spent = bounds.paper_deletion_regret(deletions, k.G, sigma, stream.parameters.delta)
    c, C, D = 1.0 / (k.M + k.lam), 1.0 / k.lam, k.diameter
    return (
        bounds.paper_regret_bound(k.G, k.lam, c, clock, spent),
        bounds.paper_adaptive_regret_bound(k.G, D, c, C, tally["gradient_sum"]) + spent,
    )


_SUMS: Final = ("rows", "past", "anchor_sum", "excess", "jump_const", "jump_slope", "gradient_sum")
