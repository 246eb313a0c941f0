"""Who gets in, and what a browser may do with what it gets.

token    printed at the start; a link with it sets a cookie, scripts send it as `Authorization: Bearer`
form     every POST carries a secret of this process, so that no other site can send one in the user's name
host     on a loopback address only its own names are answered: another name that resolves to it is an attack
headers  nothing from elsewhere, no inline script or style, no frames, no copies kept
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mempair_db import errors

COOKIE: Final = "mempair_token"
OPEN: Final = ("/healthz", "/login")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Locks:
    """The secrets of one process."""

    host: str
    token: str | None = field(default_factory=lambda: secrets.token_urlsafe(32))
    form: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @classmethod
    def of(cls, host: str, *, no_token: bool) -> Locks:
        """Refuse to serve other machines without a token."""
        if not no_token:
            return cls(host)
        if not is_loopback(host):
            raise errors.InvalidParameter(
                f"--no-token goes with a loopback address only, and --host is {host}.",
                remedy="Leave --no-token out: everybody who can reach the address would see every model.",
            )
        return cls(host, None)

    def admits(self, given: str | None) -> bool:
        """Whether this is the token, or none is needed."""
        return self.token is None or (given is not None and hmac.compare_digest(given.encode(), self.token.encode()))

    def require_form(self, request: Request, form: dict[str, str]) -> None:
        """Refuse a form that no page of ours has sent."""
        if not hmac.compare_digest(form.get("form", "").encode(), self.form.encode()):
            raise Refused("The form does not come from a page of this server, or the server was restarted.")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refused("The form was sent by another site.")


class Refused(Exception):
    """A request that is not answered, with the reason."""


class Guard:
    """Stands before every page."""

    def __init__(self, app: ASGIApp, locks: Locks) -> None:
        """Guard `app`."""
        self.app, self.locks = app, locks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or say why not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(Request(scope))
        await (answer or self.app)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """Return what stands in the way, if anything does."""
        if is_loopback(self.locks.host) and not is_loopback(_name(request.headers)):
            return Response("This name is not of this server.\n", 421, media_type="text/plain")
        path = request.url.path
        if path in OPEN or path.startswith("/static/"):
            return None
        if "token" in request.query_params and self.locks.admits(request.query_params["token"]):
            others = [(k, v) for k, v in request.query_params.multi_items() if k != "token"]
            there = RedirectResponse(path + (f"?{urlencode(others)}" if others else ""), 303)
            remember(there, self.locks)
            return there
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer if scheme.lower() == "bearer" else request.cookies.get(COOKIE)
        if self.locks.admits(given):
            return None
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        return Response("A token is needed.\n", 401, {"www-authenticate": "Bearer"}, "text/plain")


def remember(response: Response, locks: Locks) -> None:
    """Keep the token in the browser, out of reach for scripts and other sites."""
    response.set_cookie(COOKIE, locks.token or "", httponly=True, samesite="lax")


def _name(headers: Headers) -> str:
    """Return the host that was asked for, without its port."""
    host = headers.get("host", "")
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
