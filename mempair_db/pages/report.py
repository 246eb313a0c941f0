"""`mempair report`: one self-contained page for a data protection officer and an engineer. No script, no network.

It holds figures of the model and its ledger, and no row, key or feature value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from mempair_db import __version__
from mempair_db.measure.audit import Audit
from mempair_db.measure.claims import OPEN, Claim
from mempair_db.offline.folder import Offline
from mempair_db.pages import pictures
from mempair_db.pages.text import ONE_RECORD
from mempair_db.pair import odometer

PAGE: Final = Path(__file__).with_name("page.html")
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
    forgotten = deletions(model)
    sections = [
        _summary(model, forgotten, result),
        ("What the model is", _model(model)),
        ("What was forgotten, and when", _forgotten(forgotten)),
        ("Budget over time", _budget(model, forgotten)),
        ("What is open", _open(model)),
        ("Verdicts", _verdicts(result)),
    ]
    if result is not None:
        sections += [(title, text) for title, text in pictures.of_audit(result) if text]
    sections.append(("What the promise covers, and what it does not", _limits(model)))
    body = "".join(f"<section><h2>{escape(title)}</h2>{text}</section>" for title, text in sections)
    row = model.row
    subtitle = (
        f"Table {row['source_schema']}.{row['source_table']} on PostgreSQL {row['server_version']}, as of "
        f"{_time(row['exported_at'])}. Made by mempair_db {__version__}."
    )
    template = Template(PAGE.read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"Model {model.name}: forgetting report"), subtitle=escape(subtitle), body=body
    )


def deletions(model: Offline) -> list[Deletion]:
    """Return the deletions in the order of the ledger."""
    found = []
    for entry in model.ledger.select(["at", "epoch", "clock", "kind", "rho", "rho_spent", "rho_cap"]).to_pylist():
        if entry["kind"] == "unlearned":
            how = "certified noise" if entry["rho"] else "exact retrain"
        elif entry["kind"] == "cancelled":
            how = "was never learned"
        else:
            continue
        figures = (entry["epoch"], entry["clock"], how, entry["rho"], entry["rho_spent"], entry["rho_cap"])
        found.append(Deletion(entry["at"], *figures))
    return found


def _summary(model: Offline, forgotten: list[Deletion], result: Audit | None) -> tuple[str, str]:
    row = model.row
    noise = sum(d.how == "certified noise" for d in forgotten)
    share = (row["spent"] or 0) / row["cap"] if row["cap"] else 0.0
    epsilon = odometer.epsilon_of((row["spent"] or 0) / odometer.UNITS, row["delta"])
    cards = [
        (f"{row['learned_rows']:,}", "rows the model knows"),
        (f"{len(forgotten):,}", "deletions served"),
        (f"{100 * share:.0f} %", "of this epoch's budget spent"),
        (f"{row['deletions_waiting']:,}", "deletions waiting"),
    ]
    items = "".join(f"<li><b>{escape(number)}</b>{escape(what)}</li>" for number, what in cards)
    text = (
        "The model learns from every row of the table and forgets every row that is deleted. "
        f"{len(forgotten)} deletions were served so far: {noise} by certified noise, {len(forgotten) - noise} by "
        f"retraining or at no cost. Whatever is computed from the model now is (ε = {epsilon:.2f}, "
        f"δ = {row['delta']:.0e})-indistinguishable from a model that never had any of the records deleted in this "
        f"epoch; the promise is ε = {row['epsilon']:g}."
    )
    return "In short", f'<ul class="cards">{items}</ul><p>{escape(text)}</p><p>{_badge(result)}</p>'


def _badge(result: Audit | None) -> str:
    if result is None:
        return '<span class="verdict not">Not audited.</span> Run <code>mempair audit</code>.'
    kind = "fails" if result.failed else "open" if any(c.verdict == OPEN for c in result.claims) else "holds"
    words = {"fails": "A claim does not hold.", "open": "Something is open.", "holds": "Every measured claim holds."}
    return f'<span class="verdict {kind}">{words[kind]}</span> {escape(result.summary())}.'


def _model(model: Offline) -> str:
    row = model.row
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
    return _facts(facts)


def _forgotten(forgotten: list[Deletion]) -> str:
    if not forgotten:
        return "<p>Nothing has been deleted so far.</p>"
    newest = forgotten[-NEWEST:][::-1]
    rows = [
        (_time(d.at), str(d.epoch), f"{d.clock:,}", d.how, f"{d.rho / odometer.UNITS:.3g}" if d.rho else "0")
        for d in newest
    ]
    note = f"<p class=soft>The newest {NEWEST} of {len(forgotten)}.</p>" if len(forgotten) > NEWEST else ""
    return pictures.forgotten(forgotten) + _table(("When (UTC)", "Epoch", "Clock", "Served by", "ρ"), rows) + note


def _budget(model: Offline, forgotten: list[Deletion]) -> str:
    spent = [d for d in forgotten if d.rho]
    if not spent:
        return "<p>No deletion has cost anything so far: the whole budget is left.</p>"
    return pictures.budget(spent, float(model.row["delta"]), float(model.row["epsilon"]))


def _open(model: Offline) -> str:
    row = model.row
    waiting = f"{row['deletions_waiting']}" + (
        f", the oldest since {_time(row['oldest_deletion'])}" if row["oldest_deletion"] else ""
    )
    return _facts(
        [
            ("Deletions waiting", waiting),
            ("Other changes waiting", str(row["changes_waiting"] - row["deletions_waiting"])),
            ("Bytes of applied changes not yet erased", f"{row['queue_bytes']:,}"),
            ("Receipts kept for people to fetch", f"{row['receipts_kept']:,}"),
            ("Rows refused (missing or infinite values)", f"{row['rejected_rows']:,}"),
        ]
    )


def _verdicts(result: Audit | None) -> str:
    if result is None:
        return "<p>This report was made without an audit.</p>"
    rows = "".join(
        f'<tr><td class="verdict {c.verdict.split()[0]}">{escape(c.verdict)}</td><td>{escape(c.says)}<br>'
        f"<span class=soft>{escape(_findings(c))}</span></td></tr>"
        for c in result.claims
    )
    head = '<thead><tr><th scope="col">Verdict</th><th scope="col">Claim, measured, limit</th></tr></thead>'
    digest = f"<p class=soft>SHA-256 of the audit: <code>{result.digest()}</code></p>"
    return f"<div class=wide><table>{head}<tbody>{rows}</tbody></table></div>{digest}"


def _findings(claim: Claim) -> str:
    parts = (claim.measured, f"limit {claim.limit}" if claim.limit else "", claim.note)
    return " · ".join(part for part in parts if part)


def _limits(model: Offline) -> str:
    outside = [
        "Deletions requested by someone who had seen the model from before the deletion.",
        "The encoding's constants of the epoch (means, scales, category names), counters and running sums.",
        "Other copies of a row: backups, write-ahead log, replicas, and what was computed from it elsewhere.",
        "Rows deleted while the worker has not run: they count as waiting above.",
    ]
    points = "".join(f"<li>{escape(text)}</li>" for text in outside)
    per_record = ONE_RECORD if model.row["unlearner"] == "symmetric" else ""
    return f"<p>{escape(per_record)}</p><p>Not covered:</p><ul>{points}</ul>"


def _facts(facts: list[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>' for name, value in facts
    )
    return f"<div class=wide><table><tbody>{rows}</tbody></table></div>"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _time(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment is not None else ""
