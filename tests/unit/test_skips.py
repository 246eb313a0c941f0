"""A test that CI skips without a good reason fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = "import pytest\n\ndef test_it():\n    pytest.skip({!r})\n"


def run(tmp_path: Path, reason: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(TEST.format(reason))
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "MEMPAIR_CI_MISSING")}
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [*command, str(tmp_path)],
        env=environment | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "in parallel"])
def test_an_unexpected_skip_fails_in_ci_and_nowhere_else(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert run(tmp_path, "no time today", *options).returncode == 0
    failed = run(tmp_path, "no time today", *options, CI="true")
    assert failed.returncode == 1
    assert "UNEXPECTED SKIP" in failed.stdout
    assert "no time today" in failed.stdout


def test_a_skip_with_a_good_reason_passes(tmp_path: Path) -> None:
    assert run(tmp_path, "this machine does not allow mounts", CI="true").returncode == 0


def test_a_missing_tool_is_a_reason_only_if_it_could_not_be_installed(tmp_path: Path) -> None:
    reason = "pgbouncer is not installed"
    assert run(tmp_path, reason, CI="true").returncode == 1
    assert run(tmp_path, reason, CI="true", MEMPAIR_CI_MISSING="chromium pgbouncer").returncode == 0
