"""The exact pair: learn by adding integers, unlearn by subtracting the same integers (EXACT.md, 1 to 3).

Logistic regression by one Newton step from a frozen reference w0 needs nothing of the rows but three sums at w0:

    n = Σ 1        g = Σ ℓ'(w0ᵀx_i, y_i)·x_i        H = Σ ℓ''(w0ᵀx_i)·x_i x_iᵀ          `sums`
    w = w0 − (H + Λ)⁻¹ (g + Λ·w0)                                                      `solve`

All terms are integers, so the sums are those of the rows that are there, bit for bit, whatever the order, the batches,
the number of processes and the processor. What is not a sum is frozen: `Reference`, chosen by `refer` from a few
reference rows with the same two functions.

    x_q as in `encode`;   z_q = Σ_j w0_q[j]·x_q[j],   w0_q = w0·2^h
    logistic   (p, c) = TABLE[clamp(z_q >> h)]         u = p − (2^14 if y else 0)
    squared    u = (z_q >> h) − y_q,  c = 1
    huber      r = (z_q >> h) − y_q,  c = min(2^8, max(1, 2^8·clip div |r|)),  u = c·r
    classes    p and c of every class and every pair of classes: `classes`
    g += s·u·x_q    H += s·c·x_q x_qᵀ    n += 1        s the row's weight in 16ths, 1 without; delete: the same with −

A coordinate is at most 2^12, and 2^13 in a curve, so a product is at most 2^34. A block has at most 2^14 rows, 2^11
with weights, so float64 holds every sum of it exactly, and the matrix product may be any BLAS's; blocks are added up as
int64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from . import classes
from .encode import TARGET_CLAMP, UNIT, WIDER, Encoding, Matrix, Texts, Vector, fit
from .limits import LARGEST_CLIP
from .reference import Integers, Reference, share
from .sums import Sums, nothing
from .weights import WEIGHT_UNIT, balanced, counted, whole_weights

RIDGE: Final = 10.0  # Λ
INTERCEPT_RIDGE: Final = 0.1
EASE: Final = 10.0  # the ridge is divided by it where it holds a model back
HELD_BACK: Final = 0.1  # which it does if so large a share of Σp(1 − p) would be spared (EXACT.md, 7),
SQUARES_HELD_BACK: Final = 0.05  # or so large a share of a regression's squared error
CUT_OFF: Final = 0.1  # the clamp is widened if so large a share would be spared by that, as far as can be told:
ENOUGH: Final = 2  # reference rows for every coordinate
NOTHING_LEFT: Final = 1e12  # a ridge that leaves nothing of a weight
REACH: Final = 1.0  # a step moves scores by no more than this, in the mean
P_UNIT: Final = classes.P_UNIT
C_UNIT: Final = 2**10
TABLE_STEP: Final = 2**10  # entries per unit of z, for z in [−16, 16]
TABLE_HALF: Final = 16 * TABLE_STEP
ROUNDING: Final = 1 / 16  # w0 on its grid of 2^−h moves a score by about so much (EXACT.md, 7)
FINE: Final = 12  # w of a step towards the reference is a multiple of 2^−12
STEPS: Final = 15
STILL: Final = 2 ** (FINE - 9)  # a step that moves no weight by more than 2^−9 is the last
BLOCK: Final = 2**14
WEIGHTED_BLOCK: Final = 2**11
CACHED: Final = 2**16  # numbers of a block that stay near the processor, but at least
SMALLEST: Final = 2**10  # rows: adding a block to the others takes time too
PANEL: Final = 48  # rows of H at a time
HUBER_UNIT: Final = 2**8
LARGEST: Final = 2**17  # of a regression's residual, in units of 2^−10 deviations
REFERENCE_ROWS: Final = 10_000


def _table() -> tuple[Vector, Vector]:
    """p·2^14 and max(1, p(1−p)·2^10) for z = −16 … 16.

    No entry lies nearer than 1e-6 to a half, so every exp gives the same integers; a test has their checksum.
    """
    z = np.arange(-TABLE_HALF, TABLE_HALF + 1) / TABLE_STEP
    p = 1.0 / (1.0 + np.exp(-z))
    return np.floor(p * P_UNIT + 0.5), np.maximum(1.0, np.floor(p * (1.0 - p) * C_UNIT + 0.5))


TABLE_P, TABLE_C = _table()


def sums(
    reference: Reference,
    x: Matrix,
    y: Vector,
    c: Texts = (),
    sign: Vector | None = None,
    weight: Vector | None = None,
) -> Sums:
    """Add up the terms of rows; `sign` is +1 for a row to learn and −1 for one to unlearn.

    `y` is above 0 for yes, a number, or the place of a class among the labels, −1 if it has none there.

    >>> reference = Reference(Encoding(()), "logistic", np.zeros((1, 1), np.int64), 0)
    >>> part = sums(reference, np.zeros((3, 0)), np.array([1.0, 0.0, 1.0]))
    >>> part.n, part.g.tolist(), part.H.tolist()
    (3, [[-8388608]], [[[805306368]]])
    """
    room = np.empty((min(len(x), _block(reference)), reference.d))
    return _total(reference, _encoded(reference, x, y, c, sign, weight, room))


Block = tuple[Matrix, Vector, Vector, npt.NDArray[Any], npt.NDArray[Any], Vector | None]


def _encoded(
    reference: Reference,
    x: Matrix,
    y: Vector,
    c: Texts,
    sign: Vector | None = None,
    weight: Vector | None = None,
    room: Matrix | None = None,
) -> Iterator[Block]:
    for block in _blocks(len(x), reference):
        X, outside, unknown = reference.encoding.encode(x[block], c[block] if len(c) else (), room)
        s = np.ones(len(X)) if sign is None else sign[block]
        some = None if weight is None else weight[block]
        yield X, _targets(reference, y[block]), s, outside, unknown, some


def _total(reference: Reference, blocks: Iterable[Block]) -> Sums:
    total = nothing(reference)
    for block in blocks:
        total += _add(reference, *block)
    return total


def _block(reference: Reference) -> int:
    return min(WEIGHTED_BLOCK if reference.weighted else BLOCK, max(SMALLEST, CACHED // reference.d))


def _blocks(n: int, reference: Reference) -> Iterator[slice]:
    size = _block(reference)
    return (slice(begin, begin + size) for begin in range(0, n, size))


def _targets(reference: Reference, y: Vector) -> Vector:
    """Labels stay what they are (a class's number, or anything above 0 for yes); a number is quantised."""
    return reference.encoding.encode_target(y) if reference.regression else y


def _add(
    reference: Reference,
    X: Matrix,
    y: Vector,
    sign: Vector,
    outside: npt.NDArray[Any],
    unknown: npt.NDArray[Any],
    weight: Vector | None = None,
) -> Sums:
    """Σ of the terms of a block of encoded rows."""
    s = sign * _weight(reference, y, weight)
    z = _scores(reference, X)
    if reference.regression:
        outside = outside | (np.abs(y) == TARGET_CLAMP * UNIT)
    counts = [sign.sum(), sign @ outside, sign @ unknown, 0.0]
    if reference.labels:
        counts[3:] = [sign @ (y < 0), *(sign @ (y == k) for k in range(len(reference.labels)))]
        p = classes.probabilities(z)
        yes = y[:, None] == np.arange(len(reference.labels))
        g = (X.T @ ((p - P_UNIT * yes) * s[:, None])).T
        pairs = classes.curvatures(p, together=reference.together)
        blocks = {pair: _weighted(X, c * s) for pair, c in pairs.items()}
        H = [classes.arranged(len(reference.labels), blocks)] if reference.together else list(blocks.values())
        return Sums(_whole(counts), _whole(g.reshape(len(H), -1)), _whole(H))
    u, c = _terms(reference, z[:, 0], y if reference.regression else y > 0)
    if reference.regression:
        counts[3] = s @ (y * y)
    return Sums(_whole(counts), _whole([X.T @ (u * s)]), _whole([_weighted(X, c * s)]))


def _weighted(X: Matrix, weight: Vector) -> Matrix:
    """Σ weight·x xᵀ, each number once: a panel of columns times all columns from its own on."""
    d = X.shape[1]
    H, heavy = np.empty((d, d)), X * weight[:, None]
    for begin in range(0, d, PANEL):
        end = min(begin + PANEL, d)
        H[begin:end, begin:] = heavy[:, begin:end].T @ X[:, begin:]
        H[end:, begin:end] = H[begin:end, end:].T
    return H


def _whole(parts: Sequence[Any]) -> Integers:
    return np.array(parts, float).astype(np.int64)


def _terms(reference: Reference, z: Vector, y: npt.NDArray[Any]) -> tuple[Vector, Vector]:
    """ℓ' and ℓ'' of every row at w0, as integers."""
    if not reference.regression:
        place = np.clip(z, -TABLE_HALF, TABLE_HALF).astype(np.intp) + TABLE_HALF
        return TABLE_P[place] - P_UNIT * y, TABLE_C[place]
    u = np.clip(z - y, -LARGEST, LARGEST)
    if reference.loss == "squared":
        return u, np.ones(len(u))
    c = np.clip(np.floor(HUBER_UNIT * reference.clip / np.maximum(np.abs(u), 1.0)), 1.0, HUBER_UNIT)
    return c * u, c


def _scores(reference: Reference, X: Matrix) -> Matrix:
    """z_q >> h, one column per class."""
    z: Matrix = np.floor(X @ reference.w0.T.astype(float) / 2**reference.h)
    return z


def _weight(reference: Reference, y: Vector, weight: Vector | None) -> Vector | float:
    """s of every row; a row whose class has no place counts, and adds nothing else."""
    there: Vector | float = (y >= 0.0).astype(float) if reference.labels else 1.0
    if not reference.weighted:
        return there
    return there * whole_weights(weight, y, reference.class_weights, has_labels=bool(reference.labels))


def gradients(reference: Reference, x: Matrix, y: Vector, c: Texts = (), weight: Vector | None = None) -> Integers:
    """Return every row's own part of g, of the first class: by it a row is found that was added once too often."""
    parts = [np.zeros((0, reference.d), np.int64)]
    for X, target, _, _, _, some in _encoded(reference, x, y, c, weight=weight):
        z = _scores(reference, X)
        if reference.labels:
            u = classes.probabilities(z)[:, 0] - P_UNIT * (target == 0)
        else:
            u, _ = _terms(reference, z[:, 0], target if reference.regression else target > 0)
        parts.append((X * (u * _weight(reference, target, some))[:, None]).astype(np.int64))
    return np.concatenate(parts)


def units(reference: Reference) -> tuple[float, float]:
    """What g and H are counted in."""
    weight = WEIGHT_UNIT if reference.weighted else 1
    g, H = {
        "squared": (UNIT**2, UNIT**2),
        "huber": (HUBER_UNIT * UNIT**2, HUBER_UNIT * UNIT**2),
    }.get(reference.loss, (P_UNIT * UNIT, C_UNIT * UNIT**2))
    return float(weight * g), float(weight * H)


def penalties(reference: Reference, ridge: float) -> Vector:
    """Λ, the ridge of every coordinate. Its twin is mempair.penalties in sql/78_verify.sql."""
    d, ridge = reference.d, ridge / EASE if reference.eased else ridge
    penalty = np.full(d, float(ridge))  # a whole number would make the intercept's 0
    penalty[0] = min(INTERCEPT_RIDGE, ridge)
    if reference.wide:  # a slope by a scale that is 4 times larger is 4 times larger itself
        penalty[[kind in ("number", "knot") for kind, _, _ in reference.encoding.names]] /= WIDER**2
    return penalty


def solve(reference: Reference, total: Sums, ridge: float = RIDGE, reach: float = REACH) -> Matrix:
    """w = w0 − (H + Λ)⁻¹ (g + Λ·w0), one row per class. The only floating point: what is stored is the integers.

    Newton's step is as good as the curvature at w0 is true. Where it moves scores by more than `reach` in the mean, it
    is cut to that: 7 new yeses among 3,000 rows that w0 held for a certain no moved them by 3, and the next batch was
    served with a log loss of 3.5 instead of 0.2 (EXACT.md, 7). A refresh is due then, and takes the rest of the way.

    Λ is diagonal: the ridge, and next to nothing for the intercept, which says how often there is a yes. With the ridge
    on it too a rare yes was foretold too often: 1.5 % of 1,000 customers, log loss .090 instead of .072 (EXACT.md, 7).
    """
    g_unit, H_unit = units(reference)
    penalty = penalties(reference, ridge)
    _, matrices, width = reference.shape
    w0 = (reference.w0 * 2.0**-reference.h).reshape(matrices, width)
    penalty = np.tile(penalty, width // reference.d)
    w, part = np.empty_like(w0), classes.ALONE if matrices > 1 else 1.0
    for k in range(matrices):
        A = total.H[k] / H_unit
        A[np.diag_indices_from(A)] += penalty
        w[k] = w0[k] - part * np.linalg.solve(A, total.g[k] / g_unit + penalty * w0[k])
    if not reference.regression:
        w = w0 + (w - w0) * np.minimum(1.0, reach / np.maximum(moved(reference, total, w), 1e-300))[:, None]
    return w.reshape(reference.w0.shape)


def refer(
    x: Matrix,
    y: Vector,
    c: Texts = (),
    *,
    weight: Vector | None = None,
    loss: str = "logistic",
    labels: Sequence[str] = (),
    balance: bool = False,
    curves: int = 0,
    times: Collection[int] = (),
    clip: float = 1.0,
    declared: Sequence[Sequence[str] | None] = (),
    ridge: float = RIDGE,
) -> Reference:
    """Choose the reference from the reference rows, whatever their order.

        w = 0; repeat until it stands still: w = round(solve(sums(w, R)), 2^−12);  w0 = round(w, 2^−h)
        2^−h ≈ √12/16/rms‖x‖: rounding moves a score by about 1/16

    With `labels` y is the place of a row's class among them. With `balance` the classes' weights are chosen so that
    each counts alike. `times` are the places of numbers that are points in time. A regression by squared loss needs no
    reference weights: w0 = 0. By huber's it is least squares with weights from the residuals at w0; Newton's own step
    would overshoot where most rows have no curvature.
    """
    encoding = fit(x, c, y, regression=loss in ("squared", "huber"), curves=curves, declared=declared)
    start = begin(
        encoding,
        loss=loss,
        labels=labels,
        clip=clip,
        weighted=weight is not None or balance,
        class_weights=balanced(counted(y if labels else y > 0, len(labels) or 2)) if balance else (),
    )

    @lru_cache(1)
    def encoded(encoding: Encoding) -> list[Block]:
        return list(_encoded(replace(start, encoding=encoding), x, y, c, weight=weight))

    return settle(start, lambda reference: _total(reference, encoded(reference.encoding)), ridge, times)


def begin(
    encoding: Encoding,
    *,
    loss: str,
    labels: Sequence[str] = (),
    clip: float = 1.0,
    weighted: bool = False,
    class_weights: tuple[int, ...] = (),
) -> Reference:
    """Return the constants before there are reference weights: w0 = 0."""
    zero = np.zeros((len(labels) or 1, encoding.d), np.int64)
    cut = int(np.floor(min(clip, LARGEST_CLIP) * UNIT + 0.5)) if loss == "huber" else 0
    kind = Reference(encoding, loss, zero, FINE, clip=cut, labels=tuple(labels))
    return replace(kind, weighted=weighted, class_weights=class_weights)


def settle(
    start: Reference, total: Callable[[Reference], Sums], ridge: float = RIDGE, times: Collection[int] = ()
) -> Reference:
    """Find w0 from sums over the reference rows alone, which may so be on several machines (EXACT.md, 3).

    `total` adds the reference rows up under the constants that it is given. A ridge below 10 holds here too: from a w0
    that was held back by 10 one step does not arrive where a small ridge leads (EXACT.md, 7). The default itself is
    eased where it holds the model back: where a text, or straight lines, nearly decide the target. The numbers of a
    regression are clamped at ±16 scales where ±4 hold it back. And points in time bend only where that pays: the next
    rows lie where no row has been, and a bend leads them anywhere.
    """
    at_zero = total(begin(start.encoding, loss="squared"))  # c = 1, so that the trace of H is Σ‖x_q‖²
    if start.regression:
        start, at_zero = _held_back_least(start, total, at_zero, ridge)
    n = at_zero.n
    start = replace(start, outside=share(at_zero.outside, n), unknown=share(at_zero.unknown, n))
    squared = start.loss == "squared"
    w, last = (start, None) if squared else _stand_still(start, total, min(RIDGE, ridge))
    bends = [i for i, (kind, j, _) in enumerate(start.encoding.names) if kind == "knot" and j in times]
    if bends:
        # A regression by least squares, which needs no reference weights, whatever its loss.
        judged = (begin(start.encoding, loss="squared"), at_zero) if last is None or w.regression else last
        penalty = penalties(w, ridge)
        straight = penalty.copy()
        straight[bends] = NOTHING_LEFT
        if spared(*judged, straight, penalty) <= 0.0:
            encoding = start.encoding.straightened(times)
            zero = np.zeros((len(start.w0), encoding.d), np.int64)
            return settle(replace(start, encoding=encoding, w0=zero), total, ridge)
    if last is None:
        return replace(start, h=0)
    if ridge == RIDGE and not w.regression:
        eased = replace(w, eased=True)
        if spared(*last, penalties(w, ridge), penalties(eased, ridge)) > HELD_BACK:
            w, _ = _stand_still(eased, total, ridge)
    h = grid(int(np.trace(at_zero.H[0])), n)
    return replace(w, w0=np.floor(w.w0 * 2.0 ** (h - FINE) + 0.5).astype(np.int64), h=h)


def _stand_still(
    w: Reference, total: Callable[[Reference], Sums], ridge: float
) -> tuple[Reference, tuple[Reference, Sums]]:
    """Return where Newton's method stands still, and from where with which sums its last step came."""
    for _ in range(STEPS):
        last = w, total(w)
        # Newton's whole step of several classes, from far away, may lead further away: with seven of CoverType it did.
        reach = REACH if w.labels else np.inf
        step = np.floor(solve(*last, ridge, reach) * 2.0**FINE + 0.5).astype(np.int64)
        still = np.abs(step - w.w0).max() <= STILL
        w = replace(w, w0=step)
        if still:
            break
    return w, last


def spared(reference: Reference, total: Sums, penalty: Vector, other: Vector) -> float:
    """Foretell the loss that ridges `other` would spare beside `penalty`, as a share of Σp(1 − p): Akaike's criterion.

    To all rows' loss, which is a parabola in w by the sums, d_eff = tr A⁻¹H is added: what new rows cost more. Of a
    regression by squares both are counted in those that are left with `other`, and the share is one of them.
    """
    g_unit, H_unit = units(reference)
    _, matrices, width = reference.shape
    w0 = (reference.w0 * 2.0**-reference.h).reshape(matrices, width)
    loss, effective = np.zeros(2), np.zeros(2)
    for k in range(matrices):
        H, g = total.H[k] / H_unit, total.g[k] / g_unit
        for i, ridges in enumerate((penalty, other)):
            ridge = np.tile(ridges, width // reference.d)
            inverse = np.linalg.inv(H + np.diag(ridge))
            step = -inverse @ (g + ridge * w0[k])
            loss[i] += g @ step + step @ H @ step / 2.0
            effective[i] += (inverse * H).sum()
    if reference.regression:
        squares = max(float(total.fourth / g_unit + 2.0 * loss[1]), 0.0)
        unit, whole = squares / max(total.n - effective[1], 1e-9), squares / 2.0
    else:
        unit, whole = 1.0, np.diagonal(total.H, axis1=1, axis2=2)[:, :: reference.d].sum() / H_unit
    before, after = loss + unit * effective
    return float((before - after) / max(whole, 1e-9))


def _held_back_least(
    start: Reference, total: Callable[[Reference], Sums], at_zero: Sums, ridge: float
) -> tuple[Reference, Sums]:
    """Ease a regression's ridge, and clamp its numbers farther out, where that lowers the error of new rows."""

    def judged(reference: Reference, plain: Sums) -> tuple[float, Reference, Sums]:
        squares = replace(reference, loss="squared")
        sums = total(squares) if reference.weighted else plain
        ridges = (penalties(replace(squares, eased=eased), ridge) for eased in (False, True))
        error, eased = (foretold(squares, sums, penalty) for penalty in ridges)
        pays = ridge == RIDGE and eased < (1.0 - SQUARES_HELD_BACK) * error
        return (eased if pays else error), replace(reference, eased=pays), plain

    narrow = judged(start, at_zero)
    if start.wide or at_zero.outside == 0 or at_zero.n < ENOUGH * start.d:
        return narrow[1:]
    wider = replace(start, encoding=start.encoding.scaled(WIDER), wide=True)
    wide = judged(wider, total(begin(wider.encoding, loss="squared")))
    return (wide if wide[0] < (1.0 - CUT_OFF) * narrow[0] else narrow)[1:]


def foretold(reference: Reference, total: Sums, penalty: Vector) -> float:
    """Foretell the squared error of new rows, by generalised cross-validation: Σr²·(n/(n − d_eff))².

    With the variance that the target's rounding has, so that 0 is not compared with 0.
    """
    unit, _ = units(reference)
    H, g = total.H[0] / unit, total.g[0] / unit
    inverse = np.linalg.inv(H + np.diag(penalty))
    w = -inverse @ g
    squares = max(float(total.fourth / unit + 2.0 * g @ w + w @ H @ w), 0.0) + total.n / (12.0 * UNIT**2)
    freedom = max(1.0 - float((inverse * H).sum()) / total.n, 1e-9)
    return squares / freedom**2


def grid(squares: int, n: int) -> int:
    """h, from the integer Σ‖x_q‖² of the reference rows."""
    rms = np.sqrt(squares / n) / UNIT
    return int(np.clip(np.floor(np.log2(rms / (ROUNDING * np.sqrt(12.0))) + 0.5), 0, FINE))


def moved(reference: Reference, total: Sums, w: Matrix) -> Vector:
    """√((w − w0)ᵀH(w − w0)/H₀₀) of every matrix: by how much the model moves scores from those of its reference.

    H₀₀ = Σc, the intercept's (of all classes that are solved together), so this is a mean over rows, each counted by
    its curvature, whatever the share of yes.
    """
    away = w.reshape(total.g.shape) - (reference.w0 * 2.0**-reference.h).reshape(total.g.shape)
    squares = np.einsum("ki,kij,kj->k", away, total.H.astype(float), away)
    intercepts = np.diagonal(total.H, axis1=1, axis2=2)[:, :: reference.d].sum(axis=1)
    mean: Vector = np.sqrt(np.maximum(squares, 0.0) / np.maximum(intercepts, 1))
    return mean


def predict(reference: Reference, w: Matrix, x: Matrix, c: Texts = ()) -> Matrix:
    """Return what is served: probabilities of one class or of all, or values; encoded exactly as learned rows are."""
    z = np.empty((len(x), len(w)))
    for block in _blocks(len(x), reference):
        z[block] = reference.encoding.encode(x[block], c[block] if len(c) else ())[0] @ (w.T / UNIT)
    if reference.regression:
        target = reference.encoding.target
        return z * target.scale + target.centre
    several = bool(reference.labels)
    p: Matrix = np.exp(z - z.max(axis=1, keepdims=True) if several else -np.logaddexp(0.0, -z))
    return p / p.sum(axis=1, keepdims=True) if several else p
