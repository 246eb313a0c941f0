"""The wheel, installed into an empty environment, does the whole job: SQL and migrations are inside it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    subprocess.run(
        [folder / "env/bin/pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)],
        check=True,
        capture_output=True,
    )
    return folder / "env/bin"


def test_the_installed_command_runs_the_demo(environment: Path, server_home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [environment / "mempair", "demo"],
        cwd=tmp_path,
        env=os.environ | {"MEMPAIR_HOME": str(server_home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The same, byte for byte.") == 2


def test_the_wheel_carries_its_licence_and_types(environment: Path) -> None:
    site = next(environment.parent.glob("lib/python*/site-packages"))
    assert (site / "mempair_db/py.typed").exists()
    assert "Apache License" in next(site.glob("mempair_db-*.dist-info/licenses/LICENSE")).read_text()
