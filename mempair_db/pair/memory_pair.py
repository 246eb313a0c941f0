"""`MemoryPair`: a learner and an unlearner over one state. Which of the two pairs it is, `unlearner` says.

    exact                 the default: learning adds integers, unlearning subtracts the same integers (EXACT.md)
    symmetric, passive    certified: noise hides the row and an odometer counts (README.md)

>>> type(MemoryPair()).__name__, type(MemoryPair(unlearner="passive", epsilon=1.0)).__name__
('ExactPair', 'CertifiedPair')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidParameter


class MemoryPair:
    """What both pairs can do. Constructing it gives one of them."""

    def __new__(cls, parameters: Any = None, **options: Any) -> MemoryPair:
        """Choose by the unlearner."""
        kind = _pair_for(options.get("unlearner", getattr(parameters, "unlearner", "exact")))
        return super().__new__(kind if cls is MemoryPair else cls)

    def __init__(self, parameters: Any = None, **options: Any) -> None:
        """Take the parameters as an object or as keywords; they are `ExactPair`'s or `CertifiedPair`'s."""

    ready: bool

    def learn_one(self, x: Any, y: Any, c: Any = ()) -> None:
        """Learn one row."""
        raise NotImplementedError

    def unlearn_one(self, x: Any, y: Any, c: Any = ()) -> None:
        """Forget one row that was learned."""
        raise NotImplementedError

    def learn_many(self, x: Any, y: Any, c: Any = ()) -> None:
        """Learn rows."""
        raise NotImplementedError

    def predict_one(self, x: Any, c: Any = ()) -> float:
        """Return the probability of yes, or the value of a regression."""
        raise NotImplementedError

    def predict_many(self, x: Any, c: Any = ()) -> Any:
        """Predict rows in order."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return everything as plain values and bytes."""
        raise NotImplementedError

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> MemoryPair:
        """Rebuild what `state` returned."""
        return _pair_for(saved["parameters"]["unlearner"]).from_state(saved)


def _pair_for(unlearner: str) -> type[MemoryPair]:
    """Import on first use: the certified pair compiles its kernel."""
    if unlearner == "exact":
        from .exact_model import ExactPair  # noqa: PLC0415

        return ExactPair
    if unlearner not in ("symmetric", "passive"):
        raise InvalidParameter(f"unlearner is {unlearner!r}.", remedy="Choose one of exact, symmetric, passive.")
    from .model import CertifiedPair  # noqa: PLC0415

    return CertifiedPair
