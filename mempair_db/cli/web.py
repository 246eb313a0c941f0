"""The live page."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Annotated

import typer

from mempair_db import errors
from mempair_db.cli.common import Dsn, app, say
from mempair_db.cli.evidence import KeyFile
from mempair_db.embedded import server


@app.command()
def web(
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8787,
    host: Annotated[str, typer.Option(help="The address to serve on.")] = "127.0.0.1",
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Let pages pause, resume, retrain, verify and sign.")
    ] = False,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let everybody on this machine in; loopback addresses only.")
    ] = False,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Where signed checkpoints are kept. Default: checkpoints under MEMPAIR_HOME.")
    ] = None,
    key: KeyFile = None,
    dsn: Dsn = None,
) -> None:
    """Serve a live page: models, a person's request, the audit. Read-only unless --allow-actions is given."""
    try:
        import uvicorn  # noqa: PLC0415 - an extra

        from mempair_db.web.app import build  # noqa: PLC0415
        from mempair_db.web.guard import Locks  # noqa: PLC0415
        from mempair_db.web.site import Site  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise errors.ExtraMissing(f"{error.name} is missing.", remedy="pip install 'mempair_db[web]'") from error

    locks = Locks.of(host, no_token=no_token)
    server.ensure(dsn)
    here = Site(lambda: server.ensure(dsn), locks, actions=allow_actions)
    here.key_file, here.checkpoints = key or here.key_file, checkpoints or here.checkpoints
    listening = _listen(host, port)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/"
    say("Serving what models learn and forget" + ("" if allow_actions else ", read-only") + ". Open:")
    say(f"  {address}" + (f"?token={locks.token}" if locks.token else ""))
    settings = uvicorn.Config(
        build(here), log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1
    )
    uvicorn.Server(settings).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """Open the socket first, so that a taken port is an error with a remedy."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as given_up:
            listening = given_up.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen()
            given_up.pop_all()
    except OSError as error:
        raise errors.InvalidParameter(
            f"The page cannot be served on {host}:{port}: {error.strerror}.", remedy="Choose another --port or --host."
        ) from error
    return listening
