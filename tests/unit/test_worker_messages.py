"""What a worker says of itself when it has nothing else to say."""

from __future__ import annotations

import logging

import pytest

from mempair_db.worker.messages import QUIET, Messages


def test_a_worker_that_has_been_idle_for_long_says_so_once_and_since_when(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("mempair"), "propagate", True)  # a command that ran before took it away
    caplog.set_level(logging.INFO, logger="mempair.worker")
    messages = Messages()
    messages.idle()
    assert not caplog.messages
    messages.worked -= 3 * QUIET
    messages.spoke -= QUIET + 1
    messages.idle()
    messages.idle()
    assert caplog.messages == ["idle for 30 minutes; nothing was to be done so far"]
