"""`mempair bench fidelity`: how close a deletion comes to the true replay, and whether anybody could tell.

For every candidate row: the stream is learned with it and the row deleted without noise; and the stream is learned with
a tick in its place. Their distance is compared with what the noise is made for:

    anchored    S = 2G/(λ(T + t0)), passive G/(λ(T + t0))      Theorem B: never more
    paper       α_T·G/λ, the printed G/λ with the step size it forgot; nothing is promised that holds

Empirical ε is the audit's test (`measure.distinguish`): a lower limit, at 95 %, of the ε that the two worlds show. It
must stay below the claimed one. On the real sets it is tried on the row that came closest to the bound.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from mempair_db.bench import data, plots
from mempair_db.bench.report import Result, goal, machine
from mempair_db.measure.capacity import learn, unlearn
from mempair_db.measure.distinguish import Empirical, distinguish
from mempair_db.measure.leave_one_out import SLACK
from mempair_db.measure.worlds import Worlds, printed_instance, tight_instance
from mempair_db.offline.stream import Stream
from mempair_db.pair import bounds, comparators, noise, odometer
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.events import DELETE, apply
from mempair_db.pair.state import PAPER, copy

LAM: Final = 0.01
EPSILON: Final = 1.0
DELTA: Final = 1e-6
SETS: Final = {"mnist 3v8": 4_000, "adult": 20_000, "covtype": 30_000, "elec2": 30_000}
MODES: Final = {
    "anchored, symmetric": Parameters(lam=LAM, delta=DELTA),
    "anchored, passive": Parameters(lam=LAM, delta=DELTA, unlearner="passive"),
    "paper, per step": Parameters(lam=LAM, delta=DELTA, mode="paper", m=1),
    "paper, mini-batch": Parameters(lam=LAM, delta=DELTA, mode="paper", m=1, pairs="minibatch"),
}


def run(*, folder: Path | None = None, quick: bool = False, candidates: int = 25, samples: int = 4_000) -> Result:
    """Measure every set; `quick` only shows that it works."""
    at = machine()
    if quick:
        candidates, samples = 5, 200
    names = [name for name in data.names(folder) if folder is None or name in SETS]
    distances: list[dict[str, Any]] = []
    told: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    lines = []
    for name in names[:1] if quick else names:
        rows = data.load(name, folder).shuffled(0, SETS.get(name))
        stream = data.encode(rows, MODES["anchored, symmetric"])
        steps += [{"set": name, **row} for row in step_back(stream, 5 if quick else 60)]
        for mode, parameters in MODES.items():
            s = _in_mode(stream, parameters)
            ratios = _ratios(s, _candidates(s, candidates))
            distances.append(
                {"set": name, "rows": len(s), "d": s.epoch.d, "mode": mode, **_summary(list(ratios.values()))}
            )
            lines.append(plots.line(f"{name}, {mode}", list(range(1, len(ratios) + 1)), sorted(ratios.values())))
            if mode in ("anchored, symmetric", "paper, mini-batch"):
                worst = max(ratios, key=lambda row: ratios[row])
                told.append(_told(distinguish(_worlds(f"{name}, {mode}", s, worst), delta=DELTA, samples=samples)))
    known = [_told(distinguish(worlds(EPSILON, DELTA), delta=DELTA, samples=10 * samples)) for worlds in _INSTANCES]
    anchored = [row["largest ratio"] for row in distances if row["mode"].startswith("anchored")]
    honest = [row["proven ε"] for row in (*told, *known) if "anchored" in row["worlds"] or "tight" in row["worlds"]]
    return {
        "bench": "fidelity",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": f"Distance to the true replay, in units of the bound, {candidates} rows each", "rows": distances},
            {"title": f"Empirical ε, δ = {DELTA}", "rows": [*known, *told]},
            {"title": "Does the symmetric step come closer to the replay than no step? Random rows", "rows": steps},
        ],
        "goals": [
            goal("anchored: distance within the bound", max(anchored), most=1.0 + SLACK),
            goal(f"anchored: proven ε within ε = {EPSILON}", max(honest), most=EPSILON),
        ],
        "notes": [
            f"λ = {LAM}. A proven ε of paper mode above its claim refutes it: its window gets no noise, so the worlds "
            "can be told apart with certainty once the window remembers the row.",
        ],
        "plots": [
            plots.plot("distance", "Deleted against never seen", "candidate", "distance/bound", lines, "y"),
        ],
    }


_INSTANCES: Final = (tight_instance, printed_instance)


def _in_mode(stream: Stream, parameters: Parameters) -> Stream:
    epoch = replace(stream.epoch, constants=constants_for(parameters, LAM))
    return replace(stream, parameters=parameters, epoch=epoch)


def _candidates(s: Stream, count: int) -> list[int]:
    """Return rows: first, last, those with the largest gradients at the end, and random ones."""
    learned = learn(s, s.X, s.y)
    steep = np.abs(comparators.derivative("logistic", s.X @ learned.theta, s.y)) * np.linalg.norm(s.X, axis=1)
    share = max(1, count // 4)
    random = np.random.default_rng(0).choice(len(s), count, replace=False).tolist()
    chosen = [*range(share), *range(len(s) - share, len(s)), *np.argsort(-steep)[:share].tolist(), *random]
    return list(dict.fromkeys(int(row) for row in chosen))[:count]


def _ratios(s: Stream, rows: list[int]) -> dict[int, float]:
    """Return, for each row, the distance of deleted from never seen in units of the bound."""
    paper = s.epoch.constants.mode == PAPER
    learned = learn(s, s.X, s.y)
    found = {}
    for row in rows:
        one = np.array([row])
        deleted = unlearn(s, learned, s.X[one], s.y[one], 0.0)
        ideal = learn(s, s.X, s.y, without=one)
        apart = deleted.theta - ideal.theta if paper else deleted.anchor - ideal.anchor
        found[row] = float(np.linalg.norm(apart)) / _reach(s)
    return found


def step_back(s: Stream, count: int) -> list[dict[str, Any]]:
    """Compare the symmetric step with none, for the first deletion and for one after another, which has no window."""
    k, learned = s.epoch.constants, learn(s, s.X, s.y)
    emptied = copy(learned)
    delete, nothing = np.array([DELETE], np.int16), np.zeros((1, s.epoch.d))
    apply(emptied, k._replace(symmetric=False), delete, nothing, np.ones(1), nothing)
    rows = np.random.default_rng(0).choice(len(s), count, replace=False)[:, None]
    ideals = [learn(s, s.X, s.y, without=one).anchor for one in rows]
    still = [float(np.linalg.norm(learned.anchor - ideal)) for ideal in ideals]
    found = []
    for window, state in (("of the whole stream", learned), ("emptied by a deletion before", emptied)):
        anchors = [unlearn(s, state, s.X[one], s.y[one], 0.0).anchor for one in rows]
        moved = [float(np.linalg.norm(anchor - ideal)) for anchor, ideal in zip(anchors, ideals, strict=True)]
        closer = sum(with_step < without for with_step, without in zip(moved, still, strict=True))
        found.append(
            {
                "window": window,
                "rows": count,
                "closer": closer,
                "median distance, symmetric": float(np.median(moved)),
                "median distance, passive": float(np.median(still)),
            }
        )
    return found


def _reach(s: Stream) -> float:
    k = s.epoch.constants
    if k.mode == PAPER:
        return k.G / (k.lam * len(s))  # α_T = 1/T
    return bounds.sensitivity(k.G, k.lam, len(s), k.t0, s.parameters.unlearner, s.epoch.d)


def _summary(ratios: list[float]) -> dict[str, float]:
    return {
        "median ratio": float(np.median(ratios)),
        "largest ratio": max(ratios),
        "rows over the bound": sum(ratio > 1.0 + SLACK for ratio in ratios),
    }


def _worlds(name: str, s: Stream, row: int) -> Worlds:
    """Return the two worlds of a row of a real set."""
    k, one = s.epoch.constants, np.array([row])
    units = odometer.to_units(odometer.rho_of(EPSILON, DELTA))
    reach = k.G / k.lam if k.mode == PAPER else _reach(s)
    return Worlds(
        name,
        k,
        learned=learn(s, s.X, s.y),
        ideal=learn(s, s.X, s.y, without=one),
        x=s.X[row],
        y=float(s.y[row]),
        rho=units,
        sigma=noise.sigma(reach, units, s.epoch.d),
    )


def _told(found: Empirical) -> dict[str, Any]:
    exact = found.exact_epsilon
    return {
        "worlds": found.name,
        "samples": found.samples,
        "claimed ε": found.claimed,
        "proven ε": found.epsilon,
        "exact ε": exact if math.isfinite(exact) else "not covered",
        "holds": "yes" if found.holds else "refuted",
    }
