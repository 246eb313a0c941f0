"""A declared model as the worker sees it, and its carried state in Postgres."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from mempair_db.database.queries import query
from mempair_db.pair.calibration import Epoch, Parameters
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.odometer import Odometer
from mempair_db.pair.state import TALLY, State, Vector

# Where a parameter and its column have different names: lambda is a word of Python.
_COLUMNS = {"lam": "lambda"}

Window = npt.NDArray[np.float64]


@dataclass
class Model:
    """One row of mempair.model joined with mempair.state, under the lock of the latter."""

    id: int
    name: str
    source: sql.Identifier
    status: str
    reason: str | None
    on_exhausted: str
    epoch: int
    version: int
    numbers: int
    texts: int
    ledger_seq: int
    ledger_hash: bytes | None
    pair: CertifiedPair
    stored_epoch: Epoch | None  # what the database has already, so that it is written only when it changes
    stored_window: tuple[Window, Window]
    checkpoint: bytes | None = None  # to be stored instead of the old one, if `new_checkpoint`
    new_checkpoint: bool = False

    @property
    def queues(self) -> dict[str, sql.Identifier]:
        """The two queue tables, as placeholders `a` and `b` of a query."""
        return {half: sql.Identifier("mempair", f"change_{self.id}_{half}") for half in ("a", "b")}

    def statement(self, name: str) -> sql.Composed:
        """Return a named query with this model's tables and functions filled in."""
        return sql.SQL(query(name)).format(
            source=self.source,
            rows=sql.Identifier("mempair", f"source_{self.id}"),
            **self.queues,
            **{f: sql.Identifier("mempair", f"{f}_{self.id}") for f in ("key", "x", "c", "y")},
        )


def lease(connection: psycopg.Connection[Any], model_id: int) -> Model | None:
    """Lock the model's state row for this transaction and load it; None while another worker has it."""
    row = connection.cursor(row_factory=dict_row).execute(query("lease"), {"model": model_id}, binary=True).fetchone()
    if row is None:
        return None
    declared = row["categories"] or {}
    pair = CertifiedPair(parameters(row), categories=[declared.get(feature) for feature in row["text_features"]])
    window = (np.zeros((0, 0)), np.zeros((0, 0)))
    if row["constants"] is not None:
        epoch = Epoch.from_json(row["constants"])
        spent = Odometer(row["cap"], row["spent"], row["deletions"], row["largest"])
        slots = connection.execute(query("load_window"), {"model": row["id"]}, binary=True).fetchall()
        pair.restore(epoch, unpack(row, epoch.d, slots), spent)
        pair.ready = row["ready"]
        used = pair.tally("pairs")
        window = (pair.arrays.window_v[:used].copy(), pair.arrays.window_r[:used].copy())
    return Model(
        id=row["id"],
        name=row["name"],
        source=sql.Identifier(row["source_schema"], row["source_table"]),
        status=row["status"],
        reason=row["reason"],
        on_exhausted=row["on_exhausted"],
        epoch=row["epoch"],
        version=row["version"],
        numbers=len(row["numeric_features"]),
        texts=len(row["text_features"]),
        ledger_seq=row["ledger_seq"],
        ledger_hash=row["ledger_hash"],
        pair=pair,
        stored_epoch=pair.epoch,
        stored_window=window,
    )


def parameters(row: Mapping[str, Any]) -> Parameters:
    """Return what the user chose, from the columns of mempair.model."""
    names = (field.name for field in fields(Parameters))
    return Parameters(**{name: row[_COLUMNS.get(name, name)] for name in names if _COLUMNS.get(name, name) in row})


def save(connection: psycopg.Connection[Any], model: Model) -> None:
    """Write the state, the window, the published weights and the model's own row."""
    pair = model.pair
    model.version += 1
    common = {"model": model.id, "version": model.version, "epoch": model.epoch}
    ledger = {"ledger_seq": model.ledger_seq, "ledger_hash": model.ledger_hash}
    saved = {"checkpoint": model.checkpoint, "new_checkpoint": model.new_checkpoint}
    if pair.epoch is None:
        connection.execute(query("blank_state"), common | ledger)
        connection.execute(query("blank_published"), common | {"needed": pair.samples_needed()})
    else:
        connection.execute(query("save_state"), common | ledger | _pack(pair) | saved)
        connection.execute(query("publish"), common | _published(pair))
    _save_window(connection, model)
    connection.execute(
        query("save_model"),
        {"model": model.id, "epoch": model.epoch, "status": model.status, "reason": model.reason},
    )
    if pair.epoch is not model.stored_epoch:
        constants = Jsonb(pair.epoch.to_json()) if pair.epoch else None
        connection.execute(query("save_constants"), {"model": model.id, "constants": constants})


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


def _save_window(connection: psycopg.Connection[Any], model: Model) -> None:
    """Write the pairs that are new: a pair comes once per block of rows, so most batches write nothing."""
    pair = model.pair
    pairs = pair.tally("pairs") if pair.epoch else 0
    stored_v, stored_r = model.stored_window
    if len(stored_v) > pairs:
        connection.execute(query("cut_window"), {"model": model.id, "pairs": pairs})
    for slot in range(pairs):
        v, r = pair.arrays.window_v[slot], pair.arrays.window_r[slot]
        if slot < len(stored_v) and np.array_equal(stored_v[slot], v) and np.array_equal(stored_r[slot], r):
            continue
        connection.execute(query("save_pair"), {"model": model.id, "slot": slot, "v": v, "r": r})


def _published(pair: CertifiedPair) -> dict[str, Any]:
    folded = pair.folded()
    assert pair.epoch is not None  # noqa: S101  (folded() has checked)
    return {
        "weights": folded.weights,
        "centers": pair.epoch.encoding.center,
        "intercept": folded.intercept,
        "levels": folded.levels,
        "level_weights": folded.level_weights,
        "ready": pair.ready,
        "samples": pair.tally("rows"),
        "needed": max(pair.samples_needed(), pair.tally("rows") + (not pair.ready)),
    }
