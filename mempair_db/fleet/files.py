"""Exports of a fleet, and models computed anew from folders of Parquet files: a task is a file, and returns sums.

An export of one model is a folder with model.parquet; one of a fleet is a folder with such a folder for every shard.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mempair_db.database.exact import learnable, refer_rows, total
from mempair_db.errors import InvalidParameter
from mempair_db.fleet import constants
from mempair_db.fleet.compute import Computing
from mempair_db.fleet.config import Fleet, Place
from mempair_db.fleet.constants import Labels
from mempair_db.measure.claims import HOLDS
from mempair_db.measure.equalities import chunks, served_claim
from mempair_db.offline import folder as folders
from mempair_db.offline import names, script
from mempair_db.offline.export import export
from mempair_db.offline.folder import Offline
from mempair_db.pair.payload import Learnable
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums, nothing
from mempair_db.verify.checks import Check, Report


def export_shard(shard: Place, folder: Path, name: str, rows: bool, partitions: int) -> int:
    """Export a shard (a task, on whatever machine the folder is)."""
    return export(shard.dsn, folder, name=name, rows=rows, partitions=partitions).rows


def export_fleet(computing: Computing, name: str, folder: Path, *, rows: bool, partitions: int = 1) -> int:
    """Export every shard into a folder of its own; returns how many rows were written."""
    if folder.exists() and any(folder.iterdir()):
        raise InvalidParameter(f"{folder} is there already and not empty.", remedy="Choose a new folder for --out.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    tasks = [
        computing.submit(export_shard, shard, shard, (folder / shard.name).resolve(), name, rows, partitions)
        for shard in computing.fleet.shards
    ]
    return sum(computing.gather(tasks))


def file_sums(row: dict[str, Any], file: Path, given: Reference) -> Sums:
    """Add up the rows of one file (a task)."""
    added = nothing(given)
    for chunk, _ in chunks(row, [file]):
        added += total(given, script.terms(row), chunk.x, chunk.y, chunk.c)
    return added


def references_of(row: dict[str, Any], files: Sequence[Path], labels: Labels) -> Learnable:
    """Return the reference rows of an export (a task)."""
    parts = [chunk.take(np.flatnonzero(marked).tolist()) for chunk, marked in chunks(row, files)]
    width = len(row["numeric_features"]) + script.has_weight(row)
    x = np.concatenate([np.empty((0, width)), *(part.x for part in parts)])
    c = [values for part in parts for values in part.c]
    y = np.concatenate([np.empty(0), *(part.y for part in parts)])
    return learnable(script.terms(row), x, y, c, labels)


def found_in(folder: Path, name: str | None) -> list[Offline]:
    """Return the model of an export, or those of every shard of a fleet's."""
    if (folder / "model.parquet").exists():
        return [folders.read(folder, name)]
    inside = sorted(path.parent for path in folder.glob("*/model.parquet"))
    if not inside:
        raise InvalidParameter(
            f"{folder} is no export, and has none of a shard.", remedy="Run `mempair export --rows`."
        )
    return [folders.read(path, name) for path in inside]


def verify_files(computing: Computing, folder: Path, name: str | None = None) -> Report:
    """Compute a model anew from the files of its export, and compare: sums, what is served, constants."""
    found = found_in(folder, name)
    first = found[0]
    if first.row["constants"] is None or not first.exact or not all(model.rows_files for model in found):
        raise InvalidParameter(
            f"{folder} has no rows, or no exact model with constants.", remedy="Export again with --rows."
        )
    given = Reference.from_json(_frozen(first))
    submitted = [
        [computing.submit(file_sums, None, model.row, file.resolve(), given) for file in model.rows_files]
        for model in found
    ]
    lines, rows = [], 0
    for model, futures in zip(found, submitted, strict=True):
        found_sums = computing.add(futures)
        rows += found_sums.n
        lines += _shard(model, found_sums, given)
    lines.append(_constants(computing, found, given))
    return Report(first.name, "exact", rows, sum(int(m.row["changes_waiting"]) for m in found), lines)


def _frozen(model: Offline) -> dict[str, Any]:
    """Return the constants of an exported model as plain values."""
    values: dict[str, Any] = json.loads(model.row["constants"])
    return values


def _shard(model: Offline, total: Sums, given: Reference) -> list[Check]:
    row, prefix = model.row, f"{model.row['shard']}: " if model.row["shard"] else ""
    if Reference.from_json(_frozen(model)).to_bytes() != given.to_bytes():
        return [Check(f"{prefix}constants", False, "are not those of the other shards")]
    stored = Sums.from_bytes(row["sums"], *given.shape)
    labels = names.of_sums(given, row["numeric_features"], row["text_features"])
    wrong = names.difference(stored - total, labels)
    detail = f"stored less computed: {wrong}" if wrong else f"are those of the {total.n} rows, bit for bit"
    if row["changes_waiting"]:
        detail = f"{row['changes_waiting']} changes were waiting: let a worker apply them, and export again"
    served = served_claim(row, given, stored)
    return [
        Check(f"{prefix}sums", not wrong and not row["changes_waiting"], detail),
        Check(f"{prefix}served", served.verdict == HOLDS, served.note or "follows from the sums"),
    ]


def _constants(computing: Computing, found: Sequence[Offline], given: Reference) -> Check:
    """Choose the constants again: one database from its reference rows, a fleet by questions to all of its parts."""
    parts = [
        computing.submit(references_of, None, model.row, [file.resolve() for file in model.rows_files], given.labels)
        for model in found
    ]
    row, terms = found[0].row, script.terms(found[0].row)
    if row["shard"] is None:
        (rows,) = computing.gather(parts)
        count, again = len(rows.x), refer_rows(terms, rows, given.labels)
    else:
        count = sum(computing.gather([computing.submit(constants.counted, None, part) for part in parts]))
        again = constants.refer(
            lambda question, asked: computing.gather(
                [computing.submit(constants.answered, None, part, question, asked) for part in parts]
            ),
            terms,
            len(row["numeric_features"]),
            given.labels,
        )
    same = again.to_bytes() == given.to_bytes()
    how = "follow" if same else "do not follow"
    return Check("constants", same, f"{how} from the {count} reference rows")


def alone(workers: int = 2, scheduler: str | None = None) -> Computing:
    """Return Dask for files alone: no shard is asked anything."""
    nowhere = Place("nowhere", "")
    return Computing(Fleet(nowhere, (), scheduler=scheduler, workers=workers))
