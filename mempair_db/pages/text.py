"""What the figures mean, in sentences: shared by the command line and the report."""

from __future__ import annotations

from rich.markup import escape

from mempair_db.measure.audit import Audit
from mempair_db.measure.claims import FAILS, HOLDS, OPEN, SKIPPED, VOID
from mempair_db.measure.replay import CHANCE, Comparison

ONE_RECORD = (
    "For one deleted record the figure holds against a model of the same stream with its place left empty, and for the "
    "symmetric unlearner the places of the records deleted before it too: their negative steps were computed from a "
    "state this record had influenced. For all deleted records together the sum holds against a model with all their "
    "places empty."
)


def comparison(result: Comparison) -> list[str]:
    """Say what a replay found."""
    where = "from the start of the epoch" if result.since == 0 else f"from the earlier export, tick {result.since}"
    lines = [
        f"{escape(result.model)}, epoch {result.epoch}: {result.rows} surviving rows, {result.clock} ticks, {where}."
    ]
    if result.waiting:
        lines.append(
            f"{result.waiting} captured changes are not applied yet: run `mempair worker --once` and try again."
        )
    if result.missing:
        lines.append(
            f"{result.missing} rows that the model knows are no longer in the table: "
            "if no changes are waiting, run `mempair reconcile`."
        )
    if result.exact:
        lines.append("The live state equals the replay bit for bit.")
    elif result.deletions == 0:
        lines.append(
            "The live state differs from the replay although nothing was deleted: "
            f"distance {result.theta_distance:.3g}."
        )
    else:
        lines += [
            f"{result.deletions} deletions by certified noise lie in between, so the two are not meant to be equal.",
            "Since the last deletion, on top of the state it left: "
            + ("equal bit for bit." if result.exact_since_deletion else "they DIFFER."),
            f"Anchor: {result.anchor_distance:.4g} from the ideal replay; the proofs and the noise allow "
            f"{result.anchor_bound:.4g} (passed by chance once in {1 / CHANCE:,.0f} times).",
            f"Theta: {result.theta_distance:.4g}, allowed {result.theta_bound:.4g}.",
        ]
    p = result.predictions
    lines.append(
        f"Predictions on {p.rows} rows: {100 * p.share:.2f} % differ; "
        f"on average by {p.mean:.3g}, at most by {p.largest:.3g}."
    )
    verdict = {
        True: "The claim holds.",
        False: "The claim does NOT hold.",
        None: "No verdict: the rows are not the model's.",
    }
    return [*lines, verdict[result.holds]]


def claims(result: Audit) -> list[str]:
    """Say what became of every claim, two lines each."""
    colours = {HOLDS: "green", FAILS: "red", OPEN: "yellow", SKIPPED: "dim", VOID: "dim"}
    clock = f", clock {result.clock}" if result.clock else ""  # an exact model has none
    lines = [f"[bold]{escape(result.model)}[/bold], epoch {result.epoch}{clock}, as of {result.exported_at}"]
    for claim in result.claims:
        facts = claim.measured + (f"  (limit: {claim.limit})" if claim.limit else "")
        facts += f"  {claim.note}" if claim.note else ""
        verdict = f"[{colours[claim.verdict]}]{claim.verdict:>14}[/]"
        lines += [f"{verdict}  {claim.says}", f"{'':16}[dim]{escape(facts.strip())}[/dim]"]
    return lines
