"""Leave one row out: how far does a deletion, before its noise, end from the true replay without that row?

One pass over the rows. When the row of a candidate comes by, the state forks: the main line and all older forks learn
it, the new fork lets its tick pass without data. From then on all of them learn the same rows. At the end the main
line is the model that has learned everything; for each candidate a copy of it unlearns the row, with no noise, and

    ratio = ‖a_deleted − ã‖/S,    S = 2G/(λ(T + t0)), passive: half          Theorem B says ≤ 1
    theta = ‖θ − θ̃‖/((1 + 2κ)·G/(λ(T + t0))), before the deletion           Theorem A says ≤ 1

Forks are independent, so threads learn them side by side; the compiled kernel does not hold Python's lock.
Memory: a batch of rows and one state per candidate.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from mempair_db.measure.replay import loss_name
from mempair_db.offline.folder import Offline
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair import bounds, events
from mempair_db.pair.comparators import derivative
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.state import State, Vector, copy, empty

SLACK: Final = 1e-9
"""Rounding that a ratio may have; the noise allows for as much (`odometer.ROUNDING`)."""


@dataclass(frozen=True)
class Left:
    """One row left out."""

    tick: int
    why: str
    distance: float
    ratio: float
    theta_ratio: float
    untouched: float  # the distance if no step were taken, as `passive` does


@dataclass(frozen=True)
class Fork:
    """A world in which a row never came."""

    tick: int
    why: str
    x: Vector
    y: float
    state: State


@dataclass(frozen=True)
class LeaveOneOut:
    """All rows that were left out, and the model they were left out of."""

    left: list[Left]
    sensitivity: float
    learned: State
    forks: list[Fork]

    @property
    def worst(self) -> Left:
        """The row that came closest to the bound."""
        return max(self.left, key=lambda one: one.ratio)

    @property
    def helped(self) -> int:
        """For how many rows the step back came closer to the replay than no step would have."""
        return sum(one.distance < one.untouched for one in self.left)

    @property
    def holds(self) -> bool:
        """Whether no row passed either bound."""
        return all(max(one.ratio, one.theta_ratio) <= 1.0 + SLACK for one in self.left)


def candidates(model: Offline, count: int, *, seed: int = 0, bars: Bars = silent) -> dict[int, str]:
    """Choose ticks: first, middle and last rows, the largest gradients at the live model, and random ones."""
    live = model.live()
    epoch = live.epoch
    assert epoch is not None  # noqa: S101  (live() has checked)
    share = max(1, count // 5)
    total = model.surviving_rows
    rng = np.random.default_rng(seed)
    places = dict.fromkeys(rng.choice(total, min(total, count), replace=False).tolist(), "random")
    for why, first in (("middle", (total - share) // 2), ("last", total - share), ("first", 0)):
        places |= dict.fromkeys(range(max(first, 0), min(first + share, total)), why)
    steepest: list[tuple[float, int]] = []
    chosen: dict[int, str] = {}
    seen = 0
    with bars("Looking for the largest gradients", total) as advance:
        for rows in model.batches():
            there = np.flatnonzero(rows.there)
            if not len(there):
                continue
            X = epoch.encoding.encode(rows.x, rows.c)[there]
            y = epoch.encoding.encode_target(rows.y)[there]
            slope = derivative(loss_name(live), X @ live.arrays.anchor, y, epoch.constants.clip)  # type: ignore[arg-type]
            steep = np.abs(slope) * np.linalg.norm(X, axis=1)
            for i in np.argsort(-steep)[:share].tolist():
                heapq.heappush(steepest, (float(steep[i]), int(rows.ticks[there[i]])))
            steepest = heapq.nlargest(share, steepest)
            chosen |= {
                int(rows.ticks[there[place - seen]]): why
                for place, why in places.items()
                if seen <= place < seen + len(there)
            }
            seen += len(there)
            advance(len(there))
    chosen |= {tick: "largest gradient" for _, tick in steepest}
    ranks = {"random": 1}
    return dict(sorted(sorted(chosen.items(), key=lambda item: ranks.get(item[1], 0))[:count]))


def leave_out(model: Offline, ticks: dict[int, str], *, threads: int | None = None, bars: Bars = silent) -> LeaveOneOut:
    """Leave each of these ticks' rows out, one at a time."""
    live = model.live()
    epoch = live.epoch
    assert epoch is not None  # noqa: S101
    k = epoch.constants
    main, nothing = empty(epoch.d, live.parameters.tau), np.empty((0, epoch.d))
    forks: list[Fork] = []
    with (
        ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool,
        bars(f"Leaving {len(ticks)} rows out", model.clock) as advance,
    ):
        for rows in model.batches():
            X = np.ascontiguousarray(epoch.encoding.encode(rows.x, rows.c))
            y = np.ascontiguousarray(epoch.encoding.encode_target(rows.y))
            for piece in _pieces(rows.ticks, ticks):
                tick, ops = int(rows.ticks[piece.start]), rows.ops[piece]
                worlds = [(main, ops), *((fork.state, ops) for fork in forks)]
                if tick in ticks:
                    forks.append(Fork(tick, ticks[tick], X[piece.start].copy(), float(y[piece.start]), copy(main)))
                    worlds.append((forks[-1].state, _with_a_gap(ops)))
                x, targets = X[piece], y[piece]
                learning = [pool.submit(events.apply, state, k, its, x, targets, nothing) for state, its in worlds]
                for world in learning:
                    world.result()
                advance(len(ops))
    return _measure(live, main, forks)


def _pieces(ticks: npt.NDArray[np.int64], wanted: Container[int]) -> list[slice]:
    """Cut a batch so that every candidate begins a piece.

    >>> _pieces(np.array([11, 12, 13, 14]), {13})
    [slice(0, 2, None), slice(2, 4, None)]
    """
    cuts = {0, *(i for i, tick in enumerate(ticks.tolist()) if tick in wanted), len(ticks)}
    return [slice(begin, end) for begin, end in pairwise(sorted(cuts))]


def _with_a_gap(ops: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Return the same events, the first of them without its data."""
    gap = ops.copy()
    gap[0] = events.TICK
    return gap


def _measure(live: CertifiedPair, main: State, forks: list[Fork]) -> LeaveOneOut:
    epoch = live.epoch
    assert epoch is not None  # noqa: S101
    k, clock = epoch.constants, int(main.tally["clock"][0])
    reach = bounds.sensitivity(k.G, k.lam, clock, k.t0, live.parameters.unlearner, epoch.d)
    loose = bounds.theta_stability(k.G, k.lam, clock, k.t0, k.kappa)
    delete, quiet = np.array([events.DELETE], np.int16), np.zeros((1, epoch.d))
    left = []
    for fork in forks:
        deleted = copy(main)
        events.apply(deleted, k, delete, fork.x[None, :], np.array([fork.y]), quiet)
        distance = float(np.linalg.norm(deleted.anchor - fork.state.anchor))
        theta = float(np.linalg.norm(main.theta - fork.state.theta))
        untouched = float(np.linalg.norm(main.anchor - fork.state.anchor))
        left.append(Left(fork.tick, fork.why, distance, distance / reach, theta / loose, untouched))
    return LeaveOneOut(left, reach, main, forks)
