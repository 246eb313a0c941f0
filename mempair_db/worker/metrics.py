"""Prometheus metrics of one worker, served on their own port."""

from __future__ import annotations

from typing import Any

import psycopg
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from mempair_db.database.queries import query
from mempair_db.ledger.record import Outcome
from mempair_db.worker.lag import Ages

FIGURES = {
    "gate": "1 when the model predicts",
    "clock": "Insert events of the epoch",
    "regret_bound": "No static model does better by more than this, summed over the epoch",
    "rho_spent": "Deletion budget spent, in units of 1e-12 rho",
    "rho_left": "Deletion budget left, in units of 1e-12 rho",
}
LAG = {
    "lag_rows": "Captured changes that wait",
    "lag_seconds": "Age of the oldest change that waits, to a second, as far as this worker has seen it",
    "pending_deletions": "Captured deletions that wait",
    "oldest_pending_deletion_seconds": "Age of the oldest deletion that waits",
}
DRIFT = {
    "loss_this_week": "Mean loss of this week's rows before they were learned",
    "loss_at_refresh": "Mean loss of the reference rows at the last refresh",
    "drifts": "1 when new rows are predicted worse than rows at the last refresh",
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
            for name, about in (FIGURES | LAG | DRIFT).items()
        }
        self._ages = Ages()
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
        for model, changes, deletions, deletion_age, oldest, captured in connection.execute(query("lag")).fetchall():
            age = max(self._ages.age(model, oldest, captured), deletion_age)
            for name, value in zip(LAG, (changes, age, deletions, deletion_age), strict=True):
                self._gauges[name].labels(model).set(value)

    def drift(self, connection: psycopg.Connection[Any]) -> None:
        """Look at how well new rows are predicted."""
        for model, *figures in connection.execute(query("drift")).fetchall():
            for name, value in zip(DRIFT, figures, strict=True):
                if value is not None:
                    self._gauges[name].labels(model).set(float(value))

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
