"""Named points of a transaction at which a test may strike. In production `hook` does nothing, and nothing sets it."""

from __future__ import annotations

from collections.abc import Callable


def _nothing(_point: str) -> None:
    pass


hook: Callable[[str], None] = _nothing


def point(name: str) -> None:
    """Tell the hook where we are."""
    hook(name)
