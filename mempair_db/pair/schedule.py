"""Step sizes: the factor in front of the quasi-Newton direction.

NEWTON           1/(t + t0)        anchored mode; with t0 = 0 the paper's 1/t
STRONGLY_CONVEX  1/(λ(t + t0))     Theorem 1, and the anchor's own η_t
ADAPTIVE         D/√S_t            AdaGrad style, S_t = Σ‖g_s‖²
CURVATURE        1/Σ λ_s           time-varying curvature λ_s = gᵀ∇²f_s g/gᵀg observed at each step
"""

from __future__ import annotations

import math
from typing import Final

from .compiled import inlined

NEWTON: Final = 0
STRONGLY_CONVEX: Final = 1
ADAPTIVE: Final = 2
CURVATURE: Final = 3

CODES: Final = {
    "newton": NEWTON,
    "strongly_convex": STRONGLY_CONVEX,
    "adaptive": ADAPTIVE,
    "curvature": CURVATURE,
}


@inlined
def step_size(
    schedule: int,
    clock: float,
    t0: float,
    lam: float,
    diameter: float,
    gradient_sum: float,
    curvature_sum: float,
) -> float:
    """Return the step size at tick `clock`; the two sums include the current step.

    >>> step_size(NEWTON, 4.0, 0.0, 0.1, 1.0, 0.0, 0.0), step_size(ADAPTIVE, 4.0, 0.0, 0.1, 2.0, 16.0, 0.0)
    (0.25, 0.5)
    """
    if schedule == NEWTON:
        return 1.0 / (clock + t0)
    if schedule == STRONGLY_CONVEX:
        return 1.0 / (lam * (clock + t0))
    if schedule == ADAPTIVE:
        return diameter / math.sqrt(gradient_sum) if gradient_sum > 0.0 else 0.0
    return 1.0 / curvature_sum if curvature_sum > 0.0 else 0.0
