"""A whole array of events, in order, through the kernel of the mode.

The one entry to the compiled code: checks shapes and types once, so that the kernel is compiled once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import printed, step
from .compiled import plain
from .state import PAPER, Constants, Matrix, State, Vector

TICK, INSERT, DELETE = step.TICK, step.INSERT, step.DELETE


def apply(
    state: State,
    k: Constants,
    ops: npt.NDArray[np.int16],
    X: npt.NDArray[np.float64],
    y: Vector,
    noise: Matrix,
    grid: Vector | None = None,
) -> None:
    """Change `state` by the encoded events (ops[i], X[i], y[i]); `noise` has one row per DELETE, see `step.delete`."""
    ops, X, y = plain(ops, np.int16), plain(X, np.float64), plain(y, np.float64)
    n, d = len(ops), len(state.theta)
    noise = plain(noise, np.float64).reshape(-1, d)
    deletions = int(np.count_nonzero(ops == DELETE))
    grid = plain(np.zeros(len(noise)) if grid is None else grid, np.float64)
    if X.shape != (n, d) or y.shape != (n,) or not len(noise) == len(grid) == deletions:  # the kernel does not look
        raise ValueError(
            f"{n} events, {deletions} of them deletions, of {d} numbers each do not go with "
            f"rows of shape {X.shape}, targets of shape {y.shape}, noise of shape {noise.shape} and {len(grid)} grids"
        )
    run = printed.run if k.mode == PAPER else step.run
    run(state, k, ops, X, y, noise, grid)


def learn(state: State, k: Constants, X: npt.NDArray[np.float64], y: Vector) -> None:
    """Insert every row."""
    apply(state, k, np.full(len(X), INSERT, np.int16), X, y, np.empty((0, X.shape[1])))
