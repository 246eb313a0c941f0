"""Sums of rows that are still being read: one thread adds up while the other waits for the server.

They are of all rows that were read. Those that the batch does not want are subtracted, and where one of them cannot be
learned there are no such sums: then the batch adds up what it learns, as ever.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from mempair_db.database.exact import Exact
from mempair_db.database.models import Model
from mempair_db.database.packed import Rows
from mempair_db.pair.sums import Sums
from mempair_db.worker.unusable import unusable


class Adding:
    """The sums of rows of an exact model, piece by piece."""

    def __init__(self, model: Model) -> None:
        """Begin with none; a model without constants has none."""
        self.sums: Sums | None = None
        self._model = model
        self._engine = model.engine if isinstance(model.engine, Exact) and model.engine.begun else None
        self._thread = ThreadPoolExecutor(1)
        self._parts: list[Future[Sums | None]] = []

    def __enter__(self) -> Adding:
        """Wait for rows."""
        return self

    def add(self, rows: Rows) -> Rows:
        """Take some rows, and hand them back."""
        if self._engine is not None:
            self._parts.append(self._thread.submit(self._sum, self._engine, rows))
        return rows

    def _sum(self, engine: Exact, rows: Rows) -> Sums | None:
        model = self._model
        if any(unusable(rows, model.imputes, model.regression, True, bool(model.terms.get("weighted")))):
            return None
        return engine.sums_of(rows.x, rows.y, rows.c)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the sums; after an error nobody asks for them."""
        self._thread.shutdown(cancel_futures=kind is not None)
        parts = [part.result() for part in self._parts] if kind is None else []
        for part in parts:
            if part is None:
                self.sums = None
                return
            self.sums = part if self.sums is None else self.sums + part


def without(model: Model, sums: Sums | None, rows: Rows, others: npt.NDArray[np.int64]) -> Sums | None:
    """Return the sums of all rows but some, if those of all rows are known."""
    if sums is None or len(others) == 0:
        return sums
    c: Any = [rows.c[i] for i in others.tolist()] if len(rows.c) else ()
    return sums - model.exact.sums_of(rows.x[others], rows.y[others], c)
