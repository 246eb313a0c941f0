"""The kernel of `pair.step`, compiled in two more shapes: for threads, and with a trace of the losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from mempair_db.pair import step
from mempair_db.pair.compiled import compiled
from mempair_db.pair.curvature import dot
from mempair_db.pair.losses import value

run = step.run


@compiled
def learn(state: Any, k: Any, ops: Any, X: Any, y: Any) -> None:
    """Apply inserts and ticks without holding Python's lock, so that threads work side by side."""
    run(state, k, ops, X, y, np.empty((0, X.shape[1])), np.empty(0))


@compiled
def trace(state: Any, k: Any, ops: Any, X: Any, y: Any, out: Any) -> None:
    """Apply inserts and ticks, and write f_t(θ_t) of each row, before it is learned, to `out`."""
    nothing, nowhere = np.empty((0, X.shape[1])), np.empty(0)
    for i in range(ops.shape[0]):
        if ops[i] == step.INSERT:
            theta = state.theta
            out[i] = value(k.loss, k.clip, dot(theta, X[i]), y[i]) + 0.5 * k.lam * dot(theta, theta)
        run(state, k, ops[i : i + 1], X[i : i + 1], y[i : i + 1], nothing, nowhere)
