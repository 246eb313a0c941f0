"""The carried state of a certified model in Postgres."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import psycopg

from mempair_db.database.queries import query
from mempair_db.pair import bounds
from mempair_db.pair.calibration import Epoch, Parameters
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.odometer import Odometer
from mempair_db.pair.state import TALLY, State, Vector


class Certified:
    """A certified pair, and what of it the database has already."""

    def __init__(self, parameters: Parameters, categories: Sequence[Sequence[str] | None]) -> None:
        """Begin with nothing learned."""
        self.pair = CertifiedPair(parameters, categories=[list(c) if c is not None else None for c in categories])
        self.stored_epoch: Epoch | None = None
        self.stored_window = (np.zeros((0, 0)), np.zeros((0, 0)))
        self.after_deletion: bytes | None = None  # to be stored instead of the old one, if it is new
        self.new_after_deletion = True

    @property
    def begun(self) -> bool:
        """Whether its constants are chosen."""
        return self.pair.epoch is not None

    @property
    def new_constants(self) -> bool:
        """Whether the database has other constants."""
        return self.pair.epoch is not self.stored_epoch or self.pair.epoch is None

    @property
    def ready(self) -> bool:
        """Whether it predicts."""
        return self.pair.ready

    @ready.setter
    def ready(self, value: bool) -> None:
        self.pair.ready = value

    @property
    def clock(self) -> int:
        """Insert events of the epoch."""
        return int(self.pair.tally("clock")) if self.begun else 0

    @property
    def rows(self) -> int:
        """Rows learned in the epoch."""
        return int(self.pair.tally("rows")) if self.begun else 0

    @property
    def spent(self) -> int:
        """Units of ρ spent in the epoch."""
        return self.pair.odometer.spent if self.begun else 0

    def figures(self) -> dict[str, float]:
        """Where the model stands, for the metrics."""
        if not self.begun:
            return {"gate": 0.0}
        return {
            "gate": float(self.ready),
            "clock": self.clock,
            "regret_bound": bounds.rounded_up(self.pair.regret_bound()),
            "rho_spent": self.spent,
            "rho_left": self.pair.odometer.remaining,
        }

    def constants(self) -> dict[str, Any]:
        """What is frozen, as plain values."""
        return self.pair.epoch.to_json() if self.pair.epoch else {}

    def load(self, connection: psycopg.Connection[Any], row: Mapping[str, Any]) -> None:
        """Take the state up where it was left."""
        epoch = Epoch.from_json(row["constants"])
        spent = Odometer(row["cap"], row["spent"], row["deletions"], row["largest"])
        slots = connection.execute(query("load_window"), {"model": row["id"]}, binary=True).fetchall()
        tau = self.pair.parameters.tau
        self.pair.restore(epoch, unpack({**row, "tau": tau}, epoch.d, slots), spent)
        self.pair.ready = row["ready"]
        used = self.pair.tally("pairs")
        self.stored_epoch, self.new_after_deletion = epoch, False
        self.stored_window = (self.pair.arrays.window_v[:used].copy(), self.pair.arrays.window_r[:used].copy())

    def save(self, connection: psycopg.Connection[Any], common: dict[str, Any]) -> None:
        """Write state, window and published weights."""
        saved = {"checkpoint": self.after_deletion, "new_checkpoint": self.new_after_deletion}
        connection.execute(query("save_state"), common | _pack(self.pair) | saved)
        connection.execute(query("publish"), common | published(self.pair))
        self._save_window(connection, common["model"])

    def _save_window(self, connection: psycopg.Connection[Any], model_id: int) -> None:
        """Write the pairs that are new: a pair comes once per block of rows, so most batches write nothing."""
        pairs = self.pair.tally("pairs")
        stored_v, stored_r = self.stored_window
        if len(stored_v) > pairs:
            connection.execute(query("cut_window"), {"model": model_id, "pairs": pairs})
        for slot in range(pairs):
            v, r = self.pair.arrays.window_v[slot], self.pair.arrays.window_r[slot]
            if slot < len(stored_v) and np.array_equal(stored_v[slot], v) and np.array_equal(stored_r[slot], r):
                continue
            connection.execute(query("save_pair"), {"model": model_id, "slot": slot, "v": v, "r": r})


def _pack(pair: CertifiedPair) -> dict[str, Any]:
    arrays, budget = pair.arrays, pair.odometer
    block = np.concatenate([arrays.block_v, arrays.block_r, arrays.block_theta, arrays.window_vr])
    return {
        "clock": pair.tally("clock"),
        "rows": pair.tally("rows"),
        "anchor": arrays.anchor,
        "theta": arrays.theta,
        "tally": arrays.tally.tobytes(),
        "block": block.astype("<f8").tobytes(),
        "cap": budget.cap,
        "spent": budget.spent,
        "deletions": budget.deletions,
        "largest": budget.largest,
    }


def unpack(row: Mapping[str, Any], d: int, slots: Iterable[tuple[int, Vector, Vector]]) -> State:
    """Return the carried state from the columns of mempair.state and the rows (slot, v, r) of mempair.curvature."""
    tau = row["tau"]
    block: Vector = np.frombuffer(row["block"], "<f8").astype(float)
    window_v, window_r = np.zeros((tau, d)), np.zeros((tau, d))
    for slot, v, r in slots:
        window_v[slot], window_r[slot] = v, r
    return State(
        anchor=row["anchor"],
        theta=row["theta"],
        window_v=window_v,
        window_r=window_r,
        window_vr=block[3 * d :].copy(),
        block_v=block[:d].copy(),
        block_r=block[d : 2 * d].copy(),
        block_theta=block[2 * d : 3 * d].copy(),
        tally=np.frombuffer(row["tally"], TALLY).copy(),
    )


def published(pair: CertifiedPair) -> dict[str, Any]:
    """Return what is served."""
    return pair.served() | {
        "ready": pair.ready,
        "samples": pair.tally("rows"),
        "needed": max(_upward(pair.samples_needed()), pair.tally("rows") + (not pair.ready)),
    }


def _upward(count: int) -> int:
    """Return the next number with two digits and zeros: a regret bound is not told to the last row.

    >>> _upward(7), _upward(1201), _upward(98765)
    (7, 1300, 99000)
    """
    step: int = 10 ** max(len(str(count)) - 2, 0)
    return -(-count // step) * step
