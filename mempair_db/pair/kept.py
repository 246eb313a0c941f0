"""The rows that an exact pair keeps: the reference rows, and as long as there are few, all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import InvalidRow
from .rows import Row


class Kept:
    """Rows by value, each as often as it is there. `others` is None once there are too many to keep."""

    def __init__(self, reference: Iterable[Row] = (), others: Iterable[Row] | None = ()) -> None:
        """Take the rows."""
        self.reference = Counter(reference)
        self.others = None if others is None else Counter(others)
        self.chosen = self.reference.total()  # how many reference rows there were at first
        self.touched = False  # whether one of them was taken since the constants were checked

    def add(self, rows: Iterable[Row]) -> None:
        """Keep rows that are not reference rows, if all are kept."""
        if self.others is not None:
            self.others.update(rows)

    def add_one(self, row: Row) -> None:
        """The same for one."""
        if self.others is not None:
            self.others[row] = self.others.get(row, 0) + 1

    def take(self, row: Row) -> None:
        """Take a row out: a reference row only if no other is equal to it."""
        if self.others is not None and _less(self.others, row):
            return
        if _less(self.reference, row):
            self.touched = True
        elif self.others is not None:
            raise InvalidRow("this row was never learned.", remedy="Nothing has to be forgotten.")

    def lacks(self, rows: Iterable[Row]) -> bool:
        """Whether one of these rows is known not to be there."""
        return self.others is not None and bool(Counter(rows) - self.reference - self.others)

    def all(self) -> list[Row]:
        """Return every row that is kept."""
        return list((self.reference + (self.others or Counter())).elements())

    def to_json(self) -> dict[str, Any]:
        """Return plain values and bytes, in an order that depends on the rows alone."""
        others = None if self.others is None else _in_order(self.others)
        return {"reference": _in_order(self.reference), "others": others, "chosen": self.chosen}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Kept:
        """Rebuild what `to_json` returned."""
        kept = cls(map(_row, saved["reference"]), None if saved["others"] is None else map(_row, saved["others"]))
        kept.chosen = saved["chosen"]
        return kept


def _less(rows: Counter[Row], row: Row) -> bool:
    """Take a row out once, and say whether it was there."""
    count = rows.get(row, 0)
    if count > 1:
        rows[row] = count - 1
    elif count == 1:
        del rows[row]  # a count of zero would still hold the row
    return count > 0


def _row(saved: Sequence[Any]) -> Row:
    return saved[0], tuple(saved[1]), saved[2]


def _in_order(rows: Counter[Row]) -> list[Row]:
    return sorted(
        rows.elements(), key=lambda row: (row[0], [(text is not None, text or "") for text in row[1]], row[2])
    )
