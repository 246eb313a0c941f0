"""How the kernel is compiled: on the first call, never at import, and kept on disk for the next process.

`compiled` functions are called from Python, and let other threads run meanwhile; a `kernel` is one that allocates
nothing and counts no references. Whatever else they call stays a function of Python's, and is compiled with its
caller: what is `inlined` becomes part of it before anything else, since passing a whole `State` to a function costs
more than a step at d = 10 does; what is `small` takes a few numbers and vectors, and LLVM does the same for it in a
fraction of the time. It takes a while to compile a function, and once more at every level of calls. Numba's cache
looks only at the file of the function it keeps, so machine code is kept in a folder named after the digest of
everything that may be inlined into it: other sources, other folder. Old mathematics cannot run, whatever brought the
new files.
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
from numba.extending import register_jitable

HERE: Final = Path(__file__).parent
SETTINGS: Final[Any] = numba.config  # made when it is imported, so no checker knows what is in it
CALLED: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
# Nobody calls these from Python: what would translate their arguments takes longer to compile than they do.
WITHIN: Final[dict[str, Any]] = {"error_model": "numpy", "no_cfunc_wrapper": True, "no_cpython_wrapper": True}

inlined = numba.njit(error_model="numpy", inline="always")
small = register_jitable(**WITHIN)
# Sums may be reordered into vector registers (4 × faster at d = 784), always in the same way on one kind of processor.
summed = register_jitable(**WITHIN, fastmath={"reassoc", "nsz"})


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Compile, and keep the machine code where no other sources look for it."""
    options |= CALLED
    folder = _folder(Path(inspect.getfile(function)))
    if folder is None:
        return numba.njit(**options)(function)
    with _kept_in(folder):
        kernel = numba.njit(cache=True, **options)(function)
    # A setting of numba's own may have sent the cache elsewhere: then nothing is kept.
    return kernel if folder in Path(kernel.stats.cache_path).parents else numba.njit(**options)(function)


def kernel(function: Callable[..., None]) -> Any:
    """Compile the same without counting references: at d = 10 the counting takes a third of a step.

    Such a function cannot allocate, and whatever it works on is its caller's. `_nrt` is an option that numba keeps for
    itself; without it the results are the same.
    """
    return compiled(function, **({"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}))


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
