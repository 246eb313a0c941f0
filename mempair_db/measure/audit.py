"""`mempair audit`: every promise as a claim, measured on the exported rows, with a verdict (theory 5).

A claim holds, fails, is open (something waits to be done before it can be judged), or was not measured, with a reason.
Only an audit in which every claim holds has the exit code 0. An exact model's claims are equalities (`equalities`).
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mempair_db import __version__
from mempair_db.ledger.notes import Checkpoint
from mempair_db.measure import (
    capacity,
    carried,
    constants,
    distinguish,
    equalities,
    leave_one_out,
    regret,
    replay,
    worlds,
)
from mempair_db.measure.claims import FAILS, FROM_THE_LEDGER, HOLDS, OPEN, SKIPPED, VOID, Claim, ledger, purged, served
from mempair_db.measure.worlds import Worlds
from mempair_db.offline import stream
from mempair_db.offline.folder import Offline
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair import noise

LEAST: Final = 50
"""Rows without which nothing is worth measuring."""

SHARP: Final = 0.5
"""The share of a claimed ε that the distinguishing test must prove on the tight instance to count as sharp."""


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    leave_out: int = 40
    samples: int = 60_000
    draws: int = 5
    lives: int = carried.LIVES
    seed: int = 0


QUICK: Final = Effort(leave_out=10, samples=4_000, draws=2, lives=100)


@dataclass
class Audit:
    """All claims, and the figures behind them."""

    model: str
    epoch: int
    clock: int
    exported_at: str
    version: str = __version__
    salt: str = field(default_factory=lambda: secrets.token_hex(32))  # without it the digest says nothing of the rows
    claims: list[Claim] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> list[Claim]:
        """The claims that do not hold."""
        return [claim for claim in self.claims if claim.verdict == FAILS]

    @property
    def unproven(self) -> list[Claim]:
        """The claims of which it is not known that they hold: not proven is not proven."""
        return [claim for claim in self.claims if claim.verdict not in (HOLDS, VOID)]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return _plain(asdict(self))  # type: ignore[no-any-return]

    def digest(self) -> str:
        """Return the SHA-256 of the audit's canonical JSON, its salt included: who has the audit can check it."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def summary(self) -> str:
        """Say how many claims have which verdict."""
        names = {HOLDS: "hold", FAILS: "fail", OPEN: "open", SKIPPED: "not measured", VOID: "not applicable"}
        counts = {name: sum(claim.verdict == verdict for claim in self.claims) for verdict, name in names.items()}
        return ", ".join(f"{n} {word}" for word, n in counts.items() if n)


def audit(
    model: Offline, *, effort: Effort = Effort(), bars: Bars = silent, checkpoints: Sequence[Checkpoint] = ()
) -> Audit:
    """Audit one exported model, its ledger also against signed checkpoints."""
    row = model.row
    result = Audit(model.name, int(row["epoch"]), model.clock, row["exported_at"].isoformat())
    if model.exact:
        result.claims += [ledger(model, checkpoints), served(model), purged(model), *equalities.claims(model, bars)]
        return result
    result.claims += [ledger(model, checkpoints), *(check(model) for check in FROM_THE_LEDGER)]
    result.claims += _control(result, row, effort, bars)
    reason = _unready(model)
    for name, says, check in _ON_ROWS:
        if reason:
            result.claims.append(Claim(name, says, SKIPPED, note=reason))
        else:
            result.claims.append(check(name, says, model, result, effort, bars))
    return result


def _unready(model: Offline) -> str:
    if model.row["constants"] is None:
        return "the model has not calibrated yet"
    if not model.has_rows:
        return "the export has no rows; export again with --rows"
    return f"fewer than {LEAST} rows" if model.surviving_rows < LEAST else ""


# -- of the audit itself ---------------------------------------------------------------------------------------------


def _control(result: Audit, row: dict[str, Any], effort: Effort, bars: Bars) -> list[Claim]:
    """Show that the distinguishing test sees what is there: sharp where the theorem is, and not blind."""
    epsilon, delta = row["epsilon"], row["delta"]
    tight = distinguish.strongest(worlds.tight_instance(epsilon, delta), delta=delta, samples=effort.samples, bars=bars)
    wrong = [worlds.printed_instance(epsilon, delta)]
    wrong += [worlds.flawed_instance(flaw, epsilon, delta) for flaw in worlds.FLAWS if flaw]
    few = min(effort.samples, 2_000)
    controls = [distinguish.strongest(one, delta=delta, samples=few, bars=bars) for one in wrong]
    missed = [one.name for one in controls if one.holds]
    result.figures["empirical"] = [asdict(tight), *map(asdict, controls)]
    sharp = tight.holds and (tight.closeness >= SHARP or effort.samples < Effort().samples)
    return [
        Claim(
            "tight",
            "On the worst stream there is, the test comes close to the claimed ε and does not pass it.",
            HOLDS if sharp else FAILS,
            measured=f"ε ≥ {tight.epsilon:.3f} (95 %)",
            limit=f"ε = {tight.claimed:.3f}",
            note=f"{100 * tight.closeness:.0f} % of the claim",
        ),
        Claim(
            "control",
            "The same test catches what is wrong: a window that keeps the row, noise in doubles, sums that go on.",
            FAILS if missed else HOLDS,
            measured=", ".join(f"ε ≥ {one.epsilon:.3g}" for one in controls) + " (95 %)",
            limit=f"claimed ε = {controls[0].claimed:.3f}",
            note="NOT caught: " + ", ".join(missed)
            if missed
            else "positive controls: " + "; ".join(o.name for o in controls),
        ),
    ]


# -- on the rows -----------------------------------------------------------------------------------------------------


def _replay(name: str, says: str, model: Offline, result: Audit, _effort: Effort, bars: Bars) -> Claim:
    found = replay.compare(model, bars=bars)
    result.figures["replay"] = asdict(found)
    verdict = {True: HOLDS, False: FAILS, None: OPEN}[found.holds]
    if found.holds is None:
        note = f"{found.waiting} changes wait, {found.missing} rows are missing: run the worker, then reconcile"
        return Claim(name, says, OPEN, note=note)
    if found.deletions == 0:
        return Claim(
            name, says, verdict, "equal bit for bit" if found.exact else f"{found.theta_distance:.3g}", "equal"
        )
    note = f"{found.deletions} deletions; ideal replay with empty ticks, bound of all together with their noise; "
    note += "equal bit for bit since the last one" if found.exact_since_deletion else "NOT equal since the last one"
    return Claim(name, says, verdict, f"{found.anchor_distance:.4g}", f"{found.anchor_bound:.4g}", note)


def _constants(name: str, says: str, model: Offline, result: Audit, _effort: Effort, _bars: Bars) -> Claim:
    if not model.row["numeric_features"]:
        return Claim(name, says, VOID, note="the model has no numbers")
    found = constants.measure(model)
    result.figures["constants"] = asdict(found)
    return Claim(
        name,
        says,
        HOLDS if found.rounded and found.read == 0 and found.control == found.rows else FAILS,
        measured=f"{found.read} of {found.rows} rows read" + ("" if found.rounded else ", and centres NOT rounded"),
        limit="0",
        note=f"removing one of them changes the constants in {found.changed} cases; means that are not rounded give "
        f"{found.control} of {found.rows} away",
    )


def _predictions(name: str, says: str, model: Offline, result: Audit, _effort: Effort, _bars: Bars) -> Claim:
    if not model.row["ready"]:
        return Claim(name, says, VOID, note="the model does not predict yet")
    found = replay.served(model)
    result.figures["predictions"] = asdict(found)
    # Noise costs γ on average: one draw of d dimensions costs, once in ten thousand, so many times as much.
    spread = 2.0 / (9.0 * model.live().arrays.theta.size)
    allowed = float(model.row["gamma"]) * (1.0 - spread + 3.72 * math.sqrt(spread)) ** 3
    return Claim(
        name,
        says,
        HOLDS if found.loss <= found.base + allowed else FAILS,
        measured=f"{found.name} {found.loss:.4g}",
        limit=f"{found.base:.4g} + {allowed:.3g}, what noise may cost",
        note=f"{found.rows} rows, encoded as they are when they are served; {found.outside} of them beyond the clamp",
    )


def _noise(name: str, says: str, model: Offline, result: Audit, effort: Effort, bars: Bars) -> Claim:
    if int(model.row["changes_waiting"]) or model.learned_rows != model.surviving_rows:
        return Claim(name, says, OPEN, note="changes wait or rows are missing: run the worker, then reconcile")
    found = carried.measure(model, lives=effort.lives, bars=bars)
    if found is None:
        return Claim(name, says, VOID, note="no deletion by noise in this epoch")
    result.figures["noise"] = asdict(found)
    return Claim(
        name,
        says,
        HOLDS if found.holds else FAILS,
        measured=f"variance {found.ratio:.3g} of what was charged for, "
        + ("on its grid" if found.on_grid else "NOT on its grid")
        + ("" if found.sums else ", and sums that remember rows"),
        limit=f"1; less has p = {found.too_little:.2g}, more {found.too_much:.2g}",
        note=f"{found.deletions} deletions, {found.d} dimensions; half the noise would be seen by its size alone "
        f"with probability {found.power:.2f}",
    )


def _stability(name: str, says: str, model: Offline, result: Audit, effort: Effort, bars: Bars) -> Claim:
    ticks = leave_one_out.candidates(model, effort.leave_out, seed=effort.seed, bars=bars)
    found = leave_one_out.leave_out(model, ticks, bars=bars)
    worst = found.worst
    result.figures["leave_one_out"] = {
        "sensitivity": found.sensitivity,
        "left": [asdict(one) for one in found.left],
    }
    result.figures["empirical"].append(asdict(_row_test(model, found, effort, bars)))
    return Claim(
        name,
        says,
        HOLDS if found.holds else FAILS,
        measured=f"worst ratio {worst.ratio:.4f}",
        limit="1",
        note=f"{len(found.left)} rows left out; the worst is tick {worst.tick} ({worst.why})"
        + (f"; the symmetric step helped for {found.helped} of them" if model.row["unlearner"] == "symmetric" else ""),
    )


def _row_test(model: Offline, found: leave_one_out.LeaveOneOut, effort: Effort, bars: Bars) -> distinguish.Empirical:
    """Put the row that came closest to the bound to the distinguishing test, with the noise of its own deletion."""
    live = model.live()
    assert live.epoch is not None  # noqa: S101
    fork = next(fork for fork in found.forks if fork.tick == found.worst.tick)
    rho = live.price(model.clock) or live.epoch.cap  # 0: it would be retrained; test the whole budget instead
    both = Worlds(
        name=f"row of tick {fork.tick} ({fork.why})",
        constants=live.epoch.constants,
        learned=found.learned,
        ideal=fork.state,
        x=fork.x,
        y=fork.y,
        rho=rho,
        sigma=noise.sigma(found.sensitivity, rho, live.epoch.d),
    )
    return distinguish.strongest(both, delta=live.parameters.delta, samples=effort.samples, bars=bars)


def _indistinguishable(name: str, says: str, _m: Offline, result: Audit, _e: Effort, _b: Bars) -> Claim:
    found = result.figures["empirical"][-1]
    return Claim(
        name,
        says,
        HOLDS if found["epsilon"] <= found["claimed"] else FAILS,
        measured=f"ε ≥ {found['epsilon']:.3f} (95 %)",
        limit=f"ε = {found['claimed']:.3f}",
        note=f"{found['name']}; from the two means, known exactly: ε = {found['exact_epsilon']:.3g}",
    )


def _regret(name: str, says: str, model: Offline, result: Audit, effort: Effort, bars: Bars) -> Claim:
    rows = stream.load(model)
    plain = regret.measure(rows, bars=bars)
    m = max(1, math.floor(model.live().capacity() / 2))
    with_noise = regret.measure(rows, deletions=m, seed=effort.seed, bars=bars)
    result.figures["regret"] = asdict(plain)
    result.figures["regret_with_deletions"] = asdict(with_noise)
    last = plain.last
    return Claim(
        name,
        says,
        HOLDS if plain.holds and with_noise.holds else FAILS,
        measured=f"{last.regret:.4g}; with {m} deletions half-way {with_noise.last.regret:.4g}",
        limit=f"{last.bound:.4g}; {with_noise.last.bound:.4g}",
        note="" if rows.whole else "first rows only",
    )


def _gamma(name: str, says: str, model: Offline, result: Audit, effort: Effort, bars: Bars) -> Claim:
    found = capacity.measure(stream.load(model), draws=effort.draws, seed=effort.seed, bars=bars)
    result.figures["deletion_curve"] = asdict(found)
    extra = found.extra
    return Claim(
        name,
        says,
        HOLDS if extra.holds else FAILS,
        measured=f"{extra.mean:.4g} ± {3 * extra.error:.2g} after {extra.m} deletions",
        limit=f"γ = {extra.gamma:g}",
        note=f"capacity {found.capacity:.1f}; by regret alone {found.regret_capacity:.1f}, by the paper's formula "
        f"{found.paper_capacity:.1f}; "
        f"{found.metric} within .01 of a retrain up to m = {found.largest_within(0.01)}",
    )


Check = Callable[[str, str, Offline, Audit, Effort, Bars], Claim]

_ON_ROWS: Final[tuple[tuple[str, str, Check], ...]] = (
    ("replay", "The live model is the replay of its rows, up to what deletions may have moved it.", _replay),
    ("constants", "No calibration row can be read off the epoch's constants.", _constants),
    ("predictions", "What is served predicts the rows that are there no worse than their mean does.", _predictions),
    ("noise", "The stored state carries the noise that its deletions were charged for: no less and no more.", _noise),
    ("stability", "A deletion, before its noise, ends no further from the true replay than proved.", _stability),
    ("indistinguishable", "Nobody can tell the model after a deletion from the replay, beyond ε.", _indistinguishable),
    ("regret", "The served models lost at most the live bound more than the best fixed model.", _regret),
    ("capacity", "Deletions up to capacity cost a prediction at most γ, on average.", _gamma),
)


def _plain(value: Any) -> Any:
    """Return the value as JSON can have it: what is infinite becomes null."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
