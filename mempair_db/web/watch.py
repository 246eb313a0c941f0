"""For machines: is it well, and figures for Prometheus."""

from __future__ import annotations

from collections import Counter

import psycopg
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mempair_db import errors
from mempair_db.web.site import site


class Counting:
    """Counts answers by their status."""

    def __init__(self, app: ASGIApp, counts: Counter[int]) -> None:
        """Count into `counts`."""
        self.app, self.counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.counts[message["status"]] += 1
            await send(message)

        await self.app(scope, receive, counted)


def healthz(request: Request) -> Response:
    """Whether the database answers and fits; to whoever asks, so no more than that."""
    try:
        with site(request).looking() as look:
            look.rows("stamp")
    except (psycopg.Error, errors.MempairError):
        return PlainTextResponse("not well: the database does not answer, or does not fit\n", 503)
    return PlainTextResponse("ok\n")


def metrics(request: Request) -> Response:
    """What waits where, as the database has it."""
    here = site(request)
    deletions = GaugeMetricFamily("mempair_web_pending_deletions", "Captured deletions that wait", labels=["model"])
    oldest = GaugeMetricFamily(
        "mempair_web_oldest_pending_deletion_seconds", "Age of the oldest deletion that waits", labels=["model"]
    )
    rows = GaugeMetricFamily("mempair_web_rows_learned", "Rows that the model knows", labels=["model"])
    alive = GaugeMetricFamily("mempair_web_workers_alive", "Workers heard of in the last minute")
    requests = CounterMetricFamily("mempair_web_requests", "Answers by status", labels=["status"])
    with here.looking() as look:
        for model in look.rows("models", model=None):
            deletions.add_metric([model["model"]], model["pending_deletions"])
            oldest.add_metric([model["model"]], model["waited"].total_seconds() if model["waited"] else 0.0)
            rows.add_metric([model["model"]], model["rows_learned"])
        alive.add_metric([], sum(bool(worker["alive"]) for worker in look.rows("workers")))
    for status, count in sorted(here.counts.items()):
        requests.add_metric([str(status)], count)
    registry = CollectorRegistry()
    registry.register(_Given([deletions, oldest, rows, alive, requests]))
    return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")


class _Given(Collector):
    """Metrics that are already there."""

    def __init__(self, given: list[GaugeMetricFamily | CounterMetricFamily]) -> None:
        self.given = given

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """Return them."""
        return self.given
