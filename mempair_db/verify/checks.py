"""F(S, R) computed from the table and compared with what is stored: `mempair verify`.

For an exact model the state is a function of the rows (EXACT.md, 3). With what waits in the queue, under one snapshot:

    constants  =  refer(reference rows)          as they are in the table, or waiting to leave it
    sums       =  Σ terms(rows of the table) − Σ terms(what waits)
    served     =  fold(solve(sums))
    learned    =  (key, fingerprint) of the table's rows, less what waits

A certified model has noise in its state, so of the four equalities the second is not there (its state: `audit`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import psycopg
from psycopg import IsolationLevel

from mempair_db.database import arrays
from mempair_db.database.certified import published
from mempair_db.database.connect import connect, refuse_shadows
from mempair_db.database.exact import Exact, refer
from mempair_db.database.marks import Marks
from mempair_db.database.queries import query
from mempair_db.errors import UnknownModel
from mempair_db.offline import names
from mempair_db.offline.progress import Bars, silent
from mempair_db.pair.sums import Sums, nothing
from mempair_db.verify import explain, snapshot
from mempair_db.verify.snapshot import Rows, Snapshot
from mempair_db.worker import certified
from mempair_db.worker.changes import DELETE
from mempair_db.worker.reference import Left

CLOSE: Final = 1e-9  # weights that another machine has computed


@dataclass(frozen=True)
class Check:
    """One equality: whether it holds, and what was found."""

    check: str
    fine: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """What a verification found."""

    model: str
    unlearner: str
    rows: int  # of the table that can be learned
    waiting: int  # changes in the queue
    checks: list[Check]
    begun: bool = True  # whether it has learned anything

    @property
    def fine(self) -> bool:
        """Whether everything holds."""
        return all(check.fine for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"fine": self.fine, **asdict(self)}


def verify(dsn: str, model_id: int, bars: Bars = silent) -> Report:
    """Compute the model anew from its table and compare; nothing is changed, and readers and writers go on."""
    with _reading(dsn) as connection:
        return look(connection, model_id, dsn, bars)


def escaped_updates(dsn: str, model_id: int, bars: Bars = silent) -> list[str]:
    """Return the keys of rows that are in the table with other values than were learned, and nothing waits for them."""
    with _reading(dsn) as connection:
        taken = snapshot.take(connection, model_id)
        if taken is None or not taken.model.engine.begun:
            return []
        with bars(f"Comparing {taken.model.name} with its table", max(taken.learned.rows, 1)) as advance:
            rows = taken.read_table(dsn, advance)
        return [] if _learned(taken, rows).fine else explain.escaped(taken).updated


@contextmanager
def _reading(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a read-only transaction with one snapshot."""
    with connect(dsn, autocommit=True, application_name="mempair verify") as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.prepare_threshold = None
        arrays.register(connection)
        refuse_shadows(connection)
        with connection.transaction():
            yield connection


def look(connection: psycopg.Connection[Any], model_id: int, dsn: str | None, bars: Bars = silent) -> Report:
    """Do the same in the caller's REPEATABLE READ transaction."""
    try:
        taken = snapshot.take(connection, model_id)
    except (KeyError, ValueError) as error:
        ((name, _),) = connection.execute(query("verify_constants"), {"model": model_id}).fetchall()
        return Report(name, "exact", 0, 0, [Check("constants", False, f"and sums do not fit together: {error}")])
    if taken is None:
        raise UnknownModel(f"It had number {model_id}.")
    with bars(f"Verifying {taken.model.name}", max(taken.learned.rows, 1)) as advance:
        rows = taken.read_table(dsn, advance)
    unlearner, waiting = taken.model.terms["unlearner"], len(taken.waiting.changes)
    checks = list(_checks(taken, rows))
    return Report(taken.model.name, unlearner, rows.marks.rows, waiting, checks, taken.model.engine.begun)


def _checks(taken: Snapshot, rows: Rows) -> Iterator[Check]:
    yield _schema(taken)
    if taken.waiting.plan.mismatch:
        yield Check("queue", False, f"{taken.waiting.plan.mismatch}; a retrain will serve it")
    engine = taken.model.engine
    if engine.begun:
        yield _constants(taken, rows)
    if isinstance(engine, Exact) and engine.sums is not None:
        yield _sums(taken, rows, engine, engine.sums)
    if engine.begun:
        yield served(taken)
    elif taken.published["weights"] is not None:
        yield Check("served", False, "weights are published, though the model has no state")
    yield _learned(taken, rows)
    yield _keys(taken, rows)


def _keys(taken: Snapshot, rows: Rows) -> Check:
    """Look for the key of a row that is gone in every table of ours; receipts are about such rows."""
    waiting = taken.waiting
    leaving = {key for key, op in zip(waiting.changes.keys, waiting.changes.op.tolist(), strict=True) if op == DELETE}
    left = sorted(taken.held.keys() - rows.seen - leaving) if not waiting.truncated else []
    if not left:
        return Check("keys", True, f"none of the {len(taken.held)} other keys in our tables is of a row that is gone")
    shown = ", ".join(f"{key} in {taken.held[key]}" for key in left[: explain.SHOWN])
    return Check("keys", False, f"{len(left)} keys are of rows that are gone: {shown}")


def _schema(taken: Snapshot) -> Check:
    row = taken.connection.execute(query("verify_schema"), {"model": taken.model.id}).fetchone()
    why = row[0] if row else None
    return Check("schema", why is None, f"{why}; a refresh adopts it" if why else "the table is as it was declared")


def _constants(taken: Snapshot, rows: Rows) -> Check:
    """Choose the constants again from the reference rows, those on their way out as the queue has them."""
    waiting = taken.waiting
    if waiting.truncated:
        return Check("constants", True, "a TRUNCATE waits: they go with it")
    payloads = {key: (x, c, y) for key, x, c, y in rows.references}
    for i, key in enumerate(waiting.changes.keys):
        if taken.references.get(key) == waiting.prints[i]:
            c = waiting.changes.c[i] if len(waiting.changes.c) else ()
            payloads.setdefault(key, (waiting.changes.x[i], c, float(waiting.changes.y[i])))
    lost = sorted(set(taken.references) - set(payloads))
    if lost:
        shown = ", ".join(lost[: explain.SHOWN])
        return Check("constants", False, f"{len(lost)} reference rows are not there as they were: {shown}")
    if taken.model.fleet is not None:
        which = f"{len(payloads)} reference rows are here as they were"
        return Check("constants", True, f"{which}; `mempair fleet verify` chooses again from those of all shards")
    return _chosen_again(taken, payloads)


def _chosen_again(taken: Snapshot, payloads: dict[str, tuple[Any, Any, float]]) -> Check:
    engine, most = taken.model.engine, taken.published["reference_rows"] or len(payloads)
    if not payloads or len(payloads) > most:
        return Check("constants", False, f"there are {len(payloads)} reference rows, of {most} at the refresh")
    found = list(payloads.values())
    x, y = np.array([x for x, _, _ in found]), np.array([y for _, _, y in found])
    texts = [c for _, c, _ in found] if taken.model.text_count else ()
    if isinstance(engine, Exact):
        assert engine.reference is not None  # noqa: S101  (it has begun)
        computed = refer(engine.terms, x, y, texts, engine.reference.labels)
        same = computed.to_bytes() == engine.reference.to_bytes()
        ((_, stored),) = taken.connection.execute(query("verify_constants"), {"model": taken.model.id}).fetchall()
        if _as_floats(stored) != _as_floats(engine.reference.to_json()):
            return Check("constants", False, "something lies among them that is no constant")
        detail = "" if same else f": {_other_constants(computed.to_json(), engine.reference.to_json())}"
    else:
        same, detail = certified.same_constants(taken.model, Left([], x, y, texts)), ""
    counted = taken.published["references_left"]
    if same and counted not in (None, len(taken.references)):
        return Check(
            "constants", False, f"there are {len(taken.references)} reference rows, the state counts {counted}"
        )
    how = "follow" if same else "do not follow"
    return Check("constants", same, f"{how} from the {len(found)} reference rows{detail}")


def _as_floats(constants: Any) -> Any:
    """Read whole numbers as floats: jsonb writes 2^60, which is 1.152921504606847e+18, as 1152921504606847000."""
    return json.loads(json.dumps(constants), parse_int=float)


def _other_constants(new: dict[str, Any], old: dict[str, Any]) -> str:
    names = [name for name in {**old, **new} if name != "encoding"]  # an eased ridge is named only where it holds
    pairs = [(name, new.get(name), old.get(name)) for name in names]
    pairs += [(name, new["encoding"][name], old["encoding"][name]) for name in old["encoding"]]
    return ", ".join(
        f"{name} is {_short(there)}, should be {_short(should)}" for name, should, there in pairs if should != there
    )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _sums(taken: Snapshot, rows: Rows, engine: Exact, stored: Sums) -> Check:
    waiting = taken.waiting
    assert rows.total is not None  # noqa: S101  (there are constants)
    assert engine.reference is not None  # noqa: S101
    begun = nothing(engine.reference) if waiting.truncated else stored
    delta = begun + waiting.sums(engine) - rows.total
    if not any(part.any() for part in (delta.counts, delta.g, delta.H)):
        after = f", after the {len(waiting.changes)} changes that wait" if len(waiting.changes) else ""
        return Check("sums", True, f"are those of the {rows.marks.rows} rows, bit for bit{after}")
    labels = names.of_sums(engine.reference, *taken.features)
    text = f"differ from those of the rows (stored less computed): {names.difference(delta, labels)}"
    found = explain.culprits(taken, delta)
    return Check("sums", False, f"{text}; {found}" if found else text)


def served(taken: Snapshot) -> Check:
    """Compute what is served from the state, and compare."""
    engine, row = taken.model.engine, taken.published
    if isinstance(engine, Exact):
        computed = engine.served() | {"samples": engine.samples, "uncertainty": engine.uncertainty()}
        ready = engine.ready
        if not _same_classes(engine.served_classes(), taken.published_classes):
            return Check("served", False, "what is served of each class does not follow from the state")
    else:
        computed = {k: v for k, v in published(engine.pair).items() if k not in ("ready", "needed")}
        ready = bool(row["ready"])
    computed["places"] = json.loads(computed["places"])
    computed |= {"version": row["state_version"], "epoch": row["state_epoch"]}
    several = taken.model.terms["loss"] == "classes"
    computed["link"] = "identity" if taken.model.regression else "classes" if several else "logistic"
    wrong = [name for name, value in computed.items() if not _near(value, row[name])]
    if row["ready"] and not ready:
        wrong.append("ready")
    if wrong:
        return Check("served", False, f"what is served does not follow from the state: {', '.join(wrong)}")
    if row["wrong_held"] is not None:
        return Check("served", False, row["wrong_held"])
    exactly = all(_near(value, row[name], 0.0) for name, value in computed.items())
    held = f"; version {row['held']} is held, and served instead, as it was kept" if row["held"] is not None else ""
    return Check("served", True, f"follows from the state, {'bit for bit' if exactly else f'to {CLOSE:g}'}{held}")


def _same_classes(computed: list[dict[str, Any]], stored: list[dict[str, Any]]) -> bool:
    return len(computed) == len(stored) and all(
        _near(value, row[name]) for one, row in zip(computed, stored, strict=True) for name, value in one.items()
    )


def _near(computed: Any, stored: Any, most: float = CLOSE) -> bool:
    """Whether two values are the same; numbers up to `most` of their size."""
    if not isinstance(computed, (np.ndarray, float)):
        return bool(computed == stored)
    if stored is None or np.shape(computed) != np.shape(stored):
        return False
    there = np.asarray(stored, float)
    return bool(np.allclose(computed, there, rtol=most, atol=most, equal_nan=True))


def _learned(taken: Snapshot, rows: Rows) -> Check:
    """Compare what was learned, with what waits, with what is there."""
    has = (Marks() if taken.waiting.truncated else taken.learned) + taken.waiting.marks()
    if not taken.model.engine.begun:
        has = taken.learned
        return Check("learned", has.rows == 0, f"{has.rows} keys are learned; there are no constants yet")
    unmarked = taken.learned.unmarked
    same = has == rows.marks if not unmarked else (has.rows, has.keys) == (rows.marks.rows, rows.marks.keys)
    if same and isinstance(taken.model.engine, Exact) and taken.learned.rows != taken.stored_rows:
        return Check("learned", False, f"{taken.learned.rows} keys are learned, the state counts {taken.stored_rows}")
    if same and taken.misplaced:
        return Check("learned", False, f"{taken.misplaced} keys lie in another bucket: no deletion would find them")
    if same:
        old = f"; {unmarked} were learned before there were fingerprints" if unmarked else ""
        return Check("learned", True, f"keys and fingerprints are those of the {rows.marks.rows} rows{old}")
    return Check("learned", False, str(explain.escaped(taken)) or "a key was learned twice")
