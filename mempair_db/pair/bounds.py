"""Bounds: what the paper prints, and what the code that runs can promise (theory 1 and 3.3 to 3.6).

The `paper_…` functions are the paper's formulas *as printed*. Nothing is enforced by them: theory 2 shows
where each fails. The others are theorems about the anchored mode, for rows with ‖x‖ ≤ 1, a `clock` T that
counts every tick of the epoch, t0 = M/λ, an anchor that starts at zero, and losses with |ℓ'| ≤ G and
0 ≤ ℓ'' ≤ M. Squared loss has no G: none of them holds for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from ..errors import InvalidParameter
from .odometer import ROUNDING, UNITS

Unlearner: TypeAlias = Literal["symmetric", "passive"]

WIDE: Final = 1_024
"""Coordinates that the bound on rounding allows for, at least."""

LONGEST: Final = 2.0
"""How long an anchor can be, in G/λ: rows take it no further than 1, and `step.delete` keeps noise from it."""


# ---- As printed in the paper; nothing is enforced by these. ----


def paper_regret_bound(G: float, lam: float, c: float, T: int, deletion_regret: float = 0.0) -> float:
    """R_T ≤ G²/(λc)·(1 + ln T) + Δ_m, with η_t = 1/(λt): Theorem 1 as printed, H ≥ c.

    False for a window that changes with the data (theory 2.9): the bound is 1 351 where the regret is 9 009.

    >>> round(paper_regret_bound(G=1.0, lam=0.1, c=0.5, T=1000), 2)
    158.16
    """
    return G**2 / (lam * c) * (1.0 + math.log(T)) + deletion_regret


def paper_dynamic_regret_bound(
    G: float, lam: float, c: float, T: int, *, path_length: float, deletion_regret: float = 0.0
) -> float:
    """R_T ≤ G²/(λc)·(1 + ln T) + G·P_T + Δ_m: Theorem 2 as printed, P_T = Σ‖w_{t+1} − w_t‖.

    False (theory 2.9): after one jump of the comparator, small steps take long to follow.

    >>> round(paper_dynamic_regret_bound(G=1.0, lam=0.1, c=0.5, T=1000, path_length=2.0), 2)
    160.16
    """
    return paper_regret_bound(G, lam, c, T, deletion_regret) + G * path_length


def paper_adaptive_regret_bound(G: float, D: float, c: float, C: float, S: float) -> float:
    """R_T ≤ G·D·√(c·C·S_T), S_T = Σ‖g_t‖², with steps D/√S_t: as printed; its units are wrong (theory 2.9).

    >>> paper_adaptive_regret_bound(G=1.0, D=2.0, c=0.5, C=2.0, S=100.0)
    20.0
    """
    return G * D * math.sqrt(c * C * S)


def paper_deletion_regret(m: float, G: float, sigma: float, delta_B: float) -> float:
    """Δ_m = m·G·σ·√(2 ln(1/δ_B)): as printed.

    It forgets the dimension, E‖η‖ = σ√d, and that later small steps cannot undo a jump (theory 2.6).

    >>> round(paper_deletion_regret(m=10, G=1.0, sigma=0.5, delta_B=math.exp(-2)), 9)
    10.0
    """
    return m * G * sigma * math.sqrt(2.0 * math.log(1.0 / delta_B))


def paper_capacity(
    *,
    N: int,
    G: float,
    D: float,
    c: float,
    C: float,
    sigma: float,
    delta_B: float,
    gamma: float,
    S_N: float | None = None,
) -> float:
    """m ≤ (γN − G·D·√(cC·S_N))/(G·σ·√(2 ln(1/δ_B))), at least 0: equation cap-main as printed.

    Without S_N it is cap-worst, S_N = G²N. Optimistic by orders of magnitude (theory 2.6).

    >>> constants = dict(G=1.0, D=1.0, c=1.0, C=1.0, sigma=0.5, delta_B=math.exp(-2), gamma=0.1)
    >>> round(paper_capacity(N=1000, S_N=100.0, **constants), 9)
    90.0
    """
    S = G**2 * N if S_N is None else S_N
    room = gamma * N - paper_adaptive_regret_bound(G, D, c, C, S)
    return max(0.0, room) / paper_deletion_regret(1, G, sigma, delta_B)


def paper_sample_complexity(
    *,
    G: float,
    D: float,
    c: float,
    C: float,
    gamma: float,
    deletion_regret: float,
    S: float | Callable[[int], float] | None = None,
) -> int:
    """N*: the smallest N ≥ 1 with (G·D·√(cC·S_N) + Δ_m)/N ≤ γ: equation sample-master as printed.

    S is S_N itself or a non-decreasing function of N. Without it S_N = G²N, and sample-exact-root answers:

        √N ≥ (A + √(A² + 4γB))/(2γ),  A = G²D√(cC),  B = Δ_m

    >>> paper_sample_complexity(G=1.0, D=1.0, c=1.0, C=1.0, gamma=0.1, deletion_regret=20.0)
    400
    >>> paper_sample_complexity(G=1.0, D=1.0, c=1.0, C=1.0, gamma=0.1, deletion_regret=20.0, S=float)
    400
    """
    if S is None:
        A, B = G**2 * D * math.sqrt(c * C), deletion_regret
        root = (A + math.sqrt(A**2 + 4.0 * gamma * B)) / (2.0 * gamma)
        return max(1, math.ceil(root**2))

    def needed(N: int) -> int:
        S_N = S(N) if callable(S) else S
        return math.ceil((paper_adaptive_regret_bound(G, D, c, C, S_N) + deletion_regret) / gamma)

    # `needed` never falls, so from below the iteration cannot step over the smallest N with needed(N) ≤ N.
    N = 1
    for _ in range(10_000):
        enough = needed(N)
        if enough <= N:
            return N
        N = min(enough, 10**18)
    raise InvalidParameter(f"No N up to {N} is enough: S_N grows too fast for gamma = {gamma}.")


# ---- Theorems about the anchored mode; these are enforced. ----


def stability(G: float, lam: float, clock: int, t0: float) -> float:
    """‖a_T − ã_T‖ ≤ G/(λ(T + t0)): Theorem A, for every stream, every row and every T ≥ 1.

    >>> stability(G=1.0, lam=0.01, clock=75, t0=25.0)
    1.0
    """
    return G / (lam * (clock + t0))


def theta_stability(G: float, lam: float, clock: int, t0: float, kappa: float) -> float:
    """‖θ_T − θ̃_T‖ ≤ (1 + 2κ)·G/(λ(T + t0)), whatever the window does: θ stays within κGη_T of a.

    >>> theta_stability(G=1.0, lam=0.01, clock=75, t0=25.0, kappa=1.0)
    3.0
    """
    return (1.0 + 2.0 * kappa) * stability(G, lam, clock, t0)


def rounding(clock: int, t0: float, d: int = WIDE) -> float:
    """Return how far doubles can take two anchors apart beyond Theorem A, as a share of its bound (theory 3.7).

    >>> rounding(10_000, 25.0) < 1e-6 < rounding(1_000_000, 25.0) < 3e-4
    True
    """
    s = clock + t0
    return LONGEST * 2.0**-53 * s * (s + 23.0 + 2.1 * max(d, WIDE) * t0)


def sensitivity(G: float, lam: float, clock: int, t0: float, unlearner: Unlearner, d: int = WIDE) -> float:
    """S = 2G/(λ(T + t0)), influence and negative step (Theorem B); passive takes no step: S = G/(λ(T + t0)).

    Long streams pay for rounding as well, beyond the `odometer.ROUNDING` that every sigma has.

    >>> sensitivity(1.0, 0.01, 75, 25.0, "symmetric"), sensitivity(1.0, 0.01, 75, 25.0, "passive")
    (2.0, 1.0)
    """
    rounded = max(1.0, 1.0 + rounding(clock, t0, d) - ROUNDING)
    return _displacements(unlearner) * stability(G, lam, clock, t0) * rounded


def comparator_norm(mean_zero_loss: float, lam: float) -> float:
    """‖w*‖ ≤ √(mean ℓ(0, y)/λ) for w*, the minimiser of Σ f_t.

    Proof: the mean f of the f_t is λ-strongly convex and w* its minimiser, so f(0) ≥ f(w*) + (λ/2)‖w*‖². Since ℓ ≥ 0,
    f(w*) ≥ (λ/2)‖w*‖² as well. Hence mean ℓ(0, y) = f(0) ≥ λ‖w*‖²; for logistic loss it is ln 2. ∎
    It bounds no comparator but the minimiser.

    >>> round(comparator_norm(1.0, lam=0.01), 9)
    10.0
    """
    return math.sqrt(mean_zero_loss / lam)


def regret_bound(anchor_sum: float, excess: float, jump_sum: float, M: float, norm: float) -> float:
    """Σ f_t(θ_t) − f_t(w) ≤ ½Ση_t‖∇f_t(a_t)‖² + (M/2)‖w‖² + Σ(f_t(θ_t) − f_t(a_t)) + jumps: Theorem C.

    `norm` is ‖w‖ or more, `anchor_sum` the first sum and `excess` the third as they happened, `jump_sum` the
    sum of every delete's `jump_regret`.

    >>> regret_bound(anchor_sum=80.0, excess=-5.0, jump_sum=0.0, M=0.25, norm=10.0)
    87.5
    """
    return anchor_sum + M / 2.0 * norm**2 + excess + jump_sum


def jump_regret(lam: float, clock: int, t0: float, distance: float, jump: float) -> float:
    """(λ(T + t0)/2)·(2‖a − w‖·‖δ‖ + ‖δ‖²): what a delete adds whose realised jump δ has length `jump`.

    >>> jump_regret(lam=0.01, clock=75, t0=25.0, distance=10.0, jump=2.0)
    22.0
    """
    return lam * (clock + t0) / 2.0 * (2.0 * distance * jump + jump**2)


def noise_regret(G: float, lam: float, clock: int, t0: float, d: int, rho: float, unlearner: Unlearner) -> float:
    """(λ(T + t0)/2)·σ²·d with σ² = S²/(2ρ): the noise's part of a delete's expected regret.

    Symmetric, that is G²d/(λ(T + t0)ρ); passive, a quarter of it.

    >>> noise_regret(1.0, 0.01, 75, 25.0, d=10, rho=0.5, unlearner="symmetric")
    20.0
    """
    variance = sensitivity(G, lam, clock, t0, unlearner, d) ** 2 / (2.0 * rho)
    return lam * (clock + t0) / 2.0 * variance * d


def expected_jump_regret(
    G: float, lam: float, clock: int, t0: float, d: int, rho: float, B: float, unlearner: Unlearner
) -> float:
    """2G·B + G²/(λ(T + t0)) + `noise_regret`: a bound on the expectation of `jump_regret`, for ‖a − w‖ ≤ 2B.

    The first two terms are the negative step's, at most G/(λ(T + t0)) long; passive has only the third.

    >>> expected_jump_regret(1.0, 0.01, 75, 25.0, d=10, rho=0.5, B=5.0, unlearner="symmetric")
    31.0
    """
    noise = noise_regret(G, lam, clock, t0, d, rho, unlearner)
    return noise if unlearner == "passive" else 2.0 * G * B + G**2 / (lam * (clock + t0)) + noise


def noise_loss(
    G: float, M: float, lam: float, clock: int, t0: float, d: int, rho: float, unlearner: Unlearner
) -> float:
    """½σ²(M + λd): what the noise of one deletion costs the very next prediction, in expectation.

    Proof: f(θ + η) ≤ f(θ) + ∇f(θ)ᵀη + (M/2)(xᵀη)² + (λ/2)‖η‖², and E(xᵀη)² = σ²‖x‖² ≤ σ², E‖η‖² = σ²d. ∎

    >>> noise_loss(1.0, 0.25, 0.01, 75, 25.0, d=25, rho=0.5, unlearner="symmetric")
    1.0
    """
    variance = sensitivity(G, lam, clock, t0, unlearner, d) ** 2 / (2.0 * rho)
    return 0.5 * variance * (M + lam * d)


def capacity(
    clock: int, d: int, G: float, M: float, lam: float, gamma: float, rho_tot: float, unlearner: Unlearner
) -> float:
    """m* = (2/S)·√(γ·ρ_tot/(M + λd)): so many deletions, ρ_tot/m* each, cost a prediction γ in expectation.

    With S = 2G/(λ(T + t0)) that is (λ(T + t0)/G)·√(γρ_tot/(M + λd)), twice as many when passive; callers round down.
    Theory 3.6 derives it; `regret_capacity` has λd where this has M + λd. The two agree for λd ≫ M;
    for few features the other one promises far too much, because the data bend the loss more than the ridge does:

        synthetic, d = 4, λ = 0.001, 19,800 rows: log loss .482; after 16 deletions (`regret_capacity`) 2.201, after 2
        (`capacity`) .528. Elec2, d = 7, λ = 0.01: .549; after 81: .759, after 38: .596. Adult, d = 109, λ = 0.01:
        .412; after 14: .426, after 13: .423.

    >>> [round(capacity(n, d, 1.0, 0.25, 0.01, 0.1, 0.028, "symmetric"), 1) for n, d in ((29_304, 109), (19_800, 4))]
    [13.4, 19.5]
    """
    return 2.0 / sensitivity(G, lam, clock, M / lam, unlearner, d) * math.sqrt(gamma * rho_tot / (M + lam * d))


def regret_capacity(
    clock: int, d: int, G: float, lam: float, gamma: float, rho_tot: float, unlearner: Unlearner
) -> float:
    """(N/G)·√(γλρ_tot/d), twice as many when passive (theory 3.6). Nothing is enforced by it; see `capacity`.

    So many deletions at clock N that spend ρ_tot/m each have a noise regret of at most γN.

    >>> round(regret_capacity(90_000, 55, 1.0, 0.01, 0.1, 0.028, "symmetric"), 1)
    64.2
    """
    return 2.0 / _displacements(unlearner) * clock / G * math.sqrt(gamma * lam * rho_tot / d)


def split(
    clock: int,
    d: int,
    G: float,
    M: float,
    lam: float,
    gamma: float,
    rho_tot_units: int,
    unlearner: Unlearner,
    m: int | None = None,
) -> int:
    """ρ_s(T) = ρ_tot/⌊m*(T)⌋ in units, or ρ_tot/m if m is fixed: what a deletion at this clock spends.

    0 means that it cannot be paid (m*(T) < 1, or less than one unit each): serve it by an exact retrain.

    With the live split the `noise_loss` of all deletions of an epoch adds up to γ at most, so a prediction never
    costs more, whenever they come. Proof: one at clock T_i spends ρ_tot/⌊m_i⌋ and costs γ⌊m_i⌋/m_i² ≤ γ/⌊m_i⌋, with
    m_i = m*(T_i). The cap says Σ 1/⌊m_i⌋ ≤ 1. ∎ Their noise regret is then at most γ(T + t0). Rounding ρ_s down to
    whole units weakens it by a factor (1 − m*(T)/rho_tot_units)⁻¹. A fixed m promises it while m ≤ m*(T).

    >>> [split(clock, 55, 1.0, 0.25, 0.01, 0.1, 28 * 10**9, "symmetric") for clock in (1_000, 90_000)]
    [0, 528301886]
    """
    if m is None:
        m = math.floor(capacity(clock, d, G, M, lam, gamma, rho_tot_units / UNITS, unlearner))
    elif m < 1:
        raise InvalidParameter(f"m = {m}: a budget cannot be split among fewer than one deletion.")
    return rho_tot_units // m if m > 0 else 0


def rounded_up(bound: float) -> float:
    """Return a bound with two significant digits, for whoever watches: its last digits would tell of single rows.

    >>> rounded_up(63.78), rounded_up(15506.6), rounded_up(-0.123), rounded_up(0.0)
    (64.0, 16000.0, -0.12, 0.0)
    """
    if bound == 0.0 or not math.isfinite(bound):
        return bound
    digits = 1 - math.floor(math.log10(abs(bound)))
    return float(round(math.ceil(bound * 10.0**digits) / 10.0**digits, max(digits, 0)))


def gate(regret_bound: float, next_deletion_regret: float, gamma: float, n: int) -> bool:
    """Tell whether predictions may open: regret_bound(N) + next deletion's regret ≤ γN (theory 3.6).

    >>> gate(80.0, 10.0, 0.1, 899), gate(80.0, 10.0, 0.1, 900)
    (False, True)
    """
    return n >= 1 and regret_bound + next_deletion_regret <= gamma * n


def samples_needed(regret_bound: float, next_deletion_regret: float, gamma: float) -> int:
    """Return the smallest N that opens the gate if the regret stays what it is; it grows: N is an estimate.

    >>> samples_needed(80.0, 10.0, 0.1)
    900
    """
    return max(1, math.ceil((regret_bound + next_deletion_regret) / gamma))


def _displacements(unlearner: Unlearner) -> int:
    """Return how many lengths G/(λ(T + t0)) the noise must hide: the row's influence, the negative step."""
    if unlearner not in ("symmetric", "passive"):
        raise InvalidParameter(f"unlearner = {unlearner!r} is neither 'symmetric' nor 'passive'.")
    return 2 if unlearner == "symmetric" else 1
