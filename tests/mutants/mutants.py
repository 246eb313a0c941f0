"""Small wrongs in the lines that carry the guarantee, and the tests that must notice each of them.

Every mutant is one replacement in one file. `run.py` applies them one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOISE = ("tests/unit/test_noise.py",)
KNOWN = ("tests/unit/test_known_noise.py",)
STEP = (*KNOWN, "tests/unit/test_step.py")
FORGETTING = (*STEP, "tests/property/test_forgetting.py")
ODOMETER = ("tests/unit/test_odometer.py", "tests/property/test_odometer_properties.py")
MODEL = (*KNOWN, "tests/unit/test_model.py")
BOUNDS = ("tests/unit/test_bounds.py",)
EXACT = ("tests/property/test_exact.py", "tests/unit/test_encode.py", "tests/unit/test_exact.py")
TRACES = ("tests/integration/test_traces.py", "tests/integration/test_verify.py")
CERTIFICATE = ("tests/integration/offline/test_certificate.py",)


@dataclass(frozen=True)
class Mutant:
    """A wrong that somebody could make, and where it must be noticed."""

    says: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""  # why it makes no difference, if it does not


PAIR: Final = "mempair_db/pair/"
WORKER: Final = "mempair_db/worker/"

MUTANTS: Final = (
    # -- the budget --
    Mutant(
        "the cap is rounded up",
        PAIR + "odometer.py",
        "return numerator * UNITS // denominator",
        "return -(-numerator * UNITS // denominator)",
        ODOMETER,
    ),
    Mutant(
        "one unit more than the cap",
        PAIR + "odometer.py",
        "return units <= self.remaining",
        "return units <= self.remaining + 1",
        ODOMETER,
    ),
    Mutant(
        "a deletion is not counted",
        PAIR + "odometer.py",
        "spent=self.spent + units",
        "spent=self.spent",
        ODOMETER,
    ),
    Mutant(
        "the largest deletion is forgotten",
        PAIR + "odometer.py",
        "largest=max(self.largest, units)",
        "largest=self.largest",
        ODOMETER,
    ),
    Mutant(
        "δ is not rounded up",
        PAIR + "odometer.py",
        "return near * (1.0 + 1e-13) - far",
        "return near * (1.0 - 1e-9) - far",
        ODOMETER,
    ),
    Mutant(
        "S is not inflated for rounding",
        PAIR + "odometer.py",
        "ROUNDING: Final = 1e-6",
        "ROUNDING: Final = 0.0",
        (*ODOMETER, *KNOWN),
    ),
    Mutant(
        "a split pays one unit more",
        PAIR + "bounds.py",
        "return rho_tot_units // m if m > 0 else 0",
        "return rho_tot_units // m + 1 if m > 0 else 0",
        (*BOUNDS, *KNOWN),
    ),
    Mutant(
        "capacity counts twice",
        PAIR + "bounds.py",
        "return 2.0 / sensitivity(G, lam, clock, M / lam, unlearner, d) * math.sqrt",
        "return 4.0 / sensitivity(G, lam, clock, M / lam, unlearner, d) * math.sqrt",
        BOUNDS,
    ),
    Mutant(
        "the symmetric step is free",
        PAIR + "bounds.py",
        'return 2 if unlearner == "symmetric" else 1',
        "return 1",
        (*BOUNDS, *KNOWN),
    ),
    Mutant(
        "a deletion is not paid for",
        PAIR + "model.py",
        "self._odometer = self.odometer.spend(units)",
        "pass",
        KNOWN,
    ),
    Mutant(
        "deletions count as ticks when they are priced",
        PAIR + "model.py",
        "np.cumsum(ops != events.DELETE)",
        "np.cumsum(ops == ops)",
        MODEL,
    ),
    Mutant(
        "γ does not bind a fixed m",
        PAIR + "model.py",
        "if not split and loss > self.parameters.gamma:",
        "if False:",
        MODEL,
    ),
    Mutant(
        "a grid too coarse is used all the same",
        PAIR + "model.py",
        "return units if units and noise.is_fine(units, epoch.d) else 0",
        "return units",
        MODEL,
    ),
    # -- the noise --
    Mutant(
        "half the noise",
        PAIR + "noise.py",
        "return sensitivity * (1.0 + ROUNDING) /",
        "return 0.5 * sensitivity * (1.0 + ROUNDING) /",
        (*NOISE, *KNOWN),
    ),
    Mutant(
        "half the noise, in the kernel",
        PAIR + "step.py",
        "CUT) + noise[j])",
        "CUT) + 0.5 * noise[j])",
        STEP,
    ),
    Mutant(
        "the noise of a passive deletion for everyone",
        PAIR + "model.py",
        "return bounds.sensitivity(k.G, k.lam, clock, k.t0, self.parameters.unlearner, epoch.d)",
        'return bounds.sensitivity(k.G, k.lam, clock, k.t0, "passive", epoch.d)',
        MODEL,
    ),
    Mutant(
        "the noise of a later clock",
        PAIR + "model.py",
        "reach = [self._sensitivity(clock) for clock in clocks]",
        "reach = [self._sensitivity(clock + 10) for clock in clocks]",
        MODEL,
    ),
    Mutant(
        "one noise vector for all deletions of a batch",
        PAIR + "noise.py",
        "discrete_gaussian(len(grids) * d).reshape(-1, d)",
        "np.tile(discrete_gaussian(d), (len(grids), 1))",
        MODEL,
    ),
    Mutant(
        "one noise vector for all deletions, in the kernel",
        PAIR + "step.py",
        "noise[i], grid[i], scratch)",
        "noise[0], grid[i], scratch)",
        STEP,
    ),
    Mutant(
        "one grid for all deletions, in the kernel",
        PAIR + "step.py",
        "noise[i], grid[i], scratch)",
        "noise[i], grid[0], scratch)",
        STEP,
    ),
    Mutant(
        "deletions after an insert take the first noise again",
        PAIR + "events.py",
        "            first = last",
        "            first = 0",
        ("tests/property/test_kernel.py",),
    ),
    Mutant(
        "the anchor is not rounded",
        PAIR + "step.py",
        "min(max(np.rint(a[j] / grid), -CUT), CUT)",
        "a[j] / grid",
        FORGETTING,
    ),
    Mutant(
        "rounding is not paid for", PAIR + "noise.py", "APART: Final = 1.25", "APART: Final = 0.0", (*NOISE, *KNOWN)
    ),
    Mutant(
        "earlier roundings are forgotten",
        PAIR + "noise.py",
        "found.append(grid(S + rounded / (clock + t0), units, d))",
        "found.append(grid(S, units, d))",
        KNOWN,
    ),
    Mutant(
        "another acceptance",
        PAIR + "noise.py",
        "square = (np.abs(y) - (1 << fineness)) ** 2",
        "square = np.abs(y) ** 2",
        NOISE,
    ),
    Mutant("the wrong parity", PAIR + "noise.py", "k % 2 == 1", "k % 2 == 0", NOISE),
    Mutant("zero twice", PAIR + "noise.py", "~(negative & (y == 0)) & (times < LONGEST)", "times < LONGEST", NOISE),
    Mutant("a biased die", PAIR + "noise.py", "= numbers % k == 0", "= numbers % k <= 1", NOISE),
    Mutant("tails that are too heavy", PAIR + "noise.py", "_all_times(accepted, square >> bits)", "pass", NOISE),
    Mutant(
        "another source",
        PAIR + "noise.py",
        'np.frombuffer(os.urandom(8 * count), "<u8")',
        "np.random.default_rng().integers(0, 2**64, count, np.uint64)",
        NOISE,
    ),
    Mutant(
        "biased by what cannot be a multiple of k",
        PAIR + "noise.py",
        "whole = (1 << 62) // k * k",
        "whole = 1 << 62",
        NOISE,
        survives="the bias is k/2^62: no test can see it, and the line costs nothing",
    ),
    Mutant(
        "deviations beyond 127 are drawn",
        PAIR + "noise.py",
        " & (times < LONGEST)",
        "",
        NOISE,
        survives="happens once in exp(127) draws; the line keeps the square within 63 bits",
    ),
    # -- the deletion --
    Mutant(
        "the clock moves at a deletion",
        PAIR + "step.py",
        "tally.deletions += 1",
        "tally.deletions += 1; tally.clock += 1",
        STEP,
    ),
    Mutant(
        "θ keeps what it was",
        PAIR + "step.py",
        "assign(state.theta, a)\n    empty_window(state)",
        "empty_window(state)",
        FORGETTING,
    ),
    Mutant(
        "the window stays",
        PAIR + "step.py",
        "assign(state.theta, a)\n    empty_window(state)",
        "assign(state.theta, a)",
        FORGETTING,
    ),
    Mutant("the sums stay", PAIR + "step.py", "forget_sums(state, k, noise, grid)\n\n", "\n", FORGETTING),
    Mutant("the loss stays", PAIR + "step.py", "tally.loss = 0.0", "pass", FORGETTING),
    Mutant("the excess stays", PAIR + "step.py", "tally.excess = 0.0", "pass", FORGETTING),
    Mutant("the gradient sum stays", PAIR + "step.py", "tally.gradient_sum = 0.0", "pass", FORGETTING),
    Mutant("the anchor's sum stays", PAIR + "step.py", "tally.anchor_sum = 0.0", "pass", FORGETTING),
    Mutant(
        "the losses at zero stay",
        PAIR + "step.py",
        "tally.zero_loss = tally.rows * worst",
        "pass",
        FORGETTING,
    ),
    Mutant(
        "the reach is the anchor's own",
        PAIR + "step.py",
        "tally.reach = norm + jump if grid == 0.0 else min(norm + jump, LONGEST * k.G / k.lam)",
        "tally.reach = math.sqrt(dot(state.anchor, state.anchor))",
        FORGETTING,
    ),
    Mutant(
        "jumps are bounded by less than they can be",
        PAIR + "step.py",
        "jump = grid * (STEPS * (size + SURE) + (1.0 + APART) * size)",
        "jump = grid * (STEPS * size)",
        STEP,
    ),
    Mutant(
        "noise takes the anchor anywhere",
        PAIR + "step.py",
        "keep_near(a, LONGEST * k.G / k.lam, grid)",
        "pass",
        KNOWN,
    ),
    Mutant(
        "wide sums are rounded for nothing",
        PAIR + "bounds.py",
        "2.1 * max(d, WIDE) * t0",
        "2.1 * WIDE * t0",
        BOUNDS,
    ),
    Mutant(
        "the negative step is not shortened",
        PAIR + "step.py",
        "shrink(d, math.sqrt(dot(g, g)) / k.lam)",
        "pass",
        FORGETTING,
    ),
    Mutant("the negative step is positive", PAIR + "step.py", "a[j] -= alpha * d[j]", "a[j] += alpha * d[j]", STEP),
    Mutant("larger steps", PAIR + "step.py", "eta = alpha / k.lam\n", "eta = 1.01 * alpha / k.lam\n", FORGETTING),
    Mutant("no trust region", PAIR + "step.py", "if distance > radius:", "if distance > 1e300:", FORGETTING),
    Mutant(
        "a tick without data does nothing",
        PAIR + "step.py",
        "scale(keep, state.anchor)",
        "pass",
        FORGETTING,
    ),
    # -- the constants --
    Mutant(
        "rows may leave the ball",
        PAIR + "encoding.py",
        'np.maximum(self.radius, np.sqrt(np.einsum("ij,ij->i", z, z)))[:, None]',
        "self.radius",
        ("tests/unit/test_encoding.py",),
    ),
    Mutant(
        "the radius is not rounded",
        PAIR + "encoding.py",
        "return math.floor(radius / step + 0.5) * step",
        "return radius",
        ("tests/unit/test_encoding.py",),
    ),
    Mutant(
        "any constants will do",
        PAIR + "calibration.py",
        "return len(x) > 0 and calibrate",
        "return True or calibrate",
        ("tests/unit/test_calibration.py",),
    ),
    # -- the worker --
    Mutant(
        "constants stay whatever goes",
        WORKER + "certified.py",
        "if not same_constants(model, left):",
        "if False:",
        CERTIFICATE,
    ),
    Mutant(
        "a deleted calibration row stays one",
        WORKER + "certified.py",
        "reference.drop(connection, model, dropped)",
        "pass",
        CERTIFICATE,
    ),
    Mutant(
        "the first rows are not noted",
        WORKER + "certified.py",
        "reference.store(connection, model, waiting)",
        "pass",
        CERTIFICATE,
    ),
    Mutant(
        "a deleted key stays learned",
        WORKER + "certified.py",
        "learned.forget(connection, model.id, events.keys_of(queue.DELETE))",
        "pass",
        CERTIFICATE,
    ),
    Mutant(
        "the salt outlives its state",
        "sql/64_attest.sql",
        "new.attest_salt := null;",
        "null;",
        CERTIFICATE,
        survives="the worker's own queries take the salt away too; the trigger is for writers to come",
    ),
    # -- the exact pair --
    Mutant(
        "a deleted row's curvature stays",
        PAIR + "exact.py",
        "[_weighted(X, c * s)]",
        "[_weighted(X, c * abs(s))]",
        EXACT,
    ),
    Mutant("a deleted row's gradient stays", PAIR + "exact.py", "X.T @ (u * s)", "X.T @ (u * (s > 0))", EXACT),
    Mutant(
        "a deleted row is counted on", PAIR + "exact.py", "counts = [sign.sum(),", "counts = [abs(sign).sum(),", EXACT
    ),
    Mutant(
        "the constants know the order of their rows",
        PAIR + "encode.py",
        "x = np.sort(x[np.isfinite(x)])",
        "x = x[np.isfinite(x)]",
        EXACT,
    ),
    Mutant("one row names a level", PAIR + "encode.py", "RAREST: Final = 5", "RAREST: Final = 1", EXACT),
    Mutant(
        "reference weights are not rounded",
        PAIR + "exact.py",
        "h = grid(int(np.trace(at_zero.H[0])), n)",
        "h = FINE",
        EXACT,
    ),
    # -- the worker of the exact pair --
    Mutant(
        "exact: constants stay whatever goes",
        WORKER + "exact.py",
        "not _same_constants(engine, left):",
        "False:",
        TRACES,
    ),
    Mutant(
        "exact: a deleted reference row stays one",
        WORKER + "exact.py",
        "reference.drop(connection, model, dropped)",
        "pass",
        TRACES,
    ),
    Mutant(
        "exact: a deleted key stays learned",
        WORKER + "exact.py",
        "learned.forget(connection, model.id, unlearned)",
        "pass",
        TRACES,
    ),
    Mutant("exact: a deletion adds", WORKER + "exact.py", "sign[len(reduced.learn) :] = -1.0", "pass", TRACES),
    Mutant(
        "a reference row that was updated stays one",
        WORKER + "reference.py",
        "if stored[key] == mark]",
        "if stored[key] == mark or True]",
        TRACES,
    ),
    Mutant(
        "the key of a refused row outlives it",
        "mempair_db/ledger/record.py",
        'connection.execute(query("forget_rejected"), {"model": self.model.id, "keys": keys})',
        "pass",
        TRACES,
    ),
    Mutant(
        "ANALYZE may look at the queue",
        "sql/30_capture.sql",
        "alter column keys set statistics 0, alter column x set statistics 0, ",
        "alter column keys set statistics 0, ",
        TRACES,
    ),
    Mutant(
        "the digest's salt outlives its state",
        "sql/queries/worker.sql",
        "largest = 0, attest_salt = null, digest_salt = %(salt)s",
        "largest = 0, attest_salt = null, digest_salt = coalesce(%(salt)s, digest_salt)",
        ("tests/integration/test_ledger_frauds.py",),
        survives="the trigger forget_salt takes it away too",
    ),
)
