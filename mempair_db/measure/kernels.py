"""The kernel of `pair.step` once more, with a trace of the losses."""

from __future__ import annotations

from typing import Any

from mempair_db.pair import step
from mempair_db.pair.compiled import compiled
from mempair_db.pair.curvature import dot
from mempair_db.pair.events import room_for
from mempair_db.pair.losses import value
from mempair_db.pair.state import Constants, State, Vector

learn = step.learn


def trace(state: State, k: Constants, ops: Any, X: Any, y: Vector, out: Vector) -> None:
    """Apply inserts and ticks, and write f_t(θ_t) of each row, before it is learned, to `out`."""
    _trace(state, k, ops, X, y, out, *room_for(state, k))


@compiled
def _trace(state: Any, k: Any, ops: Any, X: Any, y: Any, out: Any, room: Any, inverse: Any) -> None:
    for i in range(ops.shape[0]):
        if ops[i] == step.INSERT:
            theta = state.theta
            out[i] = value(k.loss, k.clip, dot(theta, X[i]), y[i]) + 0.5 * k.lam * dot(theta, theta)
        learn(state, k, ops[i : i + 1], X[i : i + 1], y[i : i + 1], room, inverse)
