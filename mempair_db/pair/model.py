"""`CertifiedPair`: the learner and the unlearner over one state, for rows as the user has them.

It adds to the kernel what a user needs: calibration from the first rows, encoding, the gate, the odometer, and
errors that say what to do. It holds no rows once it has calibrated, so it must be told the row to unlearn.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> x = rng.normal(size=(3000, 2)); y = np.where(x[:, 0] > 0, 1.0, -1.0)
>>> pair = CertifiedPair(epsilon=1.0, delta=1e-6, lam=0.01)
>>> pair.learn_many(x, y)
>>> pair.ready, pair.predict_one([2.0, 0.0]) > 0.8
(True, True)
>>> pair.unlearn_one(x[7], y[7])
>>> pair.odometer.deletions
1
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BudgetExhausted, InvalidRow, ModelNotReady, refuse_unknown
from . import bounds, events, noise, odometer
from .calibration import Epoch, Parameters, calibrate
from .encode import MOST_SPREAD, Texts, usable_target
from .encoding import Matrix
from .memory_pair import MemoryPair
from .odometer import Odometer
from .state import PAPER, State, Vector, empty, from_bytes, to_bytes

Ops = npt.NDArray[np.int16]


class Applied(NamedTuple):
    """What became of an array of events: the first `done` happened; `spent` has a figure for each deletion of them."""

    done: int
    spent: list[int]


class CertifiedPair(MemoryPair):
    """Online learner with certified deletions. Rows are (x, c): numbers, and text values where there are any."""

    def __init__(
        self,
        parameters: Parameters | None = None,
        *,
        categories: list[list[str] | None] | None = None,
        **options: Any,
    ) -> None:
        """Take the parameters as an object or as keywords; `categories` has one entry per text feature."""
        refuse_unknown("MemoryPair has no parameter", options, [field.name for field in fields(Parameters)])
        self.parameters = parameters if parameters is not None else Parameters(**options)
        self.categories = categories or []
        self.epoch: Epoch | None = None
        self.ready = False
        self._state: State | None = None
        self._odometer: Odometer | None = None
        self._waiting: list[tuple[Vector, tuple[str | None, ...], float]] = []

    # -- one row at a time ---------------------------------------------------------------------------------------

    def learn_one(self, x: Sequence[float] | Vector, y: float, c: Sequence[str | None] = ()) -> None:
        """Learn one row."""
        self.learn_many(np.asarray(x, float)[None, :], np.array([y], float), [c])

    def unlearn_one(self, x: Sequence[float] | Vector, y: float, c: Sequence[str | None] = ()) -> None:
        """Forget one row that was learned. Raises `BudgetExhausted` and changes nothing if the budget is spent."""
        rows, targets, texts = self._checked(np.asarray(x, float)[None, :], np.array([y], float), [c])
        if self.epoch is None:
            self._forget_waiting(rows[0], tuple(texts[0]), float(targets[0]))
            return
        if self.tally("clock") == 0:
            raise InvalidRow("nothing has been learned, so there is nothing to unlearn.")
        applied = self.apply(np.array([events.DELETE], np.int16), rows, targets, texts)
        if applied.done == 0:
            raise BudgetExhausted(
                f"{self.odometer.spent} of {self.odometer.cap} units of 1e-12 ρ are spent on "
                f"{self.odometer.deletions} deletions at clock {self.tally('clock')}.",
                remedy="Retrain on the surviving rows with a new CertifiedPair; that needs no noise.",
            )

    def predict_one(self, x: Sequence[float] | Vector, c: Sequence[str | None] = ()) -> float:
        """Return the probability of the label +1 (logistic) or the value (regression)."""
        return float(self.predict_many(np.asarray(x, float)[None, :], [c])[0])

    # -- many rows -----------------------------------------------------------------------------------------------

    def learn_many(self, x: Matrix, y: Vector, c: Texts = ()) -> None:
        """Learn rows in order; the same result as one by one, but for the rows that calibrate (see `Parameters`)."""
        x, y, c = self._checked(x, y, c)
        if self.epoch is None:
            self._waiting.extend((row, tuple(texts), float(t)) for row, texts, t in zip(x, c, y, strict=True))
            if len(self._waiting) < self.parameters.calibration_rows:
                return
            x = np.array([row for row, _, _ in self._waiting])
            c = [texts for _, texts, _ in self._waiting]
            y = np.array([t for _, _, t in self._waiting])
            self.start(calibrate(self.parameters, x, c, y, declared=self._declared(c)))
            self._waiting.clear()
        self.apply(np.full(len(x), events.INSERT, np.int16), x, y, c)

    def predict_many(self, x: Matrix, c: Texts = ()) -> Vector:
        """Predict rows in order, encoded just as rows are that are learned."""
        if self.epoch is None or not self.ready:
            seen = len(self._waiting) if self.epoch is None else self.tally("rows")
            raise ModelNotReady(
                f"{seen} rows learned, about {self.samples_needed()} needed.",
                remedy="Learn more rows, or allow a larger gamma.",
            )
        x, _, c = self._checked(x, np.ones(len(x)), c)
        _, state = self._started()
        z = self.epoch.encoding.encode(x, c) @ state.theta
        return self.epoch.encoding.decode_target(z) if self.parameters.regression else np.exp(-np.logaddexp(0.0, -z))

    # -- the engine, also driven by the worker ---------------------------------------------------------------------

    def start(self, epoch: Epoch) -> None:
        """Begin an epoch: empty state, full budget, closed gate."""
        self.epoch = epoch
        self._state = empty(epoch.d, self.parameters.tau)
        self._odometer = Odometer(epoch.cap)
        self.ready = False

    def reset(self) -> None:
        """Forget everything, exactly: the next rows calibrate again."""
        self.epoch, self._state, self._odometer, self.ready = None, None, None, False
        self._waiting.clear()

    def apply(self, ops: Ops, x: Matrix, y: Vector, c: Texts = ()) -> Applied:
        """Apply raw events in order, up to the first deletion the budget does not allow.

        The odometer is asked before the kernel runs: what a deletion spends depends on the clock and the epoch's
        constants alone, never on the data.
        """
        epoch, state = self._started()
        done = self.affordable(ops)
        X, targets = epoch.encoding.encode(x[:done], c[:done]), epoch.encoding.encode_target(y[:done])
        clocks = [clock for _, clock in self._deletions(ops[:done])]
        spent = [self.price(clock) for clock in clocks]
        for clock, units in zip(clocks, spent, strict=True):
            self._odometer = self.odometer.spend(units)
            state.tally["noise_loss"] += self._noise_loss(clock, units)
        reach = [self._sensitivity(clock) for clock in clocks]
        grids, rounded = noise.grids(reach, clocks, spent, epoch.d, epoch.constants.t0, self.tally("rounded"))
        state.tally["rounded"] = rounded
        events.apply(state, epoch.constants, ops[:done], X, targets, *noise.draw(np.array(grids), epoch.d))
        self.ready = self.ready or self._gate()
        return Applied(done, spent)

    def affordable(self, ops: Ops) -> int:
        """How many of these events both budgets allow: ρ_tot, and γ for what noise may cost a prediction.

        With the live split the first implies the second; with a fixed m it may not.
        """
        spent, loss = self.odometer, self.tally("noise_loss")
        split = self.parameters.m is None or self.parameters.mode == "paper"
        for i, clock in self._deletions(ops):
            units = self.price(clock)
            if units == 0 or not spent.can_spend(units):
                return i
            spent = spent.spend(units)
            loss += self._noise_loss(clock, units)
            if not split and loss > self.parameters.gamma:
                return i
        return len(ops)

    def price(self, clock: int) -> int:
        """Units of ρ that a deletion at this clock spends; 0 means: noise would cost more than γ allows, retrain."""
        epoch, _ = self._started()
        k, p = epoch.constants, self.parameters
        units = bounds.split(
            clock,
            d=epoch.d,
            G=k.G,
            M=k.M,
            lam=k.lam,
            gamma=p.gamma,
            rho_tot_units=epoch.cap,
            unlearner=p.unlearner,
            m=p.m,
        )
        return units if units and noise.is_fine(units, epoch.d) else 0

    def regret_bound(self) -> float:
        """Theorem C: no comparator does better by more than this. Mode `paper` has no bound that holds.

        It follows the path that really happened since the last deletion; before, it takes the worst that can have been,
        since a sum that saw a deleted row must not stay. Every tick without data adds (λ/2)‖w‖², see `step.tick`.
        """
        epoch, _ = self._started()
        k = epoch.constants
        if k.mode == PAPER:
            return math.inf
        norm = self._norm()
        jumps = self.tally("jump_const") + norm * self.tally("jump_slope")
        pull = k.M + k.lam * (self.tally("clock") - self.tally("rows"))
        return bounds.regret_bound(
            self.tally("past") + self.tally("anchor_sum"), self.tally("excess"), jumps, pull, norm
        )

    def capacity(self) -> float:
        """m* at the current clock: how many deletions the whole budget serves before noise costs a prediction γ."""
        epoch, _ = self._started()
        k, p = epoch.constants, self.parameters
        rho_tot = epoch.cap / odometer.UNITS
        return bounds.capacity(
            self.tally("clock"),
            d=epoch.d,
            G=k.G,
            M=k.M,
            lam=k.lam,
            gamma=p.gamma,
            rho_tot=rho_tot,
            unlearner=p.unlearner,
        )

    def samples_needed(self) -> int:
        """How many rows the gate waits for, as far as can be told now."""
        if self.epoch is None:
            return self.parameters.calibration_rows
        if self.epoch.constants.mode == PAPER:
            return self._paper_samples()
        return bounds.samples_needed(self.regret_bound(), self._next_deletion_regret(), self.parameters.gamma)

    def served(self) -> dict[str, Any]:
        """What predictions need, see `Encoding.serve`."""
        epoch, state = self._started()
        return epoch.encoding.serve(state.theta, imputes=self.parameters.on_null == "impute")

    @property
    def odometer(self) -> Odometer:
        """The budget of this epoch."""
        if self._odometer is None:
            raise ModelNotReady("it is still calibrating.", remedy="Learn more rows.")
        return self._odometer

    def tally(self, name: str) -> Any:
        """Return one of the running sums of `state.TALLY`, as a plain number."""
        _, state = self._started()
        return state.tally[name][0].item()

    # -- saving and loading ----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything, as plain values and one bytes object: `from_state` gives back the same bits."""
        return {
            "parameters": asdict(self.parameters),
            "categories": self.categories,
            "epoch": self.epoch.to_json() if self.epoch else None,
            "odometer": asdict(self._odometer) if self._odometer else None,
            "ready": self.ready,
            "waiting": [(row.tolist(), list(texts), y) for row, texts, y in self._waiting],
            "arrays": to_bytes(self._state) if self._state is not None else None,
        }

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> CertifiedPair:
        """Rebuild what `state` returned."""
        pair = cls(Parameters(**saved["parameters"]), categories=saved["categories"])
        pair.ready = saved["ready"]
        pair._waiting = [(np.array(row), tuple(texts), y) for row, texts, y in saved["waiting"]]
        if saved["epoch"] is not None:
            epoch = Epoch.from_json(saved["epoch"])
            pair.restore(
                epoch,
                from_bytes(saved["arrays"], epoch.d, pair.parameters.tau),
                Odometer(**saved["odometer"]),
            )
        return pair

    def restore(self, epoch: Epoch, state: State, spent: Odometer) -> None:
        """Take up an epoch where it was left."""
        self.epoch, self._state, self._odometer = epoch, state, spent

    @property
    def arrays(self) -> State:
        """The live state, not a copy."""
        return self._started()[1]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _started(self) -> tuple[Epoch, State]:
        if self.epoch is None or self._state is None:
            raise ModelNotReady(
                f"{len(self._waiting)} rows of {self.parameters.calibration_rows} for its calibration.",
                remedy="Learn more rows.",
            )
        return self.epoch, self._state

    def _checked(self, x: Matrix, y: Vector, c: Texts) -> tuple[Matrix, Vector, Texts]:
        """Refuse what cannot be learned or predicted, naming the first bad row."""
        x, y = np.asarray(x, float), np.asarray(y, float)
        c = c if len(c) else [()] * len(x)
        if x.ndim != 2 or not len(x) == len(y) == len(c):
            raise InvalidRow(f"{x.shape} numbers, {len(y)} targets and {len(c)} texts do not match.")
        numbers, texts = self._width() or (x.shape[1], len(self._declared(c)))
        wrong = set(map(len, c)) - {texts}
        if x.shape[1] != numbers or wrong:
            raise InvalidRow(
                f"it has {x.shape[1]} numbers and {wrong.pop() if wrong else texts} texts.",
                remedy=f"Give {numbers} and {texts}.",
            )
        allowed = np.isfinite(x) | (np.isnan(x) if self.parameters.on_null == "impute" else False)
        bad = np.flatnonzero(~allowed.all(axis=1))
        if len(bad):
            column = int(np.flatnonzero(~allowed[bad[0]])[0])
            raise InvalidRow(
                f"number {column} of row {bad[0]} is missing or infinite.",
                remedy="Leave the row out, or set on_null='impute' for missing values.",
            )
        if self.parameters.on_null == "skip" and any(text is None for texts in c for text in texts):
            raise InvalidRow("a text is missing.", remedy="Leave the row out, or set on_null='impute'.")
        good = usable_target(y) if self.parameters.regression else np.abs(y) == 1.0
        if not good.all():
            raise InvalidRow(
                f"the target of row {int(np.flatnonzero(~good)[0])} is unusable.",
                remedy=f"Give a number of at most {MOST_SPREAD:.0e}."
                if self.parameters.regression
                else "Give -1 or +1.",
            )
        return x, y, c

    def _width(self) -> tuple[int, int] | None:
        if self.epoch is not None:
            return len(self.epoch.encoding.integers.numbers), len(self.epoch.encoding.integers.texts)
        if self._waiting:
            return len(self._waiting[0][0]), len(self._waiting[0][1])
        return None

    def _declared(self, c: Texts) -> list[list[str] | None]:
        return self.categories or [None] * (len(c[0]) if len(c) else 0)

    def _forget_waiting(self, x: Vector, c: tuple[str | None, ...], y: float) -> None:
        for i, (row, texts, target) in enumerate(self._waiting):
            if np.array_equal(row, x, equal_nan=True) and texts == c and target == y:
                del self._waiting[i]
                return
        raise InvalidRow("this row was never learned.", remedy="Nothing has to be forgotten.")

    def _deletions(self, ops: Ops) -> list[tuple[int, int]]:
        """Return position and clock of every deletion among these events."""
        clocks = self.tally("clock") + np.cumsum(ops != events.DELETE)
        return [(int(i), int(clocks[i])) for i in np.flatnonzero(ops == events.DELETE)]

    def _sensitivity(self, clock: int) -> float:
        epoch, _ = self._started()
        k = epoch.constants
        if k.mode == PAPER:
            return k.G / k.lam
        return bounds.sensitivity(k.G, k.lam, clock, k.t0, self.parameters.unlearner, epoch.d)

    def _noise_loss(self, clock: int, units: int) -> float:
        epoch, _ = self._started()
        k, rho = epoch.constants, units / odometer.UNITS
        return bounds.noise_loss(k.G, k.M, k.lam, clock, k.t0, epoch.d, rho, self.parameters.unlearner)

    def _norm(self) -> float:
        """Bound the norm of the best static model of the rows so far; λw* is a mean of gradients, at most G long."""
        epoch, _ = self._started()
        rows, k = self.tally("rows"), epoch.constants
        return min(bounds.comparator_norm(self.tally("zero_loss") / rows, k.lam), k.G / k.lam) if rows else 0.0

    def _next_deletion_regret(self) -> float:
        """Expected regret of the next deletion; 0 when it would be served by a retrain, which adds no noise."""
        epoch, _ = self._started()
        k, clock = epoch.constants, self.tally("clock")
        units = self.price(clock) if clock else 0
        if units == 0:
            return 0.0
        rho = units / odometer.UNITS
        return bounds.expected_jump_regret(
            k.G, k.lam, clock, k.t0, d=epoch.d, rho=rho, B=self._norm(), unlearner=self.parameters.unlearner
        )

    def _gate(self) -> bool:
        epoch, _ = self._started()
        rows = self.tally("rows")
        if epoch.constants.mode == PAPER:
            return bool(rows >= self._paper_samples())
        return bounds.gate(self.regret_bound(), self._next_deletion_regret(), self.parameters.gamma, rows)

    def _paper_samples(self) -> int:
        """N* as printed, with the eigenvalue bounds 1/(M+λ) and 1/λ of an inverse Hessian."""
        epoch, _ = self._started()
        k, p = epoch.constants, self.parameters
        m = p.m or 1
        sigma = odometer.sigma(k.G / k.lam, epoch.cap // m)
        return bounds.paper_sample_complexity(
            G=k.G,
            D=k.diameter,
            c=1.0 / (k.M + k.lam),
            C=1.0 / k.lam,
            gamma=p.gamma,
            deletion_regret=bounds.paper_deletion_regret(m, k.G, sigma, p.delta),
        )
