"""Features as people write them in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Features: TypeAlias = str | Mapping[Any, str | None] | Sequence[Any]
"""A list, one text, or a mapping to how each is read."""


def feature_list(features: Features) -> list[Any]:
    """Return features one by one, as SQL understands them.

    >>> feature_list("age, plan")
    ['age', 'plan']
    >>> feature_list({"age": None, "signed_up": "cyclical"})
    ['age', 'signed_up:cyclical']
    """
    if isinstance(features, str):
        return [each.strip() for each in features.split(",")]
    if isinstance(features, Mapping):
        return [f"{name}:{how}" if how and how != "plain" else name for name, how in features.items()]
    return list(features)
