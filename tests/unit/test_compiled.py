"""Machine code on disk never outlives the sources it was made from."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mempair_db.database import ahead
from mempair_db.pair import compiled, step
from mempair_db.pair.model import CertifiedPair

KERNEL = """
import numpy as np
from .compiled import compiled
from .helper import factor

@compiled
def fill(out):
    out[0] = factor()

if __name__ == "__main__":
    out = np.zeros(1)
    fill(out)
    print(int(out[0]), sum(fill.stats.cache_hits.values()))
"""
HELPER = "from .compiled import inlined\n\n@inlined\ndef factor():\n    return {}\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose kernel inlines a function of another file."""
    folder = tmp_path / "copied"
    folder.mkdir()
    (folder / "__init__.py").touch()
    shutil.copy(compiled.__file__, folder)
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "helper.py").write_text(HELPER.format(1))
    return folder


def run(package: Path, **variables: str) -> tuple[int, int]:
    """Run the kernel in a process of its own; return its result, and how often it came from the cache."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    command = [sys.executable, "-B", "-m", f"{package.name}.kernel"]
    answer = subprocess.run(
        command,
        cwd=package.parent,
        env=environment | {"PYTHONPATH": str(package.parent)} | variables,
        check=True,
        capture_output=True,
        text=True,
    )
    value, hits = answer.stdout.split()
    return int(value), int(hits)


def test_the_same_sources_find_their_machine_code_again(package: Path) -> None:
    assert run(package) == (1, 0)
    assert run(package) == (1, 1)


def test_a_changed_file_that_is_only_inlined_is_compiled_anew(package: Path) -> None:
    assert run(package) == (1, 0)
    helper = package / "helper.py"
    before = helper.stat()
    helper.write_text(HELPER.format(2))
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))  # as old and as long as the one before

    assert run(package) == (2, 0)


def test_sources_that_come_back_find_their_own_machine_code(package: Path) -> None:
    assert run(package) == (1, 0)
    (package / "helper.py").write_text(HELPER.format(2))
    assert run(package) == (2, 0)
    (package / "helper.py").write_text(HELPER.format(1))
    assert run(package) == (1, 1)


def test_a_chosen_folder_is_kept(package: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    assert run(package, NUMBA_CACHE_DIR=str(chosen)) == (1, 0)
    assert run(package, NUMBA_CACHE_DIR=str(chosen)) == (1, 1)
    assert list(chosen.rglob("*.nbc"))
    assert not list(package.rglob("*.nbc"))


def test_where_nothing_can_be_written_every_process_compiles(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()  # no folder can be made below it
    (package / "__pycache__").touch()
    for _ in range(2):
        assert run(package, NUMBA_CACHE_DIR=str(file), XDG_CACHE_HOME=str(file), HOME=str(file)) == (1, 0)


READ_ONLY = """
import tempfile

writable = tempfile.TemporaryFile

def refused(*arguments, dir=None, **options):
    if dir is not None and str(dir).startswith({!r}):
        raise OSError(30, "Read-only file system")
    return writable(*arguments, dir=dir, **options)

tempfile.TemporaryFile = refused
"""


def test_machine_code_that_cannot_be_written_is_read_nevertheless(package: Path, tmp_path: Path) -> None:
    """As in an image with compiled kernels, whose containers are read-only but for /tmp."""
    image, temporary = tmp_path / "image", tmp_path / "temporary"
    temporary.mkdir()
    assert run(package, NUMBA_CACHE_DIR=str(image)) == (1, 0)
    (package.parent / "sitecustomize.py").write_text(READ_ONLY.format(str(image)))
    assert run(package, NUMBA_CACHE_DIR=str(image), TMPDIR=str(temporary)) == (1, 1)
    assert not list(temporary.iterdir())


def test_the_kernel_is_compiled_ahead_for_the_types_that_batches_have() -> None:
    ahead.compile_kernels()
    signatures = [f.signatures.copy() for f in (step.learn, step.forget)]
    pair = CertifiedPair(calibration_rows=50, m=1, gamma=1e9)  # one deletion is always affordable
    pair.learn_many(np.arange(400.0).reshape(200, 2) % 7, np.where(np.arange(200) % 2, 1.0, -1.0))

    pair.unlearn_one(np.array([0.0, 1.0]), -1.0)

    assert [f.signatures for f in (step.learn, step.forget)] == signatures
