"""For auditors: ledgers and whether they hold, signed checkpoints, who finds which fraud, and files to take away."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

from markupsafe import Markup
from psycopg import IsolationLevel
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

from mempair_db import errors
from mempair_db import verify as verify_room
from mempair_db.database.connect import connect
from mempair_db.ledger import notes, verify
from mempair_db.ledger.notes import Checkpoint
from mempair_db.ledger.verify import Verdict
from mempair_db.web.labels import KINDS, ticked
from mempair_db.web.look import Part, Rows
from mempair_db.web.models import EVENTS, GRANT
from mempair_db.web.site import RELOAD, Site, page, site

MOST: Final = 100_000  # entries that a page verifies while somebody waits
AUDITOR: Final = "`mempair grant --auditor {role}`"


@dataclass(frozen=True)
class Signed:
    """A checkpoint in this server's folder."""

    file: str
    origin: str
    size: int
    at: datetime
    problem: str
    head: Checkpoint | None


def audit(request: Request) -> Response:
    """Everything that was promised to be checkable, checked."""
    here = site(request)
    signed = checkpoints(here)
    with here.looking() as look:
        ledgers = look.part(lambda: look.rows("ledgers"), GRANT)
        verdicts = look.part(lambda: _verdicts(here, ledgers.value or [], signed), AUDITOR)
        refused = look.part(lambda: look.rows("errors"), AUDITOR)
        alive = {m["model_id"] for m in look.part(lambda: look.rows("models", model=None)).value or []}
    return page(
        request,
        "audit",
        reload=RELOAD,
        ledgers=ledgers,
        verdicts=verdicts,
        alive=alive,
        jobs={number: here.jobs.of(number) for number in alive},
        signed=[(one, _holds(one, verdicts)) for one in signed],
        folder=str(here.checkpoints),
        key=here.key(),
        refused=refused,
        frauds=frauds(),
    )


def ledger(request: Request) -> Response:
    """One ledger, entry by entry, with its hashes."""
    here = site(request)
    number = int(request.path_params["model"])
    before = request.query_params.get("before", "")
    first = int(before) if before.isdecimal() and len(before) < 19 else 2**62
    with here.looking() as look:
        found = [one for one in look.rows("ledgers") if one["model_id"] == number]
        if not found:
            raise HTTPException(404, f"There is no ledger of model number {number}.")
        rows = look.rows("events", model=number, kinds=None, before=first, limit=EVENTS + 1)
        verdicts = look.part(lambda: _verdicts(here, found, checkpoints(here)), AUDITOR)
    older = rows[EVENTS - 1]["seq"] if len(rows) > EVENTS else None
    return page(
        request,
        "ledger",
        reload=RELOAD,
        ledger=found[0],
        entries=rows[:EVENTS],
        older=older,
        kinds=KINDS,
        verdict=Part(verdicts.value[number] if verdicts.value else None, verdicts.missing),
    )


def _verdicts(here: Site, ledgers: Rows, signed: list[Signed]) -> dict[int, Verdict | None]:
    """Verify these ledgers against the models' counters and the checkpoints; None: too long for a page."""
    found: dict[int, Verdict | None] = {}
    with connect(here.dsn(), application_name="mempair web") as connection:
        connection.read_only = True
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        counters = {number: known for number, _, known in verify.find(connection, None)}
        for one in ledgers:
            number, name = one["model_id"], one["model"]
            if one["entries"] > MOST:
                found[number] = None
                continue
            heads = [s.head for s in signed if s.head and s.head.origin.endswith(notes.log_name(number, name))]
            rows = verify.ledger_rows(connection, number)
            found[number] = verify.verify_rows(rows, counters=counters.get(number), checkpoints=heads)
    return found


def checkpoints(here: Site) -> list[Signed]:
    """Read the checkpoints of this server's folder, newest first."""
    key, found = here.key(), []
    for file in sorted(here.checkpoints.glob("*.checkpoint")):
        text = file.read_text(encoding="utf-8", errors="replace")
        at = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)
        lines = [*text.split("\n"), "", ""][:2]
        size = int(lines[1]) if lines[1].isdecimal() else 0
        try:
            head = Checkpoint.open(text, [key.public] if key else [])
            found.append(Signed(file.name, head.origin, head.size, at, "", head))
        except errors.MempairError as error:
            found.append(Signed(file.name, lines[0], size, at, error.facts or str(error), None))
    return sorted(found, key=lambda one: one.at, reverse=True)


def _holds(one: Signed, verdicts: Part[dict[int, Verdict | None]]) -> str:
    """Say whether a checkpoint is a beginning of its ledger."""
    if one.head is None:
        return one.problem
    number = one.origin.split("/")[-2]
    verdict = (verdicts.value or {}).get(int(number)) if number.isdecimal() else None
    if verdict is None:
        return "not compared"
    return "holds" if one.size in verdict.checkpoints else "does NOT hold"


def checkpoint_file(request: Request) -> Response:
    """A signed checkpoint as a file."""
    here, wanted = site(request), request.path_params["file"]
    file = next((f for f in here.checkpoints.glob("*.checkpoint") if f.name == wanted), None)
    if file is None:
        raise HTTPException(404, "There is no such checkpoint.")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"}
    return PlainTextResponse(file.read_text(encoding="utf-8"), headers=headers)


@cache
def frauds() -> list[list[Markup]]:
    """Return the table of frauds as the room of verification has it."""
    text = Path(str(verify_room.__file__)).with_name("README.md").read_text(encoding="utf-8")
    lines = text.partition("| somebody …")[2].split("\n\n")[0].splitlines()[2:]
    return [[ticked(cell.strip()) for cell in line.strip("|").split("|")] for line in lines]


def export_file(request: Request) -> Response:
    """The ledger and the state of a model, without rows, as a zip of an export."""
    target = Path(tempfile.mkstemp(prefix="mempair-", suffix=".zip")[1])
    with _exported(request) as (name, made), zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(made.rglob("*")):
            archive.write(file, file.relative_to(made.parent))
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(f'export-{name}', safe='')}.zip"}
    return FileResponse(target, headers=headers, media_type="application/zip", background=BackgroundTask(target.unlink))


def report_file(request: Request) -> Response:
    """The report of a model, without an audit, as one page."""
    from mempair_db.offline import folder  # noqa: PLC0415 - DuckDB and numba take a moment to import
    from mempair_db.pages import report  # noqa: PLC0415

    with _exported(request) as (name, made):
        text = report.render(folder.read(made, name), None)
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(f'report-{name}', safe='')}.html",
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return HTMLResponse(text, headers=headers)


@contextmanager
def _exported(request: Request) -> Iterator[tuple[str, Path]]:
    """Export the model that the address names, for as long as the block runs."""
    from mempair_db.offline import export  # noqa: PLC0415 - DuckDB takes a moment to import

    here = site(request)
    with here.looking() as look:
        name = here.model(look, request)["model"]
    with tempfile.TemporaryDirectory(prefix="mempair-") as temporary:
        made = Path(temporary) / "export"
        export.export(here.dsn(), made, name=name)
        yield name, made
