"""Prometheus metrics of one worker, served on their own port."""

from __future__ import annotations

from typing import Any

import psycopg
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from mempair_db.catalog.queries import query
from mempair_db.worker.record import Outcome

FIGURES = {
    "gate": "1 when the model predicts",
    "clock": "Insert events of the epoch",
    "regret_bound": "No static model does better by more than this, summed over the epoch",
    "rho_spent": "Deletion budget spent, in units of 1e-12 rho",
    "rho_left": "Deletion budget left, in units of 1e-12 rho",
}
LAG = {
    "lag_rows": "Captured changes that wait",
    "pending_deletions": "Captured deletions that wait",
    "oldest_pending_deletion_seconds": "Age of the oldest deletion that waits",
}


class Metrics:
    """Counts what this worker does, and shows where its models stand."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        """Serve the metrics at once."""
        registry = CollectorRegistry()
        self._events = Counter("mempair_events", "Events by what became of them", ["model", "kind"], registry=registry)
        self._seconds = Histogram("mempair_batch_seconds", "Time of one transaction", ["model"], registry=registry)
        self._gauges = {
            name: Gauge(f"mempair_{name}", about, ["model"], registry=registry)
            for name, about in (FIGURES | LAG).items()
        }
        self._server, _ = start_http_server(port, addr=host, registry=registry)
        self.port = self._server.server_port

    def count(self, model: str, outcome: Outcome, seconds: float) -> None:
        """Add one transaction."""
        for kind in ("learned", "unlearned", "cancelled", "rejected"):
            self._events.labels(model, kind).inc(getattr(outcome, kind))
        self._seconds.labels(model).observe(seconds)
        for name, value in outcome.figures.items():
            self._gauges[name].labels(model).set(value)

    def lag(self, connection: psycopg.Connection[Any]) -> None:
        """Look at what waits."""
        for model, *values in connection.execute(query("lag")).fetchall():
            for name, value in zip(LAG, values, strict=True):
                self._gauges[name].labels(model).set(value)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
