"""`mempair bench picture`: how far a model is from the one that never had a row, against what is promised.

One stream is learned by both modes, then once more for each removed row, with a tick in its place. Drawn is the largest
distance over the removed rows, at every clock T:

    anchored    ‖a_T − ã_T‖ under G/(λ(T + t0)), and ‖θ_T − θ̃_T‖ under (1 + 2κ)·G/(λ(T + t0))      Theorem A
    paper       ‖θ_T − θ̃_T‖ and α_T·G/λ, the paper's sensitivity with the step size it forgot        theory 2.4
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..pair import bounds, events
from ..pair.calibration import Parameters, constants_for
from ..pair.state import Constants, State, Vector, empty
from .report import extra

Matrix = npt.NDArray[np.float64]

ROWS: Final = 20_000
D: Final = 20
LAM: Final = 0.01
TAU: Final = 10
REMOVED: Final = (0, 1, 5, 10, 50, 100, 500, 1_000, 5_000)
POINTS: Final = 80


@dataclass(frozen=True)
class Curve:
    """The largest distance at each clock, and the bound that is promised or claimed for it."""

    label: str
    clocks: npt.NDArray[np.int64]
    distance: Vector
    bound: Vector

    @property
    def worst(self) -> float:
        """The largest ratio of distance to bound: at most 1 if the promise holds."""
        return float(np.max(self.distance / self.bound))


def stream(n: int = ROWS, d: int = D) -> tuple[Matrix, Vector]:
    """Return rows in the unit ball, with features of falling size, and noisy labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) / np.arange(1, d + 1)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, np.where(4.0 * X @ rng.normal(size=d) + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def curves(n: int = ROWS) -> dict[str, list[Curve]]:
    """Replay the stream without each removed row, in both modes."""
    X, y = stream(n)
    clocks = np.unique(np.geomspace(1, n, POINTS).astype(np.int64))
    anchored = constants_for(Parameters(tau=TAU), LAM)
    paper = constants_for(Parameters(tau=TAU, mode="paper", m=1), LAM)
    at = [int(clock) for clock in clocks]
    anchor, theta = _largest(anchored, X, y, at)
    _, printed = _largest(paper, X, y, at)
    k = anchored
    stability = np.array([bounds.stability(k.G, k.lam, t, k.t0) for t in at])
    wider = np.array([bounds.theta_stability(k.G, k.lam, t, k.t0, k.kappa) for t in at])
    return {
        "anchored": [Curve("θ", clocks, theta, wider), Curve("anchor", clocks, anchor, stability)],
        "paper": [Curve("θ", clocks, printed, np.array([paper.G / (paper.lam * t) for t in at]))],
    }


def draw(out: Path) -> dict[str, list[Curve]]:
    """Write the picture as SVG and return what it shows."""
    shown = curves()
    matplotlib = extra("matplotlib")
    figure_module = extra("matplotlib.figure")
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "replay-distance",
        "font.family": "sans-serif",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(style):
        figure = figure_module.Figure(figsize=(9.0, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        _panel(left, shown["anchored"], "Anchored mode: under the proven bound", "bound")
        _panel(right, shown["paper"], "Algorithm 1 as printed: over its claim", "claim α·G/λ")
        left.set_ylabel("distance to the model\nthat never had the row")
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return shown


def _panel(axes: Any, shown: list[Curve], title: str, promise: str) -> None:
    colours = ("#0072b2", "#d55e00")
    for curve, colour in zip(shown, colours, strict=False):
        axes.loglog(curve.clocks, curve.bound, "--", color=colour, label=f"{curve.label}: {promise}")
        axes.loglog(curve.clocks, curve.distance, color=colour, label=f"{curve.label}: measured")
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("rows learned")
    axes.legend(frameon=False, fontsize=9, loc="lower left")


def _largest(k: Constants, X: Matrix, y: Vector, clocks: list[int]) -> tuple[Vector, Vector]:
    """Return the largest distance of anchors and of thetas over the removed rows, at each clock."""
    live = _path(k, X, y, clocks, None)
    far = np.zeros((2, len(clocks)))
    for row in REMOVED:
        if row < len(X):
            far = np.maximum(far, np.linalg.norm(live - _path(k, X, y, clocks, row), axis=2))
    return far[0], far[1]


def _path(k: Constants, X: Matrix, y: Vector, clocks: list[int], removed: int | None) -> npt.NDArray[np.float64]:
    """Return anchor and θ at each clock, as an array (2, clocks, d)."""
    ops = np.full(len(X), events.INSERT, np.int16)
    if removed is not None:
        ops[removed] = events.TICK
    state: State = empty(X.shape[1], TAU)
    seen = np.empty((2, len(clocks), X.shape[1]))
    done = 0
    for i, clock in enumerate(clocks):
        part = slice(done, clock)
        events.apply(state, k, ops[part], X[part], y[part], np.empty((0, X.shape[1])))
        seen[:, i] = state.anchor, state.theta
        done = clock
    return seen
