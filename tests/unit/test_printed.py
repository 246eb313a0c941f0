"""Algorithm 1 as printed, with its two kinds of pairs and four step sizes, against a plain rewriting in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from mempair_db.pair import events
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.comparators import Loss, derivative, second_derivative
from mempair_db.pair.state import Constants, Vector, empty

BLOCK = 6
TAU = 3


class Plain:
    """θ ← θ + α·d on insert, θ ← θ − α·d + η on delete, d = −H·g from a list of pairs by dense matrices."""

    def __init__(self, k: Constants, loss: Loss, pairs: str, schedule: str, d: int) -> None:
        self.k, self.loss, self.kind, self.schedule = k, loss, pairs, schedule
        self.theta = np.zeros(d)
        self.t, self.gradients, self.curvatures = 0, 0.0, 0.0
        self.pairs: list[tuple[Vector, Vector]] = []
        self.ends: list[Vector] = [np.zeros(d)]
        self.block: list[tuple[Vector, float]] = []

    def gradient(self, w: Vector, x: Vector, y: float) -> Vector:
        slope = derivative(self.loss, np.array([w @ x]), np.array([y]), self.k.clip)[0]
        g: Vector = slope * x + self.k.lam * w
        return g

    def direction(self, g: Vector) -> Vector:
        identity = np.eye(len(g))
        v, r = self.pairs[-1] if self.pairs else (g, g)
        H = identity * ((v @ r) / (r @ r) if self.pairs else 1.0)
        for v, r in self.pairs:
            left = identity - np.outer(v, r) / (v @ r)
            H = left @ H @ left.T + np.outer(v, v) / (v @ r)
        d: Vector = -H @ g
        return d

    def alpha(self) -> float:
        sizes = {
            "newton": 1 / self.t,
            "strongly_convex": 1 / (self.k.lam * self.t),
            "adaptive": self.k.diameter / np.sqrt(self.gradients),
            "curvature": 1 / self.curvatures,
        }
        return float(sizes[self.schedule])

    def insert(self, x: Vector, y: float) -> None:
        self.t += 1
        g = self.gradient(self.theta, x, y)
        bend = second_derivative(self.loss, np.array([self.theta @ x]), np.array([y]), self.k.clip)[0]
        self.gradients += float(g @ g)
        self.curvatures += self.k.lam + float(bend * (x @ g) ** 2 / (g @ g))
        before, self.theta = self.theta, self.theta + self.alpha() * self.direction(g)
        if self.kind == "step":
            self.push(self.theta - before, self.gradient(self.theta, x, y) - g)
            return
        self.block.append((x, y))
        if len(self.block) == BLOCK:
            if len(self.ends) > 1:
                start, end = self.ends[-2:]
                change = [self.gradient(end, x, y) - self.gradient(start, x, y) for x, y in self.block]
                self.push(end - start, np.mean(change, axis=0))
            self.ends.append(self.theta)
            self.block = []

    def push(self, v: Vector, r: Vector) -> None:
        if v @ r > 0:
            self.pairs = [*self.pairs, (v, r)][-TAU:]

    def delete(self, x: Vector, y: float, noise: Vector) -> None:
        self.theta = self.theta - self.alpha() * self.direction(self.gradient(self.theta, x, y)) + noise


@pytest.mark.parametrize("loss", ["logistic", "huber", "squared"])
@pytest.mark.parametrize("pairs", ["step", "minibatch"])
@pytest.mark.parametrize("schedule", ["newton", "strongly_convex", "adaptive", "curvature"])
def test_algorithm_1_agrees_with_plain_numpy(loss: Loss, pairs: str, schedule: str) -> None:
    # Given 60 rows and a delete among them, at a λ large enough that no schedule runs away,
    rng = np.random.default_rng(11)
    X = rng.normal(size=(60, 4)) / 4
    y = np.where(X @ [3.0, -2.0, 1.0, 0.0] + 0.2 * rng.normal(size=60) > 0, 1.0, -1.0)
    parameters = Parameters(loss=loss, mode="paper", m=3, pairs=pairs, schedule=schedule)
    k = constants_for(parameters, 0.5)._replace(block=BLOCK)
    state, plain = empty(4, TAU), Plain(k, loss, pairs, schedule, 4)
    for i, x in enumerate(X):
        events.learn(state, k, x[None], y[i : i + 1])
        plain.insert(x, float(y[i]))
        if i == 40:
            noise = rng.normal(size=(1, 4)) / 100
            events.apply(state, k, np.array([events.DELETE], np.int16), X[3:4], y[3:4], noise)
            plain.delete(X[3], float(y[3]), noise[0])
    # then θ and the sums are the same, and the delete left the window alone.
    assert state.theta == pytest.approx(plain.theta, rel=1e-6, abs=1e-9)
    assert state.tally["pairs"][0] == len(plain.pairs) == TAU
    assert state.tally["gradient_sum"][0] == pytest.approx(plain.gradients, rel=1e-6)
    assert state.tally["curvature_sum"][0] == pytest.approx(plain.curvatures, rel=1e-6)
    assert state.tally["deletions"][0] == 1


def test_the_window_of_algorithm_1_stores_peoples_rows() -> None:
    # Given per-step pairs, then r − λ·v of the youngest pair is the last row, up to a factor.
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(20, 3)) / 3, rng.choice([-1.0, 1.0], 20)
    k = constants_for(Parameters(mode="paper", m=3), 0.1)
    state = empty(3, TAU)
    events.learn(state, k, X, y)
    slot = int(state.tally["head"][0]) - 1
    left = state.window_r[slot] - k.lam * state.window_v[slot]
    cosine = left @ X[-1] / np.linalg.norm(left) / np.linalg.norm(X[-1])
    assert abs(cosine) == pytest.approx(1.0, abs=1e-9)


def test_a_tick_only_moves_the_clock() -> None:
    k = constants_for(Parameters(mode="paper", m=3), 0.1)
    state = empty(2, TAU)
    events.learn(state, k, np.array([[0.5, 0.5]]), np.ones(1))
    theta = state.theta.copy()
    events.apply(state, k, np.array([events.TICK], np.int16), np.zeros((1, 2)), np.zeros(1), np.empty((0, 2)))
    assert state.theta.tolist() == theta.tolist()
    assert (state.tally["clock"][0], state.tally["rows"][0]) == (2, 1)
