"""What a sum is called: by the user's own names of features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Final

import numpy as np

from mempair_db.pair.encode import UNIT, Encoding
from mempair_db.pair.exact import Sums

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


def difference(delta: Sums, names: Sequence[str]) -> str:
    """Say which sums differ, and by how much."""
    upper = np.triu_indices(len(names))
    labelled = [
        *zip(COUNTS, delta.counts.tolist(), strict=True),
        *((f"g[{name}]", value) for g in delta.g.tolist() for name, value in zip(names, g, strict=True)),
        *(
            (f"H[{a}, {b}]", value)
            for H in delta.H
            for (a, b), value in zip(combinations_with_replacement(names, 2), H[upper].tolist(), strict=True)
        ),
    ]
    wrong = [f"{name}: {value:+d}" for name, value in labelled if value]
    more = f", and {len(wrong) - SHOWN} others" if len(wrong) > SHOWN else ""
    return ", ".join(wrong[:SHOWN]) + more
