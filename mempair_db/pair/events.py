"""A whole array of events, in order, through the kernel of the mode.

The one entry to the compiled code: checks shapes and types once, so that the kernel is compiled once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import printed, step
from .state import PAPER, Constants, State, Vector

TICK, INSERT, DELETE = step.TICK, step.INSERT, step.DELETE


def apply(
    state: State,
    k: Constants,
    ops: npt.NDArray[np.int16],
    X: npt.NDArray[np.float64],
    y: Vector,
    noise: Vector,
) -> None:
    """Change `state` by the encoded events (ops[i], X[i], y[i]); `noise` has one row per DELETE, already scaled."""
    run = printed.run if k.mode == PAPER else step.run
    run(
        state,
        k,
        np.ascontiguousarray(ops, np.int16),
        np.ascontiguousarray(X, np.float64),
        np.ascontiguousarray(y, np.float64),
        np.ascontiguousarray(noise, np.float64).reshape(-1, len(state.theta)),
    )


def learn(state: State, k: Constants, X: npt.NDArray[np.float64], y: Vector) -> None:
    """Insert every row."""
    apply(state, k, np.full(len(X), INSERT, np.int16), X, y, np.empty((0, X.shape[1])))
