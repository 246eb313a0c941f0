"""What holds for every guarantee and every sequence of deletions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mempair_db.errors import BudgetExhausted
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


def exponents(low: float, high: float) -> st.SearchStrategy[float]:
    """Return numbers spread over orders of magnitude, from 10**low to 10**high."""
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


epsilons = exponents(-3, 1.69)
deltas = exponents(-15, -1)
rhos = exponents(-9, 2)


@given(epsilon=epsilons, delta=deltas)
def test_epsilon_to_rho_and_back_loses_almost_nothing(epsilon: float, delta: float) -> None:
    back = epsilon_of(rho_of(epsilon, delta), delta)
    assert abs(back - epsilon) <= 1e-8 * epsilon


@given(epsilon=epsilons, delta=deltas)
def test_the_certified_delta_is_never_exceeded(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert delta_of(epsilon, rho) <= delta
    assert delta_of(epsilon, to_units(rho) / UNITS) <= delta


@given(rho=rhos, delta=deltas)
def test_the_reported_epsilon_never_understates(rho: float, delta: float) -> None:
    assert delta_of(epsilon_of(rho, delta), rho) <= delta


@given(epsilon=epsilons, rho=rhos, factor=st.floats(1.001, 10))
def test_delta_grows_with_rho_and_falls_with_epsilon(epsilon: float, rho: float, factor: float) -> None:
    here = delta_of(epsilon, rho)
    assert here <= delta_of(epsilon, rho * factor) * (1 + 1e-9)
    assert here >= delta_of(epsilon * factor, rho) * (1 - 1e-9)


@given(epsilon=epsilons, delta=deltas, factor=st.floats(1.001, 10))
def test_a_weaker_guarantee_has_a_larger_budget(epsilon: float, delta: float, factor: float) -> None:
    rho = rho_of(epsilon, delta)
    assert rho < rho_of(epsilon * factor, delta)
    assert rho < rho_of(epsilon, min(0.99, delta * factor))


@given(epsilon=epsilons, delta=deltas)
def test_the_exact_budget_is_never_below_the_zcdp_one(epsilon: float, delta: float) -> None:
    assert rho_of(epsilon, delta) >= zcdp_rho(epsilon, delta)


@given(epsilon=epsilons, delta=deltas)
def test_the_zcdp_formulas_are_inverse_to_each_other(epsilon: float, delta: float) -> None:
    assert abs(zcdp_epsilon(zcdp_rho(epsilon, delta), delta) - epsilon) <= 1e-9 * epsilon


@given(rho=st.floats(0, 1e6))
def test_units_never_exceed_the_budget_and_fall_short_by_less_than_one(rho: float) -> None:
    numerator, denominator = rho.as_integer_ratio()
    shortfall = numerator * UNITS - to_units(rho) * denominator
    assert 0 <= shortfall < denominator


@given(units=st.integers(1, 10**14), scale=exponents(-9, 3))
def test_noise_of_this_scale_costs_no_more_than_what_is_spent(units: int, scale: float) -> None:
    # μ = S/σ, so ρ = S²/(2σ²), exactly what the odometer books.
    assert (scale / sigma(scale, units)) ** 2 / 2 < units / UNITS


@given(cap=st.integers(0, 1000), asked=st.lists(st.integers(1, 400), max_size=30))
def test_no_sequence_of_spends_passes_the_cap_and_the_total_is_the_sum_of_its_parts(cap: int, asked: list[int]) -> None:
    # Given any cap, when any amounts are asked for, refused ones included,
    odometer = Odometer(cap)
    granted: list[int] = []
    for units in asked:
        fits = odometer.can_spend(units)
        try:
            odometer = odometer.spend(units)
            granted.append(units)
        except BudgetExhausted:
            assert not fits
            assert sum(granted) + units > cap
        else:
            assert fits
    # then what was granted is booked exactly and lies under the cap.
    assert odometer.spent == sum(granted) <= odometer.cap == cap
    assert odometer.deletions == len(granted)
    assert odometer.largest == max(granted, default=0)


@given(parts=st.lists(st.integers(1, 10**9), min_size=1, max_size=20), delta=deltas)
def test_all_deletions_together_cost_at_least_as_much_as_any_one(parts: list[int], delta: float) -> None:
    odometer = Odometer(cap=sum(parts))
    for units in parts:
        odometer = odometer.spend(units)
    assert odometer.remaining == 0
    assert odometer.epsilon_record(delta) <= odometer.epsilon_all(delta)
