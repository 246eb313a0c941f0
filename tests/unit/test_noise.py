"""The discrete Gaussian against its exact probabilities, and the attack that reads noise off its last bits.

The draws cannot be repeated, so each test is allowed to fail once in a billion runs.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from mempair_db.errors import InvalidParameter
from mempair_db.pair import noise, odometer
from mempair_db.pair.odometer import UNITS

ONCE_IN_A_BILLION = 1e-9
KS_LIMIT = math.sqrt(math.log(2 / ONCE_IN_A_BILLION) / 2)  # Massart: P(√n·distance > c) ≤ 2·exp(−2c²)
Z_LIMIT = 6.2  # P(|z| > 6.2) = 6e-10


def improbability(observed: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float64]) -> float:
    """Return how probable counts that fit worse would be: χ², with cells of less than ten joined."""
    expected = probabilities * observed.sum()
    rare = expected < 10.0
    counts = np.append(observed[~rare], observed[rare].sum())
    means = np.append(expected[~rare], expected[rare].sum())
    counts, means = counts[means > 0.0], means[means > 0.0]
    return float(stats.chi2.sf(((counts - means) ** 2 / means).sum(), len(counts) - 1))


def exact(fineness: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    z = np.arange(-12 << fineness, (12 << fineness) + 1)
    weights = np.exp(-((z / 2.0**fineness) ** 2) / 2.0)
    return z, weights / weights.sum()


def counted(drawn: npt.NDArray[np.int64], z: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    assert drawn.min() >= z[0]
    assert drawn.max() <= z[-1]
    return np.bincount(drawn - z[0], minlength=len(z))


@pytest.mark.parametrize("fineness", [0, 1, 2, 5])
def test_every_integer_has_its_exact_probability(fineness: int) -> None:
    z, probabilities = exact(fineness)
    drawn = noise.discrete_gaussian(400_000, fineness)
    assert improbability(counted(drawn, z), probabilities) > ONCE_IN_A_BILLION


def test_that_test_catches_a_rounded_normal() -> None:
    # A positive control: rounding N(0, 1) is not the discrete Gaussian.
    z, probabilities = exact(0)
    rounded = np.rint(np.random.default_rng(1).normal(size=400_000)).astype(np.int64)
    assert improbability(counted(rounded, z), probabilities) < ONCE_IN_A_BILLION


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 8), Fraction(1, 2), Fraction(7, 8), Fraction(1)])
def test_exp_of_minus_a_fraction_is_decided_exactly(share: Fraction) -> None:
    n, p = 200_000, math.exp(-float(share))
    numerator = np.full(n, int(share * 2**40), np.int64)
    hits = int(noise._exp_minus(numerator, 40).sum())
    assert abs(hits - n * p) <= Z_LIMIT * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("times", [0, 1, 2, 5])
def test_exp_of_minus_a_whole_number_is_decided_exactly(times: int) -> None:
    n, p = 200_000, math.exp(-times)
    accepted = np.ones(n, bool)
    noise._all_times(accepted, np.full(n, times, np.int64))
    assert abs(int(accepted.sum()) - n * p) <= Z_LIMIT * math.sqrt(n * p * (1 - p))


def kolmogorov_smirnov(sample: npt.NDArray[np.float64]) -> float:
    n, phi, steps = len(sample), stats.norm.cdf(np.sort(sample)), np.arange(len(sample) + 1) / len(sample)
    return math.sqrt(n) * float(max(np.max(steps[1:] - phi), np.max(phi - steps[:-1])))


@pytest.mark.parametrize("d", [1, 2, 101])
def test_the_noise_of_many_deletions_has_the_normal_law(d: int) -> None:
    sample = noise.of_scale(1.0, 20_000 // d, d)
    assert kolmogorov_smirnov((sample.steps * sample.grid[:, None]).ravel()) < KS_LIMIT


def test_the_noise_has_the_scale_of_the_grid() -> None:
    # The variance of the mean square of n normals is 2/n.
    sample = noise.discrete_gaussian(200_000) / noise.STEPS
    assert abs(np.mean(sample)) * math.sqrt(200_000) < Z_LIMIT
    assert abs(np.mean(sample**2) - 1) * math.sqrt(200_000 / 2) < Z_LIMIT
    # Positive controls: the law's test sees a fifth, the scale's test two percent.
    assert kolmogorov_smirnov(0.8 * sample[:20_000]) > KS_LIMIT
    assert abs(np.mean((0.98 * sample) ** 2) - 1) * math.sqrt(200_000 / 2) > Z_LIMIT


def test_coordinates_and_successive_draws_are_uncorrelated() -> None:
    draws = noise.of_scale(1.0, 40_000, 6).steps
    for power in (1, 2):
        centred = draws**power - np.mean(draws**power, axis=0)
        unit = centred / np.std(centred, axis=0)
        within = (unit.T @ unit)[np.triu_indices(6, k=1)]
        between = unit[:-1].T @ unit[1:]
        for products in (within, between):
            assert np.max(np.abs(products)) / math.sqrt(40_000) < Z_LIMIT + 0.5


def test_the_last_bits_of_the_noise_are_those_of_any_integer() -> None:
    # Every remainder is equally frequent, wherever the noise is centred: the last bits say nothing.
    drawn = noise.discrete_gaussian(200_000)
    for modulus in (2, 3, 16, 256):
        assert improbability(np.bincount(drawn % modulus), np.full(modulus, 1 / modulus)) > ONCE_IN_A_BILLION


def test_the_operating_system_is_the_only_source_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a source that repeats itself, then so does the noise: nothing else is asked.
    def repeat(seed: int) -> npt.NDArray[np.float64]:
        source = np.random.default_rng(seed)
        monkeypatch.setattr("os.urandom", source.bytes)
        return noise.of_scale(1.0, 5, 7).steps

    assert np.array_equal(repeat(1), repeat(1))
    assert not np.array_equal(repeat(1), repeat(2))


@pytest.mark.parametrize("d", [0, -1, 2.0])
def test_noise_without_a_dimension_is_refused(d: int) -> None:
    with pytest.raises(InvalidParameter):
        noise.draw(np.ones(1), d)


# ---- The grid. ----


@pytest.mark.parametrize("d", [1, 20, 1000])
@pytest.mark.parametrize("units", [UNITS // 2, UNITS // 10**6])
def test_the_noise_covers_the_sensitivity_and_the_rounding(d: int, units: int) -> None:
    # Two worlds S apart are rounded to grid points that are at most S + 1.25·g·√d apart.
    step = noise.grid(0.3, units, d)
    apart = 0.3 * (1.0 + odometer.ROUNDING) + noise.APART * step * math.sqrt(d)
    assert noise.STEPS * step >= apart / math.sqrt(2.0 * units / UNITS) * (1.0 - 1e-12)
    assert noise.sigma(0.3, units, d) == noise.STEPS * step


def test_the_grid_does_not_know_the_data() -> None:
    assert noise.grid(1.0, 1000, 10) == noise.grid(1.0, 1000, 10)
    assert noise.grid(1.0, 1000, 10) < noise.grid(1.0, 1000, 11) < noise.grid(1.0001, 1000, 11)


def test_a_budget_too_small_for_any_grid_is_refused() -> None:
    with pytest.raises(InvalidParameter):
        noise.grid(1.0, 1, 100)
