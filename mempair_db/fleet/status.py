"""Where a fleet stands, as the coordinator last heard and as the shards that can be reached say now."""

from __future__ import annotations

from typing import Any

import psycopg

from mempair_db.errors import MempairError
from mempair_db.fleet import shard
from mempair_db.fleet.compute import opened
from mempair_db.fleet.config import Fleet, Place
from mempair_db.fleet.coordinator import coordinator
from mempair_db.fleet.shard import Report


def status(fleet: Fleet) -> list[dict[str, Any]]:
    """Return one line for each model and shard."""
    lines = []
    with coordinator(fleet) as known:
        for model in known.models():
            heard = known.shards(model.name)
            for place in fleet.shards:
                found, said = heard.get(place.name), _ask(place, model.name)
                now = said if isinstance(said, Report) else None
                lines.append(
                    {
                        "model": model.name,
                        "shard": place.name,
                        "constants": f"{now.generation if now else '?'} of {model.generation}",
                        "rows": now.rows_learned if now else found.rows if found else None,
                        "waiting": now.changes if now else None,
                        "deletions_waiting": now.deletions if now else None,
                        "sums_of": found.taken_at if found else None,
                        "down_since": None if now or not found else found.down_since or found.seen_at,
                        "trouble": (now.trouble or _unchecked(now)) if now else said,
                        "everywhere": _everywhere(now, found.everywhere_seq if found else 0),
                        "everywhere_at": found.everywhere_at if found else None,
                    }
                )
    return lines


def _ask(place: Place, name: str) -> Report | str:
    try:
        with opened(place) as connection:
            return shard.report(connection, name, None)
    except (psycopg.Error, MempairError) as error:
        return str(error).strip().split("\n")[0]


def _unchecked(report: Report) -> str | None:
    if not report.begun or report.references_left == report.references_checked:
        return None
    why = "they are new" if report.references_checked is None else "a reference row went"
    return f"the next exchange checks the constants: {why}"


def _everywhere(report: Report | None, seq: int) -> str:
    """Say whether everything that this shard forgot is out of every shard's model."""
    if report is None:
        return f"to entry {seq}"
    return "all" if seq >= report.ledger_seq else f"to entry {seq} of {report.ledger_seq}"
