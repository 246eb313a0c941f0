"""`ExactPair` as a user meets it: rows in every form, labels in every form, refreshes, saving, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from mempair_db import MemoryPair
from mempair_db.errors import InvalidParameter, InvalidRow, ModelNotReady
from mempair_db.pair import exact
from mempair_db.pair.exact_model import ExactPair
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.rows import sample


def dicts(n: int, seed: int = 0) -> tuple[list[dict[str, Any]], list[bool]]:
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = [
        {"age": int(age), "spend": float(spend), "plan": ("basic", "pro")[plan]}
        for age, spend, plan in zip(rng.integers(18, 80, n), rng.normal(50, 9, n), rng.integers(0, 2, n), strict=True)
    ]
    return rows, [row["age"] + 9 * (row["plan"] == "pro") + rng.normal(0, 5) > 50 for row in rows]


def matrix(n: int, seed: int = 0) -> tuple[Any, Any]:
    x = np.random.default_rng(seed).normal(size=(n, 3))
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).astype(float)


# ---- Which pair it is. ----


def test_the_exact_pair_is_the_default_and_the_certified_ones_have_their_names() -> None:
    assert isinstance(MemoryPair(), ExactPair)
    for unlearner in ("symmetric", "passive"):
        pair = MemoryPair(unlearner=unlearner, epsilon=2.0)
        assert isinstance(pair, CertifiedPair)
        assert (pair.parameters.unlearner, pair.parameters.epsilon) == (unlearner, 2.0)
        assert isinstance(MemoryPair.from_state(pair.state()), CertifiedPair)
        assert isinstance(pair, MemoryPair)
    assert isinstance(MemoryPair.from_state(MemoryPair(ridge=3.0).state()), ExactPair)


@pytest.mark.parametrize("name", ["epsilon", "delta", "lam", "m", "tau", "kappa", "mode"])
def test_a_budget_is_refused_and_the_refusal_says_who_has_one(name: str) -> None:
    with pytest.raises(InvalidParameter, match=rf"{name} belongs to the certified unlearners.*unlearner='symmetric'"):
        MemoryPair(**{name: 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rigde": 3}, r"^MemoryPair has no parameter 'rigde'\. Did you mean 'ridge'\?"),
        (
            {"unlearner": "passive", "epsilonn": 1},
            r"^MemoryPair has no parameter 'epsilonn'\. Did you mean 'epsilon'\?",
        ),
        ({"unlearner": "exakt"}, r"unlearner is 'exakt'\. Choose one of exact, symmetric, passive\."),
    ],
)
def test_a_misspelt_parameter_is_named_with_what_there_is(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        MemoryPair(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"ridge": 0.0},
        {"gamma": float("nan")},
        {"curves": -1},
        {"loss": "hinge"},
        {"clip": 9.0},
        {"calibration_rows": 0},
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(options))):
        MemoryPair(**options)


# ---- Rows and labels in every form. ----


def test_dicts_one_by_one_and_together_give_the_same_model() -> None:
    rows, y = dicts(1500)
    one, many = ExactPair(calibration_rows=1500), ExactPair(calibration_rows=1500)
    for row, label in zip(rows, y, strict=True):
        one.learn_one(row, label)
    many.learn_many(rows, y)
    assert one.state() == many.state()
    assert one.predict_one({"age": 70, "spend": 50.0, "plan": "pro"}) > 0.9
    assert one.predict_many(rows[:3])[2] == pytest.approx(one.predict_one(rows[2]))


@pytest.mark.parametrize("no", [0, False, -1, np.int64(-1), np.bool_(False), 0.0])
def test_yes_and_no_may_be_written_in_every_way(no: Any) -> None:
    x, y = matrix(700)
    usual, other = ExactPair(), ExactPair()
    usual.learn_many(x, y)
    for row, label in zip(x, y, strict=True):
        other.learn_one(row, type(no)(1) if label else no)
    other.refresh(x, y)
    usual.refresh(x, y)
    assert usual.state() == other.state()
    usual.unlearn_one(x[3], y[3])
    usual.learn_one(list(x[3]), bool(y[3]))
    assert usual.verify(x, y)


def test_numbers_may_be_of_every_kind_and_equal_ones_are_the_same_row() -> None:
    pair = ExactPair(calibration_rows=5)
    ways: list[Any] = [[1, 2.0], [True, Decimal(2)], np.array([1, 2]), (np.float32(1.0), np.int8(2)), [1.0, 2]]
    for way in ways:
        pair.learn_one(way, 1)
    assert len({repr(row) for row in pair.state()["kept"]["reference"]}) == 1


def test_minus_zero_and_every_nan_are_the_same_row() -> None:
    pair = ExactPair()
    pair.learn_one([0.0, float("nan")], 1)
    pair.unlearn_one([-0.0, np.array([-np.nan])[0]], True)
    assert pair.n == 0


def test_a_missing_key_none_and_nan_are_the_same() -> None:
    rows, y = dicts(1200)
    for i in range(0, 1200, 7):
        rows[i] = {"age": rows[i]["age"], "plan": None}
    pair = ExactPair()
    pair.learn_many(rows, y)
    same = [{"age": 30}, {"age": 30, "spend": None}, {"age": 30, "spend": float("nan"), "plan": None}]
    assert len({pair.predict_one(row) for row in same}) == 1


def test_points_in_time_are_numbers_and_are_unlearned_like_any_other() -> None:
    rng = np.random.default_rng(0)
    began = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    rows = [
        {"at": began + timedelta(hours=5 * i), "day": date(2026, 1, 1) + timedelta(i), "age": float(rng.normal())}
        for i in range(300)
    ]
    rows[7]["at"] = None
    rows[8] |= {"at": np.datetime64("NaT"), "day": np.datetime64("2026-03-01")}
    y = rng.random(300) < np.linspace(0.1, 0.9, 300)
    pair, never = ExactPair(), ExactPair()
    for row, label in zip(rows, y, strict=True):
        pair.learn_one(row, label)
    for row, label in zip(rows[:50], y, strict=False):
        pair.unlearn_one(row, label)
    never.learn_many(rows[50:], y[50:])
    assert pair.reference is not None
    assert [len(number.knots) for number in pair.reference.encoding.numbers] == [4, 0, 0]  # age, at, day
    assert ExactPair.from_state(pair.state()).predict_one(rows[0]) == never.predict_one(rows[0])
    assert pair.predict_one(rows[299]) > 0.5 > pair.predict_one(rows[60])
    # As a number of seconds it is the same row, as of UTC where there is no time zone.
    assert pair.predict_one(rows[9] | {"day": 86400.0 * 20462}) == pair.predict_one(rows[9] | {"day": date(2026, 1, 9)})
    with pytest.raises(InvalidRow, match="is not a number"):
        pair.learn_one(rows[0] | {"age": date(2026, 1, 1)}, True)
    with pytest.raises(InvalidRow, match="is not a number"):
        ExactPair(loss="squared").learn_one(rows[0], date(2026, 1, 1))


@pytest.mark.parametrize("times", [["b"], [1]])
def test_who_knows_it_says_which_numbers_are_points_in_time(times: list[str | int]) -> None:
    x, y = np.random.default_rng(0).normal(size=(300, 3)), np.arange(300) % 3 == 0
    rows: Any = [dict(zip("abc", row, strict=True)) for row in x.tolist()] if times == ["b"] else x
    pair = ExactPair(times=times)
    pair.learn_many(rows, y)
    assert pair.reference is not None
    assert [len(number.knots) for number in pair.reference.encoding.numbers] == [4, 0, 4]


def test_a_feature_that_comes_before_the_calibration_is_taken_up() -> None:
    rows, y = dicts(600)
    late = [{k: v for k, v in row.items() if k != "plan"} for row in rows[:100]] + rows[100:]
    pair = ExactPair(calibration_rows=600)
    for row, label in zip(late, y, strict=True):
        pair.learn_one(row, label)
    pair.unlearn_one(late[3], y[3])
    assert pair.verify(late[:3] + late[4:], y[:3] + y[4:])


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"age": 3, "height": 2.0}, "the feature 'height' was in none of the rows"),
        ({"age": "old"}, "'old' is not a number"),
        ({"age": 3, "plan": 7}, "7 is not a text"),
        ({"age": 10**400}, "larger than any float"),
        ({"age": object()}, "is not a number"),
        ({"age": "old", "spend": 1.0, "plan": "pro"}, "'old' is not a number"),
        ({"age": np.str_("3"), "spend": 1.0, "plan": "pro"}, "'3'. is not a number"),
        ({"age": b"3", "spend": 1.0, "plan": "pro"}, "b'3' is not a number"),
        ({"age": np.datetime64("2026-01-01"), "spend": 1.0, "plan": "pro"}, "is not a number"),
        ({"age": Decimal("sNaN"), "spend": 1.0, "plan": "pro"}, "is not a number"),
        ({"age": [3.0], "spend": 1.0, "plan": "pro"}, "is not a number"),
        ({"age": 10**400, "spend": 1.0, "plan": "pro"}, "larger than any float"),
        ({"age": 3, "spend": 1.0, "plan": b"pro"}, "b'pro' is not a text"),
        ({"age": 3, "spend": 1.0, "height": 2.0}, "the feature 'height' was in none of the rows"),
        (np.array([1.0, 2.0, 3.0]), r"it has 3 numbers and 0 texts. Give 2 and 1"),
        (np.array([[1.0, 2.0]]), r"it has 1 numbers and 0 texts. Give 2 and 1"),
        (np.array(["3", "4"]), "'3' is not a number"),
        ([1.0, 2.0], r"it has 2 numbers and 0 texts. Give 2 and 1"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_at_once_and_changes_nothing(row: Any, what: str) -> None:
    rows, y = dicts(600)
    pair = ExactPair()
    pair.learn_many(rows, y)
    before = pair.state()
    for act in (pair.learn_one, pair.unlearn_one):
        with pytest.raises(InvalidRow, match=what):
            act(row, True)
    with pytest.raises(InvalidRow, match=what):
        pair.predict_one(row)
    assert pair.state() == before


@pytest.mark.parametrize("label", [None, 2, "yes", float("nan"), []])
def test_a_label_that_is_neither_yes_nor_no_is_refused(label: Any) -> None:
    with pytest.raises(InvalidRow, match="neither yes nor no"):
        ExactPair().learn_one([1.0], label)
    with pytest.raises(InvalidRow, match="neither yes nor no"):
        ExactPair().learn_many([[1.0]], [label])


def test_missing_values_are_refused_if_the_user_wants_that() -> None:
    pair = ExactPair(on_null="skip")
    with pytest.raises(InvalidRow, match=r"a number is missing.*impute"):
        pair.learn_one([1.0, None], 1)
    with pytest.raises(InvalidRow, match="a text is missing"):
        pair.learn_one([1.0, 2.0], 1, [None])
    with pytest.raises(InvalidRow, match="a number is missing"):
        pair.learn_many(np.array([[1.0, np.nan]]), np.array([1.0]))
    rows, y = dicts(300)
    pair.learn_many(rows, y)
    for act in (pair.learn_one, pair.unlearn_one):
        for missing in (None, float("nan")):
            with pytest.raises(InvalidRow, match="a number is missing"):
                act({"age": missing, "spend": 1.0, "plan": "pro"}, True)
    pair.learn_one({"age": float("inf"), "spend": float("-inf"), "plan": "pro"}, True)  # their sum is NaN, neither is
    pair = ExactPair(on_null="skip")
    pair.learn_many(*matrix(300))
    with pytest.raises(InvalidRow, match="a number is missing"):
        pair.learn_one(np.array([1.0, np.nan, np.inf]), 1)
    pair.learn_one(np.array([1.0, -np.inf, np.inf]), 1)


def test_a_weight_without_weights_is_refused() -> None:
    with pytest.raises(InvalidRow, match=r"a weight of 2.0 for a row. Say weighted=True."):
        ExactPair().learn_one([1.0], 1, weight=2.0)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regressions_learn_values(loss: str) -> None:
    x, _ = matrix(900)
    y = 100.0 + 5.0 * x[:, 0]
    pair = ExactPair(loss=loss)
    pair.learn_many(x, y)
    pair.unlearn_many(x[:50], y[:50])
    assert pair.predict_one([1.0, 0.0, 0.0]) == pytest.approx(105.0, abs=0.5)
    with pytest.raises(InvalidRow, match="the target is inf"):
        pair.learn_one([1.0, 2.0, 3.0], float("inf"))


# ---- Before and after the calibration. ----


def test_it_does_not_predict_before_it_can() -> None:
    x, y = matrix(99)
    pair = ExactPair()
    pair.learn_many(x, y)
    with pytest.raises(ModelNotReady, match="99 rows learned, about 100 needed"):
        pair.predict_one(x[0])
    pair.learn_one(x[0], y[0])
    assert pair.ready
    assert pair.samples_needed() == 100
    strict = ExactPair.from_state(pair.state() | {"parameters": pair.state()["parameters"] | {"gamma": 1e-6}})
    assert not strict.ready
    with pytest.raises(ModelNotReady, match=f"100 rows learned, about {strict.samples_needed()} needed"):
        strict.predict_one(x[0])
    assert 100_000 < strict.samples_needed() < 10_000_000


def test_a_row_that_was_never_learned_cannot_be_unlearned_as_long_as_all_rows_are_known() -> None:
    x, y = matrix(600)
    pair = ExactPair()
    with pytest.raises(InvalidRow, match="nothing has been learned"):
        pair.unlearn_one(x[0], y[0])
    pair.learn_many(x, y)
    before = pair.state()
    with pytest.raises(InvalidRow, match="this row was never learned"):
        pair.unlearn_one(x[0] + 1.0, y[0])
    with pytest.raises(InvalidRow, match="one of these rows was never learned"):
        pair.unlearn_many(np.stack([x[0], x[0]]), np.array([y[0], y[0]]))
    assert pair.state() == before
    pair.unlearn_one(x[0], y[0])
    with pytest.raises(InvalidRow, match="this row was never learned"):
        pair.unlearn_one(x[0], y[0])


def test_what_waits_is_not_handed_on() -> None:
    x, y = matrix(700)
    pair = ExactPair()
    pair.learn_many(x, y)
    pair.unlearn_one(x[5], y[5])
    for again in (pickle.loads(pickle.dumps(pair)), copy.deepcopy(pair), ExactPair.from_state(pair.state())):
        assert again._waiting == []
        assert again.state() == pair.state()
        assert again.verify(np.delete(x, 5, 0), np.delete(y, 5))


def test_the_state_is_plain_values_and_bytes() -> None:
    rows, y = dicts(600)
    pair = ExactPair(curves=1)
    pair.learn_many(rows, y)
    assert json.dumps(pair.state(), default=lambda value: value.hex() if isinstance(value, bytes) else 1 / 0)


# ---- Refreshes. ----


@pytest.fixture
def keeps_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "REFERENCE_ROWS", 600)


def test_as_long_as_it_keeps_all_rows_it_refreshes_itself() -> None:
    x, y = matrix(4000)
    pair = ExactPair()
    for row, label in zip(x, y, strict=True):
        pair.learn_one(row, label)
    assert pair.ready
    assert pair.refresh_needed is None
    assert len(pair.reference_rows()[0]) >= 2000
    assert pair.verify(x, y)


@pytest.mark.usefixtures("keeps_few")
def test_without_the_rows_it_says_what_it_needs_and_goes_on() -> None:
    x, y = matrix(3000)
    pair = ExactPair()
    pair.learn_many(x[:1000], y[:1000])
    for row, label in zip(x[1000:], y[1000:], strict=True):
        pair.learn_one(row, label)
    assert pair.refresh_needed == "the table has doubled"
    assert pair.predict_one([2.0, 0.0, 0.0]) > 0.9
    assert pair.verify(x, y)
    pair.refresh(x, y)
    assert pair.state()["refresh_needed"] is None


@pytest.mark.usefixtures("keeps_few")
def test_a_reference_row_that_changes_the_constants_is_not_forgotten_before_a_refresh() -> None:
    x, y = matrix(1000)
    pair = ExactPair()
    pair.learn_many(x, y)
    chosen, labels, _ = pair.reference_rows()
    pair.unlearn_many(chosen[:200], labels[:200])
    assert pair.refresh_needed == "an unlearned row is still in the constants"
    left = [i for i in range(1000) if not (x[i] == chosen[:200]).all(axis=1).any()]
    assert not pair.verify(x[left], y[left])
    again = ExactPair.from_state(pair.state(), rows=lambda: (x[left], y[left]))
    again.learn_one(x[left[0]], y[left[0]])
    again.unlearn_one(x[left[0]], y[left[0]])
    assert again.refresh_needed is None
    assert again.verify(x[left], y[left])


@pytest.mark.usefixtures("keeps_few")
def test_a_reference_row_is_known_again_however_its_numbers_are_written() -> None:
    x, y = matrix(1000)
    x[:, 0], x[::2, 1] = 0.0, np.nan
    pair = ExactPair()
    pair.learn_many(x, y)
    chosen, labels, _ = pair.reference_rows()
    some = [i for i in range(len(chosen)) if np.isnan(chosen[i, 1])][:50]
    for i in some:
        pair.unlearn_one(np.array([-0.0, -np.nan, chosen[i, 2]]), labels[i])
    assert len(pair.reference_rows()[0]) == len(chosen) - len(some)


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_row_that_its_owner_changes_after_the_call_was_learned_as_it_was(as_dict: bool) -> None:
    x, y = matrix(400)
    names = ("a", "b", "c")
    pair = ExactPair()
    pair.learn_many([dict(zip(names, row, strict=True)) for row in x.tolist()] if as_dict else x, y)
    for act in (pair.learn_one, pair.unlearn_one):
        row: Any = {"a": 1.0, "b": 2.0, "c": 3.0} if as_dict else np.array([1.0, 2.0, 3.0])
        act(row, True)
        row["b" if as_dict else 1] = -7.0
    assert pair.verify([dict(zip(names, row, strict=True)) for row in x.tolist()] if as_dict else x, y)


@pytest.mark.usefixtures("keeps_few")
def test_rows_that_do_not_agree_are_not_taken() -> None:
    x, y = matrix(3000)
    pair = ExactPair(rows=lambda: (x[:-1], y[:-1]))
    pair.learn_many(x[:1000], y[:1000])
    pair.learn_many(x[1000:], y[1000:])
    assert pair.refresh_needed == "the table has doubled, but rows() has 2999 rows where there are 3000"
    assert pair.verify(x, y)


def test_the_sample_is_a_share_of_the_rows_and_equal_rows_do_not_go_together() -> None:
    x, y = np.zeros((20_000, 1)), np.arange(20_000) % 2 == 0
    chosen = sample(x, y.astype(float), (), 5000)
    assert 4500 < len(chosen) < 5500
    assert 0.45 < y[chosen].mean() < 0.55
    assert len(sample(x, y.astype(float), [("a",)] * 20_000, 20_000)) == 20_000


def test_another_row_changes_nobody_elses_lot() -> None:
    x, y = matrix(3000)
    c = [(str(i % 3),) for i in range(3000)]
    whole = sample(x, y, c, 400)
    without = sample(x[1:], y[1:], c[1:], 400) + 1
    assert set(whole) - {0} == set(without)
