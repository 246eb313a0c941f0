"""Hostile streams, and the two worlds every promise compares: with a row, and without it.

A stream is made of encoded rows, ‖x‖ ≤ 1. Hypothesis draws its kind, its size, its constants and a seed; the numbers
come from the seed, so that a failure shrinks to the simplest kind and the shortest stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from mempair_db.pair import bounds, encoding, events, losses
from mempair_db.pair.bounds import Unlearner
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.comparators import Loss
from mempair_db.pair.noise import STEPS
from mempair_db.pair.state import Constants, State, Vector, copy, empty

Matrix = npt.NDArray[np.float64]
Ops = npt.NDArray[np.int16]

SLACK = 1.0 + 1e-9
"""Rounding that the promises allow for (theory 3.7)."""

ROWS = 150
LOSSES: tuple[Loss, ...] = ("logistic", "huber")
UNLEARNERS: tuple[Unlearner, ...] = ("symmetric", "passive")


@dataclass(frozen=True)
class Stream:
    """Encoded rows and the constants to learn them with."""

    kind: str
    X: Matrix
    y: Vector
    k: Constants
    tau: int
    parameters: Parameters

    def __len__(self) -> int:
        return len(self.X)

    @property
    def d(self) -> int:
        return int(self.X.shape[1])

    @property
    def passive(self) -> Constants:
        """The same constants, where a delete takes no step: the ideal replay's noise falls without one."""
        return self.k._replace(symmetric=False)

    @property
    def loss(self) -> Loss:
        return "logistic" if self.parameters.loss == "logistic" else "huber"

    def inserts(self) -> Ops:
        return np.full(len(self), events.INSERT, np.int16)

    def without(self, *rows: int) -> Ops:
        """Return the events of the ideal replay: a tick without data in the place of each of these rows."""
        ops = self.inserts()
        ops[list(rows)] = events.TICK
        return ops

    def stability(self, clock: int) -> float:
        return bounds.stability(self.k.G, self.k.lam, clock, self.k.t0)

    def sensitivity(self, clock: int) -> float:
        return bounds.sensitivity(self.k.G, self.k.lam, clock, self.k.t0, self.parameters.unlearner)

    def start(self) -> State:
        return empty(self.d, self.tau)

    def play(self, ops: Ops, k: Constants | None = None) -> State:
        """Return the state after the rows passed as these events, none of which deletes."""
        state = self.start()
        events.apply(state, k or self.k, ops, self.X[: len(ops)], self.y[: len(ops)], np.empty((0, self.d)))
        return state

    def walk(self, ops: Ops) -> Iterator[State]:
        """Yield a copy of the state after each event."""
        state = self.start()
        for i in range(len(ops)):
            events.apply(state, self.k, ops[i : i + 1], self.X[i : i + 1], self.y[i : i + 1], np.empty((0, self.d)))
            yield copy(state)

    def delete(
        self, state: State, row: int, noise: Vector | None = None, k: Constants | None = None, grid: float = 0.0
    ) -> None:
        """Delete a row, without noise unless it is given."""
        noise = np.zeros(self.d) if noise is None else noise
        one, X, y = np.array([events.DELETE], np.int16), self.X[row : row + 1], self.y[row : row + 1]
        events.apply(state, k or self.k, one, X, y, noise, np.array([grid]))


# ---- How rows can be hostile. ----


def _ball(rng: np.random.Generator, n: int, d: int) -> Matrix:
    X: Matrix = rng.normal(size=(n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X


def _sphere(rng: np.random.Generator, n: int, d: int) -> Matrix:
    X: Matrix = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X


def _basis(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Rows exactly on the unit sphere."""
    X: Matrix = np.eye(d)[rng.integers(d, size=n)] * rng.choice([-1.0, 1.0], size=(n, 1))
    return X


def _duplicated(rng: np.random.Generator, n: int, d: int) -> Matrix:
    return _sphere(rng, 3, d)[rng.integers(3, size=n)]


def _equal(rng: np.random.Generator, n: int, d: int) -> Matrix:
    return np.tile(_sphere(rng, 1, d), (n, 1))


def _zero(_: np.random.Generator, n: int, d: int) -> Matrix:
    return np.zeros((n, d))


def _some_zero(rng: np.random.Generator, n: int, d: int) -> Matrix:
    X = _sphere(rng, n, d)
    X[rng.random(n) < 0.5] = 0.0
    return X


def _tiny(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Rows whose squares are no longer exact, or vanish."""
    X = _sphere(rng, n, d)
    X *= 10.0 ** rng.choice([rng.uniform(-165, -150), rng.uniform(-300, 0)])
    return X


def _encoded(raw: Matrix) -> Matrix:
    fitted = encoding.fit(raw, [()] * len(raw), np.ones(len(raw)), regression=False, declared=[])
    return fitted.encode(raw, [()] * len(raw))


def _outliers(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Values of 1e6 among ones, before they are encoded."""
    raw = rng.normal(size=(n, d - 1)) * np.where(rng.random((n, d - 1)) < 0.1, 1e6, 1.0)
    return _encoded(raw)


def _constant(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Every other column is constant, before they are encoded."""
    raw = rng.normal(size=(n, d - 1))
    raw[:, ::2] = 1e6
    return _encoded(raw)


KINDS: dict[str, Callable[[np.random.Generator, int, int], Matrix]] = {
    "equal": _equal,
    "basis": _basis,
    "duplicated": _duplicated,
    "sphere": _sphere,
    "ball": _ball,
    "zero": _zero,
    "some zero": _some_zero,
    "tiny": _tiny,
    "outliers": _outliers,
    "constant": _constant,
}


def _targets(rng: np.random.Generator, order: str, X: Matrix, loss: str) -> Vector:
    n, d = X.shape
    score = X @ rng.normal(size=d) + 0.3 * rng.normal(size=n)
    labels: dict[str, Vector] = {
        "flipping": np.where(np.arange(n) % 2 == 0, 1.0, -1.0),
        "constant": np.ones(n),
        "sorted": np.sort(np.where(rng.random(n) < 0.5, 1.0, -1.0)),
        "learnable": np.where(score > 0, 1.0, -1.0),
        "random": rng.choice([-1.0, 1.0], size=n),
    }
    y = labels[order]
    if loss == "logistic":
        return y
    return y * np.where(rng.random(n) < 0.1, losses.FARTHEST, np.abs(score))


@st.composite
def streams(
    draw: st.DrawFn,
    *,
    mode: str = "anchored",
    unlearners: Sequence[Unlearner] = UNLEARNERS,
    most_rows: int = ROWS,
) -> Stream:
    """Draw a stream of any kind, with any constants."""
    loss = draw(st.sampled_from(LOSSES))
    kind = draw(st.sampled_from(list(KINDS)))
    order = draw(st.sampled_from(["flipping", "constant", "sorted", "learnable", "random"]))
    n = draw(st.one_of(st.just(1), st.integers(1, most_rows), st.just(most_rows)))
    d = draw(st.one_of(st.just(1), st.integers(1, 50)))
    parameters = Parameters(
        loss=loss,
        clip=draw(st.sampled_from([1.0, 0.1, 10.0])),
        lam=10.0 ** draw(st.floats(-4, 0)),
        tau=draw(st.integers(1, 10)),
        unlearner=draw(st.sampled_from(list(unlearners))),
        mode=mode,
        m=10 if mode == "paper" else None,
    )
    block = draw(st.sampled_from([50, 1, 2, 7]))  # short blocks fill the window of a short stream
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = KINDS[kind](rng, n, d)
    assert parameters.lam is not None
    return Stream(
        kind=kind,
        X=X,
        y=_targets(rng, order, X, loss),
        k=constants_for(parameters, parameters.lam)._replace(block=block),
        tau=parameters.tau,
        parameters=parameters,
    )


@st.composite
def streams_with_a_row(
    draw: st.DrawFn, *, mode: str = "anchored", unlearners: Sequence[Unlearner] = UNLEARNERS
) -> tuple[Stream, int]:
    """Draw a stream and the number of one of its rows."""
    stream = draw(streams(mode=mode, unlearners=unlearners))
    return stream, draw(st.one_of(st.just(0), st.integers(0, len(stream) - 1)))


@dataclass(frozen=True)
class Mixed:
    """Events of every kind over the rows of a stream, with the noise of each delete."""

    stream: Stream
    ops: Ops
    rows: npt.NDArray[np.intp]  # the row of each event; a tick's is ignored
    noise: Matrix
    grid: float = 0.0  # the noise counts steps of it, if it is not 0

    @property
    def features(self) -> Matrix:
        return self.stream.X[self.rows]

    @property
    def targets(self) -> Vector:
        return self.stream.y[self.rows]

    def apply(self, state: State, start: int, end: int) -> None:
        """Apply the events from `start` to `end`."""
        before = int(np.count_nonzero(self.ops[:start] == events.DELETE))
        within = int(np.count_nonzero(self.ops[start:end] == events.DELETE))
        noise = self.noise[before : before + within]
        X, y = self.features[start:end], self.targets[start:end]
        events.apply(state, self.stream.k, self.ops[start:end], X, y, noise, np.full(within, self.grid))


@st.composite
def mixed(
    draw: st.DrawFn,
    *,
    mode: str = "anchored",
    unlearners: Sequence[Unlearner] = UNLEARNERS,
    ticks: bool = True,
    grids: bool = True,
) -> Mixed:
    """Draw a stream whose events are inserts, ticks, and deletes of rows inserted before; noise on a grid or not."""
    stream = draw(streams(mode=mode, unlearners=unlearners))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    deleting = draw(st.sampled_from([0.0, 0.05, 0.5]))
    ticking = draw(st.sampled_from([0.0, 0.1, 0.7])) if ticks else 0.0
    ops: list[int] = []
    rows: list[int] = []
    alive: list[int] = []
    for row in range(len(stream)):
        tick = rng.random() < ticking
        ops.append(events.TICK if tick else events.INSERT)
        rows.append(row)
        if not tick:
            alive.append(row)
        while alive and rng.random() < deleting:
            ops.append(events.DELETE)
            rows.append(alive.pop(int(rng.integers(len(alive)))))
    deletions = ops.count(events.DELETE)
    scale = draw(st.sampled_from([0.0, 1e-3, 1.0])) * stream.k.G / stream.k.lam
    noise = rng.normal(size=(deletions, stream.d))
    grid = scale / STEPS if grids and draw(st.booleans()) else 0.0
    noise = np.rint(noise * STEPS) if grid else noise * scale
    return Mixed(stream, np.array(ops, np.int16), np.array(rows), noise, grid)
