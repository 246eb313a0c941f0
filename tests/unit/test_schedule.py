"""The four step sizes against numbers worked by hand."""

from __future__ import annotations

import pytest

from mempair_db.pair.schedule import ADAPTIVE, CODES, CURVATURE, NEWTON, STRONGLY_CONVEX, step_size


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (NEWTON, 1 / (8 + 2)),
        (STRONGLY_CONVEX, 1 / (0.5 * (8 + 2))),
        (ADAPTIVE, 3 / 5),  # D/√S = 3/√25
        (CURVATURE, 1 / 4),
    ],
)
def test_every_step_size(schedule: int, expected: float) -> None:
    size = step_size(schedule, 8.0, 2.0, 0.5, 3.0, 25.0, 4.0)
    assert size == pytest.approx(expected)


@pytest.mark.parametrize("schedule", [ADAPTIVE, CURVATURE])
def test_before_anything_was_observed_there_is_no_step(schedule: int) -> None:
    assert step_size(schedule, 0.0, 0.0, 0.5, 3.0, 0.0, 0.0) == 0.0


def test_every_schedule_has_a_name() -> None:
    assert set(CODES.values()) == {NEWTON, STRONGLY_CONVEX, ADAPTIVE, CURVATURE}
