"""How the kernel is compiled: on the first call, never at import, and kept on disk beside the source.

`compiled` functions let other threads run meanwhile. `inlined` functions become part of their caller: passing a whole
`State` to a function costs more than a step at d = 10 does. Numba's cache looks at the file of the compiled function
only, so `make` clears it when any file of this folder has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.options import DefaultOptions

compiled = njit(cache=True, nogil=True, error_model="numpy")
inlined = njit(error_model="numpy", inline="always")
# Sums may be reordered into vector registers (4 × faster at d = 784), always in the same way on one kind of processor.
summed = njit(error_model="numpy", fastmath={"reassoc", "nsz"})


def uncounted(function: Callable[..., None]) -> Any:
    """Compile without counting references: at d = 10 the counting takes a third of a step.

    Such a function cannot allocate, and whatever it works on is its caller's. `_nrt` is an option that numba keeps for
    itself; without it the results are the same.
    """
    options: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
    return njit(error_model="numpy", **options)(function)
