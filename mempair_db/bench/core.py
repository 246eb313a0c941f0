"""`mempair bench core`: time per insert and per delete, beside river and scikit-learn, and memory over many events.

The exact pair is in `exact_core`; what follows is about the certified one. All learn the same rows with logistic loss,
in the same process, in turns. What is timed:

    insert          the kernel over a whole array of encoded rows, window of τ = 10 pairs full
    learn_one       `CertifiedPair.learn_one`: checks, encoding and kernel, one raw row a call
    delete          the kernel, one delete a call, with a full window (a delete empties it) and the noise at hand
    unlearn_one     `CertifiedPair.unlearn_one`: the same with checks, encoding, odometer and fresh noise
    river           `LogisticRegression.learn_one` on dicts, its defaults
    sklearn one     `SGDClassifier.partial_fit`, one row a call
    sklearn array   `SGDClassifier.partial_fit` on the whole array
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..pair import events
from ..pair.calibration import Parameters, constants_for
from ..pair.model import CertifiedPair
from ..pair.state import copy, empty
from . import exact_core
from .report import Contestant, Result, extra, goal, machine, render, side_by_side, timed

__all__ = ["render", "run"]

Matrix = npt.NDArray[np.float64]

DIMENSIONS: Final = (10, 100, 784)
LAM: Final = 0.01
TAU: Final = 10
MICRO: Final = 1e6
RIVER_GOAL: Final = 10.0
SKLEARN_GOAL: Final = 5.0


def run(*, quick: bool = False) -> Result:
    """Measure everything; `quick` only shows that it works."""
    at = machine()  # before our own load
    repeats = 2 if quick else 15
    times = [_times(d, repeats, quick=quick) for d in DIMENSIONS]
    exact = [_exact(d, repeats, quick=quick) for d in DIMENSIONS]
    return {
        "bench": "core",
        "quick": quick,
        "machine": at,
        "tables": [
            {"title": f"Microseconds per row, medians of {repeats} rounds", "rows": times},
            {"title": "Memory of a model, d = 10", "rows": _memory((1_000, 5_000) if quick else (10_000, 1_000_000))},
            *exact_core.tables(exact, repeats),
        ],
        "goals": [
            *(
                goal(f"insert at least 10 × faster than river, d = {row['d']}", row["river/insert"], least=RIVER_GOAL)
                for row in times
            ),
            *(
                goal(f"insert within 5 × of sklearn array, d = {row['d']}", row["insert/array"], most=SKLEARN_GOAL)
                for row in times
            ),
            *exact_core.goals(exact),
        ],
        "notes": [],
    }


def rows(n: int, d: int) -> tuple[Matrix, Matrix]:
    """Return n raw rows of d numbers and their noisy labels."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(n, d))
    y = np.where(x @ rng.normal(size=d) + rng.normal(size=n) > 0.0, 1.0, -1.0)
    return x, y


def _times(d: int, repeats: int, *, quick: bool) -> dict[str, Any]:
    size = 40 if quick else max(500, 200_000 // d)
    calls = 20 if quick else max(50, 10_000 // d)  # a call that takes one row takes longer
    contestants = {
        **_kernel(d, size, calls),
        **_pair(d, calls, warm=600 if quick else 5_000),
        **_river(d, calls),
        **_sklearn(d, size, calls),
    }
    names = ("insert", "learn_one", "delete", "unlearn_one", "river", "sklearn one", "sklearn array")
    seconds = side_by_side({name: contestants[name] for name in names}, repeats)
    return {
        "d": d,
        **{name: seconds[name] * MICRO for name in names},
        "river/insert": seconds["river"] / seconds["insert"],
        "insert/array": seconds["insert"] / seconds["sklearn array"],
    }


def _exact(d: int, repeats: int, *, quick: bool) -> dict[str, Any]:
    size = 300 if quick else max(4_096, 400_000 // d)
    peers = _sklearn(d, size, 1) | _river(d, 20 if quick else max(50, 10_000 // d))
    return exact_core.times(
        rows(size, d), {name: peers[name] for name in ("sklearn array", "river")}, repeats, quick=quick
    )


def _each(calls: int, act: Callable[[int], object]) -> Contestant:
    def work() -> None:
        for i in range(calls):
            act(i)

    return timed(calls, work)


def _each_after(calls: int, prepare: Callable[[], object], act: Callable[[int], object]) -> Contestant:
    """Time the calls alone, not what is put back before each of them."""

    def seconds() -> float:
        total = 0.0
        for i in range(calls):
            prepare()
            start = time.perf_counter()
            act(i)
            total += time.perf_counter() - start
        return total / calls

    return seconds


def _kernel(d: int, size: int, calls: int) -> dict[str, Contestant]:
    k = constants_for(Parameters(tau=TAU), LAM)
    x, y = rows(size, d)
    X = x / np.linalg.norm(x, axis=1, keepdims=True)
    state = empty(d, TAU)
    while state.tally["pairs"][0] < TAU:
        events.learn(state, k, X, y)
    full, victim = copy(state), copy(state)
    delete, noise = np.array([events.DELETE], np.int16), np.zeros((1, d))

    def restore() -> None:
        for array, saved in zip(victim, full, strict=True):
            array[:] = saved

    return {
        "insert": timed(size, lambda: events.learn(state, k, X, y)),
        "delete": _each_after(
            calls, restore, lambda i: events.apply(victim, k, delete, X[i : i + 1], y[i : i + 1], noise)
        ),
    }


def _pair(d: int, calls: int, warm: int) -> dict[str, Contestant]:
    x, y = rows(warm, d - 1)  # the intercept makes it d
    learner = CertifiedPair(lam=LAM, tau=TAU, m=1, gamma=1e9)  # one delete is always affordable
    learner.learn_many(x, y)
    victim = CertifiedPair.from_state(learner.state())
    epoch, state, budget = victim.epoch, copy(victim.arrays), victim.odometer
    assert epoch is not None  # noqa: S101
    return {
        "learn_one": _each(calls, lambda i: learner.learn_one(x[i], y[i])),
        "unlearn_one": _each_after(
            calls, lambda: victim.restore(epoch, copy(state), budget), lambda i: victim.unlearn_one(x[i], y[i])
        ),
    }


def _river(d: int, calls: int) -> dict[str, Contestant]:
    model = extra("river.linear_model").LogisticRegression()
    x, y = rows(calls, d)
    dicts = [{f"x{j}": float(value) for j, value in enumerate(row)} for row in x]
    labels = [bool(label > 0.0) for label in y]

    def work() -> None:
        for row, label in zip(dicts, labels, strict=True):
            model.learn_one(row, label)

    return {"river": timed(calls, work)}


def _sklearn(d: int, size: int, calls: int) -> dict[str, Contestant]:
    classifier = extra("sklearn.linear_model").SGDClassifier
    x, y = rows(size, d)
    classes = np.array([-1.0, 1.0])
    one, whole = (classifier(loss="log_loss", random_state=0).partial_fit(x, y, classes=classes) for _ in range(2))
    return {
        "sklearn one": _each(calls, lambda i: one.partial_fit(x[i : i + 1], y[i : i + 1])),
        "sklearn array": timed(size, lambda: whole.partial_fit(x, y)),
    }


def _memory(counts: tuple[int, int]) -> list[dict[str, Any]]:
    """Return what a model holds after so many events, and the most that the whole process has held so far."""
    x, y = rows(500, 9)
    pair = CertifiedPair(lam=LAM, tau=TAU)
    found = []
    for count in counts:
        while pair.epoch is None or pair.tally("clock") < count:
            pair.learn_many(x, y)
        held = sum(array.nbytes for array in pair.arrays)
        found.append({"events": pair.tally("clock"), "bytes of state": held, "peak MB of process": _peak()})
    return found


def _peak() -> float:
    """Return the peak of resident memory in MB."""
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
