"""Claims, and those that the ledger and the model's own figures can decide without any row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mempair_db.ledger.notes import Checkpoint
from mempair_db.ledger.verify import Counters, verify_parquet
from mempair_db.offline.folder import Offline
from mempair_db.pair import odometer

HOLDS, FAILS, OPEN, SKIPPED = "holds", "fails", "open", "not measured"
VOID = "not applicable"  # there is nothing that it could be broken by


@dataclass(frozen=True)
class Claim:
    """One promise and what became of it."""

    name: str
    says: str
    verdict: str
    measured: str = ""
    limit: str = ""
    note: str = ""


def ledger(model: Offline, checkpoints: Sequence[Checkpoint] = ()) -> Claim:
    """Verify chain, bodies, sums, the model's own counters, and signed checkpoints."""
    row = model.row
    counters = Counters(
        row["epoch"], row["clock"], row["spent"], row["cap"], row["deletions"], row["ledger_seq"], row["ledger_hash"]
    )
    verdict = verify_parquet(model.folder / "ledger.parquet", row["id"], counters=counters, checkpoints=checkpoints)
    return Claim(
        "ledger",
        "The ledger is an unbroken chain, and its sums are those of the model.",
        FAILS if verdict.problem else HOLDS,
        measured=f"{verdict.entries} entries"
        + (f", signed up to {max(verdict.checkpoints)}" if verdict.checkpoints else ""),
        note=f"entry {verdict.seq}: {verdict.problem}" if verdict.problem else "",
    )


def budget(model: Offline) -> Claim:
    """Look for an epoch that spent more than its cap."""
    row = model.row
    spent, cap = (odometer.epsilon_of((row[name] or 0) / odometer.UNITS, row["delta"]) for name in ("spent", "cap"))
    over = [
        entry["epoch"]
        for entry in model.ledger.select(["epoch", "rho_spent", "rho_cap"]).to_pylist()
        if entry["rho_cap"] is not None and entry["rho_spent"] > entry["rho_cap"]
    ]
    promised = odometer.to_units(odometer.rho_of(row["epsilon"], row["delta"]))
    other = row["cap"] is not None and abs(promised - row["cap"]) > 1 + promised // 10**6
    return Claim(
        "budget",
        "All deletions of an epoch together stay under the promised ε.",
        FAILS if over or other else HOLDS,
        measured=f"ε = {spent:.4g}",
        limit=f"ε = {cap:.4g}, δ = {row['delta']:.0e}",
        note=f"epoch {over[0]} spent more than its cap"
        if over
        else f"the cap is not that of the promised ε = {row['epsilon']:g}"
        if other
        else "",
    )


def served(model: Offline) -> Claim:
    """Look for deletions that nobody has applied yet."""
    row = model.row
    waiting = int(row["deletions_waiting"])
    since = row["oldest_deletion"]
    return Claim(
        "served",
        "No deletion is waiting.",
        OPEN if waiting else HOLDS,
        measured=f"{waiting} waiting",
        note=f"the oldest since {since:%Y-%m-%d %H:%M:%S} UTC: run the worker" if waiting and since else "",
    )


def purged(model: Offline) -> Claim:
    """Look at the size of the queue tables."""
    left = int(model.row["queue_bytes"])
    note = "run `mempair purge` once no changes are waiting" if left else ""
    return Claim(
        "purged",
        "The queue tables hold no bytes of rows that were applied.",
        OPEN if left else HOLDS,
        measured=f"{left} bytes",
        limit="0 bytes",
        note=note,
    )


FROM_THE_LEDGER: Final = (budget, served, purged)
