"""How the pages say things: events, states, spans of time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from markupsafe import Markup, escape

from mempair_db.pages.template import ENVIRONMENT

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


def span(length: timedelta | float | None) -> str:
    """Write a length of time in one unit.

    >>> [span(n) for n in (None, 0.02, 5, 300, 9000, 200000, 2592000)]
    ['', 'less than a second', '5 s', '5 min', '2.5 h', '2.3 days', '30 days']
    """
    if length is None:
        return ""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 1:
        return "less than a second"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or (size == 60 and seconds >= 120):
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


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
