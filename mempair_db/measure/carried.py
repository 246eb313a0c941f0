"""The noise that the stored state really carries: neither less than the ledger was charged for, nor more.

The state right after the last deletion is stored. It is compared with replays of the surviving rows, the deleted rows'
places left empty, in which noise of the same scales falls at the same clocks: K honest lives. Three things must hold.

    grid   The anchor is a whole number of steps of the last deletion's grid. A worker that adds no noise, or scales it,
           or adds it to an anchor that it did not round, leaves other numbers, whatever the dimension.
    Q      With m and C the mean and the covariance of the K anchors, Q = (a − m)ᵀC⁻¹(a − m) has Hotelling's law,
           (K − d)K/((K² − 1)d)·Q ~ F(d, K − d), but for what the deleted rows themselves left: at most S_i each, a
           noncentrality of at most Σ(S_i/σ_i)² = 2ρ. Less noise makes Q small, more makes it large: both tails count.
    sums   Every running sum is the one that the honest lives have, bit for bit: it knows the clock and constants alone.

Q has only d numbers to go by, so it sees half the noise in wide models alone; `power` says how surely it would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mempair_db.measure import intervals, replay
from mempair_db.offline.folder import Offline
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair import bounds, events, noise, odometer
from mempair_db.pair.state import TALLY, Constants, State, Vector, copy

LIVES: Final = 400
CHANCE: Final = 1e-4
"""How often each tail may accuse an honest worker."""

SUMS: Final = tuple(name for name in TALLY.names or () if name not in ("noise_loss", "rounded"))
"""What the kernel keeps; these two come from who calls it."""


@dataclass(frozen=True)
class Carried:
    """What the stored anchor says of its noise."""

    deletions: int
    d: int
    on_grid: bool
    sums: bool  # whether the running sums are those of every honest life
    ratio: float  # of the noise found to the noise charged for, in variance: about 1
    too_little: float  # how probable so little noise is, if the worker is honest
    too_much: float
    power: float  # how surely half the noise would have been seen by Q alone

    @property
    def holds(self) -> bool:
        """Whether the noise is what was charged for."""
        return self.on_grid and self.sums and min(self.too_little, self.too_much) >= CHANCE


def measure(model: Offline, *, lives: int = LIVES, bars: Bars = silent) -> Carried | None:
    """Examine an export; None if the epoch has no deletion by noise."""
    after = model.after_last_deletion()
    charged = replay.deletions(model)
    if after is None or after.epoch is None or not charged:
        return None
    k, d = after.epoch.constants, after.epoch.d
    reach = [bounds.sensitivity(k.G, k.lam, clock, k.t0, after.parameters.unlearner, d) for clock, _ in charged]
    grids = np.array(noise.grids(reach, [clock for clock, _ in charged], [rho for _, rho in charged], d, k.t0)[0])
    found = after.arrays.anchor
    lived = _lives(model, [clock for clock, _ in charged], grids, max(lives, 3 * d + 20), bars)
    same = all(after.tally(name) == lived[0].tally[name][0] for name in SUMS)
    anchors = np.array([state.anchor for state in lived])
    spent = sum(rho for _, rho in charged) / odometer.UNITS
    on_grid = _on_grid(found, grids[-1])
    return verdict(found, anchors, on_grid=on_grid, sums=same, noncentral=2.0 * spent, deletions=len(charged))


def verdict(
    found: Vector, anchors: Vector, *, on_grid: bool, noncentral: float, deletions: int, sums: bool = True
) -> Carried:
    """Hold an anchor against those of honest lives."""
    K, d = anchors.shape
    away = found - anchors.mean(axis=0)
    Q = float(away @ np.linalg.solve(np.atleast_2d(np.cov(anchors, rowvar=False)), away))
    scale = (K - d) * K / ((K * K - 1.0) * d)
    return Carried(
        deletions=deletions,
        d=d,
        on_grid=on_grid,
        sums=sums,
        ratio=Q / d,
        too_little=intervals.f_cdf(scale * Q, d, K - d),
        too_much=1.0 - intervals.f_cdf(scale * Q, d, K - d, noncentral),
        power=intervals.f_cdf(4.0 * intervals.f_quantile(CHANCE, d, K - d), d, K - d),
    )


def _on_grid(anchor: Vector, grid: float) -> bool:
    return bool(np.array_equal(anchor, grid * np.rint(anchor / grid)))


def _lives(model: Offline, clocks: list[int], grids: Vector, lives: int, bars: Bars) -> list[State]:
    """Return the states right after the last deletion of so many honest lives."""
    start = replay.ideal(model, until=clocks[0])
    epoch = start.epoch
    assert epoch is not None  # noqa: S101
    k = epoch.constants
    states = [copy(start.arrays) for _ in range(lives)]
    with bars(f"Living {model.name} {lives} times", max(clocks[-1] - clocks[0], 1)) as advance:
        _delete(states, k, epoch.d, grids[[clock == clocks[0] for clock in clocks]])
        for rows in model.batches(after=clocks[0], until=clocks[-1]):
            X = np.ascontiguousarray(epoch.encoding.encode(rows.x, rows.c))
            y = np.ascontiguousarray(epoch.encoding.encode_target(rows.y))
            for begin, end, clock in _stretches(rows.ticks, clocks):
                for state in states:
                    events.apply(state, k, rows.ops[begin:end], X[begin:end], y[begin:end], np.empty((0, epoch.d)))
                _delete(states, k, epoch.d, grids[[at == clock for at in clocks]])
            advance(len(rows))
    return states


def _stretches(ticks: Any, clocks: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the stretches of these ticks that end at a deletion's clock, and the last, with the clock they end at."""
    begin = 0
    for end in [i + 1 for i, tick in enumerate(ticks.tolist()) if tick in set(clocks)] + [len(ticks)]:
        if end > begin:
            yield begin, end, int(ticks[end - 1])
        begin = end


def _delete(states: list[State], k: Constants, d: int, grids: Vector) -> None:
    """Let noise of these scales fall on every state. A deletion of x = 0 takes no step; its place counts as a row."""
    if len(grids):
        ops, nothing = np.full(len(grids), events.DELETE, np.int16), np.zeros((len(grids), d))
        for state in states:
            state.tally["rows"] = state.tally["clock"]
            events.apply(state, k, ops, nothing, np.ones(len(grids)), *noise.draw(grids, d))
