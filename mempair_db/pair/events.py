"""A whole array of events, in order, through the kernel of the mode.

The one entry to the compiled code: checks shapes and types once, so that the kernel is compiled once.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from . import printed, step
from .compiled import plain
from .curvature import DENSE
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
    deleting = ops == DELETE
    deletions = int(np.count_nonzero(deleting))
    grid = np.zeros(len(noise)) if grid is None else plain(grid, np.float64)
    if X.shape != (n, d) or y.shape != (n,) or not len(noise) == len(grid) == deletions:  # the kernel does not look
        raise ValueError(
            f"{n} events, {deletions} of them deletions, of {d} numbers each do not go with "
            f"rows of shape {X.shape}, targets of shape {y.shape}, noise of shape {noise.shape} and {len(grid)} grids"
        )
    kernel = printed if k.mode == PAPER else step
    room = room_for(state, k)
    first = 0  # deletion that is next
    cuts = np.flatnonzero(deleting[1:] != deleting[:-1]) + 1 if 0 < deletions < n else ()
    for begin, end in pairwise((0, *cuts, n)):
        if not deletions or not deleting[begin]:
            kernel.learn(state, k, ops[begin:end], X[begin:end], y[begin:end], *room)
        else:
            last = first + end - begin
            kernel.forget(state, k, X[begin:end], y[begin:end], noise[first:last], grid[first:last], *room)
            first = last


def room_for(state: State, k: Constants) -> tuple[Matrix, Matrix]:
    """Return room for the numbers of one step, and for H where there is a use for it."""
    d = len(state.theta)
    dense = d if d <= DENSE and k.mode != PAPER else 0
    return np.empty((3, max(d, len(state.window_vr)))), np.empty((dense, dense))


def learn(state: State, k: Constants, X: npt.NDArray[np.float64], y: Vector) -> None:
    """Insert every row."""
    apply(state, k, np.full(len(X), INSERT, np.int16), X, y, np.empty((0, X.shape[1])))
