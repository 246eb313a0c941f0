"""The kernel of the anchored mode: one insert and one delete worked by hand, long streams against plain numpy.

By hand: huber with clip 1 has G = M = 1, and λ = 1 makes t0 = 1, so α_1 = η_1 = 1/2 and α_2 = η_2 = 1/3.
"""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest

from mempair_db.pair import events, printed, step
from mempair_db.pair.bounds import Unlearner
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.comparators import derivative, second_derivative, value
from mempair_db.pair.curvature import DENSE
from mempair_db.pair.state import Constants, State, Vector, copy, empty, from_bytes, to_bytes

Matrix = npt.NDArray[np.float64]
Pair = tuple[Vector, Vector]


def constants(loss: str = "huber", lam: float = 1.0, block: int = 1, **options: object) -> Constants:
    return constants_for(Parameters(loss=loss, **options), lam)._replace(block=block)  # type: ignore[arg-type]


def apply(state: State, k: Constants, op: int, x: list[float], y: float, noise: list[float] | None = None) -> None:
    drawn = np.array([noise]) if noise else np.empty((0, len(x)))
    events.apply(state, k, np.array([op], np.int16), np.array([x]), np.array([y]), drawn)


def two_rows(k: Constants) -> State:
    state = empty(2, tau=3)
    apply(state, k, events.INSERT, [0.6, 0.8], 2.0)
    apply(state, k, events.INSERT, [1.0, 0.0], 0.0)
    return state


# ---- By hand. ----


def test_one_insert_worked_by_hand() -> None:
    # Given an empty model, when a row with residual −2, clipped to −1, is learned,
    state = empty(2, tau=3)
    apply(state, constants(), events.INSERT, [0.6, 0.8], 2.0)
    # then a = −½·(−1)·x, and θ steps along −H·g = x by ½ as well.
    assert state.anchor == pytest.approx([0.3, 0.4])
    assert state.theta == pytest.approx([0.3, 0.4])
    # The block of one row ended, and the next measures along θ's displacement (0.3, 0.4)/0.5.
    assert state.block_v == pytest.approx([0.6, 0.8])
    assert state.tally["pairs"][0] == 0
    # The running sums: ℓ(0, 2) = 2 − ½, ½·η·‖∇f‖² = ½·½·1, S_1 = 1.
    tally = state.tally[0]
    assert [tally[name] for name in ("loss", "zero_loss", "anchor_sum", "excess", "gradient_sum")] == pytest.approx(
        [1.5, 1.5, 0.25, 0.0, 1.0]
    )


def test_a_second_insert_worked_by_hand_measures_curvature() -> None:
    # z = 0.3 lies inside: c = 0.3, a ← a − ⅓(c·x + a) = (0.3 − ⅓·0.6, 0.4 − ⅓·0.4).
    state = two_rows(constants())
    assert state.anchor == pytest.approx([0.1, 0.4 * 2 / 3])
    assert state.theta == pytest.approx([0.1, 0.4 * 2 / 3])
    # The pair: v = (0.6, 0.8), r = 1·(xᵀv)·x + λ·v = (0.6, 0) + (0.6, 0.8), vᵀr = 0.72 + 0.64.
    assert state.tally["pairs"][0] == 1
    assert state.window_v[0] == pytest.approx([0.6, 0.8])
    assert state.window_r[0] == pytest.approx([1.2, 0.8])
    assert state.window_vr[0] == pytest.approx(1.36)


def test_one_delete_worked_by_hand() -> None:
    # Given the two rows, when the second is deleted at T = 2: c = 0.1, g = (0.1, 0), and with γ = 1.36/2.08 and the
    # pair above the two loops give d = −(217, 6)/4420, shorter than ‖g‖/λ,
    state = two_rows(constants())
    apply(state, constants(), events.DELETE, [1.0, 0.0], 0.0, noise=[0.01, -0.02])
    # then a ← a − ⅓·d + η, θ is a copy, and the window is empty.
    assert state.anchor == pytest.approx([0.1 + 217 / 13260 + 0.01, 4 / 15 + 6 / 13260 - 0.02])
    assert state.theta.tolist() == state.anchor.tolist()
    assert not state.window_v.any()
    # No jump is longer than G/(λ(T + t0)) = ⅓ and the noise, no anchor than G/λ = 1.
    jump = 1 / 3 + math.hypot(0.01, 0.02)
    assert state.tally["jump_const"][0] == pytest.approx(3 * (jump + jump**2 / 2))
    assert state.tally["jump_slope"][0] == pytest.approx(3 * jump)
    assert state.tally["reach"][0] == pytest.approx(1 + jump)
    # ½(G + λ·G/λ)²/λ·ln(3/1) for the steps, 3G·G/λ·ln(3/1) for θ.
    assert state.tally["past"][0] == pytest.approx(5 * math.log(3))
    assert state.tally["deletions"][0] == 1


def test_a_delete_rounds_to_the_grid_and_adds_whole_steps() -> None:
    k = constants(unlearner="passive")
    state = two_rows(k)  # a = (0.1, 4/15)
    one, steps = np.array([events.DELETE], np.int16), np.array([[7.0, -2.0]])
    events.apply(state, k, one, np.array([[1.0, 0.0]]), np.zeros(1), steps, np.array([0.03]))
    # round(3.33) + 7 and round(8.89) − 2 steps of 0.03.
    assert state.anchor.tolist() == [0.03 * 10.0, 0.03 * 7.0]
    assert state.theta.tolist() == state.anchor.tolist()


def test_a_passive_delete_adds_the_noise_alone() -> None:
    k = constants(unlearner="passive")
    state = two_rows(k)
    apply(state, k, events.DELETE, [1.0, 0.0], 0.0, noise=[0.01, -0.02])
    assert state.anchor == pytest.approx([0.11, 4 / 15 - 0.02])
    assert state.theta.tolist() == state.anchor.tolist()
    assert not state.window_v.any()


def test_the_second_of_two_deletes_steps_with_an_empty_window() -> None:
    # H = I/λ after the first: the step is −α·g/λ with c = ℓ'(aᵀx, y) at the new anchor.
    k = constants()
    state = two_rows(k)
    apply(state, k, events.DELETE, [1.0, 0.0], 0.0, noise=[0.0, 0.0])
    before = state.anchor.copy()
    apply(state, k, events.DELETE, [1.0, 0.0], 0.0, noise=[0.0, 0.0])
    assert state.anchor == pytest.approx([before[0] + before[0] / 3, before[1]])


def test_a_tick_is_the_ridge_alone() -> None:
    # At t = 3, α = 1/4: everything shrinks to three quarters, and no row is counted.
    k = constants()
    state = two_rows(k)
    apply(state, k, events.TICK, [9.0, 9.0], 9.0)
    assert state.anchor == pytest.approx([0.075, 0.2])
    assert state.theta == pytest.approx([0.075, 0.2])
    assert (state.tally["clock"][0], state.tally["rows"][0]) == (3, 2)


@pytest.mark.parametrize("op", [events.INSERT, events.DELETE])
def test_a_direction_longer_than_proved_is_shortened(op: int) -> None:
    # Given a window that claims a curvature of 0.01 where the ridge alone has 1,
    k = constants(kappa=1e9)
    state = empty(2, tau=1)
    state.window_v[0], state.window_r[0], state.window_vr[0] = [1.0, 0.0], [0.01, 0.0], 0.01
    state.tally["pairs"] = 1
    # when a step of gradient (−1, 0) is taken at clock 1,
    state.tally["clock"] = 0 if op == events.INSERT else 1
    apply(state, k, op, [1.0, 0.0], 5.0, noise=[0.0, 0.0] if op == events.DELETE else None)
    # then it is α·‖g‖/λ = ½ long, not 50.
    moved = state.theta if op == events.INSERT else state.anchor
    assert np.abs(moved) == pytest.approx([0.5, 0.0])


def test_theta_is_pulled_back_into_the_trust_region() -> None:
    # Given a trust region of radius κ·G·η_1 = 0.05 and a window that steps sideways,
    k = constants(kappa=0.1)
    state = empty(2, tau=1)
    state.theta[:] = [0.0, 0.3]
    apply(state, k, events.INSERT, [1.0, 0.0], 5.0)
    # then θ ends on its edge, towards where it stepped: a = (0.5, 0), θ before the pull = (0.5, 0.15).
    assert state.anchor == pytest.approx([0.5, 0.0])
    assert state.theta == pytest.approx([0.5, 0.05])


# ---- Against plain numpy. ----


class Plain:
    """The anchored mode as theory 3.2 and 3.4 write it: lists, dense matrices, no cleverness."""

    def __init__(self, k: Constants, loss: str, tau: int, d: int) -> None:
        self.k, self.loss, self.tau = k, loss, tau
        self.a, self.theta = np.zeros(d), np.zeros(d)
        self.pairs: list[Pair] = []
        self.t = 0
        self.restart()

    def restart(self) -> None:
        self.v: Vector | None = None
        self.products: list[Vector] = []
        self.rows = 0
        self.block_start = self.theta.copy()

    def direction(self, g: Vector) -> Vector:
        identity = np.eye(len(g))
        H = identity / self.k.lam
        if self.pairs:
            v, r = self.pairs[-1]
            H = identity * (v @ r) / (r @ r)
        for v, r in self.pairs:
            left = identity - np.outer(v, r) / (v @ r)
            H = left @ H @ left.T + np.outer(v, v) / (v @ r)
        d: Vector = -H @ g
        length, longest = float(np.linalg.norm(d)), float(np.linalg.norm(g)) / self.k.lam
        return d * (longest / length) if length > longest else d

    def slope(self, w: Vector, x: Vector, y: float) -> float:
        return float(derivative(self.loss, w @ x, np.array(y), self.k.clip))  # type: ignore[arg-type]

    def insert(self, x: Vector, y: float) -> None:
        self.t += 1
        alpha = 1 / (self.t + self.k.t0)
        eta = alpha / self.k.lam
        bend = float(second_derivative(self.loss, self.theta @ x, np.array(y), self.k.clip))  # type: ignore[arg-type]
        self.a = self.a - eta * (self.slope(self.a, x, y) * x + self.k.lam * self.a)
        g = self.slope(self.theta, x, y) * x + self.k.lam * self.theta
        theta = self.theta + alpha * self.direction(g)
        away, radius = theta - self.a, self.k.kappa * self.k.G * eta
        if np.linalg.norm(away) > radius:
            theta = self.a + away * radius / np.linalg.norm(away)
        self.theta = theta
        self.rows += 1
        if self.v is not None:
            self.products.append(bend * (x @ self.v) * x)
        if self.rows >= max(self.k.block, self.t // 4):
            self.close_block()

    def close_block(self) -> None:
        if self.v is not None:
            self.pairs = [*self.pairs, (self.v, np.mean(self.products, axis=0) + self.k.lam * self.v)][-self.tau :]
        moved = self.theta - self.block_start
        self.restart()
        if np.linalg.norm(moved) > 0:
            self.v = moved / np.linalg.norm(moved)

    def delete(self, x: Vector, y: float, noise: Vector) -> None:
        if self.k.symmetric:
            self.a = self.a - self.direction(self.slope(self.a, x, y) * x) / (self.t + self.k.t0)
        self.a = self.a + noise
        self.theta = self.a.copy()
        self.pairs = []
        self.restart()


@pytest.mark.parametrize("loss", ["logistic", "huber"])
@pytest.mark.parametrize("unlearner", ["symmetric", "passive"])
@pytest.mark.parametrize("tau", [1, 4])
@pytest.mark.parametrize("d", [5, DENSE + 1])
def test_a_long_stream_agrees_with_plain_numpy(loss: str, unlearner: Unlearner, tau: int, d: int) -> None:
    # Given 400 rows with two deletes among the first, so that the window fills again,
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, d)) / 4
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.where(X[:, :3] @ [3.0, -2.0, 1.0] + 0.2 * rng.normal(size=400) > 0, 1.0, -1.0)
    k = constants(loss, lam=0.02, block=7, unlearner=unlearner)
    state, plain = empty(d, tau), Plain(k, loss, tau, d)
    for i, x in enumerate(X):
        events.learn(state, k, x[None], y[i : i + 1])
        plain.insert(x, float(y[i]))
        if i in (30, 60):
            noise = rng.normal(size=d) / 100
            apply(state, k, events.DELETE, list(X[i - 20]), float(y[i - 20]), noise=list(noise))
            plain.delete(X[i - 20], float(y[i - 20]), noise)
    # then anchor, θ and window are the same.
    assert state.anchor == pytest.approx(plain.a, rel=1e-8)
    assert state.theta == pytest.approx(plain.theta, rel=1e-8)
    count, head = int(state.tally["pairs"][0]), int(state.tally["head"][0])
    assert count == len(plain.pairs) > 0
    for age, (v, r) in enumerate(reversed(plain.pairs), 1):
        assert state.window_v[(head - age) % tau] == pytest.approx(v, rel=1e-6, abs=1e-9)
        assert state.window_r[(head - age) % tau] == pytest.approx(r, rel=1e-6, abs=1e-9)


def test_the_running_sums_are_those_of_theorem_c() -> None:
    # Given a short stream, when its sums are formed from the anchors and thetas seen on the way,
    rng = np.random.default_rng(8)
    X, y, k = rng.normal(size=(60, 3)) / 4, rng.choice([-1.0, 1.0], 60), constants("logistic", lam=0.05, block=5)
    state = empty(3, tau=3)
    anchor_sum = excess = loss = 0.0
    for t, x in enumerate(X, 1):
        a, theta, target = state.anchor.copy(), state.theta.copy(), y[t - 1 : t]
        gradient = derivative("logistic", x[None] @ a, target)[0] * x + k.lam * a
        at_theta, at_anchor = (value("logistic", x[None] @ w, target)[0] for w in (theta, a))
        anchor_sum += (gradient @ gradient) / (2 * k.lam * (t + k.t0))
        excess += at_theta - at_anchor + k.lam / 2 * (theta @ theta - a @ a)
        loss += at_theta
        events.learn(state, k, x[None], target)
    # then the kernel has the same.
    assert state.tally["anchor_sum"][0] == pytest.approx(anchor_sum, rel=1e-10)
    assert state.tally["excess"][0] == pytest.approx(excess, rel=1e-6, abs=1e-10)
    assert state.tally["loss"][0] == pytest.approx(loss, rel=1e-10)


# ---- What the kernel takes, and what it costs. ----


@pytest.mark.parametrize(
    ("X", "y", "noise"),
    [
        (np.zeros((2, 3)), np.zeros(2), np.zeros((1, 2))),  # rows too long
        (np.zeros((1, 2)), np.zeros(2), np.zeros((1, 2))),  # a row missing
        (np.zeros((2, 2)), np.zeros(1), np.zeros((1, 2))),  # a target missing
        (np.zeros((2, 2)), np.zeros(2), np.zeros((0, 2))),  # no noise for the delete
        (np.zeros((2, 2)), np.zeros(2), np.zeros((2, 2))),  # noise for two
    ],
)
def test_events_that_do_not_fit_together_are_refused(X: Matrix, y: Vector, noise: Matrix) -> None:
    state = empty(2, tau=1)
    with pytest.raises(ValueError, match="do not go with"):
        events.apply(state, constants(), np.array([events.INSERT, events.DELETE], np.int16), X, y, noise)
    assert to_bytes(state) == to_bytes(empty(2, tau=1))


def test_arrays_as_a_driver_returns_them_need_no_second_compilation() -> None:
    # Given a kernel that has run, when it gets read-only, misaligned, strided and wide arrays,
    k, state = constants(), empty(2, tau=1)
    ops, X, y = np.full(3, events.INSERT, np.int16), np.full((3, 2), 0.5), np.ones(3)
    events.apply(state, k, ops, X, y, np.empty((0, 2)))
    compiled, expected = len(step.learn.signatures), copy(state)
    read_only = np.frombuffer(X.tobytes(), np.float64).reshape(3, 2)
    misaligned = np.frombuffer(b"." + X.tobytes(), np.float64, offset=1).reshape(3, 2)
    strided = np.asfortranarray(X)
    for rows in (read_only, misaligned, strided):
        again = empty(2, tau=1)
        events.apply(again, k, ops.astype(np.int64), rows, y.astype(np.float32), np.empty((0, 2)))
        # then the result is the same and nothing was compiled again.
        assert to_bytes(again) == to_bytes(expected)
    assert len(step.learn.signatures) == compiled


def test_nothing_is_compiled_at_import() -> None:
    program = (
        "import mempair_db.pair.model;"
        "from mempair_db.pair import printed, step;"
        "assert not any(f.signatures for f in (step.learn, step.forget, printed.learn, printed.forget))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert printed.learn is not step.learn


@pytest.mark.parametrize(("d", "tau"), [(1, 1), (50, 10)])
def test_the_state_does_not_grow_with_the_number_of_events(d: int, tau: int) -> None:
    k, state = constants(block=10), empty(d, tau)
    before = [array.nbytes for array in state]
    events.learn(state, k, np.full((20_000, d), 0.1), np.ones(20_000))
    assert [array.nbytes for array in state] == before
    assert len(to_bytes(state)) == sum(before)


def test_a_state_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes, not"):
        from_bytes(to_bytes(empty(3, tau=2)), d=2, tau=2)
    with pytest.raises(ValueError, match="buffer"):
        from_bytes(b"", d=2, tau=2)
