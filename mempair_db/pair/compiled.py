"""How the kernel is compiled: on the first call, never at import, and kept on disk beside the source.

`inlined` functions become part of their caller: passing a whole `State` to a function costs more than a step at
d = 10 does. Numba's cache looks at the file of the compiled function only, so `make` clears it when any file of
this folder has changed.
"""

from __future__ import annotations

from numba import njit

compiled = njit(cache=True, error_model="numpy")
inlined = njit(error_model="numpy", inline="always")
# Sums may be reordered into vector registers (4 × faster at d = 784), always in the same way on one kind of processor.
summed = njit(error_model="numpy", fastmath={"reassoc", "nsz"})
