"""What the pages share: the database, the locks, and how a page is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from mempair_db import __version__, errors, settings
from mempair_db.ledger import keys
from mempair_db.ledger.keys import SigningKey
from mempair_db.pages import template
from mempair_db.web.guard import Locks
from mempair_db.web.jobs import Jobs
from mempair_db.web.live import Hub
from mempair_db.web.look import Look, looking
from mempair_db.web.quality import Quality

LARGEST: Final = 1 << 20  # bytes of a form
RELOAD: Final = 5  # seconds, where there is no script

Form = dict[str, str]


@dataclass
class Site:
    """One server: where it looks, and what it may do."""

    dsn: Callable[[], str]
    locks: Locks
    actions: bool = False
    key_file: Path = field(default_factory=keys.default_path)
    checkpoints: Path = field(default_factory=lambda: settings.home() / "checkpoints")
    quality: Quality = field(default_factory=Quality)
    counts: Counter[int] = field(default_factory=Counter)  # answers by status

    def __post_init__(self) -> None:
        """Start with nothing known and nothing under way."""
        self.hub = Hub(self.dsn, self.quality)
        self.jobs = Jobs(self.dsn, self.hub.notes)

    @contextmanager
    def looking(self) -> Iterator[Look]:
        """Open a read-only connection."""
        with looking(self.dsn()) as look:
            yield look

    def key(self) -> SigningKey | None:
        """Return the key that signs receipts and checkpoints, if there is one here."""
        return keys.load(self.key_file) if self.key_file.exists() else None

    def model(self, look: Look, request: Request) -> dict[str, Any]:
        """Return the model that the address names."""
        number = int(request.path_params["model"])
        found = look.rows("models", model=number)
        if not found:
            raise HTTPException(404, f"There is no model number {number}.")
        return found[0]


def site(request: Request) -> Site:
    """Return the server that the request came to."""
    found: Site = request.app.state.site
    return found


def page(request: Request, name: str, /, *, status: int = 200, reload: int = 0, **values: Any) -> Response:
    """Make a page of ours. `reload`: where there is no script, look again after so many seconds."""
    here = site(request)
    shared = {
        "path": request.url.path,
        "form": here.locks.form,
        "actions": here.actions,
        "version": __version__,
        "reload": reload,
        "done": request.query_params.get("done", ""),
    }
    return HTMLResponse(template.render(f"web/{name}.html", **(shared | values)), status)


def posted(handler: Callable[[Request, Form], Response]) -> Callable[[Request], Any]:
    """Make an endpoint of a function that takes a form; the form must come from a page of ours."""

    async def endpoint(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST:
                raise HTTPException(413, "The form is too large.")
        try:
            form = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body)))
        except ValueError:
            raise HTTPException(400, "This is no form.") from None
        site(request).locks.require_form(request, form)
        return await run_sync(handler, request, form)

    return endpoint


def required(form: Form, name: str) -> str:
    """Return a field that must be there."""
    if not form.get(name):
        raise errors.InvalidParameter(f"{name} is missing.", remedy="Fill it in.")
    return form[name]
