"""`mempair report`: one self-contained page for a data protection officer and an engineer. No script, no network.

It holds figures of the model and its ledger, and no row, key or feature value.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mempair_db import __version__
from mempair_db.measure.audit import Audit
from mempair_db.measure.claims import OPEN, Claim
from mempair_db.offline.folder import Offline
from mempair_db.pages import pictures, template
from mempair_db.pages.text import ONE_RECORD
from mempair_db.pair import odometer

NEWEST: Final = 50


@dataclass(frozen=True)
class Deletion:
    """One deletion as the ledger has it."""

    at: datetime
    epoch: int
    clock: int
    how: str
    rho: int
    spent: int
    cap: int | None


def render(model: Offline, result: Audit | None) -> str:
    """Return the page."""
    row, served = model.row, deletions(model)
    spent = [deletion for deletion in served if deletion.rho]
    return template.render(
        "report.html",
        title=f"Model {model.name}: forgetting report",
        subtitle=f"Table {row['source_schema']}.{row['source_table']} on PostgreSQL {row['server_version']}, as of "
        f"{_time(row['exported_at'])}. Made by mempair_db {__version__}.",
        cards=_cards(model, served),
        summary=_summary(model, served),
        audit=result,
        verdict=_verdict(result) if result else None,
        claims=[(claim, _findings(claim)) for claim in result.claims] if result else [],
        model_facts=_model(model),
        deletions=served,
        deletions_figure=pictures.forgotten(served) if served else None,
        newest=[_line(deletion) for deletion in served[-NEWEST:][::-1]],
        exact=model.exact,
        budget_figure=pictures.budget(spent, float(row["delta"]), float(row["epsilon"])) if spent else None,
        open_facts=_open(model),
        measurements=pictures.of_audit(result) if result else [],
        one_record=ONE_RECORD if row["unlearner"] == "symmetric" else "",
    )


def deletions(model: Offline) -> list[Deletion]:
    """Return the deletions in the order of the ledger."""
    found = []
    for entry in model.ledger.select(
        ["entered_at", "epoch", "clock", "kind", "rho", "rho_spent", "rho_cap", "detail"]
    ).to_pylist():
        if entry["kind"] == "unlearned":
            how = (
                "certified noise" if entry["rho"] else "subtraction" if entry["detail"] == "exact" else "exact retrain"
            )
        elif entry["kind"] == "cancelled":
            how = "was never learned"
        else:
            continue
        figures = (entry["epoch"], entry["clock"], how, entry["rho"], entry["rho_spent"], entry["rho_cap"])
        found.append(Deletion(entry["entered_at"], *figures))
    return found


def _cards(model: Offline, served: list[Deletion]) -> list[tuple[str, str]]:
    row = model.row
    share = (row["spent"] or 0) / row["cap"] if row["cap"] else 0.0
    budget = (
        ("none", "budget is needed: exact") if model.exact else (f"{100 * share:.0f} %", "of this epoch's budget spent")
    )
    return [
        (f"{row['learned_rows']:,}", "rows the model knows"),
        (f"{len(served):,}", "deletions served"),
        budget,
        (f"{row['deletions_waiting']:,}", "deletions waiting"),
    ]


def _summary(model: Offline, served: list[Deletion]) -> str:
    row = model.row
    if model.exact:
        return (
            "Every row that was deleted is out of the model: it is, bit for bit, the one computed from the "
            f"{row['learned_rows']:,} rows that are in the table, and whoever has the rows can compute it and compare. "
            f"{len(served)} deletions were served so far. Who kept the published weights from before and after a "
            "single deletion could compute the deleted row from their difference; so it is with every exact method."
        )
    noise = sum(deletion.how == "certified noise" for deletion in served)
    epsilon = odometer.epsilon_of((row["spent"] or 0) / odometer.UNITS, row["delta"])
    return (
        "The model learns from every row of the table and forgets every row that is deleted. "
        f"{len(served)} deletions were served so far: {noise} by certified noise, {len(served) - noise} by "
        f"retraining or at no cost. Whatever is computed from the model now is (ε = {epsilon:.2f}, "
        f"δ = {row['delta']:.0e})-indistinguishable from a model of the same stream in which the places of all records "
        f"deleted in this epoch were left empty; the promise is ε = {row['epsilon']:g}."
    )


def _verdict(result: Audit) -> dict[str, str]:
    if result.failed:
        return {"kind": "fails", "text": "A claim does not hold."}
    if any(claim.verdict == OPEN for claim in result.claims):
        return {"kind": "open", "text": "Something is open."}
    return {"kind": "holds", "text": "Every measured claim holds."}


def _model(model: Offline) -> list[tuple[str, str]]:
    row = model.row
    if model.exact:
        return [
            ("Predicts", row["target"] + (f" = {row['positive']}" if row["positive"] else "")),
            ("From", ", ".join(row["features"])),
            ("Loss", row["loss"]),
            ("Status", row["status"] + (f": {row['reason']}" if row["reason"] else "")),
            ("Epoch", str(row["epoch"])),
            ("Promise", "after every batch the model is the one computed from the rows that are there"),
            ("Reference rows", f"{row['reference_rows'] or 0:,}"),
            ("Predictions", "open" if row["ready"] else "closed: too few rows"),
            ("Created", _time(row["created_at"])),
        ]
    live = model.live() if row["constants"] is not None else None
    k = live.epoch.constants if live is not None and live.epoch is not None else None
    facts = [
        ("Predicts", row["target"] + (f" = {row['positive']}" if row["positive"] else "")),
        ("From", ", ".join(row["features"])),
        ("Loss", row["loss"]),
        ("Status", row["status"] + (f": {row['reason']}" if row["reason"] else "")),
        ("Epoch, clock", f"{row['epoch']}, {row['clock']:,}"),
        ("Promise", f"ε = {row['epsilon']:g}, δ = {row['delta']:.0e} for all deletions of an epoch together"),
        ("Noise may cost", f"γ = {row['gamma']:g}"),
        ("Unlearner", row["unlearner"]),
        ("When the budget is spent", row["on_exhausted"]),
        ("Created", _time(row["created_at"])),
    ]
    if live is not None and k is not None:
        facts += [
            ("λ, encoded dimensions", f"{k.lam:.4g}, {len(live.arrays.theta)}"),
            ("Predictions", "open" if live.ready else f"closed until about {live.samples_needed():,} rows"),
            ("Deletions an epoch can serve (m*)", f"{live.capacity():.1f}"),
            ("Regret bound a row", f"{live.regret_bound() / max(live.tally('rows'), 1):.4g}"),
        ]
    return facts


def _line(deletion: Deletion) -> tuple[str, ...]:
    rho = f"{deletion.rho / odometer.UNITS:.3g}" if deletion.rho else "0"
    return (_time(deletion.at), str(deletion.epoch), f"{deletion.clock:,}", deletion.how, rho)


def _open(model: Offline) -> list[tuple[str, str]]:
    row = model.row
    waiting = f"{row['deletions_waiting']}" + (
        f", the oldest since {_time(row['oldest_deletion'])}" if row["oldest_deletion"] else ""
    )
    return [
        ("Deletions waiting", waiting),
        ("Other changes waiting", str(row["changes_waiting"] - row["deletions_waiting"])),
        ("Bytes of applied changes not yet erased", f"{row['queue_bytes']:,}"),
        ("Receipts kept for people to fetch", f"{row['receipts_kept']:,}"),
        ("Rows refused (missing or infinite values)", f"{row['rejected_rows']:,}"),
    ]


def _findings(claim: Claim) -> str:
    parts = (claim.measured, f"limit {claim.limit}" if claim.limit else "", claim.note)
    return " · ".join(part for part in parts if part)


def _time(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment is not None else ""
