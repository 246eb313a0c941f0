"""Conversions against hand-worked numbers and another accountant."""

from __future__ import annotations

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

from mempair_db.errors import BudgetExhausted, InvalidParameter
from mempair_db.pair.odometer import (
    UNITS,
    Odometer,
    delta_of,
    epsilon_of,
    rho_of,
    sigma,
    to_units,
    zcdp_epsilon,
    zcdp_rho,
)

EPSILONS = [1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0, 50.0]
DELTAS = [1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.1]
GRID = [(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]


def delta_by_quadrature(epsilon: float, rho: float) -> float:
    """δ(ε) = φ(μ/2 − ε/μ)·∫₀^∞ 2 sinh(μt/2)·exp(−εt/μ − t²/2) dt: nothing in it cancels."""
    mu = math.sqrt(2 * rho)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    t = 0.5 * (14 + mu) * (nodes + 1)  # beyond it, less than 1e-42 of the integrand is left
    integrand = -np.expm1(-mu * t) * np.exp(mu * t / 2 - epsilon * t / mu - t * t / 2)
    density = math.exp(-((mu / 2 - epsilon / mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    return density * 0.5 * (14 + mu) * float(weights @ integrand)


def test_the_budget_of_the_specification_is_the_exact_one_and_not_the_zcdp_formula() -> None:
    # Given the guarantee ε = 1, δ = 1e-6, when it is converted, then theory 3.7's two numbers appear.
    assert rho_of(1.0, 1e-6) == pytest.approx(0.028014, abs=1e-6)
    assert zcdp_rho(1.0, 1e-6) == pytest.approx(0.017469, abs=1e-6)


def test_the_conversion_at_rho_one_half_matches_the_normal_table() -> None:
    # ρ = ½ is μ = 1, so δ(0) = Φ(½) − Φ(−½) = 0.382925 and δ(1) = Φ(−½) − e·Φ(−3/2) = 0.308538 − 0.181601.
    assert delta_of(0.0, 0.5) == pytest.approx(0.382925, abs=1e-6)
    assert delta_of(1.0, 0.5) == pytest.approx(0.126937, abs=1e-6)


def test_the_zcdp_formulas_match_hand_worked_numbers() -> None:
    # ln(1/δ) = 4: ε = 1 + 2·√4 = 5, and back (√9 − √4)² = 1.
    delta = math.exp(-4.0)
    assert zcdp_epsilon(1.0, delta) == pytest.approx(5.0)
    assert zcdp_rho(5.0, delta) == pytest.approx(1.0)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_delta_is_accurate_where_the_two_terms_nearly_cancel(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert delta_of(epsilon, rho) == pytest.approx(delta_by_quadrature(epsilon, rho), rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_another_accountant_agrees(epsilon: float, delta: float) -> None:
    # Given our budget, when dp-accounting works with the same Gaussian, then it finds the same δ, ε and σ.
    rho = rho_of(epsilon, delta)
    noise = 1 / math.sqrt(2 * rho)

    theirs = GaussianPrivacyLoss(standard_deviation=noise, sensitivity=1.0).get_delta_for_epsilon(epsilon)

    assert delta_of(epsilon, rho) == pytest.approx(theirs, rel=1e-8)
    assert epsilon_of(rho, delta) == pytest.approx(dp_accounting.get_epsilon_gaussian(noise, delta), rel=1e-6)
    assert noise == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_budget_never_exceeds_the_delta_it_certifies_and_wastes_almost_nothing(
    epsilon: float, delta: float
) -> None:
    rho = rho_of(epsilon, delta)
    assert delta_by_quadrature(epsilon, rho) <= delta
    assert delta_by_quadrature(epsilon, rho * (1 + 1e-8)) > delta


def test_a_guarantee_so_loose_that_no_epsilon_is_needed_gives_zero() -> None:
    assert epsilon_of(0.0, 1e-6) == 0.0
    assert epsilon_of(1e-12, 1e-3) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan])
def test_a_delta_outside_zero_and_one_is_refused(delta: float) -> None:
    for conversion in (epsilon_of, rho_of, zcdp_epsilon, zcdp_rho):
        with pytest.raises(InvalidParameter, match="delta"):
            conversion(1.0, delta)


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_an_epsilon_or_rho_that_is_no_finite_cost_is_refused(bad: float) -> None:
    for call in (
        lambda: delta_of(bad, 1.0),
        lambda: delta_of(1.0, bad),
        lambda: epsilon_of(bad, 1e-6),
        lambda: rho_of(bad, 1e-6),
        lambda: to_units(bad),
        lambda: sigma(bad, 1),
    ):
        with pytest.raises(InvalidParameter):
            call()


def test_units_are_rounded_down_even_where_a_float_product_would_round_up() -> None:
    # The double nearest to 0.009 lies a little below it.
    assert 0.009 * UNITS == 9_000_000_000.0
    assert to_units(0.009) == 8_999_999_999
    assert to_units(1.0) == UNITS
    assert to_units(9.99e-13) == 0


def test_the_noise_scale_is_the_sensitivity_over_root_two_rho_inflated_for_rounding() -> None:
    # S = 0.2, ρ = 0.02: σ = 0.2/√0.04 = 1, times 1 + 1e-6.
    assert sigma(0.2, UNITS // 50) == pytest.approx(1 + 1e-6, rel=1e-12)


def test_a_spend_is_counted_in_every_figure() -> None:
    # Given a cap of 100, when 30 and then 50 are spent, then total, count and largest say so.
    after = Odometer(cap=100).spend(30).spend(50)
    assert after == Odometer(cap=100, spent=80, deletions=2, largest=50)
    assert after.remaining == 20


def test_the_last_unit_can_be_spent_and_not_one_more() -> None:
    full = Odometer(cap=100).spend(60).spend(40)
    assert not full.can_spend(1)
    with pytest.raises(
        BudgetExhausted, match=r"Spent 100 of 100 units .* in 2 deletions; this one asks for 1"
    ) as error:
        full.spend(1)
    assert "Retrain" in error.value.remedy


def test_a_refused_spend_changes_nothing() -> None:
    odometer = Odometer(cap=100).spend(60)
    with pytest.raises(BudgetExhausted):
        odometer.spend(41)
    assert odometer == Odometer(cap=100, spent=60, deletions=1, largest=60)


@pytest.mark.parametrize("units", [0, -1, 1.0, True, "1", None, np.int64(1)])
def test_a_spend_that_is_no_positive_integer_is_refused(units: int) -> None:
    odometer = Odometer(cap=100)
    with pytest.raises(InvalidParameter):
        odometer.spend(units)
    with pytest.raises(InvalidParameter):
        odometer.can_spend(units)
    with pytest.raises(InvalidParameter):
        sigma(1.0, units)


def test_no_field_can_be_changed_after_the_fact() -> None:
    odometer = Odometer(cap=100).spend(60)
    for field in dataclasses.fields(odometer):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(odometer, field.name, 0)


@pytest.mark.parametrize(
    ("cap", "spent", "deletions", "largest"),
    [
        (-1, 0, 0, 0),
        (100, 101, 2, 60),  # over the cap
        (100, -1, 1, 1),
        (100, 50, 0, 50),  # spent without a deletion
        (100, 50, 2, 24),  # two spends of at most 24 cannot be 50
        (100, 50, 2, 50),  # the second deletion was free
        (100, 0, 1, 0),
        (100.0, 0, 0, 0),
    ],
)
def test_a_reading_no_sequence_of_spends_can_produce_is_refused(
    cap: int, spent: int, deletions: int, largest: int
) -> None:
    with pytest.raises(InvalidParameter, match="No odometer reads"):
        Odometer(cap, spent, deletions, largest)


def test_the_receipt_states_both_epsilons() -> None:
    # Given a budget for ε = 1 split in four, when all is spent, then all together cost 1 and one record less
    # than half: μ halves when ρ is quartered.
    cap = to_units(rho_of(1.0, 1e-6))
    odometer = Odometer(cap)
    for _ in range(4):
        odometer = odometer.spend(cap // 4)
    assert odometer.epsilon_all(1e-6) == pytest.approx(1.0, rel=1e-8)
    assert odometer.epsilon_all(1e-6) <= 1.0 + 1e-12
    assert odometer.epsilon_record(1e-6) == epsilon_of(cap // 4 / UNITS, 1e-6)
    assert 0.4 < odometer.epsilon_record(1e-6) < 0.5


def test_an_untouched_odometer_has_cost_nothing() -> None:
    assert Odometer(cap=0).epsilon_all(1e-6) == 0.0
    assert Odometer(cap=0).epsilon_record(1e-6) == 0.0
