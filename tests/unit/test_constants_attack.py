"""Reading a calibration row off the constants: means that are not rounded give every row away, rounded ones none."""

from __future__ import annotations

import numpy as np

from mempair_db.measure import constants


def test_plain_means_give_every_row_away_and_rounded_centres_none() -> None:
    rng = np.random.default_rng(2)
    x = np.column_stack([rng.normal(40, 10, 300), rng.exponential(2_500, 300), rng.integers(0, 2, 300)]).astype(float)
    found = constants.attack(x)
    assert found.rows == found.control == 300
    assert found.read == 0
    assert found.changed <= 100


def test_a_column_that_is_the_same_in_every_row_does_not_blind_the_control() -> None:
    x = np.random.default_rng(2).normal(size=(300, 3))
    x[:, 1] = 0.1
    found = constants.attack(x)
    assert (found.control, found.read) == (300, 0)
