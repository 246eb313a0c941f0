"""What the worker says: one line per transaction, for people or for machines. Never a row's values, never a key."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

FIELDS = ("model", "learned", "unlearned", "cancelled", "rejected", "retrained", "seconds")


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "at": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        return json.dumps(line | fields(record), ensure_ascii=False)


class Lines(logging.Formatter):
    """Time, level, message, and the facts as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        facts = "".join(f" {key}={value}" for key, value in fields(record).items())
        line = f"{at} {record.levelname.lower()} {record.getMessage()}{facts}"
        if line.isprintable():
            return line
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)  # a name must not forge a line


def fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the facts a record carries."""
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def configure(*, as_json: bool) -> None:
    """Send the worker's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else Lines())
    logger = logging.getLogger("mempair")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
