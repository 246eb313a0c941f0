"""Compile the kernels before the first batch: `python -m mempair_db.database.ahead`, or a thread of the worker's.

A compiler takes ten seconds or more; with what it kept on disk, loading takes half of one.
"""

from __future__ import annotations

from threading import Thread

import numpy as np

from mempair_db.database.learned import buckets
from mempair_db.database.marks import numbers_of
from mempair_db.database.packed import Texts, unpack
from mempair_db.pair import events
from mempair_db.pair.calibration import Parameters, constants_for
from mempair_db.pair.encode import Encoding, Number
from mempair_db.pair.state import empty


def compile_kernels() -> None:
    """Read, encode and find no rows, learn and forget one that is empty: the types are those of any batch."""
    nothing = np.empty((0, 1))
    Encoding((Number(),)).encode(nothing)
    rows, keys = unpack(b"", 0, 1, 0), Texts.of_arrays([])
    keys.places_of(Texts.of(rows.keys))
    buckets(keys)
    numbers_of(keys)
    one_of_each = np.array([events.INSERT, events.DELETE], np.int16)
    k = constants_for(Parameters(), lam=0.01)
    events.apply(empty(1, 1), k, one_of_each, np.zeros((2, 1)), np.ones(2), np.zeros((1, 1)))


def compile_meanwhile() -> None:
    """Compile beside whatever else there is to do; a process that ends does not wait for it."""
    Thread(target=compile_kernels, name="compile the kernels", daemon=True).start()


if __name__ == "__main__":
    compile_kernels()
