"""For how long the oldest change of a model has waited: inserts are captured without a time, to be cheap."""

from __future__ import annotations

import time
from collections import deque


class Ages:
    """Remembers looks at the queues: what was captured by when."""

    def __init__(self) -> None:
        """Begin without any."""
        self._looks: dict[object, deque[tuple[float, int]]] = {}

    def age(self, model: object, oldest: int | None, captured: int) -> float:
        """Return for how long the change with this number has waited: since the last look that it was not there.

        `oldest` is the number of the oldest change that waits, `captured` that of the last one that was captured.
        """
        now = time.monotonic()
        looks = self._looks.setdefault(model, deque())
        looks.append((now, captured))
        while len(looks) > 1 and (oldest is None or looks[1][1] < oldest):
            looks.popleft()
        return now - looks[0][0]
