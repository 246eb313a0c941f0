from __future__ import annotations

import math

import pytest
from scipy import stats

from mempair_db.measure import intervals


@pytest.mark.parametrize(
    ("k", "n"), [(0, 10), (10, 10), (3, 20), (1, 1), (10_000, 20_000), (19_999, 20_000), (7, 1_000)]
)
def test_limits_are_those_of_clopper_and_pearson(k: int, n: int) -> None:
    lower = stats.beta.ppf(0.025, k, n - k + 1) if k else 0.0
    upper = stats.beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
    assert intervals.lower(k, n, 0.025) == pytest.approx(lower, abs=1e-10)
    assert intervals.upper(k, n, 0.025) == pytest.approx(upper, abs=1e-10)


@pytest.mark.parametrize("mu", [0.0, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("threshold", [-1.0, 0.0, 2.0])
def test_every_threshold_on_two_gaussians_gives_their_distance(mu: float, threshold: float) -> None:
    hit, alarm = stats.norm.sf(threshold - mu), stats.norm.sf(threshold)
    assert intervals.gaussian_mu(float(hit), float(alarm)) == pytest.approx(mu, abs=1e-9)


def test_rates_that_prove_nothing_give_zero() -> None:
    assert intervals.gaussian_mu(0.0, 0.5) == 0.0
    assert intervals.gaussian_mu(0.5, 1.0) == 0.0
    assert intervals.gaussian_mu(0.4, 0.5) == 0.0


def test_a_perfect_test_gives_a_large_and_finite_distance() -> None:
    assert math.isfinite(intervals.gaussian_mu(1.0, 0.0))
    assert intervals.gaussian_mu(1.0, 0.0) > 10


@pytest.mark.parametrize(("d1", "d2"), [(1, 5), (6, 94), (60, 340), (300, 700)])
@pytest.mark.parametrize("q", [1e-4, 0.2, 0.9, 1.0, 1.3, 4.0])
@pytest.mark.parametrize("noncentral", [0.0, 0.05, 3.0])
def test_the_law_of_f_is_that_of_another_library(d1: int, d2: int, q: float, noncentral: float) -> None:
    expected = stats.ncf.cdf(q, d1, d2, noncentral) if noncentral else stats.f.cdf(q, d1, d2)
    assert intervals.f_cdf(q, d1, d2, noncentral) == pytest.approx(expected, rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("p", [1e-4, 0.5, 0.999])
def test_the_quantile_of_f_is_that_of_another_library(p: float) -> None:
    assert intervals.f_quantile(p, 6, 94) == pytest.approx(stats.f.ppf(p, 6, 94), rel=1e-6)
