"""The server: addresses, errors, and how it is started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psycopg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mempair_db import errors
from mempair_db.pages import template
from mempair_db.web import actions, audit, labels, models, person, watch
from mempair_db.web.guard import Guard, Refused, remember
from mempair_db.web.site import Form, Site, page, posted, site

STATIC: Final = Path(__file__).with_name("static")


def build(here: Site) -> Starlette:
    """Return the application."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with here.hub.running():
            yield

    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Guard, locks=here.locks), Middleware(watch.Counting, counts=here.counts)],
        exception_handlers={
            HTTPException: _http,
            Refused: _refused,
            errors.MempairError: _failed,
            psycopg.Error: _database,
        },
        lifespan=lifespan,
    )
    app.state.site = here
    return app


def login(request: Request) -> Response:
    """Ask for the token."""
    return page(request, "login", wrong=False)


def logged_in(request: Request, form: Form) -> Response:
    """Take the token."""
    locks = site(request).locks
    if not locks.admits(form.get("token", "").strip()):
        return page(request, "login", wrong=True, status=401)
    there = RedirectResponse("/", 303)
    remember(there, locks)
    return there


async def live(request: Request) -> Response:
    """Say when something changes."""
    return StreamingResponse(site(request).hub.events(), media_type="text/event-stream")


async def style(_request: Request) -> Response:
    """The style of all pages, reports and receipts included."""
    return Response(template.asset("style.css") + template.asset("web/web.css"), media_type="text/css")


async def script(_request: Request) -> Response:
    """What checks a receipt; receipts as files carry the same."""
    return Response(template.asset("check.js"), media_type="text/javascript")


def _http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    return _message(request, status, "Nothing to see here" if status == 404 else "This is not possible", detail)


def _refused(request: Request, error: Exception) -> Response:
    return _message(request, 403, "Refused", f"{error} Go back, load the page again, and send the form again.")


def _failed(request: Request, error: Exception) -> Response:
    return _message(request, 400, "This did not work", str(error))


def _database(request: Request, error: Exception) -> Response:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        text = f"{error.diag.message_primary}. {models.GRANT.format(role='ROLE')}"
        return _message(request, 403, "The database does not allow this", text)
    said = (isinstance(error, psycopg.Error) and error.diag.message_primary) or str(error).strip()
    return _message(request, 503, "The database does not answer", said)


def _message(request: Request, status: int, title: str, text: str) -> Response:
    if "text/html" in request.headers.get("accept", "text/html"):
        return page(request, "message", status=status, title=title, text=text)
    return PlainTextResponse(f"{title}: {text}\n", status)


MODEL: Final = "/model/{model:int}"
ROUTES: Final = [
    Route("/", models.overview),
    Route(MODEL, models.model),
    Route(f"{MODEL}/quality", models.quality),
    Route(f"{MODEL}/score", models.score, methods=["GET"]),
    Route(f"{MODEL}/score", posted(models.scored), methods=["POST"]),
    Route(f"{MODEL}/events", models.events),
    Route(f"{MODEL}/verify", actions.verify),
    Route(f"{MODEL}/act/{{action}}", actions.confirm, methods=["GET"]),
    Route(f"{MODEL}/act/{{action}}", posted(actions.act), methods=["POST"]),
    Route(f"{MODEL}/export.zip", audit.export_file),
    Route(f"{MODEL}/report.html", audit.report_file),
    Route("/request", person.ask, methods=["GET"]),
    Route("/request", posted(person.answer), methods=["POST"]),
    Route("/receipt", posted(person.receipt), methods=["POST"]),
    Route("/check", person.check),
    Route("/audit", audit.audit),
    Route("/ledger/{model:int}", audit.ledger),
    Route("/checkpoint/{file}", audit.checkpoint_file),
    Route("/login", login, methods=["GET"]),
    Route("/login", posted(logged_in), methods=["POST"]),
    Route("/live", live),
    Route("/healthz", watch.healthz),
    Route("/metrics", watch.metrics),
    Route("/static/style.css", style),
    Route("/static/check.js", script),
    Mount("/static", StaticFiles(directory=STATIC)),
]
assert labels.KINDS  # noqa: S101 - registers the templates' filters
