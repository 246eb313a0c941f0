"""Losses of one row against numbers worked by hand, and the two constants the proofs need."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mempair_db.pair.losses import (
    CODES,
    HUBER,
    LOGISTIC,
    SQUARED,
    derivative,
    lipschitz,
    second_derivative,
    smoothness,
    value,
)

CLIP = 2.0


@pytest.mark.parametrize(
    ("loss", "z", "y", "expected"),
    [
        (LOGISTIC, 0.0, 1.0, (math.log(2), -0.5, 0.25)),
        (LOGISTIC, math.log(3), 1.0, (math.log(4 / 3), -0.25, 3 / 16)),  # p = 3/4
        (LOGISTIC, math.log(3), -1.0, (math.log(4), 0.75, 3 / 16)),
        (HUBER, 1.5, 0.5, (0.5, 1.0, 1.0)),  # r = 1, inside
        (HUBER, 2.0, 0.0, (2.0, 2.0, 1.0)),  # r = clip, the last point of the parabola
        (HUBER, 5.0, 0.0, (8.0, 2.0, 0.0)),  # 2·5 − 2²/2
        (HUBER, -5.0, 0.0, (8.0, -2.0, 0.0)),
        (SQUARED, 5.0, 0.0, (12.5, 5.0, 1.0)),
    ],
)
def test_value_slope_and_curvature_of_one_row(
    loss: int, z: float, y: float, expected: tuple[float, float, float]
) -> None:
    found = tuple(f(loss, CLIP, z, y) for f in (value, derivative, second_derivative))
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("y", [1.0, -1.0])
def test_logistic_loss_neither_overflows_nor_loses_its_tail(y: float) -> None:
    # Given margins far out on either side, then the wrong side costs |z| and the right side almost nothing.
    assert value(LOGISTIC, 1.0, -800.0 * y, y) == 800.0
    assert value(LOGISTIC, 1.0, 30.0 * y, y) == pytest.approx(math.exp(-30), rel=1e-9)
    assert derivative(LOGISTIC, 1.0, -800.0 * y, y) == -y
    assert derivative(LOGISTIC, 1.0, 800.0 * y, y) == 0.0
    assert second_derivative(LOGISTIC, 1.0, 800.0 * y, y) == 0.0


@pytest.mark.parametrize("loss", ["logistic", "huber"])
@pytest.mark.parametrize("clip", [0.5, 3.0])
def test_no_slope_is_steeper_than_g_and_no_curvature_larger_than_m(loss: str, clip: float) -> None:
    G, M = lipschitz(loss, clip), smoothness(loss)
    for z in np.linspace(-50, 50, 401):
        for y in (-1.0, 1.0):
            assert abs(derivative(CODES[loss], clip, z, y)) <= G
            assert 0.0 <= second_derivative(CODES[loss], clip, z, y) <= M


def test_the_constants_are_those_of_the_theory() -> None:
    assert [(lipschitz(loss, 3.0), smoothness(loss)) for loss in CODES] == [(1.0, 0.25), (3.0, 1.0), (3.0, 1.0)]


@pytest.mark.parametrize("loss", CODES.values())
def test_the_slope_is_the_derivative_of_the_value(loss: int) -> None:
    for z in (-7.0, -1.1, 0.0, 0.7, 6.0):
        h = 1e-6
        slope = (value(loss, CLIP, z + h, 1.0) - value(loss, CLIP, z - h, 1.0)) / (2 * h)
        assert derivative(loss, CLIP, z, 1.0) == pytest.approx(slope, abs=1e-7)
