"""The odometer: exact accounting of what deletions cost (theory 3.4 and 3.7).

Every mechanism here adds Gaussian noise (`noise` says why a grid makes no difference), so with μ² = 2ρ the costs of
several add and convert without loss:

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)                  Balle and Wang 2018, theorem 8
    ρ_zCDP = (√(ln(1/δ) + ε) − √ln(1/δ))²                    Bun and Steinke 2016, proposition 1.3
    σ = S/√(2ρ)

It does not hold for noise other than Gaussian, for a ρ chosen after looking at the data, nor for deletions
requested by someone who had seen the model before the deletion.

Sums are integers in units of 1e-12 ρ: the total equals its parts exactly, however many there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ..errors import BudgetExhausted, InvalidParameter

UNITS: Final = 10**12
"""Units in one ρ."""

ROUNDING: Final = 1e-6
"""Relative growth of S, so that rounding in the steps cannot make the true sensitivity larger than S.

Enough for about 45,000 rows, whatever they are; `bounds.sensitivity` adds what longer streams can need (theory 3.7).
"""


def delta_of(epsilon: float, rho: float) -> float:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ), with μ = √(2ρ).

    >>> f"{delta_of(1.0, 0.02801):.1e}"
    '1.0e-06'
    >>> delta_of(1.0, 0.0)
    0.0
    """
    near, far = _gaussian_terms(epsilon, rho)
    return max(0.0, near - far)


def epsilon_of(rho: float, delta: float) -> float:
    """Return the smallest ε with δ(ε) ≤ δ, rounded up.

    >>> round(epsilon_of(0.02801, 1e-6), 3)
    1.0
    """
    _check_delta(delta)
    enough = zcdp_epsilon(rho, delta)  # the zCDP formula is the looser one
    if _delta_ceiling(0.0, rho) <= delta:
        return 0.0
    return _bisect(lambda epsilon: _delta_ceiling(epsilon, rho) <= delta, good=enough, bad=0.0)


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest ρ with δ(ε) ≤ δ, rounded down: the δ that was asked for is never exceeded.

    >>> round(rho_of(1.0, 1e-6), 5)
    0.02801
    """
    _check_delta(delta)
    too_much = 1.0
    while _delta_ceiling(epsilon, too_much) <= delta:
        too_much *= 2.0
    enough = zcdp_rho(epsilon, delta)
    return _bisect(lambda rho: _delta_ceiling(epsilon, rho) <= delta, good=enough, bad=too_much)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """ρ = (√(ln(1/δ) + ε) − √ln(1/δ))²: the usual conversion, for any zCDP mechanism and so never larger.

    >>> round(zcdp_rho(1.0, 1e-6), 5)
    0.01747
    """
    _check_delta(delta)
    _check("epsilon", epsilon)
    log = math.log(1.0 / delta)
    # ε/(√a + √b) is √a − √b for a − b = ε, and does not cancel.
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε = ρ + 2√(ρ·ln(1/δ)), the inverse of `zcdp_rho`.

    >>> round(zcdp_epsilon(0.01747, 1e-6), 3)
    1.0
    """
    _check_delta(delta)
    _check("rho", rho)
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def to_units(rho: float) -> int:
    """Return ρ in units, rounded down, for a cap.

    >>> to_units(0.02801), to_units(1.9e-12)
    (28010000000, 1)
    """
    _check("rho", rho)
    numerator, denominator = float(rho).as_integer_ratio()
    return numerator * UNITS // denominator


def sigma(sensitivity: float, rho_units: int) -> float:
    """σ = S·(1 + 1e-6)/√(2ρ): the scale of the noise that hides a difference of length S at a cost of ρ.

    >>> round(sigma(0.1, UNITS // 2), 6)
    0.1
    """
    _check("sensitivity", sensitivity)
    _check_spend(rho_units)
    return sensitivity * (1.0 + ROUNDING) / math.sqrt(2.0 * (rho_units / UNITS))


@dataclass(frozen=True, slots=True)
class Odometer:
    """What the deletions of an epoch have spent, under a cap that was set before the first of them.

    It never changes: `spend` returns the next one, so a transaction that fails leaves the old one in force.

    >>> odometer = Odometer(cap=100).spend(60)
    >>> odometer.spent, odometer.can_spend(40), odometer.can_spend(41)
    (60, True, False)
    """

    cap: int  # ρ_tot
    spent: int = 0  # Σ ρ_s
    deletions: int = 0
    largest: int = 0  # the largest single ρ_s

    def __post_init__(self) -> None:
        """Refuse a state that no sequence of spends can reach."""
        figures = (self.cap, self.spent, self.deletions, self.largest)
        reachable = (
            all(type(figure) is int for figure in figures)
            and 0 <= self.spent <= self.cap
            and 0 <= self.deletions <= self.spent
            # Every deletion cost at least one unit and at most the largest, which was paid at least once.
            and self.largest + max(0, self.deletions - 1) <= self.spent <= self.deletions * self.largest
        )
        if not reachable:
            raise InvalidParameter(f"No odometer reads {self!r}.")

    @property
    def remaining(self) -> int:
        """Units left under the cap."""
        return self.cap - self.spent

    def can_spend(self, units: int) -> bool:
        """Tell whether a deletion that costs this much fits under the cap."""
        _check_spend(units)
        return units <= self.remaining

    def spend(self, units: int) -> Odometer:
        """Return the odometer after one more deletion, or refuse it."""
        if not self.can_spend(units):
            raise BudgetExhausted(
                f"Spent {self.spent} of {self.cap} units (1e-12 rho) in {self.deletions} deletions; "
                f"this one asks for {units}.",
                remedy="Retrain on the surviving rows: that starts a new epoch with a full budget.",
            )
        return replace(
            self,
            spent=self.spent + units,
            deletions=self.deletions + 1,
            largest=max(self.largest, units),
        )

    def epsilon_all(self, delta: float) -> float:
        """ε for all deleted records together: the model against one in which their places were left empty."""
        return epsilon_of(self.spent / UNITS, delta)

    def epsilon_record(self, delta: float) -> float:
        """ε for one deleted record: the model against one in which its place was left empty.

        For the symmetric unlearner, so are those of the records deleted *before* this one: their negative steps were
        computed from an anchor and a window that this one had influenced.
        """
        return epsilon_of(self.largest / UNITS, delta)


def _gaussian_terms(epsilon: float, rho: float) -> tuple[float, float]:
    """Return Φ(μ/2 − ε/μ) and e^ε·Φ(−μ/2 − ε/μ).

    e^ε·φ(−μ/2 − ε/μ) = φ(μ/2 − ε/μ), so with Mills' ratio both share one density and nothing overflows.
    """
    _check("epsilon", epsilon)
    _check("rho", rho)
    if rho == 0.0:
        return 0.0, 0.0
    mu = math.sqrt(2.0 * rho)
    near, far = mu / 2.0 - epsilon / mu, -mu / 2.0 - epsilon / mu
    density = math.exp(-near * near / 2.0) / math.sqrt(2.0 * math.pi)
    first = math.erfc(-near / math.sqrt(2.0)) / 2.0 if near > 0.0 else density * _mills(-near)
    return first, density * _mills(-far)


def _delta_ceiling(epsilon: float, rho: float) -> float:
    """δ(ε) rounded up: the two terms cancel, and each is good to 1e-13 of itself."""
    near, far = _gaussian_terms(epsilon, rho)
    return near * (1.0 + 1e-13) - far


def _mills(x: float) -> float:
    """Mills' ratio (1 − Φ(x))/φ(x), x ≥ 0; far out, Laplace's fraction 1/(x + 1/(x + 2/(x + …)))."""
    if x < 5.0:
        return math.sqrt(math.pi / 2.0) * math.exp(x * x / 2.0) * math.erfc(x / math.sqrt(2.0))
    fraction = 0.0
    for k in range(60, 0, -1):
        fraction = k / (x + fraction)
    return 1.0 / (x + fraction)


def _bisect(holds: Callable[[float], bool], *, good: float, bad: float) -> float:
    """Move `good`, where the condition holds, towards `bad`, where it fails, until no number lies between."""
    while good != (middle := good + (bad - good) / 2.0) != bad:
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def _check(name: str, value: float) -> None:
    if not 0.0 <= value < math.inf:
        raise InvalidParameter(f"{name} = {value!r} is not a finite number of at least 0.")


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise InvalidParameter(f"delta = {delta!r} does not lie between 0 and 1.")


def _check_spend(units: int) -> None:
    if type(units) is not int or units < 1:
        raise InvalidParameter(f"A deletion cannot cost {units!r} units: it takes a positive integer.")
