"""From a few parameters and the first rows to every constant of an epoch."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from mempair_db.errors import InvalidParameter
from mempair_db.pair import bounds, odometer
from mempair_db.pair.calibration import (
    GRID,
    MOST_ROWS,
    TOLERANCE,
    Epoch,
    Parameters,
    Trade,
    calibrate,
    constants_for,
    trades,
)
from mempair_db.pair.encoding import Matrix
from mempair_db.pair.state import Vector


def rows(n: int = 400, noise: float = 0.3) -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 3))
    return x, np.where(x[:, 0] - x[:, 1] + noise * rng.normal(size=n) > 0, 1.0, -1.0)


def epoch_of(n: int = 400, noise: float = 0.3, **options: Any) -> Epoch:
    x, y = rows(n, noise)
    return calibrate(Parameters(**options), x, [()] * n, y)


# ---- What the user may say. ----


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"epsilon": 20.5},
        {"delta": 1e-301},
        {"delta": 1.0},
        {"delta": math.nan},
        {"gamma": -0.1},
        {"gamma": 1e10},
        {"lam": 1e5},
        {"lam": 1e-9},
        {"lam": 0.0},
        {"lam": math.nan},
        {"kappa": 0.0},
        {"clip": 0.0},
        {"m": 0},
        {"m": 2.5},
        {"tau": 0},
        {"tau": math.nan},
        {"calibration_rows": 0},
        {"loss": "hinge"},
        {"unlearner": "magic"},
        {"on_null": "guess"},
        {"mode": "fast"},
        {"mode": "paper", "m": 3, "pairs": "block"},
        {"mode": "paper", "m": 3, "schedule": "constant"},
        {"mode": "paper"},
        {"loss": "squared"},
    ],
    ids=str,
)
def test_a_parameter_that_no_theorem_covers_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter) as refused:
        Parameters(**options)
    assert any(name in str(refused.value) for name in options)


def test_the_defaults_are_those_of_the_theory() -> None:
    defaults = Parameters()
    assert (defaults.tau, defaults.kappa, defaults.gamma, defaults.m, defaults.unlearner) == (
        10,
        1.0,
        0.1,
        None,
        "symmetric",
    )


# ---- What follows from it. ----


@pytest.mark.parametrize(
    ("loss", "clip", "G", "M"), [("logistic", 3.0, 1.0, 0.25), ("huber", 1.0, 1.0, 1.0), ("huber", 3.0, 3.0, 1.0)]
)
def test_g_m_and_t0_follow_from_the_loss(loss: str, clip: float, G: float, M: float) -> None:
    k = constants_for(Parameters(loss=loss, clip=clip), 0.01)
    assert (k.G, k.M, k.t0) == (G, M, M / 0.01)


def test_the_constants_have_the_types_the_kernel_is_compiled_for() -> None:
    # Whole numbers and numpy's must not ask for another compilation.
    k = constants_for(Parameters(clip=2, kappa=1, loss="huber"), 1)
    kinds = [type(value) for value in k]
    assert kinds == [int, int, float, float, float, float, float, float, int, int, int, float, bool]


def test_the_cap_is_the_exact_budget_of_the_guarantee() -> None:
    epoch = epoch_of(epsilon=2.0, delta=1e-5, lam=0.01)
    assert epoch.cap == odometer.to_units(odometer.rho_of(2.0, 1e-5))


def trades_of(n: int = 400, noise: float = 0.3, **options: Any) -> list[Trade]:
    x, y = rows(n, noise)
    return trades(Parameters(**options), epoch_of(n, noise, **options).encoding, x, [()] * n, y)


def test_a_given_lambda_is_taken() -> None:
    assert epoch_of(lam=0.02).constants.lam == 0.02
    assert [trade.lam for trade in trades_of(lam=0.02)] == [0.02]


@pytest.mark.parametrize("noise", [0.0, 3.0])
@pytest.mark.parametrize("gamma", [0.01, 0.1])
def test_lambda_is_the_largest_whose_loss_is_within_half_of_gamma_of_the_best(noise: float, gamma: float) -> None:
    found = trades_of(noise=noise, gamma=gamma)
    assert [trade.lam for trade in found] == list(GRID)
    best = min(trade.loss for trade in found)
    good = [trade.lam for trade in found if trade.loss <= best + TOLERANCE * gamma]
    assert epoch_of(noise=noise, gamma=gamma).constants.lam == max(good)


def test_lambda_is_chosen_smaller_where_it_pays() -> None:
    # Given rows that a confident model predicts well, and rows that none does.
    assert epoch_of(n=3000, noise=0.0).constants.lam < epoch_of(n=3000, noise=30.0).constants.lam


def test_the_trade_reports_what_each_lambda_costs_and_buys() -> None:
    found, epoch = trades_of(gamma=0.2), epoch_of(gamma=0.2)
    assert [trade.capacity for trade in found] == sorted((t.capacity for t in found), reverse=True)
    first = found[0]
    expected = bounds.capacity(10_000, epoch.d, 1.0, 0.25, first.lam, 0.2, odometer.rho_of(1.0, 1e-6), "symmetric")
    assert first.capacity == pytest.approx(expected)


def test_a_passive_unlearner_buys_twice_the_capacity() -> None:
    symmetric, passive = (trades_of(lam=0.01, unlearner=unlearner)[0] for unlearner in ("symmetric", "passive"))
    assert passive.capacity == pytest.approx(2 * symmetric.capacity)
    assert epoch_of(lam=0.01).constants.symmetric
    assert not epoch_of(lam=0.01, unlearner="passive").constants.symmetric


# ---- What the constants can tell of a row. ----


def test_an_epoch_stores_no_figure_of_its_calibration_rows_but_rounded_ones() -> None:
    # Given two sets of rows that share their rounded means, deviations and norms, and the choice of λ,
    x, y = rows(500)
    other = x + 1e-3 * np.random.default_rng(9).normal(size=x.shape)
    one, two = (calibrate(Parameters(), values, [()] * 500, y) for values in (x, other))
    # then every stored bit is the same.
    assert one.to_json() == two.to_json()


def test_constants_are_compared_bit_for_bit_without_a_row() -> None:
    x, y = rows(500)
    epoch = calibrate(Parameters(), x, [()] * 500, y)
    left = np.arange(500) != 123
    assert epoch.holds_for(Parameters(), x[left], [()] * 499, y[left])
    assert not epoch.holds_for(Parameters(), 3.0 * x, [()] * 500, y)
    assert not epoch.holds_for(Parameters(), x[:0], [], y[:0])


def test_the_order_of_the_calibration_rows_does_not_matter() -> None:
    x, y = rows(500)
    order = np.random.default_rng(1).permutation(500)
    one, other = (calibrate(Parameters(), x[i], [()] * 500, y[i]) for i in (np.arange(500), order))
    assert one.frozen() == other.frozen()
    assert [t.loss for t in trades(Parameters(), one.encoding, x, [()] * 500, y)] == [
        t.loss for t in trades(Parameters(), one.encoding, x[order], [()] * 500, y[order])
    ]


def test_a_row_that_made_a_category_is_noticed() -> None:
    # Given a text that five rows have, when one of them goes, then it is too rare to have a coordinate.
    x, y = rows(500)
    c = [["rare" if i < 5 else "common"] for i in range(500)]
    epoch = calibrate(Parameters(), x, c, y, declared=[None])
    assert not epoch.holds_for(Parameters(), x[1:], c[1:], y[1:], declared=[None])
    assert epoch.holds_for(Parameters(), x[:-1], c[:-1], y[:-1], declared=[None])


def test_no_more_rows_than_needed_calibrate() -> None:
    assert epoch_of(n=MOST_ROWS + 5, lam=0.01).calibration_rows == MOST_ROWS


def test_a_lambda_whose_printed_steps_diverge_is_no_candidate() -> None:
    found = trades_of(mode="paper", m=3, schedule="strongly_convex")
    assert 0 < len(found) < len(GRID)
    assert all(math.isfinite(trade.loss) for trade in found)
    with pytest.raises(InvalidParameter, match="diverge"):
        epoch_of(mode="paper", m=3, schedule="strongly_convex", lam=1e-4)


def test_calibration_repeats_itself() -> None:
    assert epoch_of().to_json() == epoch_of().to_json()


def test_one_row_is_enough_to_calibrate() -> None:
    epoch = epoch_of(n=1)
    assert epoch.calibration_rows == 1
    assert math.isfinite(epoch.constants.lam)


def test_an_epoch_is_rebuilt_with_the_types_the_kernel_was_compiled_for() -> None:
    # JSON may turn 1.0 into 1.
    epoch = epoch_of(lam=1.0)
    values = json.loads(json.dumps(epoch.to_json()).replace("1.0,", "1,"))
    loaded = Epoch.from_json(values)
    assert loaded.constants == epoch.constants
    assert [type(value) for value in loaded.constants] == [type(value) for value in epoch.constants]
