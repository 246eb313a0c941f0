"""What a sum is called: by the user's own names of features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Final

import numpy as np

from mempair_db.pair.encode import UNIT, Encoding
from mempair_db.pair.reference import Reference
from mempair_db.pair.sums import Sums

COUNTS: Final = ("n", "rows beyond the clamp", "rows with an unknown level", "sum of y²")
SHOWN: Final = 5


def coordinates(encoding: Encoding, numbers: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Name the coordinates of an encoded row.

    >>> from mempair_db.pair.encode import Number, Text
    >>> coordinates(Encoding((Number(0.0, 2.0, (1024,), True),), (Text(("basic",), True),)), ["age"], ["plan"])
    ['1', 'age', 'age above 2', 'age is missing', 'plan = basic', 'plan is another', 'plan is missing']
    """
    names = []
    for kind, place, value in encoding.names:
        feature = (texts if kind in ("level", "other", "null") else numbers)[place] if kind != "intercept" else "1"
        if kind == "knot":
            number = encoding.numbers[place]
            feature += f" above {number.centre + value / UNIT * number.scale:g}"
        endings = {"missing": " is missing", "level": f" = {value}", "other": " is another", "null": " is missing"}
        names.append(feature + endings.get(kind, ""))
    return names


def of_sums(reference: Reference, numbers: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Name every sum, in the order in which they are packed."""
    each, labels = coordinates(reference.encoding, numbers, texts), reference.labels
    counts = [*COUNTS[:3], "rows of another class", *(f"n[{label}]" for label in labels)] if labels else list(COUNTS)
    parts = [[f"{label}: {one}" for one in each] for label in labels] or [each]
    if reference.together:
        parts = [[name for part in parts for name in part]]
    slopes = [f"g[{one}]" for part in parts for one in part]
    return counts + slopes + [f"H[{a}, {b}]" for part in parts for a, b in combinations_with_replacement(part, 2)]


def difference(delta: Sums, labels: Sequence[str]) -> str:
    """Say which sums differ, and by how much."""
    values = np.frombuffer(delta.to_bytes(), "<i8").tolist()
    wrong = [f"{label}: {value:+d}" for label, value in zip(labels, values, strict=True) if value]
    more = f", and {len(wrong) - SHOWN} others" if len(wrong) > SHOWN else ""
    return ", ".join(wrong[:SHOWN]) + more
