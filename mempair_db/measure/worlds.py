"""Two worlds: one learned a row and unlearned it, in the other the row's place was left empty (theory 3.4).

    world 1   learned with the row, then the row deleted: the carried state after the delete
    world 0   the ideal replay, the row's tick without data, with the same noise

Both are made by the kernel that runs in production. `FLAWS` are ways of doing it wrong, for positive controls: a test
that does not see them sees nothing.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Final

import numpy as np

from mempair_db.pair import bounds, events, noise, odometer
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.noise import Noise
from mempair_db.pair.state import PAPER, Constants, State, Vector, copy, empty

DOUBLES, SUMS = "doubles", "sums"
FLAWS: Final = {
    "": "none",
    DOUBLES: "normal noise in doubles, added to an anchor that was not rounded",
    SUMS: "the running sums of losses go on as if nothing had been deleted",
}

_DELETE: Final = np.array([events.DELETE], np.int16)


@dataclass(frozen=True)
class Worlds:
    """The carried state in both worlds just before the noise falls, and the row whose deletion is tested."""

    name: str
    constants: Constants
    learned: State  # world 1, before the delete
    ideal: State  # world 0, before its noise
    x: Vector
    y: float
    rho: int  # what the deletion spends, in units
    sigma: float
    flaw: str = ""

    def draw(self, count: int) -> Noise:
        """Return the noise of so many deletions."""
        d = len(self.x)
        if self.flaw == DOUBLES:
            return Noise(self.sigma * box_muller(count * d).reshape(count, d), np.zeros(count))
        return noise.of_scale(self.sigma, count, d)

    def quiet(self) -> Noise:
        """Return noise of length zero: what the states are centred at."""
        grid = 0.0 if self.flaw == DOUBLES else self.sigma / noise.STEPS
        return Noise(np.zeros((1, len(self.x))), np.array([grid]))

    def forgotten(self, drawn: Noise, i: int = 0) -> State:
        """World 1: delete the row."""
        state = copy(self.learned)
        self._delete(state, self.x, self.y, drawn, i)
        return state

    def never_had(self, drawn: Noise, i: int = 0) -> State:
        """World 0: the same noise on the replay. A deletion of x = 0 has no gradient: its step is the noise alone.

        The empty place is counted like the row: that there was one is public.
        """
        state = copy(self.ideal)
        state.tally["rows"] += 1
        if self.constants.mode == PAPER:  # its gradient has the ridge in it as well
            state.theta[:] += drawn.steps[i] * drawn.grid[i]
        else:
            self._delete(state, np.zeros(len(self.x)), 1.0, drawn, i)
        return state

    def _delete(self, state: State, x: Vector, y: float, drawn: Noise, i: int) -> None:
        before = state.tally.copy()
        one = slice(i, i + 1)
        events.apply(state, self.constants, _DELETE, x[None, :], np.array([y]), drawn.steps[one], drawn.grid[one])
        if self.flaw == SUMS:
            for name in ("loss", "excess"):
                state.tally[name] = before[name]


def box_muller(count: int) -> Vector:
    """Return standard normals in doubles, as most libraries draw them: their last bits show a grid of their own."""
    u, v = (np.frombuffer(os.urandom(16 * count), "<u8").reshape(2, count) + 1.0) * 2.0**-64
    drawn: Vector = np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * math.pi * v)
    return drawn


# -- instances --------------------------------------------------------------------------------------------------------


def tight_instance(epsilon: float, delta: float, *, ticks: int = 50) -> Worlds:
    """Return a stream on which Theorem B is attained: the two means differ by exactly S = 2G/(λ(T + t0)).

    One dimension, huber loss, λ = 0.1. The row (1, 2) pulls the anchor up by η_1·G. All later rows, (1, 1000), have a
    clipped gradient wherever the anchor is, so both worlds contract by the ridge alone. At the end the anchor is far
    above 2, the row's gradient has turned, and the negative step moves it up once more, by as much.
    """
    parameters = Parameters(loss="huber", epsilon=epsilon, delta=delta, lam=0.1)
    x, y = np.ones((ticks, 1)), np.concatenate(([2.0], np.full(ticks - 1, 1000.0)))
    return between("the tight instance of Theorem B", parameters, x, y, 0)


def printed_instance(epsilon: float, delta: float) -> Worlds:
    """Return Algorithm 1 as printed on an invented stream; the deleted row is one of the last, so its pair is kept."""
    parameters = Parameters(epsilon=epsilon, delta=delta, lam=0.1, mode="paper", m=1)
    x, y = invented(200, 5)
    return between("Algorithm 1 as printed", parameters, x, y, 197)


def flawed_instance(flaw: str, epsilon: float, delta: float) -> Worlds:
    """Return an invented stream of 20 dimensions with one of `FLAWS`, or with none."""
    parameters = Parameters(epsilon=epsilon, delta=delta, lam=0.1, unlearner="passive")
    x, y = invented(50, 20)
    return between(FLAWS[flaw], parameters, x, y, 40, flaw=flaw)


def invented(ticks: int, d: int) -> tuple[Vector, Vector]:
    """Return encoded rows that nobody has to hide."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ticks, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, np.where(x[:, 0] + 0.3 * rng.normal(size=ticks) > 0, 1.0, -1.0)


def between(name: str, parameters: Parameters, x: Vector, y: Vector, row: int, *, flaw: str = "") -> Worlds:
    """Return the two worlds of one row of a stream of encoded rows; its deletion spends the whole budget."""
    assert parameters.lam is not None  # noqa: S101
    k = constants_for(parameters, parameters.lam)
    learned, ideal = empty(x.shape[1], parameters.tau), empty(x.shape[1], parameters.tau)
    events.learn(learned, k, x, y)
    ops = np.full(len(x), events.INSERT, np.int16)
    ops[row] = events.TICK
    events.apply(ideal, k, ops, x, y, np.empty((0, x.shape[1])))
    rho = odometer.to_units(odometer.rho_of(parameters.epsilon, parameters.delta))
    reach = bounds.sensitivity(k.G, k.lam, len(x), k.t0, parameters.unlearner, x.shape[1])
    scale = noise.sigma(k.G / k.lam if k.mode == PAPER else reach, rho, x.shape[1])
    return Worlds(name, k, learned, ideal, x[row], float(y[row]), rho, scale, flaw)
