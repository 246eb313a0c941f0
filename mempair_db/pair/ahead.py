"""Compile the kernels before the first batch needs it: `python -m mempair_db.pair.ahead`, or a thread of the worker's.

A compiler takes ten seconds or more; with what it kept on disk, loading takes half of one.
"""

from __future__ import annotations

from threading import Thread

import numpy as np

from . import events
from .calibration import Parameters, constants_for
from .encode import Encoding, Number
from .state import empty


def compile_kernel() -> None:
    """Encode no rows, and apply no events to an empty state: the types are those of any batch."""
    nothing = np.empty((0, 1))
    Encoding((Number(),)).encode(nothing)
    ops = np.empty(0, np.int16)
    events.apply(empty(1, 1), constants_for(Parameters(), lam=0.01), ops, nothing, np.empty(0), nothing)


def compile_meanwhile() -> None:
    """Compile beside whatever else there is to do; a process that ends does not wait for it."""
    Thread(target=compile_kernel, name="compile the kernel", daemon=True).start()


if __name__ == "__main__":
    compile_kernel()
