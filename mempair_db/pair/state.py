"""What the Memory Pair carries from one event to the next, and the constants it never changes.

`State` is nothing but arrays: the kernel of `step` changes them in place, a database stores them and loads them
back without losing a bit. Its size is O(d·τ), whatever the number of events.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]

ANCHORED: Final = 0
PAPER: Final = 1

TALLY: Final = np.dtype(
    [
        ("clock", "<i8"),  # t: insert events of the epoch, gaps included
        ("rows", "<i8"),  # inserts with data
        ("deletions", "<i8"),
        ("head", "<i8"),  # slot of the window that the next pair takes
        ("pairs", "<i8"),  # pairs in the window, at most τ
        ("block_rows", "<i8"),  # rows seen in the current block
        ("forgot_at", "<i8"),  # the clock of the last deletion: the sums of losses and gradients begin there
        ("forgot_rows", "<i8"),  # `rows` at that clock
        ("reach", "<f8"),  # the longest anchor that the last deletion can have left
        ("loss", "<f8"),  # Σ ℓ(θ_tᵀx_t, y_t) before each update: progressive loss
        (
            "zero_loss",
            "<f8",
        ),  # Σ ℓ(0, y_t), the largest there can be before `forgot_at`: bounds the comparator
        ("anchor_sum", "<f8"),  # ½ Σ η_t‖∇f_t(a_t)‖², less what `step.tick` says
        ("excess", "<f8"),  # Σ f_t(θ_t) − f_t(a_t)
        ("past", "<f8"),  # the largest that these two can have been before `forgot_at`
        ("jump_const", "<f8"),  # Σ over deletions of λ(T+t0)(‖a‖‖δ‖ + ½‖δ‖²), with the longest jump there can be
        ("jump_slope", "<f8"),  # Σ over deletions of λ(T+t0)‖δ‖, to be multiplied by the comparator's norm
        ("noise_loss", "<f8"),  # Σ over deletions of what their noise costs a prediction, in expectation
        ("rounded", "<f8"),  # Σ over deletions of what rounding keeps two worlds apart by, see `noise.grids`
        ("gradient_sum", "<f8"),  # S_t = Σ‖g_t‖²
        ("curvature_sum", "<f8"),  # Σ λ_s
    ]
)


class Constants(NamedTuple):
    """The constants of an epoch that the kernel reads (theory 3.1)."""

    mode: int  # ANCHORED or PAPER
    loss: int  # a code of `losses`
    clip: float
    G: float
    M: float
    lam: float  # λ
    t0: float  # M/λ
    kappa: float  # κ: radius of the trust region in units of G·η_t
    block: int  # L: shortest block of rows behind one curvature pair
    pairs: int  # paper mode: a code of `curvature`
    schedule: int  # paper mode: a code of `schedule`
    diameter: float  # paper mode: D
    symmetric: bool  # delete takes the negative step; False: passive


class State(NamedTuple):
    """Anchor, theta, window of curvature pairs, the block being accumulated, and the running sums."""

    anchor: Vector
    theta: Vector
    window_v: npt.NDArray[np.float64]  # (τ, d)
    window_r: npt.NDArray[np.float64]  # (τ, d)
    window_vr: Vector  # vᵀr of each pair
    block_v: Vector  # direction along which this block measures curvature; zero: none yet
    block_r: Vector  # running sum of Hessian-vector products
    block_theta: Vector  # θ where this block began
    tally: npt.NDArray[Any]  # one record of TALLY


class Scratch(NamedTuple):
    """Room for the numbers of one step; nothing in it outlives the step."""

    g: Vector  # gradient
    d: Vector  # direction
    weights: Vector  # one per pair of the window
    inverse: Matrix  # H, or no rows where d is too large for it


def empty(d: int, tau: int) -> State:
    """Return the state before the first event: everything is zero.

    >>> state = empty(3, tau=10)
    >>> state.window_v.shape, int(state.tally["clock"][0])
    ((10, 3), 0)
    """
    return State(
        anchor=np.zeros(d),
        theta=np.zeros(d),
        window_v=np.zeros((tau, d)),
        window_r=np.zeros((tau, d)),
        window_vr=np.zeros(tau),
        block_v=np.zeros(d),
        block_r=np.zeros(d),
        block_theta=np.zeros(d),
        tally=np.zeros(1, TALLY),
    )


def copy(state: State) -> State:
    """Return a state that shares no memory with this one."""
    return State(*(array.copy() for array in state))


def pack_after_deletion(state: State) -> bytes:
    """Pack what a state is made of right after a deletion: θ is the anchor, and the window is empty."""
    return state.anchor.astype("<f8").tobytes() + state.tally.tobytes()


def unpack_after_deletion(data: bytes, tau: int) -> State:
    """Unpack what `pack_after_deletion` packed.

    >>> state = empty(2, tau=1)
    >>> state.anchor[:] = state.theta[:] = state.block_theta[:] = (1.0, -0.0)
    >>> to_bytes(unpack_after_deletion(pack_after_deletion(state), tau=1)) == to_bytes(state)
    True
    """
    anchor = np.frombuffer(data[: -TALLY.itemsize], "<f8").astype(float)
    state = empty(len(anchor), tau)
    for array in (state.anchor, state.theta, state.block_theta):
        array[:] = anchor
    state.tally[:] = np.frombuffer(data[-TALLY.itemsize :], TALLY)
    return state


def to_bytes(state: State) -> bytes:
    """Pack the whole state, little-endian, in the order of the fields.

    >>> state = empty(2, tau=1)
    >>> from_bytes(to_bytes(state), d=2, tau=1).theta
    array([0., 0.])
    """
    return b"".join(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes() for array in state)


def from_bytes(data: bytes, d: int, tau: int) -> State:
    """Unpack what `to_bytes` packed; the shapes follow from d and τ."""
    arrays = []
    offset = 0
    for blank in empty(d, tau):
        arrays.append(np.frombuffer(data, blank.dtype, blank.size, offset).reshape(blank.shape).copy())
        offset += blank.nbytes
    if offset != len(data):
        raise ValueError(f"a state of d = {d}, τ = {tau} has {offset} bytes, not {len(data)}")
    return State(*arrays)
