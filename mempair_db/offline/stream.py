"""The surviving rows as encoded events in memory, for measurements that need them more than once.

`MOST` bytes at most: of a longer stream the first rows are taken, and `Stream.whole` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mempair_db.offline.folder import Offline
from mempair_db.pair.calibration import Epoch, Parameters
from mempair_db.pair.encoding import Matrix
from mempair_db.pair.state import Vector

MOST: Final = 400 << 20


@dataclass(frozen=True)
class Stream:
    """Events of an epoch, encoded."""

    parameters: Parameters
    epoch: Epoch
    ops: npt.NDArray[np.int16]
    X: Matrix
    y: Vector
    whole: bool

    def __len__(self) -> int:
        """Return how many ticks there are."""
        return len(self.ops)

    @property
    def lam(self) -> float:
        """λ."""
        return self.epoch.constants.lam

    def without_gaps(self) -> Stream:
        """Return the rows alone, as a stream of their own."""
        there = self.ops != 0
        return Stream(self.parameters, self.epoch, self.ops[there], self.X[there], self.y[there], self.whole)

    def part(self, begin: int, end: int) -> Stream:
        """Return some of the ticks."""
        s = slice(begin, end)
        return Stream(self.parameters, self.epoch, self.ops[s], self.X[s], self.y[s], False)


def load(model: Offline) -> Stream:
    """Read and encode the rows of an export."""
    live = model.live()
    epoch = live.epoch
    assert epoch is not None  # noqa: S101  (live() has checked)
    most = max(1_000, MOST // (8 * epoch.d))
    ops, X, y = [], [], []
    for rows in model.batches(until=most):
        ops.append(rows.ops)
        X.append(epoch.encoding.encode(rows.x, rows.c))
        y.append(epoch.encoding.encode_target(rows.y))
    return Stream(
        live.parameters,
        epoch,
        np.concatenate([np.empty(0, np.int16), *ops]),
        np.concatenate([np.empty((0, epoch.d)), *X]),
        np.concatenate([np.empty(0), *y]),
        whole=model.clock <= most,
    )
