"""Raw rows → unit ball: numbers, categories, missing values and absurd ones, against hand-worked vectors."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mempair_db.errors import InvalidRow
from mempair_db.pair.encoding import MOST_CATEGORIES, Encoding, fit
from mempair_db.pair.losses import FARTHEST


def numbers(*columns: list[float]) -> Encoding:
    """Fit on these columns, with no texts and labels for targets."""
    x = np.array(columns).T
    return fit(x, [()] * len(x), np.ones(len(x)), regression=False, declared=[])


def test_a_row_worked_by_hand() -> None:
    # z = (14 − 10)/2 = 2, the categories are (basic, pro, other), then the intercept; all over a radius of 4.
    encoding = Encoding(np.array([10.0]), np.array([2.0]), (("basic", "pro"),), radius=4.0)
    assert encoding.d == 5
    assert encoding.encode(np.array([[14.0]]), [["basic"]]).tolist() == [[0.5, 0.25, 0.0, 0.0, 0.25]]


def test_a_long_row_is_clipped_to_the_unit_ball() -> None:
    # (3, 4)·(1/1) with intercept 1 would be √26 long.
    encoding = Encoding(np.zeros(2), np.ones(2), (), radius=1.0)
    assert encoding.encode(np.array([[3.0, 4.0]]))[0] == pytest.approx(np.array([3.0, 4.0, 1.0]) / np.sqrt(26))


def test_the_constants_are_mean_deviation_and_median_norm() -> None:
    encoding = numbers([0.0, 2.0] * 50, [5.0, 5.0] * 50)
    assert encoding.center.tolist() == [1.0, 5.0]
    assert encoding.scale.tolist() == [1.0, 1.0]  # a constant column is left as it is
    assert encoding.radius == pytest.approx(np.sqrt(2))  # every row is (±1, 0, 1)
    assert (np.linalg.norm(encoding.encode(np.array([[0.0, 5.0], [2.0, 5.0]])), axis=1) <= 1.0 + 1e-12).all()


def test_a_constant_column_says_nothing_until_it_changes() -> None:
    encoding = numbers([7.0] * 10)
    assert encoding.encode(np.array([[7.0], [8.0]]))[:, 0].tolist() == [0.0, pytest.approx(1 / np.sqrt(2))]


def test_a_rare_flag_is_still_standardised() -> None:
    # Given a column that is 1 in fewer than 1 % of the rows, which its quantiles do not see.
    flag = [1.0] + [0.0] * 399
    encoding = numbers(flag)
    assert encoding.scale[0] == pytest.approx(np.std(flag))


@pytest.mark.parametrize("absurd", [1e6, 1e300, -1.7e308])
def test_one_absurd_value_does_not_decide_the_constants(absurd: float) -> None:
    sane = list(np.random.default_rng(0).normal(size=999))
    encoding = numbers([*sane, absurd])
    assert encoding.center[0] == pytest.approx(0.0, abs=0.2)
    assert encoding.scale[0] == pytest.approx(1.0, abs=0.2)
    # and the row that holds it is on the sphere, on its side.
    row = encoding.encode(np.array([[absurd]]))[0]
    assert row == pytest.approx([np.sign(absurd), 0.0], abs=1e-5)


@pytest.mark.parametrize("column", [[1e300, 1.0] * 20, [1.7e308, -1.7e308] * 20, [1e300] * 40, [5e-324, 0.0] * 20])
def test_columns_of_absurd_values_are_encoded_to_finite_numbers(column: list[float]) -> None:
    encoding = numbers(column)
    rows = encoding.encode(np.array([column]).T)
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) <= 1.0 + 1e-12).all()


def test_a_missing_number_becomes_the_centre_of_its_column() -> None:
    encoding = numbers([1.0, 3.0, np.nan, 2.0])
    assert encoding.center[0] == pytest.approx(2.0)
    missing, centre = encoding.encode(np.array([[np.nan], [2.0]]))
    assert missing.tolist() == centre.tolist()


def test_a_column_that_was_never_seen_is_left_alone() -> None:
    encoding = numbers([np.nan] * 5)
    assert (encoding.center[0], encoding.scale[0]) == (0.0, 1.0)


# ---- Texts. ----


def test_frequent_texts_become_categories_and_rare_ones_stay_other() -> None:
    # A value seen fewer than five times must not get a coordinate of its own: it could name a person.
    c = [["b"]] * 6 + [["a"]] * 6 + [["c"]] * 9 + [["Ada Lovelace"]] * 4 + [[None]] * 7
    encoding = fit(np.empty((32, 0)), c, np.ones(32), regression=False, declared=[None])
    assert encoding.categories == (("c", "a", "b"),)
    rows = encoding.encode(np.empty((4, 0)), [["a"], ["Ada Lovelace"], [None], ["never seen"]])
    assert (rows[:, :-1] > 0).tolist() == [[False, True, False, False]] + [[False, False, False, True]] * 3


def test_only_so_many_categories_are_kept() -> None:
    c = [[f"{i:03}"] for i in range(MOST_CATEGORIES + 10) for _ in range(5)]
    encoding = fit(np.empty((len(c), 0)), c, np.ones(len(c)), regression=False, declared=[None])
    assert len(encoding.categories[0]) == MOST_CATEGORIES


def test_declared_categories_are_taken_as_they_are() -> None:
    encoding = fit(
        np.empty((1, 0)), [["x", "y"]], np.ones(1), regression=False, declared=[["gold", "silver"], ["never"]]
    )
    assert encoding.categories == (("gold", "silver"), ("never",))
    assert encoding.d == 2 + 1 + 1 + 1 + 1


def test_the_folded_levels_name_feature_and_category() -> None:
    encoding = Encoding(np.zeros(1), np.ones(1), (("a", "b"), ("1",)), radius=2.0)
    folded = encoding.fold(np.arange(7.0))
    assert folded.levels == ["1:a", "1:b", "1", "2:1", "2"]
    assert folded.level_weights.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert (folded.weights.tolist(), folded.intercept) == ([0.0], 3.0)


# ---- Targets. ----


def test_labels_stay_as_they_are() -> None:
    assert numbers([1.0, 2.0]).encode_target(np.array([-1.0, 1.0])).tolist() == [-1.0, 1.0]


def test_targets_are_standardised_and_a_folded_prediction_is_on_their_scale() -> None:
    y = np.array([100.0, 300.0] * 50)
    encoding = fit(np.array([[0.0], [1.0]] * 50), [()] * 100, y, regression=True, declared=[])
    assert encoding.encode_target(y[:2]).tolist() == [-1.0, 1.0]
    # Given θ that predicts −1 and +1 on the two rows, then its folded form predicts 100 and 300.
    folded = encoding.fold(np.array([encoding.radius, 0.0]))
    assert [folded.weights[0] * value + folded.intercept for value in (0.0, 1.0)] == pytest.approx([100.0, 300.0])


def test_a_target_of_any_size_stays_finite() -> None:
    y = np.array([0.0, 1.0] * 50 + [1e300])
    encoding = fit(np.zeros((101, 0)), [()] * 101, y, regression=True, declared=[])
    assert encoding.y_scale == pytest.approx(0.5, abs=0.1)
    assert encoding.encode_target(y)[-1] == FARTHEST


# ---- Keeping. ----


def test_an_encoding_survives_json_to_the_last_bit() -> None:
    c = [["a", "ä:1"]] * 6
    x = np.random.default_rng(1).normal(size=(6, 3)) / 3
    encoding = fit(x, c, x[:, 0], regression=True, declared=[None, None])
    loaded = Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert loaded.to_json() == encoding.to_json()
    assert loaded.encode(x, c).tobytes() == encoding.encode(x, c).tobytes()


def test_there_is_nothing_to_fit_on_without_rows() -> None:
    with pytest.raises(InvalidRow, match="no row"):
        fit(np.empty((0, 2)), [], np.empty(0), regression=False, declared=[])
