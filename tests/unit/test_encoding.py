"""Raw rows → unit ball: the integers of `encode`, a radius and a clip, against hand-worked vectors."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest

from mempair_db.errors import InvalidRow
from mempair_db.pair import encode
from mempair_db.pair.encode import CLAMP, Number, Text
from mempair_db.pair.encoding import Encoding, fit, rounded
from mempair_db.pair.losses import FARTHEST


def numbers(*columns: list[float]) -> Encoding:
    """Fit on these columns, with no texts and labels for targets."""
    x = np.array(columns).T
    return fit(x, [()] * len(x), np.ones(len(x)), regression=False, declared=[])


def test_a_row_worked_by_hand() -> None:
    # The intercept, z = (14 − 10)/2 = 2, then the categories basic, pro, other; all over a radius of 4.
    encoding = Encoding(encode.Encoding((Number(10.0, 2.0),), (Text(("basic", "pro")),)), radius=4.0)
    assert encoding.d == 5
    assert encoding.encode(np.array([[14.0]]), [["basic"]]).tolist() == [[0.25, 0.5, 0.25, 0.0, 0.0]]


def test_a_long_row_is_clipped_to_the_unit_ball() -> None:
    # (1, 3, 4) over a radius of 1 would be √26 long.
    encoding = Encoding(encode.Encoding((Number(), Number())), radius=1.0)
    assert encoding.encode(np.array([[3.0, 4.0]]))[0] == pytest.approx(np.array([1.0, 3.0, 4.0]) / np.sqrt(26))


def test_a_number_far_outside_is_clamped_before_it_is_clipped() -> None:
    encoding = Encoding(encode.Encoding((Number(),)), radius=1.0)
    far, clamped = encoding.encode(np.array([[1e300], [float(CLAMP)]]))
    assert far.tolist() == clamped.tolist() == pytest.approx(np.array([1.0, 4.0]) / np.sqrt(17))


def test_the_constants_are_rounded() -> None:
    encoding = numbers([0.1, 2.2] * 50, [5.01, 5.01] * 50)
    # Mean 1.15 and deviation 1.05: a scale of 1, a centre of 9/8. Every row is (1, ±1, 0): √2 is nearest to 1.5.
    assert encoding.integers.numbers[0] == Number(1.125, 1.0)
    assert encoding.integers.numbers[1] == Number(5.0, 1.0)
    assert encoding.radius == 1.5
    assert encoding.center.tolist() == [1.125, 5.0]


@pytest.mark.parametrize("norm", [1e-3, 0.7, 1.0, 1.124, 1.126, 33.3])
def test_a_radius_is_rounded_to_a_quarter_of_an_octave(norm: float) -> None:
    assert abs(rounded(norm) / norm - 1) <= 1 / 8
    assert (rounded(norm) * 1024 * 16).is_integer()


@pytest.mark.parametrize("absurd", [1e6, 1e300, -1.7e308])
def test_one_absurd_value_does_not_decide_the_constants(absurd: float) -> None:
    sane = list(np.random.default_rng(0).normal(size=999))
    encoding = numbers([*sane, absurd])
    assert encoding.integers.numbers == numbers(sane).integers.numbers
    assert encoding.encode(np.array([[absurd]])).tolist() == encoding.encode(np.array([[np.sign(absurd) * 9]])).tolist()


@pytest.mark.parametrize("column", [[1e300, 1.0] * 20, [1.7e308, -1.7e308] * 20, [1e300] * 40, [5e-324, 0.0] * 20])
def test_columns_of_absurd_values_are_encoded_to_finite_numbers(column: list[float]) -> None:
    encoding = numbers(column)
    rows = encoding.encode(np.array([column]).T)
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) <= 1.0 + 1e-12).all()


def test_a_missing_number_becomes_the_centre_of_its_column() -> None:
    encoding = numbers([1.0, 3.0, *[np.nan] * 7, 2.0])
    missing, centre = encoding.encode(np.array([[np.nan], encoding.center]))
    assert missing.tolist() == centre.tolist()


# ---- Texts. ----


def test_frequent_texts_become_categories_and_rare_ones_stay_other() -> None:
    # A value seen fewer than five times must not get a coordinate of its own: it could name a person.
    c = [["b"]] * 6 + [["a"]] * 6 + [["c"]] * 9 + [["Ada Lovelace"]] * 4 + [[None]] * 4
    encoding = fit(np.empty((29, 0)), c, np.ones(29), regression=False, declared=[None])
    assert encoding.integers.texts == (Text(("a", "b", "c")),)
    rows = encoding.encode(np.empty((4, 0)), [["a"], ["Ada Lovelace"], [None], ["never seen"]])
    assert (rows[:, 1:] > 0).tolist() == [[True, False, False, False]] + [[False, False, False, True]] * 3


def test_declared_categories_are_taken() -> None:
    encoding = fit(
        np.empty((1, 0)), [["x", "y"]], np.ones(1), regression=False, declared=[["silver", "gold"], ["never"]]
    )
    assert encoding.integers.texts == (Text(("gold", "silver")), Text(("never",)))
    assert encoding.d == 1 + 2 + 1 + 1 + 1


def test_what_is_served_is_sorted_by_feature() -> None:
    encoding = Encoding(encode.Encoding((Number(),), (Text(("a", "b")), Text(("1",)))), radius=2.0)
    served = encoding.serve(np.arange(7.0))
    assert served["weights"].tolist() == [1.0 / 1024]
    assert served["level_weights"].tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert (served["intercept"], served["radius"], served["shift"]) == (0.0, 2.0, 0.0)


# ---- Targets. ----


def test_labels_stay_as_they_are() -> None:
    assert numbers([1.0, 2.0]).encode_target(np.array([-1.0, 1.0])).tolist() == [-1.0, 1.0]


def test_targets_are_standardised_and_a_prediction_is_on_their_scale() -> None:
    y = np.array([100.0, 300.0] * 50)
    encoding = fit(np.array([[0.0], [1.0]] * 50), [()] * 100, y, regression=True, declared=[])
    target = encoding.integers.target
    assert (target.centre, target.scale) == (208.0, 128.0)
    assert encoding.decode_target(encoding.encode_target(y)) == pytest.approx(y, abs=128 / 1024)


def test_a_target_of_any_size_stays_finite() -> None:
    y = np.array([0.0, 1.0] * 50 + [1e300])
    encoding = fit(np.zeros((101, 0)), [()] * 101, y, regression=True, declared=[])
    assert encoding.integers.target.scale == 0.5
    assert encoding.encode_target(y)[-1] == FARTHEST


# ---- One row more or less. ----


def random_rows(n: int) -> tuple[npt.NDArray[np.float64], list[list[str]]]:
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.normal(40, 10, n), rng.exponential(2_500, n), rng.integers(0, 2, n)]).astype(float)
    return x, [[str(rng.choice(["a", "b", "c"], p=[0.6, 0.3, 0.1]))] for _ in range(n)]


def test_a_calibration_row_can_rarely_be_told_from_the_constants() -> None:
    # Before, its three numbers could be read off the means with the row and without it.
    x, c = random_rows(500)
    whole = fit(x, c, np.ones(500), regression=False, declared=[None])
    changed = 0
    for i in range(500):
        left = np.delete(np.arange(500), i)
        without = fit(x[left], [c[j] for j in left], np.ones(499), regression=False, declared=[None])
        changed += without.to_json() != whole.to_json()
    assert changed <= 25


def test_the_order_of_the_rows_does_not_matter() -> None:
    x, c = random_rows(300)
    order = np.random.default_rng(0).permutation(300)
    one = fit(x, c, x[:, 1], regression=True, declared=[None])
    other = fit(x[order], [c[i] for i in order], x[order, 1], regression=True, declared=[None])
    assert one.to_json() == other.to_json()


# ---- Keeping. ----


def test_an_encoding_survives_json_to_the_last_bit() -> None:
    c = [["a", "ä:1"]] * 6
    x = np.random.default_rng(1).normal(size=(6, 3)) / 3
    encoding = fit(x, c, x[:, 0], regression=True, declared=[None, None])
    loaded = Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert loaded == encoding
    assert loaded.encode(x, c).tobytes() == encoding.encode(x, c).tobytes()


def test_there_is_nothing_to_fit_on_without_rows() -> None:
    with pytest.raises(InvalidRow, match="no row"):
        fit(np.empty((0, 2)), [], np.empty(0), regression=False, declared=[])
