"""What a receipt says of a deletion, held against the ledger entry inside it, which is the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mempair_db import errors
from mempair_db.ledger.entry import Entry
from mempair_db.pair import odometer

BY_RETRAIN: Final = "by exact retrain"

# Of an entry's detail: what a receipt may call it, and how its algorithm begins.
WORDS: Final = {
    ("unlearned", None): ("unlearned", "anchored memory pair"),
    ("unlearned", "exact"): ("unlearned", "exact memory pair"),
    ("unlearned", BY_RETRAIN): ("retrained", "exact retraining"),
    ("cancelled", "cancelled"): ("cancelled", "none needed"),
    ("cancelled", "never learned"): ("never learned", "none needed"),
}
CLOSE: Final = 2e-4  # an epsilon has four decimals, rounded up


def require_same(deletion: Mapping[str, Any], entry: Entry) -> None:
    """Raise unless kind, algorithm, time, ε and δ are those of the entry."""
    kind, algorithm = WORDS.get((entry.kind, entry.detail), ("", ""))
    if not kind or deletion["kind"] != kind or not deletion["algorithm"].startswith(algorithm):
        raise _other(entry, "what was done", f"{entry.kind}, {entry.detail or 'by noise'}")
    if deletion["executed"] != deletion["entry"]["at"]:
        raise _other(entry, "when it was done", deletion["entry"]["at"])
    if deletion["requested"] is not None and deletion["requested"] > deletion["executed"]:
        raise _other(entry, "when it was asked for", f"done at {deletion['executed']}")
    names = ("delta", "epsilon_record", "epsilon_epoch", "epsilon_budget")
    if entry.detail == "exact" and any(deletion[name] is not None for name in names):
        raise _other(entry, "an epsilon or delta", "exact, which has none")
    if entry.rho or deletion["delta"] is not None:
        _require_epsilon(deletion, entry)


def _require_epsilon(deletion: Mapping[str, Any], entry: Entry) -> None:
    if deletion["delta"] is None:
        raise _other(entry, "no delta", f"{entry.rho} units of ρ")
    delta, budget = float(deletion["delta"]), float(deletion["epsilon_budget"])
    for name, units in (("epsilon_record", entry.rho), ("epsilon_epoch", entry.rho_spent)):
        if abs(float(deletion[name]) - odometer.epsilon_of(units / odometer.UNITS, delta)) > CLOSE:
            raise _other(entry, name, f"{units} units of ρ")
    if entry.rho_cap is not None:
        cap = odometer.to_units(odometer.rho_of(budget, delta))
        if abs(cap - entry.rho_cap) > 1 + cap // 10**6:
            raise _other(entry, "another budget of epsilon and delta", f"a cap of {entry.rho_cap} units of ρ")


def _other(entry: Entry, what: str, says: str) -> errors.VerificationFailed:
    return errors.VerificationFailed(
        f"The receipt has another word on {what} than ledger entry {entry.seq}, which says: {says}.",
        remedy="Somebody changed it before it was signed; ask the issuer, and keep the file.",
    )


def promise(deletion: Mapping[str, Any]) -> str:
    """Say what is promised, in words."""
    if deletion["delta"] is None:
        return (
            "the model is the one computed from the remaining rows, bit for bit"
            if deletion["kind"] == "unlearned"
            else "no noise"
        )
    return (
        f"epsilon {deletion['epsilon_record']} for it, {deletion['epsilon_epoch']} for all of the epoch, "
        f"delta {deletion['delta']}"
    )
