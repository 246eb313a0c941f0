"""What a worker says of itself when it has nothing else to say."""

from __future__ import annotations

import pytest

from mempair_db.worker import messages
from mempair_db.worker.messages import QUIET, Messages


def test_a_worker_that_has_been_idle_for_long_says_so_once_and_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(messages.log, "info", lambda text, *values: said.append(text % values))
    worker = Messages()
    worker.met = True
    worker.idle()
    assert not said
    worker.worked -= 3 * QUIET
    worker.spoke -= QUIET + 1
    worker.idle()
    worker.idle()
    assert said == ["idle for 30 minutes; nothing was to be done so far"]
