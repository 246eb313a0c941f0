"""`CertifiedPair` over raw rows: its budget, what it stores, and that the way rows arrive changes nothing."""

from __future__ import annotations

import base64
import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempair_db.errors import BudgetExhausted
from mempair_db.pair import encode, events
from mempair_db.pair.calibration import Epoch, Parameters
from mempair_db.pair.encoding import Encoding, Matrix, fit
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.state import Vector, to_bytes

from .streams import LOSSES, UNLEARNERS


@dataclass(frozen=True)
class Table:
    """Raw rows, with one text feature or none."""

    x: Matrix
    y: Vector
    c: list[tuple[str, ...]]
    parameters: Parameters

    def __len__(self) -> int:
        return len(self.x)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Draw rows as users have them: outliers, constant columns, rare texts, any parameters."""
    loss = draw(st.sampled_from(LOSSES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, p = draw(st.integers(1, 120)), draw(st.integers(0, 8))
    x = rng.normal(size=(n, p)) * 10.0 ** rng.integers(-3, 4, size=p)
    if p:
        x[rng.random(n) < draw(st.sampled_from([0.0, 0.1, 0.9])), 0] = draw(st.sampled_from([1e6, 0.0, -1e300]))
        x[:, draw(st.integers(0, p - 1))] = 5.0
    y: Vector = rng.choice([-1.0, 1.0], size=n)
    if loss == "huber":
        y *= rng.normal(size=n) * draw(st.sampled_from([1.0, 1e6, 1e-6]))
    texts = draw(st.booleans())
    c: list[tuple[str, ...]] = [
        (("a", "b", "rare")[int(i)],) if texts else () for i in np.minimum(2, rng.exponential(size=n))
    ]
    parameters = Parameters(
        loss=loss,
        epsilon=draw(st.sampled_from([1.0, 0.1, 20.0])),
        delta=draw(st.sampled_from([1e-6, 1e-2])),
        gamma=draw(st.sampled_from([0.1, 10.0, 1000.0])),
        lam=draw(st.one_of(st.none(), st.floats(-4, 0).map(lambda exponent: 10.0**exponent))),
        m=draw(st.one_of(st.none(), st.integers(1, 20))),
        tau=draw(st.integers(1, 10)),
        calibration_rows=draw(st.integers(1, 60)),
        unlearner=draw(st.sampled_from(UNLEARNERS)),
    )
    return Table(x, y, c, parameters)


def learned(table: Table) -> CertifiedPair:
    pair = CertifiedPair(table.parameters)
    pair.learn_many(table.x, table.y, table.c)
    return pair


def through_json(saved: dict[str, Any]) -> dict[str, Any]:
    arrays = saved["arrays"]
    text = json.dumps({**saved, "arrays": None if arrays is None else base64.b64encode(arrays).decode()})
    loaded: dict[str, Any] = json.loads(text)
    return {**loaded, "arrays": None if arrays is None else base64.b64decode(loaded["arrays"])}


# ---- The budget. ----


@given(tables(), st.data())
def test_no_stream_passes_the_cap_and_the_odometer_is_the_sum_of_what_was_spent(
    table: Table, data: st.DataObject
) -> None:
    # Given any events after calibration, in any batches, until the budget refuses one,
    pair = learned(table)
    if pair.epoch is None:
        return
    spent: list[int] = []
    for _ in range(data.draw(st.integers(1, 5))):
        rows = data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=15))
        ops = np.array([data.draw(st.sampled_from([events.INSERT, events.DELETE])) for _ in rows], np.int16)
        promised = pair.affordable(ops)
        applied = pair.apply(ops, table.x[rows], table.y[rows], [table.c[i] for i in rows])
        spent += applied.spent
        # then as much happened as was promised, each deletion was paid for, and no more than the cap was spent.
        assert applied.done == promised
        assert len(applied.spent) == np.count_nonzero(ops[: applied.done] == events.DELETE)
        assert applied.done == len(ops) or ops[applied.done] == events.DELETE
    assert pair.odometer.spent == sum(spent) <= pair.odometer.cap
    assert pair.odometer.deletions == len(spent) == pair.tally("deletions")
    assert all(units > 0 for units in spent)


@given(tables())
def test_a_refused_deletion_changes_nothing(table: Table) -> None:
    pair = learned(table)
    if pair.epoch is None:
        return
    for _ in range(200):
        before = pair.state()
        try:
            pair.unlearn_one(table.x[0], table.y[0], table.c[0])
        except BudgetExhausted:
            assert pair.state() == before
            return
    assert pair.odometer.spent <= pair.odometer.cap


@given(tables(), st.integers(1, 10**7))
def test_what_a_deletion_costs_depends_on_the_clock_alone(table: Table, clock: int) -> None:
    # Given two models of the same constants that learned different rows,
    pair = learned(table)
    if pair.epoch is None:
        return
    other = CertifiedPair(table.parameters)
    other.start(pair.epoch)
    # then they pay the same, and with the live split later deletions never cost more.
    assert other.price(clock) == pair.price(clock)
    now, later = pair.price(clock), pair.price(2 * clock)
    assert now == 0 or later <= now


# ---- What is stored. ----


@given(tables(), st.integers(0, 120))
def test_a_stored_and_loaded_model_goes_on_with_the_same_bits(table: Table, cut: int) -> None:
    # Given a model at any age, calibrating or not, when it goes through JSON,
    cut = min(cut, len(table))
    pair = CertifiedPair(table.parameters)
    pair.learn_many(table.x[:cut], table.y[:cut], table.c[:cut])
    loaded = CertifiedPair.from_state(through_json(pair.state()))
    # then it is the same, and stays so.
    assert loaded.state() == pair.state()
    for model in (pair, loaded):
        model.learn_many(table.x[cut:], table.y[cut:], table.c[cut:])
    assert loaded.state() == pair.state()


@given(tables())
def test_an_epoch_survives_json(table: Table) -> None:
    epoch = learned(table).epoch
    if epoch is None:
        return
    loaded = Epoch.from_json(json.loads(json.dumps(epoch.to_json(), allow_nan=False)))
    assert loaded.to_json() == epoch.to_json()
    assert loaded.constants == epoch.constants
    assert list(map(type, loaded.constants)) == list(map(type, epoch.constants))
    assert np.array_equal(loaded.encoding.encode(table.x, table.c), epoch.encoding.encode(table.x, table.c))


# ---- The way rows arrive. ----


@given(tables(), st.lists(st.integers(0, 120), max_size=5))
def test_after_calibration_batches_of_any_size_give_the_same_bits(table: Table, cuts: list[int]) -> None:
    start = learned(table)
    if start.epoch is None:
        return
    states = []
    edges = [0, *sorted(min(cut, len(table)) for cut in cuts), len(table)]
    for pieces in (edges, list(range(len(table) + 1))):
        pair = CertifiedPair.from_state(start.state())
        for begin, end in itertools.pairwise(pieces):
            pair.learn_many(table.x[begin:end], table.y[begin:end], table.c[begin:end])
        states.append(to_bytes(pair.arrays))
    assert states[0] == states[1]


raw_numbers = st.floats(allow_nan=True, allow_infinity=False)


@given(st.lists(st.lists(raw_numbers, min_size=3, max_size=3), min_size=1, max_size=20))
def test_any_numbers_are_encoded_into_the_unit_ball(rows: list[list[float]]) -> None:
    x = np.array(rows)
    encoding = fit(x, [()] * len(x), np.ones(len(x)), regression=False, declared=[])
    for encoded in (encoding.encode(x, [()] * len(x)), encoding.encode(x[::-1] * 0.5, [()] * len(x))):
        assert np.isfinite(encoded).all()
        assert (np.linalg.norm(encoded, axis=1) <= 1.0 + 1e-12).all()


@given(st.lists(raw_numbers, min_size=1, max_size=20))
def test_any_targets_are_encoded_to_finite_numbers(targets: list[float]) -> None:
    y = np.nan_to_num(np.array(targets))
    encoding = fit(np.empty((len(y), 0)), [()] * len(y), y, regression=True, declared=[])
    assert np.isfinite(encoding.encode_target(y)).all()


@given(tables())
def test_a_row_is_encoded_alike_alone_and_among_others(table: Table) -> None:
    encoding = fit(table.x, table.c, table.y, regression=True, declared=[None] * len(table.c[0]))
    together = encoding.encode(table.x, table.c)
    for i in range(len(table)):
        assert np.array_equal(encoding.encode(table.x[i : i + 1], table.c[i : i + 1])[0], together[i])


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_what_is_served_is_what_was_learned(p: int, seed: int) -> None:
    # Given any encoding, any θ, and rows near and far,
    rng = np.random.default_rng(seed)
    numbers = tuple(encode.Number(float(rng.normal() * 10), 2.0 ** int(rng.integers(-2, 3))) for _ in range(p))
    target = encode.Number(float(rng.normal()), 0.5)
    encoding = Encoding(encode.Encoding(numbers, (encode.Text(("a", "b")),), target), float(rng.uniform(1, 5)), True)
    theta = rng.normal(size=encoding.d)
    x, text = rng.normal(size=p) * 10.0 ** rng.integers(0, 4), str(rng.choice(["a", "b", "other"]))
    # when one is predicted as SQL does it, from whole numbers,
    x_q = [math.floor(min(max((v - n.centre) / n.scale, -4), 4) * 1024 + 0.5) for v, n in zip(x, numbers, strict=True)]
    e = [1024 * (text == "a"), 1024 * (text == "b"), 1024 * (text == "other")]
    total = sum(w * q for w, q in zip(theta, [1024, *x_q, *e], strict=True))
    norm = math.sqrt(1024**2 + sum(q * q for q in x_q) + 1024**2)
    served = total / max(1024 * encoding.radius, norm) * target.scale + target.centre
    # then the value is θ on the row as it would be learned.
    learned = encoding.decode_target(encoding.encode(x[None, :], [[text]]) @ theta)
    assert learned[0] == pytest.approx(served, rel=1e-9, abs=1e-9)
