"""Every bound against a number worked by hand; the promise of the live split against every order of deletions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mempair_db.errors import BudgetExhausted, InvalidParameter
from mempair_db.pair import bounds, events
from mempair_db.pair.bounds import Unlearner
from mempair_db.pair.odometer import ROUNDING, UNITS, Odometer, rho_of, to_units
from mempair_db.pair.state import empty
from tests.unit.test_step import constants

UNLEARNERS: tuple[Unlearner, ...] = ("symmetric", "passive")
RHO_TOT = rho_of(1.0, 1e-6)


# ---- As printed in the paper. ----


def test_theorem_1_as_printed() -> None:
    # G²/(λc) = 4/(0.5·0.25) = 32; ln 1 = 0 and ln 7389 = 8.9078, so 32·9.9078 + 7 = 324.05.
    assert bounds.paper_regret_bound(2.0, 0.5, 0.25, T=1) == 32.0
    bound = bounds.paper_regret_bound(2.0, 0.5, 0.25, T=7389, deletion_regret=7.0)
    assert bound == pytest.approx(324.05, abs=0.01)


def test_theorem_2_as_printed_adds_the_path_length_times_g() -> None:
    assert bounds.paper_dynamic_regret_bound(2.0, 0.5, 0.25, T=1, path_length=3.0, deletion_regret=7.0) == 45.0


def test_the_adaptive_bound_as_printed() -> None:
    # 2·3·√(0.25·4·49) = 42.
    assert bounds.paper_adaptive_regret_bound(G=2.0, D=3.0, c=0.25, C=4.0, S=49.0) == pytest.approx(42.0)


def test_the_deletion_regret_as_printed() -> None:
    # √(2·ln(1/e⁻⁸)) = 4, so 5·2·0.1·4 = 4.
    assert bounds.paper_deletion_regret(m=5, G=2.0, sigma=0.1, delta_B=math.exp(-8)) == pytest.approx(4.0)


def test_the_capacity_as_printed_with_the_observed_gradients() -> None:
    # (0.1·1000 − 2·3·√(0.25·4·100))/(2·0.1·4) = (100 − 60)/0.8 = 50.
    m = bounds.paper_capacity(
        N=1000, G=2.0, D=3.0, c=0.25, C=4.0, sigma=0.1, delta_B=math.exp(-8), gamma=0.1, S_N=100.0
    )
    assert m == pytest.approx(50.0)


def test_the_capacity_as_printed_in_the_worst_case() -> None:
    # S_N = G²N = 4·10 000: (0.1·10 000 − 2·3·√40 000·1)/0.8 < 0; γ = 0.2: (2000 − 1200)/0.8 = 1000.
    def worst(gamma: float) -> float:
        return bounds.paper_capacity(
            N=10_000, G=2.0, D=3.0, c=0.25, C=4.0, sigma=0.1, delta_B=math.exp(-8), gamma=gamma
        )

    assert worst(0.2) == pytest.approx(1000.0)
    assert worst(0.1) == 0.0


def test_the_sample_complexity_as_printed_in_the_worst_case() -> None:
    # A = G²D√(cC) = 4·3·1 = 12, B = 45, γ = 0.2: √N ≥ (12 + √(144 + 36))/0.4 = 63.541, N ≥ 4037.5.
    assert bounds.paper_sample_complexity(G=2.0, D=3.0, c=0.25, C=4.0, gamma=0.2, deletion_regret=45.0) == 4038


def test_the_sample_complexity_as_printed_for_a_known_gradient_sum() -> None:
    # (6·√100 + 20.5)/0.1 = 805.
    assert bounds.paper_sample_complexity(G=2.0, D=3.0, c=0.25, C=4.0, gamma=0.1, deletion_regret=20.5, S=100.0) == 805


def test_a_stream_without_gradients_and_deletions_needs_one_sample() -> None:
    for S in (None, 0.0):
        needed = bounds.paper_sample_complexity(G=1.0, D=0.0, c=1.0, C=1.0, gamma=0.1, deletion_regret=0.0, S=S)
        assert needed == 1


@given(
    gaps=st.lists(st.tuples(st.integers(1, 200), st.floats(0, 50)), max_size=8),
    gamma=st.floats(0.1, 1.0),
    deletion_regret=st.floats(0, 100),
)
def test_the_sample_complexity_is_the_smallest_n_for_any_growth_of_the_gradient_sum(
    gaps: list[tuple[int, float]], gamma: float, deletion_regret: float
) -> None:
    # Given a sum that grows in jumps, when N* is searched, then a scan of every N finds the same one.
    places = np.cumsum([place for place, _ in gaps])
    heights = np.concatenate([[0.0], np.cumsum([height for _, height in gaps])])

    def gradient_sum(N: int) -> float:
        return float(heights[np.searchsorted(places, N, side="right")])

    def enough(N: int) -> bool:
        return math.ceil((math.sqrt(gradient_sum(N)) + deletion_regret) / gamma) <= N

    found = bounds.paper_sample_complexity(
        G=1.0, D=1.0, c=1.0, C=1.0, gamma=gamma, deletion_regret=deletion_regret, S=gradient_sum
    )
    assert found == next(N for N in range(1, 10_000) if enough(N))


def test_a_gradient_sum_that_outgrows_gamma_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="grows too fast"):
        bounds.paper_sample_complexity(
            G=1.0, D=1.0, c=1.0, C=1.0, gamma=0.1, deletion_regret=1.0, S=lambda n: float(n) ** 2
        )


# ---- Theorems about the anchored mode. ----


def test_stability_is_g_over_lambda_times_the_shifted_clock() -> None:
    # 2/(0.01·(75 + 25)) = 2; θ adds a trust region of κ on both sides: (1 + 2·0.5)·2 = 4.
    assert bounds.stability(2.0, 0.01, 75, 25.0) == pytest.approx(2.0)
    assert bounds.theta_stability(2.0, 0.01, 75, 25.0, kappa=0.5) == pytest.approx(4.0)


def test_the_negative_step_doubles_the_sensitivity() -> None:
    assert bounds.sensitivity(2.0, 0.01, 75, 25.0, "symmetric") == pytest.approx(4.0)
    assert bounds.sensitivity(2.0, 0.01, 75, 25.0, "passive") == pytest.approx(2.0)


def test_stability_bounds_a_true_replay_and_is_attained() -> None:
    # Given the hardest stream in one dimension, one row with |ℓ'| = G then flat losses, when it is replayed
    # without the row, then the anchors differ by exactly the bound at every later clock.
    G, lam, M = 1.0, 0.1, 1.0
    t0 = M / lam
    anchor = replay = 0.0
    for t in range(1, 50):
        eta = 1 / (lam * (t + t0))
        anchor -= eta * ((G if t == 7 else 0.0) + lam * anchor)
        replay -= eta * lam * replay
        if t >= 7:
            assert abs(anchor - replay) == pytest.approx(bounds.stability(G, lam, t, t0), rel=1e-12)


def test_an_unknown_unlearner_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="neither"):
        bounds.sensitivity(1.0, 0.01, 75, 25.0, "magic")  # type: ignore[arg-type]


def test_the_norm_of_the_best_static_model_for_logistic_loss() -> None:
    # √(ln 2/0.01) = √69.31 = 8.326.
    assert bounds.comparator_norm(math.log(2), 0.01) == pytest.approx(8.326, abs=1e-3)


def test_the_regret_bound_adds_its_four_parts() -> None:
    # 80 + 0.25/2·12² + (−5) + 3 = 96.
    assert bounds.regret_bound(anchor_sum=80.0, excess=-5.0, jump_sum=3.0, M=0.25, norm=12.0) == 96.0


def test_theorem_c_bounds_a_real_path_against_every_comparator() -> None:
    # Given a random stream of squared residuals in two dimensions, learned by the anchor's own recursion, with
    # jumps of the anchor in between, when the bound is added up on that path, then no comparator beats it.
    rng = np.random.default_rng(5)
    lam, M, n = 0.05, 1.0, 400
    t0 = M / lam
    X = rng.normal(size=(n, 2))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = X @ np.array([2.0, -1.0]) + rng.normal(size=n)
    comparators = [np.zeros(2), np.array([1.5, -0.8]), np.array([-3.0, 4.0]), rng.normal(size=2)]

    anchor, anchor_sum, loss = np.zeros(2), 0.0, 0.0
    jumps = np.zeros(len(comparators))
    for t in range(1, n + 1):
        residual = X[t - 1] @ anchor - y[t - 1]
        gradient = residual * X[t - 1] + lam * anchor
        eta = 1 / (lam * (t + t0))
        loss += 0.5 * residual**2 + lam / 2 * anchor @ anchor
        anchor_sum += 0.5 * eta * gradient @ gradient
        anchor = anchor - eta * gradient
        if t % 100 == 50:
            jump = rng.normal(size=2)
            for i, w in enumerate(comparators):
                distance = float(np.linalg.norm(anchor - w))
                jumps[i] += bounds.jump_regret(lam, t, t0, distance, float(np.linalg.norm(jump)))
            anchor = anchor + jump

    for i, w in enumerate(comparators):
        regret = loss - float(np.sum(0.5 * (X @ w - y) ** 2) + n * lam / 2 * w @ w)
        norm = float(np.linalg.norm(w))
        assert regret <= bounds.regret_bound(anchor_sum, 0.0, float(jumps[i]), M, norm)


def test_a_jump_costs_its_length_and_its_square() -> None:
    # 0.01·100/2·(2·10·2 + 4) = 22.
    assert bounds.jump_regret(0.01, 75, 25.0, distance=10.0, jump=2.0) == pytest.approx(22.0)


def test_the_noise_costs_g_squared_d_over_lambda_clock_rho_and_a_quarter_when_passive() -> None:
    # 2²·10/(0.01·100·0.5) = 80.
    assert bounds.noise_regret(2.0, 0.01, 75, 25.0, 10, 0.5, "symmetric") == pytest.approx(80.0)
    assert bounds.noise_regret(2.0, 0.01, 75, 25.0, 10, 0.5, "passive") == pytest.approx(20.0)


def test_a_delete_is_expected_to_cost_its_step_and_its_noise() -> None:
    # 2·2·5 + 4/(0.01·100) + 80 = 104; passive takes no step, so 20.
    assert bounds.expected_jump_regret(2.0, 0.01, 75, 25.0, 10, 0.5, 5.0, "symmetric") == pytest.approx(104.0)
    assert bounds.expected_jump_regret(2.0, 0.01, 75, 25.0, 10, 0.5, 5.0, "passive") == pytest.approx(20.0)


def test_the_expected_cost_of_a_delete_bounds_the_average_over_draws_of_its_noise() -> None:
    # Given the longest allowed negative step, straight away from a comparator 2B away, when the noise is drawn
    # many times, then the exact potential gained on average lies just under the bound (theory 3.5).
    G, lam, clock, t0, d, rho, B = 1.0, 0.01, 75, 25.0, 20, 0.5, 2.0
    scale = bounds.sensitivity(G, lam, clock, t0, "symmetric") / math.sqrt(2 * rho)
    away = np.eye(d)[0]
    noise = scale * np.random.default_rng(3).normal(size=(200_000, d))
    after = (2 * B + bounds.stability(G, lam, clock, t0)) * away + noise
    gained = lam * (clock + t0) / 2 * (np.mean(np.sum(after**2, axis=1)) - (2 * B) ** 2)
    bound = bounds.expected_jump_regret(G, lam, clock, t0, d, rho, B, "symmetric")
    assert 0.97 * bound < gained < bound


@pytest.mark.parametrize(
    ("rows", "d", "m"),
    [(29_304, 109, 15), (27_000, 25, 29), (90_000, 55, 64), (10_783, 784, 2)],
    ids=["Adult", "Credit", "CoverType", "MNIST"],
)
def test_the_regret_capacity_of_the_streams_in_the_specification(rows: int, d: int, m: int) -> None:
    live = bounds.regret_capacity(rows, d, 1.0, 0.01, 0.1, RHO_TOT, "symmetric")
    assert round(live) == m
    assert bounds.regret_capacity(rows, d, 1.0, 0.01, 0.1, RHO_TOT, "passive") == pytest.approx(2 * live)


@pytest.mark.parametrize(
    ("rows", "d", "m"),
    [(29_304, 109, 13), (27_000, 25, 20), (90_000, 55, 53), (10_783, 784, 2)],
    ids=["Adult", "Credit", "CoverType", "MNIST"],
)
def test_the_capacity_is_below_the_regret_capacity_and_close_to_it_for_many_features(rows: int, d: int, m: int) -> None:
    live = bounds.capacity(rows, d, 1.0, 0.25, 0.01, 0.1, RHO_TOT, "symmetric")
    assert round(live) == m
    assert bounds.capacity(rows, d, 1.0, 0.25, 0.01, 0.1, RHO_TOT, "passive") == pytest.approx(2 * live)
    without_t0 = live * rows / (rows + 25)
    assert without_t0 <= bounds.regret_capacity(rows, d, 1.0, 0.01, 0.1, RHO_TOT, "symmetric")


@pytest.mark.parametrize("unlearner", UNLEARNERS)
def test_at_capacity_the_noise_costs_a_prediction_exactly_gamma(unlearner: Unlearner) -> None:
    m = bounds.capacity(29_304, 109, 2.0, 0.25, 0.01, 0.1, RHO_TOT, unlearner)
    each = bounds.noise_loss(2.0, 0.25, 0.01, 29_304, 25.0, 109, RHO_TOT / m, unlearner)
    assert m * each == pytest.approx(0.1)


def test_the_loss_of_noise_is_a_bound_that_a_row_on_the_sphere_nearly_attains() -> None:
    # Given squared residuals (M = 1) and a row of length 1, when noise falls on θ many times, then the mean of
    # f(θ + η) − f(θ) is what noise_loss says.
    d, lam, clock, t0, rho = 5, 0.01, 900, 100.0, 0.5
    scale = bounds.sensitivity(1.0, lam, clock, t0, "symmetric") / math.sqrt(2 * rho)
    noise = scale * np.random.default_rng(4).normal(size=(400_000, d))
    gained = np.mean(0.5 * noise[:, 0] ** 2 + lam / 2 * np.sum(noise**2, axis=1))
    assert gained == pytest.approx(bounds.noise_loss(1.0, 1.0, lam, clock, t0, d, rho, "symmetric"), rel=0.01)


def test_a_live_split_divides_the_budget_by_the_whole_deletions_it_can_serve() -> None:
    # Adult: m* = 13.42, so 13 deletions of a thirteenth each.
    cap = to_units(RHO_TOT)
    assert bounds.split(29_304, 109, 1.0, 0.25, 0.01, 0.1, cap, "symmetric") == cap // 13


def test_a_deletion_too_early_for_its_noise_is_left_to_a_retrain() -> None:
    # m*(1000) = 0.47 < 1 for Adult's dimension; and a budget of fewer units than deletions cannot be split.
    assert bounds.split(1_000, 109, 1.0, 0.25, 0.01, 0.1, to_units(RHO_TOT), "symmetric") == 0
    assert bounds.split(1_000, 109, 1.0, 0.25, 0.01, 0.1, 9, "symmetric", m=10) == 0


def test_a_fixed_m_splits_alike_at_every_clock() -> None:
    for clock in (1, 1_000_000):
        assert bounds.split(clock, 109, 1.0, 0.25, 0.01, 0.1, 1000, "symmetric", m=30) == 33


@pytest.mark.parametrize("m", [0, -3])
def test_a_split_among_no_deletions_is_refused(m: int) -> None:
    with pytest.raises(InvalidParameter, match="fewer than one"):
        bounds.split(1_000, 109, 1.0, 0.25, 0.01, 0.1, 1000, "symmetric", m=m)


@given(
    steps=st.lists(st.integers(0, 5_000), min_size=1, max_size=80),
    start=st.integers(1, 100_000),
    d=st.integers(1, 800),
    G=st.floats(0.1, 10),
    M=st.sampled_from([0.25, 1.0]),
    lam=st.floats(1e-4, 1),
    gamma=st.floats(0.01, 1),
    epsilon=st.floats(0.1, 10),
    unlearner=st.sampled_from(UNLEARNERS),
)
def test_with_the_live_split_the_noise_of_all_deletions_never_costs_a_prediction_more_than_gamma(
    steps: list[int],
    start: int,
    d: int,
    G: float,
    M: float,
    lam: float,
    gamma: float,
    epsilon: float,
    unlearner: Unlearner,
) -> None:
    # Given any non-decreasing clocks of deletions, all of them in one burst included,
    cap = to_units(rho_of(epsilon, 1e-6))
    odometer, loss, regret, clock = Odometer(cap), 0.0, 0.0, start
    t0 = M / lam
    for step in steps:
        clock += step
        # when each spends the live split until the budget refuses,
        units = bounds.split(clock, d, G, M, lam, gamma, cap, unlearner)
        if units == 0:
            continue
        try:
            odometer = odometer.spend(units)
        except BudgetExhausted:
            break
        loss += bounds.noise_loss(G, M, lam, clock, t0, d, units / UNITS, unlearner)
        regret += bounds.noise_regret(G, lam, clock, t0, d, units / UNITS, unlearner)
        # then all their noise costs γ at most, and γ per row in regret, but for the rounding of ρ_s to whole units.
        m = bounds.capacity(clock, d, G, M, lam, gamma, cap / UNITS, unlearner)
        assume(m < cap)
        assert loss <= gamma / (1 - m / cap) ** 2
        assert regret <= gamma * (clock + t0) / (1 - m / cap) ** 2
        assert odometer.deletions <= m / (1 - m / cap)


def test_the_bound_on_the_noise_of_a_live_split_is_not_slack() -> None:
    # Given a clock where m* is hardly above a whole number, when a burst spends all of the budget, then the noise
    # costs almost exactly γ.
    cap = to_units(RHO_TOT)
    clock = next(n for n in range(29_304, 40_000) if _capacity_at(n) % 1 < 1e-3)
    units = bounds.split(clock, 109, 1.0, 0.25, 0.01, 0.1, cap, "symmetric")
    odometer, total = Odometer(cap), 0.0
    while odometer.can_spend(units):
        odometer = odometer.spend(units)
        total += bounds.noise_loss(1.0, 0.25, 0.01, clock, 25.0, 109, units / UNITS, "symmetric")
    assert 0.099 < total <= 0.1 * (1 + 1e-9)


def _capacity_at(clock: int) -> float:
    return bounds.capacity(clock, 109, 1.0, 0.25, 0.01, 0.1, RHO_TOT, "symmetric")


def test_the_gate_opens_when_the_regret_is_covered_by_gamma_per_row() -> None:
    # 80 + 10 ≤ 0.1·N from N = 900 on.
    assert bounds.samples_needed(80.0, 10.0, 0.1) == 900
    assert not bounds.gate(80.0, 10.0, 0.1, 899)
    assert bounds.gate(80.0, 10.0, 0.1, 900)


def test_the_gate_stays_shut_without_rows() -> None:
    assert not bounds.gate(0.0, 0.0, 0.1, 0)
    assert bounds.gate(0.0, 0.0, 0.1, 1)
    assert bounds.samples_needed(0.0, 0.0, 0.1) == 1


@pytest.mark.parametrize("regret", [math.nan, math.inf])
def test_the_gate_stays_shut_without_a_finite_bound(regret: float) -> None:
    assert not bounds.gate(regret, 0.0, 0.1, 10**9)


@pytest.mark.parametrize("lam", [0.01, 0.3])
def test_rounding_stays_below_what_is_paid_for(lam: float) -> None:
    # Given the anchor's steps in doubles, and the same in extended precision,
    rng = np.random.default_rng(1)
    ticks, d, M = 20_000, 3, 0.25
    X = rng.normal(size=(ticks, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = rng.choice([-1.0, 1.0], ticks)
    k, state = constants("logistic", lam=lam), empty(d, 1)
    events.apply(state, k, np.ones(ticks, np.int16), X, y, np.empty((0, d)))
    long = np.longdouble
    if np.finfo(long).eps > 1e-18:
        pytest.skip("no extended precision here")
    a, wide, t0 = np.zeros(d, long), X.astype(long), long(M) / long(lam)
    for t in range(ticks):
        slope = -long(y[t]) / (1 + np.exp(long(y[t]) * (a @ wide[t])))
        a = a - (slope * wide[t] + long(lam) * a) / (long(lam) * (t + 1 + t0))
    # then the two are apart by no more than half of what two worlds are charged for, and not by nothing.
    apart = float(np.linalg.norm((state.anchor - a).astype(float)))
    share = apart / bounds.stability(1.0, lam, ticks, M / lam)
    assert 0.0 < share <= 0.5 * bounds.rounding(ticks, M / lam)


def test_long_streams_pay_for_rounding_and_short_ones_no_more_than_before() -> None:
    for clock in (1_000, 20_000):
        plain = 2.0 * bounds.stability(1.0, 0.01, clock, 25.0)
        assert bounds.sensitivity(1.0, 0.01, clock, 25.0, "symmetric") == plain
    million = bounds.sensitivity(1.0, 0.01, 10**6, 25.0, "passive") / bounds.stability(1.0, 0.01, 10**6, 25.0)
    assert 1.0 + bounds.rounding(10**6, 25.0) <= million * (1.0 + ROUNDING) < 1.001


def test_models_wider_than_a_matrix_pay_for_the_rounding_of_longer_sums() -> None:
    narrow, wide = (bounds.sensitivity(1.0, 0.01, 20_000, 25.0, "passive", d) for d in (1_024, 20_000))
    assert bounds.sensitivity(1.0, 0.01, 20_000, 25.0, "passive", 3) == narrow
    assert wide == pytest.approx(narrow * (1 + 2 * 2**-53 * 20_000 * 2.1 * 20_000 * 25), rel=1e-6)
    assert wide > narrow * (1 + 1e-6)
