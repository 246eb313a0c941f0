"""How the pages say things: events, states, spans of time."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any, Final

from markupsafe import Markup, escape

from mempair_db.pages.template import ENVIRONMENT, span

KINDS: Final = {
    "learned": "learned",
    "updated": "updated",
    "unlearned": "forgotten",
    "cancelled": "deleted before it was learned",
    "rejected": "refused",
    "retrained": "refreshed: the table was read anew",
    "calibrated": "constants chosen",
    "gate_opened": "predictions opened",
    "epoch": "new epoch",
    "exhausted": "budget spent",
    "purged": "erased from the queue",
    "attested": "attested",
    "config": "changed by an operator",
}

FILTERS: Final = {
    "all": None,
    "learned": ["learned", "updated", "calibrated"],
    "forgotten": ["unlearned", "cancelled"],
    "refreshed": ["retrained", "epoch", "exhausted", "gate_opened"],
    "checkpoints": ["attested", "purged", "config"],
    "refused": ["rejected"],
}
"""What the events of a model can be filtered by."""

STATES: Final = {
    "ready": ("good", "predicts"),
    "learning": ("wait", "learning: not enough rows yet"),
    "calibrating": ("wait", "waiting for the first rows"),
    "retraining": ("wait", "reading its table anew"),
    "paused": ("wait", "paused"),
    "exhausted": ("bad", "budget spent: halted"),
    "failed": ("bad", "failed"),
}


def stamp(at: datetime | None) -> str:
    """Write a time to the second, in UTC."""
    return f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}" if at else "never"


def figure(value: Any, digits: int = 3) -> str:
    """Write a number for people.

    >>> [figure(v) for v in (None, 1234567, 0.12345, -2.0)]
    ['', '1,234,567', '0.123', '−2.000']
    """
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}f}".replace("-", "−")


def predicts(model: dict[str, Any]) -> str:
    """Say what a model predicts."""
    what = str(model["target"])
    return f"{what} = {model['positive']}" if model["positive"] else what


def ticked(text: str) -> Markup:
    """Show what stands between backticks as code.

    >>> str(ticked("run `a < b`"))
    'run <code>a &lt; b</code>'
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


ENVIRONMENT.filters.update(span=span, stamp=stamp, figure=figure, predicts=predicts, ticked=ticked)
