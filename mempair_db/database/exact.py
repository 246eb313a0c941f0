"""The state of an exact model in Postgres: sums, constants, reference rows; and the weights that follow from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import psycopg
from psycopg.types.json import Jsonb

from mempair_db.database.queries import query
from mempair_db.pair import exact, payload, rules, sums
from mempair_db.pair.encode import Matrix, Texts, Vector
from mempair_db.pair.payload import Learnable
from mempair_db.pair.reference import Reference
from mempair_db.pair.serve import fold
from mempair_db.pair.sums import Sums
from mempair_db.pair.uncertainty import uncertainty

OF_A_CLASS: Final = ("intercept", "weights", "missing_weights", "knot_weights", "level_weights")


class Exact:
    """The sums of an exact model, and the constants they are sums under."""

    def __init__(self, terms: Mapping[str, Any]) -> None:
        """Begin with nothing learned."""
        self.terms = terms
        self.reference: Reference | None = None
        self.sums: Sums | None = None
        self.others: Sums | None = None  # in a fleet, the last known sums of the other shards
        self.rows_refreshed = 0
        self.reference_rows = 0  # how many there were
        self.references_left = 0
        self.others_refreshed = 0  # rows of a class without a place, at the last refresh, rounded
        self.new_constants = True
        self._solved: tuple[tuple[Reference, Sums, Sums | None], Matrix] | None = None  # the weights, and of what
        self.salt: bytes | None = None  # of the digest that the ledger has of this state
        self._constants_text: str | None = None  # as the server writes them
        self.halted = False  # a deletion waits for a refresh, and the old model must not be served meanwhile

    @property
    def begun(self) -> bool:
        """Whether its constants are chosen."""
        return self.reference is not None

    @property
    def clock(self) -> int:
        """An exact model has no order, and so no clock."""
        return 0

    @property
    def spent(self) -> int:
        """Deletions cost no budget."""
        return 0

    @property
    def rows(self) -> int:
        """Rows in the sums."""
        return self.sums.n if self.sums else 0

    @property
    def samples(self) -> int:
        """Rows in what is served."""
        return self.total.n if self.total else 0

    @property
    def total(self) -> Sums | None:
        """What is served is computed from: the sums, and in a fleet those of the other shards too."""
        return self.sums if self.sums is None or self.others is None else self.sums + self.others

    @property
    def ready(self) -> bool:
        """Whether it predicts: a function of the sums alone."""
        if self.reference is None or self.total is None or self.halted:
            return False
        return rules.gate(self.reference, self.total, self.terms["gamma"], self.terms["ridge"])

    def start(self, reference: Reference, sums: Sums, reference_rows: int) -> None:
        """Take new constants, and the sums of all rows under them."""
        self.reference, self.sums, self.new_constants, self.halted = reference, sums, True, False
        self.salt = None
        self.rows_refreshed, self.reference_rows, self.references_left = sums.n, reference_rows, reference_rows
        self.others_refreshed = rules.rounded(sums.fourth) if reference.labels else 0

    def empty(self) -> None:
        """Forget all rows, and keep the constants."""
        if self.reference is not None:
            self.sums = sums.nothing(self.reference)
            self.references_left = 0
            self.salt = None

    def add(self, part: Sums) -> None:
        """Add what a batch changes."""
        if self.sums is None or self.sums.n + part.n >= sums.MOST_ROWS:
            raise OverflowError(f"{sums.MOST_ROWS} rows and more could overflow the sums")
        self.sums += part
        self.salt = None

    def weights(self) -> Matrix:
        """w, from the sums."""
        total = self.total
        if self.reference is None or self.sums is None or total is None:
            raise ValueError("the model has no constants yet")
        solved = (self.reference, self.sums, self.others)
        if self._solved is None or any(now is not then for now, then in zip(solved, self._solved[0], strict=True)):
            self._solved = solved, exact.solve(self.reference, total, self.terms["ridge"])
        return self._solved[1]

    def outgrown(self) -> str | None:
        """Say why the constants no longer fit, or None."""
        if self.reference is None or self.sums is None:
            return None
        return rules.outgrown(
            self.reference,
            self.sums,
            self.weights(),
            rows_then=self.rows_refreshed,
            left=self.references_left,
            rows=self.reference_rows,
            others_then=self.others_refreshed,
        )

    def sums_of(self, x: Matrix, y: Vector, c: Texts, sign: Vector | None = None) -> Sums:
        """Add up rows as they came."""
        assert self.reference is not None  # noqa: S101  (who adds has looked)
        return total(self.reference, self.terms, x, y, c, sign)

    def figures(self) -> dict[str, float]:
        """Where the model stands, for the metrics."""
        return {"gate": float(self.ready)}

    def constants(self) -> dict[str, Any]:
        """What is frozen, as plain values."""
        return self.reference.to_json() if self.reference else {}

    def stored(self, connection: psycopg.Connection[Any]) -> tuple[str | None, bytes | None]:
        """Return constants and sums as they will be stored."""
        if self.reference is None or self.sums is None:
            return None, None
        if self.new_constants:
            row = connection.execute(query("as_stored"), {"constants": Jsonb(self.constants())}).fetchone()
            return str(row[0]) if row else None, self.sums.to_bytes()
        return self._constants_text, self.sums.to_bytes()

    def load(self, connection: psycopg.Connection[Any], row: Mapping[str, Any]) -> None:
        """Take the state up where it was left."""
        self.reference = _reference(row["constants_text"])
        self.sums = Sums.from_bytes(row["sums"], *self.reference.shape)
        self.rows_refreshed, self.reference_rows = row["rows_refreshed"], row["reference_rows"]
        self.others_refreshed = row["others_refreshed"] or 0
        self.references_left = row["references_left"]
        if self.references_left is None or row["fleet_shard"] is not None:
            left = connection.execute(query("count_reference"), {"model": row["id"]}).fetchone()
            self.references_left = left[0] if left else 0
        self.new_constants, self.salt, self._constants_text = False, row["digest_salt"], row["constants_text"]
        if row["fleet_shard"] is not None:
            self.take_in(connection, row["id"], row["fleet_generation"])
            unchecked = self.references_left != row["references_checked"]
            self.halted = unchecked and not row["serve_during_refresh"]

    def take_in(self, connection: psycopg.Connection[Any], model_id: int, generation: int) -> None:
        """Load what is known of the other shards of the fleet, under the same constants."""
        if self.reference is None:
            raise ValueError("the model has no constants yet")
        self.others = sums.nothing(self.reference)
        parts = connection.execute(query("fleet_parts"), {"model": model_id, "generation": generation}, binary=True)
        for _, packed in parts.fetchall():
            self.others += Sums.from_bytes(packed, *self.reference.shape)

    def save(self, connection: psycopg.Connection[Any], common: dict[str, Any]) -> None:
        """Write the sums, and the weights that follow from them."""
        if self.reference is None or self.sums is None:
            raise ValueError("the model has no constants yet")
        sums = {
            "sums": self.sums.to_bytes(),
            "salt": self.salt,
            "rows": self.rows,
            "rows_refreshed": self.rows_refreshed,
            "reference_rows": self.reference_rows,
            "references_left": self.references_left,
            "others_refreshed": self.others_refreshed,
            "refreshed": self.new_constants,
            "uncertainty": self.uncertainty(),
        }
        connection.execute(query("save_sums"), common | sums)
        if self.new_constants:  # a certified epoch before this one left its curvature, which was made of rows
            connection.execute(query("cut_window"), {"model": common["model"], "pairs": 0})
        ready = self.ready
        values = {"ready": ready, "samples": self.samples, "needed": self.samples if ready else self._needed()}
        connection.execute(query("publish"), common | values | self.served())
        if self.new_constants or self.reference.labels:
            connection.execute(query("unpublish_classes"), {"model": common["model"]})
        for place, folded in enumerate(self.served_classes(), start=1):
            connection.execute(query("publish_class"), {"model": common["model"], "place": place} | folded)

    def served(self) -> dict[str, Any]:
        """Return the columns of mempair.published that predictions are computed from."""
        assert self.reference is not None  # noqa: S101  (weights() would have raised)
        folded = self._folded(self.weights()[0])
        if self.reference.labels:  # what is the same for all of them; the rest has a row for each
            folded |= dict.fromkeys(OF_A_CLASS)
        return {**folded, "radius": None, "shift": None}

    def served_classes(self) -> list[dict[str, Any]]:
        """Return the columns of mempair.published_class, one row for each of several classes."""
        if self.reference is None or not self.reference.labels:
            return []
        return [
            {"class": label} | {name: self._folded(w)[name] for name in OF_A_CLASS}
            for label, w in zip(self.reference.labels, self.weights(), strict=True)
        ]

    def _folded(self, w: Vector) -> dict[str, Any]:
        assert self.reference is not None  # noqa: S101  (weights() would have raised)
        return fold(self.reference, w, self.terms["curves"], imputes=self.terms["on_null"] == "impute")

    def uncertainty(self) -> Matrix | None:
        """Return what the ridge took from the served weights, and their standard errors."""
        assert self.reference is not None  # noqa: S101  (weights() would have raised)
        assert self.total is not None  # noqa: S101
        terms = self.terms
        imputes = terms["on_null"] == "impute"
        return uncertainty(
            self.reference, self.total, self.weights(), ridge=terms["ridge"], curves=terms["curves"], imputes=imputes
        )

    def _needed(self) -> int:
        """How many rows the gate waits for, as far as can be told now."""
        if self.reference is None or self.total is None:
            return int(self.terms["calibration_rows"])
        return rules.rows_needed(self.reference, self.total, float(self.terms["gamma"]), self.terms["ridge"])


@lru_cache(8)
def _reference(text: str) -> Reference:
    """Read constants: they stay the same for many batches, and so does what was made of them."""
    return Reference.from_json(json.loads(text))


def refer(terms: Mapping[str, Any], x: Matrix, y: Vector, c: Texts, labels: tuple[str, ...] = ()) -> Reference:
    """Choose a model's constants from its reference rows; of several classes, `labels` have a place."""
    return refer_rows(terms, learnable(terms, x, y, c, labels), labels)


def refer_rows(terms: Mapping[str, Any], rows: Learnable, labels: tuple[str, ...] = ()) -> Reference:
    """Do the same from rows whose weight and class are taken out."""
    return exact.refer(
        rows.x,
        rows.y,
        rows.c,
        weight=rows.weight,
        loss=terms["loss"],
        labels=labels,
        balance=terms.get("class_weight") == "balanced",
        curves=terms["curves"],
        times=times(terms),
        clip=terms["clip"],
        declared=terms["categories"],
        ridge=terms["ridge"],
    )


def times(terms: Mapping[str, Any]) -> list[int]:
    """Return the places of the numbers that are points in time, as Python counts; SQL counts from 1."""
    return [place - 1 for place in terms.get("times") or ()]


def total(
    reference: Reference, terms: Mapping[str, Any], x: Matrix, y: Vector, c: Texts, sign: Vector | None = None
) -> Sums:
    """Add up rows as they came."""
    rows = learnable(terms, x, y, c, reference.labels)
    return exact.sums(reference, rows.x, rows.y, rows.c, sign, rows.weight)


def learnable(terms: Mapping[str, Any], x: Matrix, y: Vector, c: Texts, labels: tuple[str, ...]) -> Learnable:
    """Take weight and class out of rows as the extractors give them. Labels of two classes come as ±1."""
    y = targets(y, terms["loss"])
    several = labels if terms["loss"] == "classes" else None
    return payload.separated(x, y, c, weighted=bool(terms.get("weighted")), labels=several)


def targets(y: Vector, loss: str) -> Vector:
    """Labels come as ±1 from the extractors."""
    return y if loss != "logistic" else np.where(y > 0, 1.0, 0.0)
