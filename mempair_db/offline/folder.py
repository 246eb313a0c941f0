"""Read an export back: the live state as it was, the ledger, and the surviving rows batch by batch in tick order."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mempair_db.database import models
from mempair_db.database.certified import unpack
from mempair_db.errors import InvalidParameter, ModelNotReady, UnknownModel
from mempair_db.offline import script
from mempair_db.offline.export import FORMAT, export
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair import events
from mempair_db.pair.calibration import Epoch
from mempair_db.pair.encode import Matrix, Texts
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.odometer import Odometer
from mempair_db.pair.state import Vector, unpack_after_deletion

Ticks = npt.NDArray[np.int64]

BATCH: Final = 50_000


@dataclass(frozen=True)
class Rows:
    """Rows in tick order, as the kernel's events: a tick whose row is gone is a TICK without data."""

    ticks: Ticks
    ops: npt.NDArray[np.int16]
    x: Matrix
    c: Texts
    y: Vector

    def __len__(self) -> int:
        """Return how many ticks there are."""
        return len(self.ticks)

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """Which ticks have a row."""
        return np.equal(self.ops, events.INSERT)


@dataclass(frozen=True)
class Offline:
    """One model of an export."""

    folder: Path
    row: dict[str, Any]

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.row["name"])

    @property
    def clock(self) -> int:
        """The live clock."""
        return int(self.row["clock"])

    @property
    def has_rows(self) -> bool:
        """Whether the surviving rows were exported too."""
        return self.rows_file.exists()

    @property
    def exact(self) -> bool:
        """Whether the model is an exact one, which has no order and no noise."""
        return script.is_exact(self.row)

    @property
    def rows_file(self) -> Path:
        """Where the rows are, if they were exported."""
        return self.folder / f"rows_{self.row['id']}.parquet"

    @property
    def rows_files(self) -> list[Path]:
        """All files with rows: one, or many in a folder of that name; none, if rows were not exported."""
        if self.rows_file.is_dir():
            return sorted(self.rows_file.glob("*/*.parquet"))
        return [self.rows_file] if self.has_rows else []

    @cached_property
    def ledger(self) -> pa.Table:
        """The model's ledger in order."""
        table = pq.read_table(self.folder / "ledger.parquet")
        return table.filter(pc.equal(table["model_id"], self.row["id"])).sort_by("seq")

    @cached_property
    def learned_rows(self) -> int:
        """How many rows the epoch knows, whether or not the source still has them."""
        return int(self.row["learned_rows"])

    @cached_property
    def surviving_rows(self) -> int:
        """How many of them are in the export."""
        return sum(int(pq.read_metadata(file).num_rows) for file in self.rows_files)

    def live(self) -> CertifiedPair:
        """Return the model as it stood at the export, a new copy each time."""
        if self.exact:
            raise InvalidParameter(
                f"{self.name} is an exact model: it has no order to replay and no noise to measure.",
                remedy="`mempair audit` computes it anew from its rows and compares; so does `mempair verify`.",
            )
        if self.row["constants"] is None:
            raise ModelNotReady(
                f"{self.name} had not calibrated when it was exported.",
                remedy="Insert more rows and run the worker, then export again.",
            )
        pair = CertifiedPair(models.parameters(self.row))
        epoch = Epoch.from_json(json.loads(self.row["constants"]))
        row = {**self.row, "anchor": np.array(self.row["anchor"]), "theta": np.array(self.row["theta"])}
        spent = Odometer(row["cap"], row["spent"], row["deletions"], row["largest"])
        pair.restore(epoch, unpack(row, epoch.d, self._window()), spent)
        pair.ready = bool(row["ready"])
        return pair

    def after_last_deletion(self) -> CertifiedPair | None:
        """Return the model as it stood right after the epoch's last deletion by noise; None if there was none."""
        if self.row["checkpoint"] is None:
            return None
        pair = self.live()
        if pair.epoch is not None:
            state = unpack_after_deletion(self.row["checkpoint"], pair.parameters.tau)
            pair.restore(pair.epoch, state, pair.odometer)
        return pair

    def _window(self) -> Iterator[tuple[int, Vector, Vector]]:
        for pair in pq.read_table(self.folder / "curvature.parquet").to_pylist():
            if pair["model_id"] == self.row["id"]:
                yield pair["slot"], np.array(pair["v"]), np.array(pair["r"])

    def batches(self, *, after: int = 0, until: int | None = None, size: int = BATCH) -> Iterator[Rows]:
        """Yield the events of the ticks after `after` up to `until` (the live clock), `size` ticks at a time."""
        self._need_rows()
        clock, last = after, self.clock if until is None else min(until, self.clock)
        for batch in pq.ParquetFile(self.rows_file).iter_batches(batch_size=size):
            ticks = batch.column("tick").to_numpy()
            keep = (ticks > clock) & (ticks <= last)
            if not keep.any():
                continue
            found = batch if keep.all() else batch.filter(pa.array(keep))
            ticks = ticks[keep]
            x, c, y = self._arrays(found)
            for begin in range(clock, int(ticks[-1]), size):
                end = min(begin + size, int(ticks[-1]))
                here = slice(*np.searchsorted(ticks, (begin + 1, end + 1)))
                yield self._events(begin, end, ticks[here], x[here], c[here], y[here])
            clock = int(ticks[-1])
        for begin in range(clock, last, size):
            empty = np.empty(0, np.int64)
            yield self._events(begin, min(begin + size, last), empty, np.empty((0, self._numbers)), [], np.empty(0))

    @property
    def _numbers(self) -> int:
        return len(self.row["numeric_features"])

    def _arrays(self, batch: pa.RecordBatch) -> tuple[Matrix, Texts, Vector]:
        x = batch.column("x").flatten().to_numpy(zero_copy_only=False).reshape(batch.num_rows, self._numbers)
        texts = len(self.row["text_features"])
        c = list(map(tuple, batch.column("c").to_pylist())) if texts else [()] * batch.num_rows
        return x, c, batch.column("y").to_numpy(zero_copy_only=False)

    def _events(self, begin: int, end: int, ticks: Ticks, x: Matrix, c: Texts, y: Vector) -> Rows:
        """Spread rows over the ticks begin + 1 … end."""
        every = np.arange(begin + 1, end + 1)
        if len(ticks) == len(every):
            return Rows(every, np.full(len(every), events.INSERT, np.int16), x, c, y)
        at = (ticks - begin - 1).astype(np.intp)
        ops, tall = np.full(len(every), events.TICK, np.int16), np.zeros(len(every))
        wide = np.zeros((len(every), x.shape[1]))
        ops[at], wide[at], tall[at] = events.INSERT, x, y
        texts: list[tuple[str | None, ...]] = [(None,) * len(self.row["text_features"])] * len(every)
        for position, values in zip(at, c, strict=True):
            texts[position] = tuple(values)
        return Rows(every, ops, wide, texts, tall)

    def _need_rows(self) -> None:
        if not self.has_rows:
            raise InvalidParameter(
                f"{self.folder} has no rows of {self.name}: they are personal data and were not exported.",
                remedy="Export again with --rows.",
            )


def read(folder: Path, name: str | None = None) -> Offline:
    """Open one model of an export; without a name, its only one."""
    file = folder / "model.parquet"
    if not file.exists():
        raise InvalidParameter(f"{folder} is not an export: it has no model.parquet.", remedy="Run `mempair export`.")
    found = pq.read_table(file).to_pylist()
    if found and found[0]["format"] != FORMAT:
        raise InvalidParameter(
            f"{folder} has format {found[0]['format']}, this version reads {FORMAT}.", remedy="Export again."
        )
    chosen = [row for row in found if name in (None, row["name"])]
    if len(chosen) != 1:
        names = ", ".join(row["name"] for row in found)
        raise UnknownModel(f"{folder} has {names}; asked for {name or 'the only one'}.", remedy="Name one of them.")
    row = {"lambda": chosen[0]["chosen_lambda"], **chosen[0]}
    times = {name: at.replace(tzinfo=timezone.utc) for name, at in row.items() if isinstance(at, datetime)}
    return Offline(folder, script.terms(row | times))  # what the epoch promised, whatever is declared now


@contextmanager
def offline(name: str | None, *, folder: Path | None = None, dsn: str = "", bars: Bars = silent) -> Iterator[Offline]:
    """Open a model of an export, or of a temporary one that is made now, with its rows, and removed afterwards."""
    if folder is not None:
        yield read(folder, name)
        return
    with tempfile.TemporaryDirectory(prefix="mempair-") as temporary:
        export(dsn, Path(temporary) / "export", name=name, rows=True, bars=bars)
        yield read(Path(temporary) / "export", name)
