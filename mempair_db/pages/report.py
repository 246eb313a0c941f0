"""`mempair report`: one self-contained page for a data protection officer and an engineer. No script, no network.

It holds figures of the model and its ledger, and no row, key or feature value.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

import pyarrow.parquet as pq

from mempair_db import __version__
from mempair_db.measure import fresh
from mempair_db.measure.audit import Audit
from mempair_db.measure.claims import FAILS, HOLDS, OPEN, SKIPPED, Claim
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
    asked = requests(model)
    return template.render(
        "report.html",
        title=f"Model {model.name}: forgetting report",
        subtitle=f"Table {row['source_schema']}.{row['source_table']} on PostgreSQL {row['server_version']}, as of "
        f"{_time(row['exported_at'])}. {_responsible(row['controller'])}Made with mempair_db {__version__}.",
        cards=_cards(model, served),
        summary=_summary(model, served),
        audit=result,
        verdict=_verdict(result) if result else None,
        fresh=_fresh(fresh.beside(model)) if result else "",
        waited_figure=pictures.waited(asked, float(row["deadline_seconds"])) if asked else None,
        claims=[(claim, _findings(claim)) for claim in result.claims] if result else [],
        model_facts=_model(model),
        deletions=served,
        deletions_figure=pictures.forgotten(served) if served else None,
        newest=[_line(deletion, exact=model.exact) for deletion in served[-NEWEST:][::-1]],
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
        ["entered_at", "epoch", "clock", "kind", "rho", "rho_spent", "rho_cap", "detail", "rows"]
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
        found += [Deletion(entry["entered_at"], *figures)] * entry["rows"]
    return found


def _cards(model: Offline, served: list[Deletion]) -> list[tuple[str, str]]:
    row = model.row
    share = (row["spent"] or 0) / row["cap"] if row["cap"] else 0.0
    budget = (
        ("exact", "so no budget is needed") if model.exact else (f"{100 * share:.0f} %", "of this epoch's budget spent")
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
    """Say in one sentence what became of the claims."""
    good, bad, waits, skipped = (sum(c.verdict == v for c in result.claims) for v in (HOLDS, FAILS, OPEN, SKIPPED))
    measured = good + bad + waits
    left = f" {skipped} {'claim was' if skipped == 1 else 'claims were'} not measured." if skipped else ""
    if bad:
        return {"kind": "fails", "text": f"{bad} of {measured} claims that were measured do NOT hold.{left}"}
    if waits:
        return {"kind": "open", "text": f"{good} of {measured} claims hold, and {waits} cannot be judged yet.{left}"}
    if not measured:
        return {"kind": "not", "text": "No claim could be measured."}
    return {"kind": "holds", "text": f"All {measured} claims that were measured hold.{left}"}


def requests(model: Offline) -> list[tuple[datetime, float]]:
    """Return when deletions were done and how many seconds after the request, as far as receipts are kept."""
    rows = pq.read_table(model.folder / "request.parquet", filters=[("model_id", "=", model.row["id"])]).to_pylist()
    return sorted(
        (row["executed_at"].replace(tzinfo=timezone.utc), (row["executed_at"] - row["requested_at"]).total_seconds())
        for row in rows
        if row["requested_at"] is not None and row["executed_at"] is not None
    )


def _fresh(found: fresh.Beside | None) -> str:
    if found is None:
        return ""
    gap = abs(found.now - found.retrained)
    words = "the same" if gap < 5e-5 else f"{gap:.4f} {'more' if found.now > found.retrained else 'less'} now"
    return (
        f"On its {found.rows:,} rows the model has {found.metric} {found.now:.4f} now; computed anew from the same "
        f"rows it has {found.retrained:.4f}: {words}."
    )


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


def _line(deletion: Deletion, *, exact: bool) -> tuple[str, ...]:
    if exact:  # which has no clock, and spends nothing
        return (_time(deletion.at), str(deletion.epoch), deletion.how)
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


def _responsible(controller: str | None) -> str:
    return f"Responsible for the data: {controller}. " if controller else ""


def _time(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment is not None else ""
