"""The wheel: it installs on every platform. What it then does, tests/integration/test_image.py says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mempair_db.database.resources import revision_of, revisions

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_there_is_no_compiled_code_of_ours(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if name.endswith((".so", ".pyd", ".dylib", ".c"))]
        assert "mempair_db/py.typed" in packed.namelist()


def test_a_project_finds_our_history_in_it_as_documented(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    (ini,) = re.findall(r"```ini\n(.*?)```", (ROOT / "sql/README.md").read_text(), re.DOTALL)
    (tmp_path / "versions").mkdir()
    (tmp_path / "alembic.ini").write_text(f"[alembic]\nscript_location = .\n{ini}")
    command = [sys.executable, "-m", "alembic", "heads"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stdout == f"{revision_of(revisions()[-1])} (mempair) (head)\n"


def require_wheels(folder: Path, python: str, machine: str, *wanted: str) -> None:
    platforms = [word for glibc in ("2_17", "2_27", "2_28") for word in ("--platform", f"manylinux_{glibc}_{machine}")]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--target", str(folder), "--only-binary=:all:", "--python-version", python, *platforms, *wanted]
    # What CI pins is for the Python that runs here.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_on_arm64_too_everything_comes_as_wheels(wheel: Path, tmp_path: Path) -> None:
    require_wheels(tmp_path, "3.14", "aarch64", str(wheel))


def test_older_versions_of_what_projects_choose_themselves_will_do(tmp_path: Path) -> None:
    """A project has its own SQLAlchemy and Alembic, and its command line its own Typer."""
    asked = {each.name: each.specifier for each in map(Requirement, metadata.requires("mempair_db") or [])}
    lowest = [f"{name}=={str(asked[name]).removeprefix('>=')}" for name in ("alembic", "typer")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path), *lowest, "sqlalchemy<2.1"]
    older = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    subprocess.run(pip, check=True, capture_output=True, env=older)
    older |= {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    for words in (("-c", "import mempair_db.alembic"), ("-m", "mempair_db", "worker", "--help")):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=older)
        assert done.returncode == 0, done.stderr


def test_what_the_lock_of_ci_pins_for_the_oldest_python_alone_comes_as_wheels(tmp_path: Path) -> None:
    pins = map(Requirement, (ROOT / ".ci/constraints.txt").read_text().splitlines())
    old = [
        f"{pin.name}{pin.specifier}"
        for pin in pins
        if "python_full_version < '3.11'" in str(pin.marker).replace('"', "'")
    ]
    assert old
    require_wheels(tmp_path, "3.10", "x86_64", "--no-deps", *old)


def test_the_lock_of_ci_pins_everything_that_is_asked_for() -> None:
    asked = metadata.requires("mempair_db") or []
    pins: dict[str, set[str]] = {}
    for line in (ROOT / ".ci/constraints.txt").read_text().splitlines():
        pinned = Requirement(line)
        pins.setdefault(canonicalize_name(pinned.name), set()).update(each.version for each in pinned.specifier)
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        if name != "mempair-db":
            assert pins.get(name), f"{name} is not in .ci/constraints.txt: make lock"
            assert all(requirement.specifier.contains(version) for version in pins[name]), f"{name}: make lock"
