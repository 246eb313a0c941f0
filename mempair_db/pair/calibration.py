"""From the user's few parameters and the first rows to all the constants of an epoch.

What the user says: ε and δ (the promise), γ (the regret per row that noise may cost), optionally λ, m, τ.
What follows: the encoding; G and M from the loss; t0 = M/λ; ρ_tot from (ε, δ), exactly; and λ.

λ is a trade: capacity m* = (λ(N + t0)/G)·√(γρ_tot/(M + λd)) grows with it, and the gate opens earlier; accuracy falls.
Unless given, λ is the largest of GRID whose progressive loss per calibration row is at most TOLERANCE·γ above the
best one's: γ is what the user lets deletions cost per row. A short calibration prefers a large λ, since a small one
learns slowly; a later epoch, calibrated on more rows, may choose again.

All constants are rounded, λ to one of seven, so that one row rarely changes them. When a calibration row is deleted,
they are computed again from those that are left (`Epoch.holds_for`): the same bits, and nothing of the row is in them;
other bits, and the epoch must end with a retrain.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt

from ..errors import InvalidParameter
from . import bounds, curvature, encoding, events, limits, losses, odometer, schedule
from .encode import Texts
from .encoding import Encoding, Matrix
from .state import ANCHORED, PAPER, Constants, Vector, empty

GRID: Final = tuple(10.0**-e for e in (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0))
TOLERANCE: Final = 0.5  # of γ
MOST_ROWS: Final = 10_000  # more calibration rows than this do not change the choice


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What the user chooses: names and defaults of ``mempair.create_model``, where only `on_null` is another one."""

    loss: str = "logistic"
    epsilon: float = 1.0
    delta: float = 1e-6
    gamma: float = 0.1
    lam: float | None = None
    m: int | None = None
    tau: int = 10
    kappa: float = 1.0
    clip: float = 1.0
    calibration_rows: int = 500
    unlearner: bounds.Unlearner = "symmetric"
    on_null: str = "skip"
    mode: str = "anchored"
    pairs: str = "step"  # paper mode: "step" (Algorithm 1) or "minibatch" (its appendix)
    schedule: str = "newton"  # paper mode

    def __post_init__(self) -> None:
        """Refuse values that no theorem covers."""
        limits.check(self)
        choices = {
            "loss": (self.loss, tuple(losses.CODES)),
            "unlearner": (self.unlearner, ("symmetric", "passive")),
            "on_null": (self.on_null, ("skip", "impute")),
            "mode": (self.mode, ("anchored", "paper")),
            "pairs": (self.pairs, ("step", "minibatch")),
            "schedule": (self.schedule, tuple(schedule.CODES)),
        }
        for name, (choice, allowed) in choices.items():
            if choice not in allowed:
                raise InvalidParameter(f"{name} is {choice!r}.", remedy=f"Choose one of {', '.join(allowed)}.")
        if self.loss == "squared" and self.mode != "paper":
            raise InvalidParameter("loss 'squared' has no bounded gradient.", remedy="Use 'huber', or mode 'paper'.")
        if self.mode == "paper" and self.m is None:
            raise InvalidParameter("mode 'paper' splits its budget over a fixed m.", remedy="Give m.")

    @property
    def regression(self) -> bool:
        """Whether the target is a number rather than a ±1 label."""
        return self.loss != "logistic"


class Trade(NamedTuple):
    """One candidate λ: what it costs and what it buys."""

    lam: float
    loss: float  # progressive loss per calibration row
    capacity: float  # m* per 10,000 rows


@dataclass(frozen=True)
class Epoch:
    """Everything frozen at calibration; nothing in it changes until the next epoch."""

    number: int
    encoding: Encoding
    constants: Constants
    cap: int  # ρ_tot in odometer units
    calibration_rows: int

    @property
    def d(self) -> int:
        """Length of an encoded row."""
        return self.encoding.d

    def to_json(self) -> dict[str, Any]:
        """Return plain values that survive JSON without loss."""
        return {
            **asdict(self),
            "encoding": self.encoding.to_json(),
            "constants": self.constants._asdict(),
        }

    def frozen(self) -> bytes:
        """Return everything that was read off the calibration rows, in canonical bytes."""
        values = {"encoding": self.encoding.to_json(), "constants": self.constants._asdict()}
        return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()

    def holds_for(
        self, parameters: Parameters, x: Matrix, c: Texts, y: Vector, declared: list[list[str] | None] | None = None
    ) -> bool:
        """Tell whether these rows, what is left of the calibration rows in their order, give the same constants."""
        return len(x) > 0 and calibrate(parameters, x, c, y, declared=declared).frozen() == self.frozen()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Epoch:
        """Rebuild what `to_json` wrote. Numbers get back the type the kernel was compiled for."""
        kinds = get_type_hints(Constants)
        return cls(
            number=int(values["number"]),
            encoding=Encoding.from_json(values["encoding"]),
            constants=Constants(**{name: kinds[name](v) for name, v in values["constants"].items()}),
            cap=int(values["cap"]),
            calibration_rows=int(values["calibration_rows"]),
        )


def calibrate(
    parameters: Parameters,
    x: Matrix,
    c: Texts,
    y: Vector,
    *,
    declared: list[list[str] | None] | None = None,
    number: int = 1,
) -> Epoch:
    """Fix the constants of epoch `number` from the calibration rows, whatever their order."""
    x, c, y = x[:MOST_ROWS], c[:MOST_ROWS], y[:MOST_ROWS]
    fitted = encoding.fit(x, c, y, regression=parameters.regression, declared=declared or [])
    rho_tot = odometer.rho_of(parameters.epsilon, parameters.delta)
    trade = trades(parameters, fitted, x, c, y)
    best = min(t.loss for t in trade)
    chosen = max(t.lam for t in trade if t.loss <= best + TOLERANCE * parameters.gamma)
    return Epoch(number, fitted, constants_for(parameters, chosen), odometer.to_units(rho_tot), len(x))


def trades(parameters: Parameters, fitted: Encoding, x: Matrix, c: Texts, y: Vector) -> list[Trade]:
    """Return every λ there is to choose from: what it costs on these rows and what it buys. It is stored nowhere.

    The rows are learned in an order that depends on what is in them alone.
    """
    X, targets = fitted.encode(x, c), fitted.encode_target(y)
    order = np.argsort(_mixed(np.column_stack([X, targets])), kind="stable")
    X, targets = X[order], targets[order]
    trade = [
        Trade(
            lam,
            _progressive_loss(constants_for(parameters, lam), parameters.tau, X, targets),
            bounds.capacity(
                10_000,
                d=fitted.d,
                G=losses.lipschitz(parameters.loss, parameters.clip),
                M=losses.smoothness(parameters.loss),
                lam=lam,
                gamma=parameters.gamma,
                rho_tot=odometer.rho_of(parameters.epsilon, parameters.delta),
                unlearner=parameters.unlearner,
            ),
        )
        for lam in (GRID if parameters.lam is None else (parameters.lam,))
    ]
    trade = [t for t in trade if math.isfinite(t.loss)]  # steps as printed in the paper may diverge
    if not trade:
        raise InvalidParameter("with this lam the steps diverge on the calibration rows.", remedy="Give a larger one.")
    return trade


def _mixed(rows: Matrix) -> npt.NDArray[np.uint64]:
    """Return a hash of every row: FNV-1a over its numbers, with the high bits brought down."""
    mixed = np.full(len(rows), 14695981039346656037, np.uint64)
    for column in np.ascontiguousarray(rows.T).view(np.uint64):
        mixed = (mixed ^ column ^ (column >> np.uint64(32))) * np.uint64(1099511628211)
    return mixed ^ (mixed >> np.uint64(32))


def constants_for(parameters: Parameters, lam: float) -> Constants:
    """Return the kernel's constants for one λ; the paper's D for targets of deviation 1."""
    at_zero = math.log(2.0) if parameters.loss == "logistic" else 0.5
    M = losses.smoothness(parameters.loss)
    anchored = parameters.mode == "anchored"
    return Constants(
        mode=ANCHORED if anchored else PAPER,
        loss=losses.CODES[parameters.loss],
        clip=float(parameters.clip),
        G=losses.lipschitz(parameters.loss, float(parameters.clip)),
        M=M,
        lam=float(lam),
        t0=M / lam,
        kappa=float(parameters.kappa),
        block=50,
        pairs=curvature.BLOCK if anchored else curvature.CODES[parameters.pairs],
        schedule=schedule.CODES[parameters.schedule],
        diameter=2.0 * bounds.comparator_norm(at_zero, lam),
        symmetric=parameters.unlearner == "symmetric",
    )


def _progressive_loss(constants: Constants, tau: int, X: Matrix, targets: Vector) -> float:
    """Mean loss of each row under the model that had learned the rows before it."""
    state = empty(X.shape[1], tau)
    events.learn(state, constants, X, targets)
    return float(state.tally["loss"][0]) / len(X)
