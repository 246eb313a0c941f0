"""`mempair replay`: learn the surviving rows again, in tick order, and compare with the live model.

Without deletions in the epoch the two must be equal bit for bit, and so must a replay of what came after the last
deletion, on top of the state that it left. From the start of the epoch, after deletions at clocks T_i with
sensitivities S_i = 2G/(λ(T_i + t0)) (passive: half) and noise σ_i, the live anchor a is compared with the *ideal
replay* ã, in which every deleted row's tick passes without data. By the contraction of Theorem A, with
c_i = (T_i + t0)/(T + t0),

    ‖a − ã‖ ≤ Σ c_i·(S_i + ‖η_i‖)      ≤ Σ c_i·S_i + √d·Σ c_i·σ_i + √(2 ln(1/p)·Σ (c_i·σ_i)²)

where the second step holds with probability 1 − p over the noise: Σ c_i‖η_i‖ has a mean of at most √d·Σ c_i·σ_i and is
a Lipschitz function of independent Gaussians. For θ add 2κ·G/(λ(T + t0)): both stay that close to their anchors.
It bounds all deletions together; it says nothing about a single one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from mempair_db.errors import InvalidParameter
from mempair_db.offline.folder import Offline, Rows
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair import bounds, losses, noise, odometer
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.state import Vector, to_bytes

CHANCE: Final = 1e-6
"""p: how often the bound may be passed by chance alone."""


@dataclass(frozen=True)
class Disagreement:
    """How far two models' predictions are apart, on the surviving rows."""

    rows: int
    share: float  # of rows whose predicted label differs; regression: by more than a tenth of the target's deviation
    mean: float
    largest: float


@dataclass(frozen=True)
class Comparison:
    """The live model against a replay of its rows."""

    model: str
    epoch: int
    clock: int
    rows: int
    since: int  # the tick the replay began after
    deletions: int  # by certified noise, within the replayed stretch
    exact: bool  # every bit of the carried state is equal
    exact_since_deletion: (
        bool | None
    )  # the same, replayed from right after the last deletion; None: none, or too few rows
    anchor_distance: float
    anchor_bound: float
    theta_distance: float
    theta_bound: float
    predictions: Disagreement
    waiting: int  # captured changes that the live model had not applied
    missing: int  # rows that the model knows and the source no longer has

    @property
    def comparable(self) -> bool:
        """Whether the exported rows are the rows the live model knows."""
        return self.waiting == 0 and self.missing == 0

    @property
    def holds(self) -> bool | None:
        """Whether the claim is true: equality since the last deletion, the bound over those before. None: unknown."""
        if not self.comparable:
            return None
        if self.exact_since_deletion is False:
            return False
        if self.deletions == 0:
            return self.exact
        return self.anchor_distance <= self.anchor_bound and self.theta_distance <= self.theta_bound


def ideal(
    model: Offline,
    *,
    start: CertifiedPair | None = None,
    until: int | None = None,
    bars: Bars = silent,
) -> CertifiedPair:
    """Replay the surviving rows from the start of the epoch, or on from `start`, which is changed."""
    pair = start or _blank(model.live())
    clock = pair.tally("clock")
    last = model.clock if until is None else min(until, model.clock)
    with bars(f"Replaying {model.name}", last - clock) as advance:
        for rows in model.batches(after=clock, until=last):
            pair.apply(rows.ops, rows.x, rows.y, rows.c)
            advance(len(rows))
    return pair


def compare(model: Offline, *, since: Offline | None = None, bars: Bars = silent) -> Comparison:
    """Replay, and hold the result against the live model. `since`: an earlier export to go on from."""
    live = model.live()
    start = _earlier(model, since) if since is not None else None
    clock = start.tally("clock") if start is not None else 0
    before = start.odometer.deletions if start is not None else 0
    replayed = ideal(model, start=start, bars=bars)
    left = model.after_last_deletion()
    again = ideal(model, start=left, bars=bars) if left is not None else None
    anchor_bound, theta_bound = distance_bounds(model, live, after=since.row["ledger_seq"] if since is not None else 0)
    return Comparison(
        model=model.name,
        epoch=int(model.row["epoch"]),
        clock=model.clock,
        rows=model.surviving_rows,
        since=clock,
        deletions=live.odometer.deletions - before,
        exact=to_bytes(live.arrays) == to_bytes(replayed.arrays),
        exact_since_deletion=to_bytes(live.arrays) == to_bytes(again.arrays) if again is not None else None,
        anchor_distance=float(np.linalg.norm(live.arrays.anchor - replayed.arrays.anchor)),
        anchor_bound=anchor_bound,
        theta_distance=float(np.linalg.norm(live.arrays.theta - replayed.arrays.theta)),
        theta_bound=theta_bound,
        predictions=disagreement(model, live, replayed, bars=bars),
        waiting=int(model.row["changes_waiting"]),
        missing=model.learned_rows - model.surviving_rows,
    )


def distance_bounds(model: Offline, live: CertifiedPair, *, after: int = 0) -> tuple[float, float]:
    """Bound ‖a − ã‖ and ‖θ − θ̃‖ from the deletions beyond entry `after` of the ledger (see the top of this file)."""
    if live.epoch is None:
        raise InvalidParameter("the model has no epoch.")
    k, unlearner = live.epoch.constants, live.parameters.unlearner
    spent = deletions(model, after)
    if not spent:
        return 0.0, 0.0
    scale = [(clock + k.t0) / (model.clock + k.t0) for clock, _ in spent]
    reach = [bounds.sensitivity(k.G, k.lam, clock, k.t0, unlearner, live.epoch.d) for clock, _ in spent]
    clocks, units = [clock for clock, _ in spent], [rho for _, rho in spent]
    sigma = noise.STEPS * np.array(noise.grids(reach, clocks, units, live.epoch.d, k.t0)[0])
    falling = np.array(scale) * sigma
    influence = float(np.dot(scale, reach))
    anchor = (
        influence
        + math.sqrt(live.epoch.d) * float(falling.sum())
        + math.sqrt(2.0 * math.log(1.0 / CHANCE) * float(falling @ falling))
    )
    return anchor, anchor + 2.0 * k.kappa * bounds.stability(k.G, k.lam, model.clock, k.t0)


def disagreement(model: Offline, one: CertifiedPair, other: CertifiedPair, *, bars: Bars = silent) -> Disagreement:
    """Compare two models' predictions on every surviving row."""
    first, second = opened(one), opened(other)
    threshold = 0.1 * first.epoch.encoding.integers.target.scale if first.epoch else 0.0
    rows, differ, total, largest = 0, 0, 0.0, 0.0
    with bars("Comparing predictions", model.surviving_rows) as advance:
        for p, q in ((first.predict_many(x, c), second.predict_many(x, c)) for x, c, _ in _there(model)):
            gap = np.abs(p - q)
            labels = gap > threshold if first.parameters.regression else (p > 0.5) != (q > 0.5)
            rows, differ, total = rows + len(p), differ + int(labels.sum()), total + float(gap.sum())
            largest = max(largest, float(gap.max(initial=0.0)))
            advance(len(p))
    return Disagreement(rows, differ / max(rows, 1), total / max(rows, 1), largest)


def what_if(
    model: Offline, changes: Mapping[str, str], *, until: int | None = None, bars: Bars = silent
) -> CertifiedPair:
    """Replay with other constants and the same encoding. λ stays what it is unless it is among the changes."""
    live = model.live()
    if live.epoch is None:
        raise InvalidParameter("the model has no epoch.")
    parameters = changed(live.parameters, changes)
    lam = parameters.lam if "lambda" in changes and parameters.lam is not None else live.epoch.constants.lam
    pair = CertifiedPair(parameters)
    pair.start(
        replace(
            live.epoch,
            constants=constants_for(parameters, lam),
            cap=odometer.to_units(odometer.rho_of(parameters.epsilon, parameters.delta)),
        )
    )
    return ideal(model, start=pair, until=until, bars=bars)


def changed(parameters: Parameters, changes: Mapping[str, str]) -> Parameters:
    """Return the parameters with some of them changed, from texts such as those of the command line.

    >>> changed(Parameters(), {"lambda": "0.5", "m": "7"}).m
    7
    """
    kinds: dict[str, type] = {
        **dict.fromkeys(("epsilon", "delta", "gamma", "lambda", "kappa", "clip"), float),
        **dict.fromkeys(("m", "tau"), int),
        "unlearner": str,
    }
    values = {}
    for name, text in changes.items():
        if name not in kinds:
            raise InvalidParameter(f"{name!r} cannot be changed.", remedy=f"Choose among {', '.join(kinds)}.")
        try:
            values["lam" if name == "lambda" else name] = kinds[name](text)
        except ValueError:
            raise InvalidParameter(f"{name} is {text!r}.", remedy="Give a number.") from None
    return replace(parameters, **values)


def quality(model: Offline, pair: CertifiedPair) -> dict[str, Any]:
    """Return how well a model fits the surviving rows, and what it promises."""
    ready = opened(pair)
    rows, good, squares = 0, 0, 0.0
    for x, c, y in _there(model):
        p = ready.predict_many(x, c)
        rows += len(y)
        good += int(((p > 0.5) == (y > 0)).sum())
        squares += float(((p - y) ** 2).sum())
    learned = pair.tally("rows")
    fit = (
        {"rmse": math.sqrt(squares / max(rows, 1))} if pair.parameters.regression else {"accuracy": good / max(rows, 1)}
    )
    return {
        "rows": learned,
        "lambda": pair.epoch.constants.lam if pair.epoch else None,
        "epsilon": pair.parameters.epsilon,
        "gamma": pair.parameters.gamma,
        **fit,
        "progressive_loss": pair.tally("loss") / max(learned - pair.tally("forgot_rows"), 1),
        "regret_bound_per_row": pair.regret_bound() / max(learned, 1),
        "capacity": pair.capacity(),
        "gate": "open" if pair.ready else "closed",
    }


@dataclass(frozen=True)
class Served:
    """How good the served predictions are on the rows that are there."""

    name: str  # of the loss
    rows: int
    loss: float
    base: float  # of always predicting the mean
    outside: int  # rows with a number beyond the clamp


def served(model: Offline) -> Served:
    """Judge what is served, on raw rows: log loss, or the mean square in units of the target's scale."""
    pair = opened(model.live())
    assert pair.epoch is not None  # noqa: S101
    encoding, regression = pair.epoch.encoding, pair.parameters.regression
    predictions, targets, outside = [], [], 0
    for x, c, y in _there(model):
        predictions.append(pair.predict_many(x, c))
        targets.append(y)
        outside += int(encoding.integers.encode(x, c)[1].sum())
    p, y = np.concatenate(predictions), np.concatenate(targets)
    if regression:
        unit = encoding.integers.target.scale
        error, spread = (p - y) / unit, (y - y.mean()) / unit
        return Served("mean square", len(y), float((error**2).mean()), float((spread**2).mean()), outside)
    yes = y > 0
    rate = np.clip(yes.mean(), 1e-12, 1.0 - 1e-12)
    loss = -np.log(np.clip(np.where(yes, p, 1.0 - p), 1e-15, 1.0)).mean()
    base = -(yes.mean() * np.log(rate) + (1.0 - yes.mean()) * np.log(1.0 - rate))
    return Served("log loss", len(y), float(loss), float(base), outside)


def opened(pair: CertifiedPair) -> CertifiedPair:
    """Return the same model with its gate open, for comparisons; the original is left alone."""
    view = CertifiedPair(pair.parameters)
    if pair.epoch is not None:
        view.restore(pair.epoch, pair.arrays, pair.odometer)
    view.ready = True
    return view


def loss_name(pair: CertifiedPair) -> str:
    """Return the loss's name."""
    return {code: name for name, code in losses.CODES.items()}[pair.epoch.constants.loss] if pair.epoch else ""


def _there(model: Offline) -> Iterator[tuple[Any, Any, Vector]]:
    """Yield x, c and y of the rows that are there, without the gaps."""
    for rows in model.batches():
        there = rows.there
        if there.all():
            yield rows.x, rows.c, rows.y
        elif there.any():
            yield rows.x[there], _texts(rows), rows.y[there]


def _texts(rows: Rows) -> list[Any]:
    return [rows.c[i] for i in np.flatnonzero(rows.there).tolist()]


def deletions(model: Offline, after: int = 0) -> list[tuple[int, int]]:
    """Return (clock, ρ) of the current epoch's deletions by noise, beyond entry `after` of the ledger."""
    entries = zip(*(model.ledger[name].to_pylist() for name in ("seq", "kind", "epoch", "clock", "rho")), strict=True)
    now = model.row["epoch"]
    return [
        (clock, rho)
        for seq, kind, epoch, clock, rho in entries
        if seq > after and kind == "unlearned" and epoch == now and rho > 0
    ]


def _blank(pair: CertifiedPair) -> CertifiedPair:
    if pair.epoch is not None:
        pair.start(pair.epoch)
    return pair


def _earlier(model: Offline, since: Offline) -> CertifiedPair:
    same = (since.row["id"], since.row["epoch"], since.row["constants"])
    if same != (model.row["id"], model.row["epoch"], model.row["constants"]) or since.clock > model.clock:
        raise InvalidParameter(
            f"{since.folder} is not an earlier moment of {model.name}'s epoch {model.row['epoch']}.",
            remedy="Give an export of the same model and epoch that was made before.",
        )
    return since.live()
