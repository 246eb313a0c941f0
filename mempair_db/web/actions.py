"""What an operator may do where `--allow-actions` says so: each is confirmed on a page that names the model."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mempair_db import errors
from mempair_db.database.connect import connect
from mempair_db.database.queries import query
from mempair_db.ledger import checkpoints
from mempair_db.web.site import Form, Site, page, site

ACTIONS: Final = {
    "pause": ("Pause", "It stops learning and forgetting. Changes are captured all the same, and deletions wait."),
    "resume": ("Resume", "It goes on where it was, with everything that was captured meanwhile."),
    "retrain": ("Retrain", "The next worker reads the whole table anew and begins a new epoch. It predicts meanwhile."),
    "verify": ("Verify", "The model is computed anew from its table and compared. Nothing changes, and nobody waits."),
    "checkpoint": ("Sign a checkpoint of", "This server's key signs the ledger as it is now; the file stays here."),
}
DONE: Final = {
    "pause": "It is paused.",
    "resume": "It goes on.",
    "retrain": "A retrain is requested; the next worker begins it.",
    "verify": "The verification has begun.",
    "checkpoint": "A checkpoint is signed.",
}


def confirm(request: Request) -> Response:
    """Ask before doing it."""
    action, found = _asked(request)
    title, means = ACTIONS[action]
    return page(request, "confirm", model=found, action=action, title=title, means=means)


def act(request: Request, form: Form) -> Response:
    """Do it, if the form names the model."""
    here = site(request)
    action, found = _asked(request)
    if form.get("confirm") != found["model"]:
        raise errors.InvalidParameter("The confirmation does not name the model.", remedy="Confirm on the page.")
    number, name = found["model_id"], found["model"]
    if action == "verify":
        here.jobs.begin(number, name)
        return RedirectResponse(f"/model/{number}/verify", 303)
    if action == "checkpoint":
        sign(here, number, name)
        return RedirectResponse("/audit?done=checkpoint", 303)
    with connect(here.dsn(), application_name="mempair web") as connection:
        if action == "pause":
            connection.execute(query("cli_pause_model"), {"name": name})
        elif action == "resume":
            connection.execute(query("cli_resume_model"), {"name": name})
        else:
            reason = f"requested on the page by {connection.info.user}"
            connection.execute(query("cli_retrain"), {"name": name, "reason": reason})
    return RedirectResponse(f"/model/{number}?done={action}", 303)


def _asked(request: Request) -> tuple[str, dict[str, Any]]:
    here, action = site(request), request.path_params["action"]
    if action not in ACTIONS:
        raise HTTPException(404, "There is no such action.")
    if not here.actions:
        raise HTTPException(403, "This page is read-only. Start it with `mempair web --allow-actions` to act here.")
    with here.looking() as look:
        return action, here.model(look, request)


def sign(here: Site, number: int, name: str) -> None:
    """Sign the ledger as it is, and keep the note; the newest one that is there must be a beginning of it."""
    key = here.key()
    if key is None:
        raise errors.InvalidKey(f"There is no key in {here.key_file}.", remedy="Make one: `mempair keys new`.")
    here.checkpoints.mkdir(parents=True, exist_ok=True)
    stem = f"{number}-{quote(name, safe='')[:80]}"
    files = sorted(here.checkpoints.glob(f"{number}-*.checkpoint"), key=lambda file: file.stat().st_mtime)
    with connect(here.dsn(), application_name="mempair web") as connection:
        earlier = checkpoints.read_if_there(files[-1] if files else None, [key.public])
        note = checkpoints.make(connection, name, key, earlier)
    checkpoints.replace(here.checkpoints / f"{stem}-{note.splitlines()[1]}.checkpoint", note)


def verify(request: Request) -> Response:
    """How far the newest verification is, and what it found."""
    here = site(request)
    with here.looking() as look:
        found = here.model(look, request)
    job = here.jobs.of(found["model_id"])
    running = job is not None and job.seconds is None
    return page(request, "verify", model=found, job=job, reload=2 if running else 0)
