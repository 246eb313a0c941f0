"""What the user of an exact pair chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from ..errors import InvalidParameter, refuse_unknown
from . import limits
from .exact import RIDGE
from .limits import LARGEST_CLIP

CERTIFIED: Final = ("epsilon", "delta", "lam", "m", "tau", "kappa", "mode", "pairs", "schedule")


@dataclass(frozen=True, kw_only=True)
class ExactParameters:
    """What the user chooses: names and defaults of ``mempair.create_model``, which calibrates from 100 rows."""

    loss: str = "logistic"
    ridge: float = RIDGE
    gamma: float = 0.1
    curves: int | None = None  # knots per number; None: see `curves_for`
    times: Sequence[int | str] = ()  # numbers that are points in time, by name or place, beside dates and datetimes
    clip: float = 1.0
    calibration_rows: int = 100
    on_null: str = "impute"
    unlearner: str = "exact"
    weighted: bool = False
    class_weight: str | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        limits.check(self)
        if self.clip > LARGEST_CLIP:
            raise InvalidParameter(f"clip is {self.clip}.", remedy=f"Give at most {LARGEST_CLIP:g}.")
        choices: dict[str, tuple[Any, ...]] = {
            "loss": ("logistic", "squared", "huber", "classes"),
            "on_null": ("skip", "impute"),
            "unlearner": ("exact",),
            "class_weight": (None, "balanced"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                remedy = f"Choose one of {', '.join(map(str, allowed))}."
                raise InvalidParameter(f"{name} is {getattr(self, name)!r}.", remedy=remedy)
        if self.class_weight is not None and self.loss in ("squared", "huber"):
            raise InvalidParameter("class_weight belongs to classes.", remedy="Leave it out for a regression.")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ExactParameters:
        """Take keywords; those of the certified unlearners are refused."""
        for name in CERTIFIED:
            if name in options:
                raise InvalidParameter(
                    f"{name} belongs to the certified unlearners: an exact pair adds no noise and has no budget.",
                    remedy="Leave it out, or choose unlearner='symmetric' or 'passive'.",
                )
        refuse_unknown("MemoryPair has no parameter", options, [field.name for field in fields(cls)])
        return cls(**options)
