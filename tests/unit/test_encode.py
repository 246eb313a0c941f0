"""Raw rows become integers, however far outside, missing, unknown or huge their values are."""

from __future__ import annotations

import numpy as np
import pytest

from mempair_db.errors import InvalidRow
from mempair_db.pair.encode import MOST_LEVELS, RAREST, UNIT, WIDEST, Encoding, Number, Text, fit, quantise


def test_a_number_is_rounded_half_up_and_clamped() -> None:
    x = np.array([0.0, 1 / 2048, -1 / 2048, 3.9999, 4.0, 4.1, -1e300, np.inf, -np.inf, np.nan])
    found = quantise(x, 0.0, 1.0)
    assert found[:-1].tolist() == [0, 1, 0, 4096, 4096, 4096, -4096, 4096, -4096]
    assert np.isnan(found[-1])


@pytest.mark.parametrize(("centre", "scale"), [(-1e300, 2.0**-30), (1e308, 1.0), (5e-324, 2.0**-400)])
def test_no_value_overflows(centre: float, scale: float) -> None:
    x = np.array([1.7e308, -1.7e308, 0.0, centre])
    assert quantise(x, centre, scale)[-1] == 0
    assert (np.abs(quantise(x, centre, scale)) <= 4096).all()


def test_rows_say_what_does_not_fit_the_constants() -> None:
    encoding = Encoding((Number(0.0, 1.0), Number(0.0, 1.0, missing=True)), (Text(("a",)), Text(("b",), null=True)))
    x = np.array([[0.0, 0.0], [9.0, 0.0], [np.nan, 0.0], [0.0, np.nan], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    c = [("a", "b")] * 4 + [("A", "b"), (None, "b"), ("a", None)]
    X, outside, unknown = encoding.encode(x, c)
    assert outside.tolist() == [False, True, False, False, False, False, False]
    assert unknown.tolist() == [False, False, True, False, True, True, False]
    assert X[2, 1] == 0  # a missing number counts as the centre
    assert X[3, 3] == UNIT  # and says so where that was seen
    kinds = [name[0] for name in encoding.names]
    assert kinds == ["intercept", "number", "number", "missing", "level", "other", "level", "other", "null"]
    assert X[:, kinds.index("null")].tolist() == [0] * 6 + [UNIT]
    assert (X[:, 4:6].sum(axis=1) == UNIT).all()


def test_curves_bend_at_the_quantiles_of_the_reference_rows() -> None:
    x = np.linspace(0.0, 100.0, 501)[:, None]
    encoding = fit(x, (), np.zeros(501), curves=3)
    knots = encoding.numbers[0].knots
    assert len(knots) == 3
    assert all(knot % (UNIT // 8) == 0 for knot in knots)
    X, _, _ = encoding.encode(np.array([[np.nan], [100.0]]))
    assert X[0, 1] == 0
    assert X[1, 2:].tolist() == [X[1, 1] - knot for knot in knots]


# ---- The constants. ----


def test_one_row_rarely_changes_the_constants() -> None:
    rng = np.random.default_rng(0)
    x, c = rng.lognormal(size=(2000, 5)), [(str(i % 10),) for i in range(2000)]
    whole = fit(x, c, np.zeros(2000), curves=2)
    changed = sum(fit(np.delete(x, i, 0), c[:i] + c[i + 1 :], np.zeros(1999), curves=2) != whole for i in range(100))
    assert changed <= 3


@pytest.mark.parametrize(
    "bad", [[1e300], [1e300, -1e300, 1e200], [np.inf] * 50, [np.nan] * 50, [1e308] * 10, [999999.0] * 19]
)
def test_a_few_absurd_values_do_not_decide(bad: list[float]) -> None:
    x = np.append(np.random.default_rng(0).normal(50.0, 10.0, 400), bad)
    number = fit(x[:, None], (), np.zeros(len(x))).numbers[0]
    assert 40 < number.centre < 60
    assert 4 <= number.scale <= 32


@pytest.mark.parametrize("unit", [1e-100, 1e-13, 1e-6, 1.0, 1e9, 1e100])
def test_a_number_in_any_unit_is_seen(unit: float) -> None:
    x = np.random.default_rng(0).normal(size=(400, 1)) * unit
    X, _, _ = fit(x, (), np.zeros(400)).encode(x)
    assert 500 < X[:, 1].std() < 2000


@pytest.mark.parametrize("value", [0.0, -7.3, 1e12, 1e200, np.nan, np.inf])
def test_a_constant_is_no_information_and_no_accident(value: float) -> None:
    x = np.full((300, 1), value)
    X, outside, _ = fit(x, (), np.zeros(300)).encode(x)
    assert (np.abs(X[:, 1]) <= 4 * UNIT).all()
    assert len(np.unique(X[:, 1])) == 1
    assert not outside.any() or not abs(value) < 1e150


def test_a_rare_yes_is_seen() -> None:
    x = np.zeros((10_000, 1))
    x[:3] = 1.0
    X, _, _ = fit(x, (), np.zeros(10_000)).encode(x)
    assert X[0, 1] > X[5, 1]


def test_what_is_seen_too_rarely_names_nobody() -> None:
    assert RAREST == 5  # as the documents say
    c = [("common",)] * 50 + [("rare",)] * (RAREST - 1) + [(None,)] * (RAREST - 1)
    x = np.full((len(c), 1), 1.0)
    x[: RAREST - 1] = np.nan
    encoding = fit(x, c, np.zeros(len(c)))
    assert encoding.texts == (Text(("common",), null=False),)
    assert not encoding.numbers[0].missing


def test_the_most_frequent_levels_are_kept_and_no_model_is_wider_than_allowed() -> None:
    n, columns = 9000, 40
    rng = np.random.default_rng(0)
    c = [tuple(f"{level}" for level in rng.integers(0, 1 + rng.integers(1, 500, columns))) for _ in range(n)]
    one = fit(np.zeros((n, 0)), [row[:1] for row in c], np.zeros(n))
    assert len(one.texts[0].levels) == MOST_LEVELS
    assert "0" in one.texts[0].levels
    assert fit(np.zeros((n, 0)), c, np.zeros(n)).d <= WIDEST


def test_declared_levels_are_taken_as_they_are() -> None:
    encoding = fit(np.zeros((9, 0)), [("x",)] * 9, np.zeros(9), declared=[["b", "a"]])
    assert encoding.texts[0].levels == ("a", "b")


def test_nothing_cannot_be_fitted() -> None:
    with pytest.raises(InvalidRow, match="no row to choose the constants from"):
        fit(np.zeros((0, 2)), (), np.zeros(0))


def test_constants_survive_json() -> None:
    rng = np.random.default_rng(0)
    encoding = fit(
        rng.normal(size=(99, 2)), [(None if i % 5 else "a",) for i in range(99)], rng.normal(size=99), curves=2
    )
    assert Encoding.from_json(encoding.to_json()) == encoding
