"""What can happen to an exact pair, and the state that the rows which are left ought to have.

The state is computed here once more, from the definition and in Python's own integers: no numpy, no floating-point sum,
nothing taken over from the code under test but the frozen constants.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from mempair_db.pair import classes, exact, exact_model
from mempair_db.pair.encode import Encoding, curves_for
from mempair_db.pair.exact_model import ExactPair
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums

Row = tuple[tuple[float, ...], Any, tuple[str | None, ...], float]  # numbers, target, texts, weight

CALIBRATION = 12
REFERENCE = 30
"""So few that a short history has rows inside and outside the reference."""


# ---- The definition, in Python's integers. ----


def coordinates(encoding: Encoding, row: Row) -> tuple[list[int], bool, bool]:
    """Return x_q, whether a number is beyond the clamp, whether something in the row is unknown."""
    found, outside, unknown = [1024], False, False
    for value, number in zip(row[0], encoding.numbers, strict=True):
        missing = math.isnan(value)
        scaled = 0.0 if missing else min(max((value - number.centre) / number.scale, -4.0), 4.0)
        x = math.floor(scaled * 1024 + 0.5)
        outside |= abs(x) == 4096
        unknown |= missing and not number.missing
        found += [x, *(max(x - knot, 0) for knot in number.knots)]
        found += [1024 * missing] if number.missing else []
    for level, text in zip(row[2], encoding.texts, strict=True):
        names: list[str | None] = [*text.levels, "\x00 any other", *([None] if text.null else [])]
        place = names.index(level) if level in names else len(text.levels)
        unknown |= place == len(text.levels)
        found += [1024 * (i == place) for i in range(len(names))]
    return found, outside, unknown


def heaviness(reference: Reference, place: int, weight: float) -> int:
    """Return s, a row's weight in 16ths."""
    if reference.labels and place < 0:
        return 0
    if not reference.weighted:
        return 1
    whole = math.floor(min(max(weight, 0.0), 16.0) * 16 + 0.5)
    return min(256, (whole * reference.class_weights[place] + 8) >> 4) if reference.class_weights else whole


def softmax(scores: list[int]) -> tuple[list[int], list[list[int]]]:
    """Return p of every class, and c of every pair."""
    e = [math.floor(math.exp(-min(max(scores) - z, 16384) / 1024) * 2**20 + 0.5) for z in scores]
    p = [(2**15 * one + sum(e)) // (2 * sum(e)) for one in e]
    c = [[-((a * b + 2**17) >> 18) for b in p] for a in p]
    for k, row in enumerate(c):
        row[k] = max(1, -sum(row[:k] + row[k + 1 :]))
    return p, c


def slopes(reference: Reference, z: int, y: float) -> tuple[int, int, int]:
    """Return u, c and y_q²."""
    if reference.loss == "logistic":
        p = 1.0 / (1.0 + math.exp(-min(max(z, -16384), 16384) / 1024))
        return math.floor(p * 2**14 + 0.5) - 2**14 * (y > 0), max(1, math.floor(p * (1 - p) * 2**10 + 0.5)), 0
    target = reference.encoding.target
    y_q = math.floor(min(max((y - target.centre) / target.scale, -64.0), 64.0) * 1024 + 0.5)
    u = min(max(z - y_q, -(2**17)), 2**17)
    if reference.loss == "squared":
        return u, 1, y_q * y_q
    c = min(256, max(1, 256 * reference.clip // max(abs(u), 1)))
    return c * u, c, y_q * y_q


def by_definition(reference: Reference, rows: Sequence[Row]) -> bytes:
    """Return the packed sums of these rows."""
    d, labels = reference.d, reference.labels
    together = bool(labels) and len(labels) * d <= 1024
    matrices, width = (1, len(labels) * d) if together else (len(reference.w0), d)
    counts, g = [0] * (4 + len(labels)), [[0] * width for _ in range(matrices)]
    H = [{(i, j): 0 for i in range(width) for j in range(i, width)} for _ in range(matrices)]
    for row in rows:
        x, outside, unknown = coordinates(reference.encoding, row)
        outside |= reference.regression and slopes(reference, 0, row[1])[2] == (64 * 1024) ** 2
        scores = [sum(a * b for a, b in zip(w0, x, strict=True)) >> reference.h for w0 in reference.w0.tolist()]
        name = json.dumps(row[1], ensure_ascii=False)
        place = (labels.index(name) if name in labels else -1) if labels else int(row[1] > 0)
        s = heaviness(reference, place, row[3])
        counts[:3] = [a + b for a, b in zip(counts, (1, outside, unknown), strict=False)]
        if labels:
            counts[3 if place < 0 else 4 + place] += 1
        if labels:
            p, c = softmax(scores)
        if labels and not together:
            for k, one in enumerate(p):
                u, c_k = one - 2**14 * (k == place), max(1, (one * (2**14 - one) + 2**17) >> 18)
                g[k] = [a + s * u * b for a, b in zip(g[k], x, strict=True)]
                for i, j in H[k]:
                    H[k][i, j] += s * c_k * x[i] * x[j]
            continue
        if labels:
            slope = [s * (p[k] - 2**14 * (k == place)) * one for k in range(len(labels)) for one in x]
            g[0] = [a + b for a, b in zip(g[0], slope, strict=True)]
            for i, j in H[0]:
                H[0][i, j] += s * c[i // d][j // d] * x[i % d] * x[j % d]
            continue
        u, c_0, square = slopes(reference, scores[0], row[1])
        counts[3] += s * square
        g[0] = [a + s * u * b for a, b in zip(g[0], x, strict=True)]
        for i, j in H[0]:
            H[0][i, j] += s * c_0 * x[i] * x[j]
    values = (*counts, *itertools.chain(*g), *itertools.chain(*(part.values() for part in H)))
    return b"".join(value.to_bytes(8, "little", signed=True) for value in values)


# ---- Histories. ----


def table(kind: str, n: int, seed: int) -> list[Row]:
    """Invent rows: well behaved, or with everything in them that real tables have."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) * (1.0, 100.0) + (0.0, 1000.0)
    texts: list[tuple[str | None, ...]] = [()] * n
    if kind != "numbers":
        texts = [((None, "basic", "pro", "gold", "a level that is rare")[i],) for i in rng.integers(0, 5, n)]
    if kind == "hostile":
        odd = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, -0.0, 5e-324])
        x = np.where(rng.random(x.shape) < 0.2, rng.choice(odd, x.shape), x)
        x[n // 2 :] = x[: n - n // 2]  # and rows that are there twice
        texts[n // 2 :] = texts[: n - n // 2]
    score = np.nan_to_num(x[:, 0], posinf=0, neginf=0).clip(-3, 3)
    y: list[Any] = (rng.random(n) < 1.0 / (1.0 + np.exp(-score))).astype(float).tolist()
    weights = rng.choice([0.0, 0.5, 1.0, 1.03, 16.0, 99.0], n).tolist() if kind == "weights" else [1.0] * n
    if kind == "classes":  # one of which has so few rows that it comes and goes
        names = np.where(
            rng.random(n) < 0.1, "rare", np.where(score > 0.3, "high", np.where(score < -0.3, "low", "middle"))
        )
        y = names.tolist()
    return [(tuple(a), b, c, w) for a, b, c, w in zip(x.tolist(), y, texts, weights, strict=True)]


def columns(rows: Sequence[Row]) -> tuple[Any, Any, Any]:
    """Return numbers, targets and texts."""
    x = np.array([row[0] for row in rows]).reshape(len(rows), 2)
    return x, np.array([row[1] for row in rows]), [row[2] for row in rows]


def options(kind: str) -> dict[str, Any]:
    """Return what a pair for such a table is made with."""
    made: dict[str, dict[str, Any]] = {"weights": {"weighted": True}, "classes": {"loss": "classes"}}
    return made.get(kind, {})


class Player:
    """Does to a pair what it is told, and remembers which rows are there."""

    def __init__(self, seed: int, *, has_rows: bool = True, **options: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.there: list[Row] = []
        rows = self.columns if has_rows else None
        self.pair = ExactPair(calibration_rows=CALIBRATION, gamma=100.0, rows=rows, **options)

    def columns(self) -> tuple[Any, ...]:
        return self.with_weights(self.there)

    def with_weights(self, rows: Sequence[Row]) -> tuple[Any, ...]:
        weights = [row[3] for row in rows] if self.pair.parameters.weighted else None
        return (*columns(rows), weights)

    def some(self, most: int) -> list[Row]:
        """Take away some of the rows that are there."""
        self.rng.shuffle(self.there)
        taken, self.there = self.there[:most], self.there[most:]
        return taken

    def insert(self, rows: list[Row]) -> None:
        self.there += rows
        for row in rows:
            self.pair.learn_one(*row)

    def insert_together(self, rows: list[Row]) -> None:
        self.there += rows
        if rows:
            self.pair.learn_many(*self.with_weights(rows))

    def delete(self, rows: list[Row]) -> None:
        for row in self.some(max(1, len(rows) // 2)):
            self.pair.unlearn_one(*row)

    def delete_together(self, rows: list[Row]) -> None:
        gone = self.some(max(1, len(rows) // 2))
        if gone:
            self.pair.unlearn_many(*self.with_weights(gone))

    def update(self, rows: list[Row]) -> None:
        old = self.some(len(rows))
        for one, new in zip(old, rows, strict=False):
            self.pair.unlearn_one(*one)
            self.pair.learn_one(*new)
            self.there.append(new)
        self.there += old[len(rows) :]

    def ask(self, rows: list[Row]) -> None:
        if self.pair.ready and rows:
            assert np.isfinite(self.pair.predict_proba_many(*columns(rows)[::2])).all()

    def store(self, rows: list[Row]) -> None:
        self.pair = ExactPair.from_state(self.pair.state(), rows=self.pair._rows)

    def refresh(self, rows: list[Row]) -> None:
        if len(self.there) >= CALIBRATION:
            self.pair.refresh(*self.columns())

    def play(self, script: Sequence[tuple[str, int]], rows: list[Row]) -> Player:
        rows = list(rows)
        for action, size in script:
            taken, rows = rows[:size], rows[size:]
            getattr(self, action)(taken)
        return self


ACTIONS = ("insert", "insert_together", "delete", "delete_together", "update", "ask", "store", "refresh")
scripts = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 25)), min_size=1, max_size=12)
kinds = st.sampled_from(("numbers", "texts", "hostile", "weights", "classes"))


@pytest.fixture
def few_reference_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "REFERENCE_ROWS", REFERENCE)
    monkeypatch.setattr(exact_model, "_WAIT", 7)


# ---- The promise. ----


def values(rows: Sequence[Row]) -> Counter[Any]:
    """Count rows by value, where NaN equals NaN."""
    return Counter((tuple(None if math.isnan(v) else v for v in x), y, tuple(c), w) for x, y, c, w in rows)


def reference_rows(pair: ExactPair) -> list[Row]:
    x, y, c = pair.reference_rows()
    weights = x[:, -1].tolist() if pair.parameters.weighted else [1.0] * len(x)
    targets = [json.loads(str(t[-1])) for t in c] if pair.parameters.loss == "classes" else y.tolist()
    texts = [t[:-1] for t in c] if pair.parameters.loss == "classes" else c or [()] * len(x)
    return [(tuple(a[:2]), b, tuple(t), w) for a, b, t, w in zip(x.tolist(), targets, texts, weights, strict=True)]


def assert_nothing_but(pair: ExactPair, there: Sequence[Row]) -> None:
    """The state is F(S, R), bit for bit, and R is made of rows that are there."""
    pair.flush()
    assert pair.n == len(there)
    if pair.reference is None:
        kept = pair.state()["kept"]
        assert kept["reference"] == []
        assert len(kept["others"]) == len(there) < CALIBRATION
        return
    chosen = reference_rows(pair)
    assert not values(chosen) - values(there), "a row that is gone is still a reference row"
    assert pair.sums.to_bytes() == by_definition(pair.reference, there)
    if pair.refresh_needed is None:
        assert refer(pair, chosen).to_bytes() == pair.reference.to_bytes(), "the constants are not those of the rows"


def refer(pair: ExactPair, rows: Sequence[Row]) -> Reference:
    x, y, c = columns(rows)
    p = pair.parameters
    labels = pair.reference.labels if pair.reference is not None else ()
    if p.loss == "classes" and not labels:
        labels = ('"high"', '"low"', '"middle"')
    if labels:
        y = classes.places(labels, [json.dumps(one, ensure_ascii=False) for one in y.tolist()])
    weight = np.array([row[3] for row in rows]) if p.weighted else None
    curves = curves_for(x.shape[1]) if p.curves is None else p.curves
    chosen: dict[str, Any] = {"loss": p.loss, "curves": curves, "clip": p.clip, "labels": labels, "weight": weight}
    balance, times = p.class_weight == "balanced", [int(place) for place in p.times]
    return exact.refer(x, y, c if c and c[0] else (), balance=balance, times=times, **chosen)


def parts(reference: Reference, rows: Sequence[Row], cuts: Sequence[int], sign: float = 1.0) -> list[Sums]:
    """Return the sums of the parts between these cuts."""
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    found = []
    for begin, end in itertools.pairwise(places):
        x, y, c = columns(rows[begin:end])
        if reference.labels:
            y = classes.places(reference.labels, [json.dumps(one) for one in y.tolist()])
        weight = np.array([row[3] for row in rows[begin:end]]) if reference.weighted else None
        found.append(exact.sums(reference, x, y, c, np.full(end - begin, sign), weight))
    return found


Mutation = Callable[[pytest.MonkeyPatch], None]
