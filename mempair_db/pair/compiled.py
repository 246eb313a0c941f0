"""How the kernel is compiled: on the first call, never at import, and kept on disk for the next process.

`compiled` functions let other threads run meanwhile. `inlined` functions become part of their caller before anything
else: passing a whole `State` to a function costs more than a step at d = 10 does. `small` ones take a few numbers and
vectors, and LLVM does the same for them, which takes a quarter less of the time to compile. Numba's cache looks only
at the file of the function it keeps, so machine code is kept in a folder named after the digest of everything that may
be inlined into it: other sources, other folder. Old mathematics cannot run, whatever brought the new files.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt
import platformdirs
from numba.core.options import DefaultOptions

HERE: Final = Path(__file__).parent
SETTINGS: Final[Any] = numba.config  # made when it is imported, so no checker knows what is in it
KERNEL: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}

inlined = numba.njit(error_model="numpy", inline="always")
small = numba.njit(error_model="numpy")
# Sums may be reordered into vector registers (4 × faster at d = 784), always in the same way on one kind of processor.
summed = numba.njit(error_model="numpy", fastmath={"reassoc", "nsz"})


def compiled(function: Callable[..., Any]) -> Any:
    """Compile, and keep the machine code where no other sources look for it."""
    folder = _folder(Path(inspect.getfile(function)))
    if folder is None:
        return numba.njit(**KERNEL)(function)
    with _kept_in(folder):
        kernel = numba.njit(cache=True, **KERNEL)(function)
    # A setting of numba's own may have sent the cache elsewhere: then nothing is kept.
    return kernel if folder in Path(kernel.stats.cache_path).parents else numba.njit(**KERNEL)(function)


def uncounted(function: Callable[..., None]) -> Any:
    """Compile without counting references: at d = 10 the counting takes a third of a step.

    Such a function cannot allocate, and whatever it works on is its caller's. `_nrt` is an option that numba keeps for
    itself; without it the results are the same.
    """
    options: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
    return numba.njit(error_model="numpy", **options)(function)


def plain(array: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return the array as the kernel was compiled for: numba takes a read-only or misaligned one for another type."""
    array = np.ascontiguousarray(array, dtype)
    return array if array.flags.carray else array.copy()


@lru_cache
def _folder(file: Path) -> Path | None:
    """Return the first place that can be written, or a copy of one that cannot; None: then every process compiles."""
    places = [HERE / "__pycache__", Path(platformdirs.user_cache_dir("mempair_db"))]
    if SETTINGS.CACHE_DIR:
        places.insert(0, Path(SETTINGS.CACHE_DIR))
    for place in places:
        folder = place / f"kernel-{_digest(file)}"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
        with suppress(OSError):
            if any(folder.rglob("*.nbi")):
                return _copied(folder)
    return None


def _copied(folder: Path) -> Path:
    """Return a copy for this process alone, as in a container that is read-only: numba reads only what it may write."""
    copy = Path(tempfile.mkdtemp(prefix="mempair-kernel-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    return Path(shutil.copytree(folder, copy / folder.name))


def _digest(file: Path) -> str:
    """Return a digest of all files of this folder, and of the function's own."""
    digest = hashlib.sha256()
    for source in [*sorted(HERE.glob("*.py")), file]:
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]


@contextmanager
def _kept_in(folder: Path) -> Iterator[None]:
    """Let numba choose this folder; it decides when a function is decorated."""
    before = SETTINGS.CACHE_DIR
    SETTINGS.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        SETTINGS.CACHE_DIR = before
