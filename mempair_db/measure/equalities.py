"""The audit of an exact model: its claims are equalities, so there is nothing to estimate and nothing to believe.

    constants  =  refer(reference rows)        sums  =  Σ terms(rows)        served  =  fold(solve(sums))

computed from an export with rows; and every key that a table of schema mempair holds is that of a row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from mempair_db.database.exact import OF_A_CLASS, refer, total
from mempair_db.ledger import digest
from mempair_db.measure.claims import FAILS, HOLDS, OPEN, SKIPPED, VOID, Claim
from mempair_db.offline import names, script
from mempair_db.offline.folder import BATCH, Offline
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair import exact, sums
from mempair_db.pair.reference import Reference
from mempair_db.pair.serve import fold
from mempair_db.pair.sums import Sums
from mempair_db.worker.changes import INSERT, Changes
from mempair_db.worker.unusable import unusable

CONSTANTS: Final = ("constants", "The constants follow from the reference rows that are there.")
SUMS: Final = ("sums", "The state is, bit for bit, the one computed from the rows that are there.")
LEARNED: Final = ("learned keys", "The keys that are learned are those of the rows that are there.")
DELETED: Final = ("deleted keys", "No table of the model holds the key of a row that is gone; receipts may.")
DIGEST: Final = ("digest", "The state is the one whose digest the ledger has.")
SERVED: Final = ("served weights", "What is served follows from the state.")
CLOSE: Final = 1e-9
SHOWN: Final = 5


def claims(model: Offline, bars: Bars = silent) -> list[Claim]:
    """Judge every equality on the export."""
    row = model.row
    reason = ""
    if row["constants"] is None:
        reason = "the model has no constants yet"
    elif not model.has_rows:
        reason = "the export has no rows; export again with --rows"
    if reason:
        return [Claim(*claim, SKIPPED, note=reason) for claim in (CONSTANTS, SUMS, SERVED, LEARNED, DELETED)]
    reference = Reference.from_json(json.loads(row["constants"]))
    stored = Sums.from_bytes(row["sums"], *reference.shape)
    served = served_claim(row, reference, stored)
    if row["changes_waiting"]:
        note = f"{row['changes_waiting']} changes wait: run the worker, then export again"
        return [*(Claim(*claim, OPEN, note=note) for claim in (CONSTANTS, SUMS, LEARNED, DELETED)), served]
    learnable: Counter[str] = Counter()
    added, references = sums.nothing(reference), []
    with bars(f"Adding up the rows of {model.name}", model.surviving_rows) as advance:
        for chunk, marked in usable_rows(model):
            added += total(reference, script.terms(row), chunk.x, chunk.y, chunk.c)
            references.append(chunk.take(np.flatnonzero(marked).tolist()))
            learnable.update(chunk.keys)
            advance(len(chunk))
    found = [_constants(row, reference, references), _sums(row, reference, stored, added), served]
    return [*found, *_keys(model, learnable), _digest(model)]


def _digest(model: Offline) -> Claim:
    """Compute the last digest that was published, if the state is still the one it was of."""
    row, entries = model.row, model.ledger.select(["seq", "kind", "detail"]).to_pylist()
    for entry in reversed(entries):
        said = digest.said(entry["kind"], entry["detail"])
        if said is not None:
            salt = row["digest_salt"]
            same = salt is not None and digest.of_state(salt, row["constants"], row["sums"]) == said
            return Claim(*DIGEST, HOLDS if same else FAILS, f"entry {entry['seq']}", "equal")
        if entry["kind"] not in digest.UNCHANGED:
            break
    return Claim(*DIGEST, VOID, note="none was published since the state changed last; a batch that forgets does it")


def _keys(model: Offline, learnable: Counter[str]) -> list[Claim]:
    """Hold every key that a table of ours has against the rows."""
    held = pq.read_table(model.folder / "held_keys.parquet", filters=[("model_id", "=", model.row["id"])]).to_pylist()
    learned = Counter(one["row_key"] for one in held if one["held_in"] == "learned_keys.keys")
    wrong = sorted((learned - learnable) + (learnable - learned))
    there = set(pq.read_table(model.rows_file, columns=["row_key"])["row_key"].to_pylist())
    left = sorted(f"{one['row_key']} in {one['held_in']}" for one in held if one["row_key"] not in there)
    return [
        Claim(*claim, FAILS if keys else HOLDS, f"{len(held)} keys", "equal", ", ".join(keys[:SHOWN]))
        for claim, keys in ((LEARNED, wrong), (DELETED, left))
    ]


def _constants(row: dict[str, Any], stored: Reference, parts: list[Changes]) -> Claim:
    if row["shard"] is not None:
        return Claim(*CONSTANTS, SKIPPED, note="they are a fleet's: `mempair fleet audit` has those of all shards")
    x, y = np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    c = [values for part in parts for values in part.c]
    if not len(x):
        return Claim(*CONSTANTS, FAILS, note="no reference row is there")
    same = refer(script.terms(row), x, y, c, stored.labels).to_bytes() == stored.to_bytes()
    note = "" if json.loads(row["constants"]) == stored.to_json() else "something lies among them that is no constant"
    verdict = HOLDS if same and not note else FAILS
    return Claim(*CONSTANTS, verdict, measured=f"{len(x)} reference rows", limit="equal", note=note)


def _sums(row: dict[str, Any], reference: Reference, stored: Sums, total: Sums) -> Claim:
    labels = names.of_sums(reference, row["numeric_features"], row["text_features"])
    wrong = names.difference(stored - total, labels)
    note = f"stored less computed: {wrong}" if wrong else ""
    if not wrong and row["learned_rows"] != total.n:
        note = f"{row['learned_rows']} keys are learned"
    return Claim(*SUMS, FAILS if note else HOLDS, f"{total.n} rows, {len(labels)} sums", "equal", note)


def served_claim(row: dict[str, Any], reference: Reference, stored: Sums) -> Claim:
    """Compute what is served from the sums, and compare."""
    if row["served_sums"] is not None:  # in a fleet, with those of the other shards
        packed = np.array(row["served_sums"], "<i8").tobytes()
        stored = Sums.from_bytes(packed, *reference.shape)
    terms, published = script.terms(row), json.loads(row["published"])
    classes = published.pop("classes", None) or []
    imputes = terms["on_null"] == "impute"
    solved = exact.solve(reference, stored, terms["ridge"])
    each = [fold(reference, w, terms["curves"], imputes=imputes) for w in solved]
    link = "classes" if reference.labels else "identity" if reference.regression else "logistic"
    computed = each[0] | {"places": json.loads(each[0]["places"]), "link": link, "samples": stored.n}
    if reference.labels:
        computed |= dict.fromkeys(OF_A_CLASS)
    wrong = [name for name, value in computed.items() if not _same(value, published[name])]
    if [one["class"] for one in classes] != list(reference.labels):
        wrong.append("classes")
    for folded, row_of_class in zip(each, classes, strict=False):
        wrong += [f"{name} of a class" for name in OF_A_CLASS if not _same(folded[name], row_of_class[name])]
    if wrong:
        return Claim(*SERVED, FAILS, limit="equal", note=f"other than computed: {', '.join(wrong)}")
    held = published.get("held")
    note = f"it does, but version {held} is held, and served instead" if held is not None else ""
    return Claim(*SERVED, OPEN if note else HOLDS, limit="equal", note=note)


def _same(computed: Any, stored: Any) -> bool:
    if not isinstance(computed, (np.ndarray, float)):
        return bool(computed == stored)
    if stored is None or np.shape(computed) != np.shape(stored):
        return False
    return bool(np.allclose(computed, np.array(stored, float), rtol=CLOSE, atol=CLOSE))


def usable_rows(model: Offline) -> Iterator[tuple[Changes, Any]]:
    """Yield the rows that can be learned, and which of them are reference rows."""
    return chunks(model.row, model.rows_files)


def chunks(row: dict[str, Any], files: Sequence[Path]) -> Iterator[tuple[Changes, Any]]:
    """Yield the rows of some files that can be learned, and which of them are reference rows."""
    _, *features, target, flag = [title for title, _ in script.columns(row)]
    numbers = features[: len(row["numeric_features"]) + script.has_weight(row)]
    texts = features[len(numbers) :]
    for batch in (one for file in files for one in pq.ParquetFile(file).iter_batches(batch_size=BATCH)):
        n = batch.num_rows
        x = np.empty((n, len(numbers)))
        for j, title in enumerate(numbers):
            x[:, j] = batch.column(title).to_numpy(zero_copy_only=False)
        c = list(zip(*(batch.column(title).to_pylist() for title in texts), strict=True)) if texts else ()
        y = batch.column(target).to_numpy(zero_copy_only=False)
        op, seq = np.full(n, INSERT, np.int16), np.zeros(n, np.int64)
        keys = batch.column("row_key").to_pylist()
        rows = Changes(seq=seq, op=op, keys=keys, x=x, c=c, y=y, captured_at=[None] * n)
        skip, regression = script.terms(row)["on_null"] == "skip", script.terms(row)["loss"] in ("squared", "huber")
        reasons = unusable(rows, not skip, regression, True, script.has_weight(row))
        good = [i for i in range(n) if not reasons[i]]
        yield rows.take(good), batch.column(flag).to_numpy(zero_copy_only=False)[good]
