"""`make mutants`: apply every mutant to a copy of the sources, run its tests, and expect them to fail.

    python -m tests.mutants.run [word …]      only those whose description has one of the words
    python -m tests.mutants.run --write       and write what became of them into the table of tests/mutants/README.md

Exit code 1 if a mutant survives that is not explained, or one that is explained is caught after all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SOURCES = ("mempair_db", "sql", "migrations", "tests", "pyproject.toml")
TABLE = Path(__file__).with_name("README.md")


def copy_sources(to: Path) -> None:
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to / name)


def run_tests(folder: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def outcome(folder: Path, mutant: Mutant) -> tuple[bool, str]:
    """Return whether all is as it should be, and a word on it."""
    file = folder / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.old) < 1:
        return False, "NOT APPLICABLE: the line is no more"
    try:
        file.write_text(text.replace(mutant.old, mutant.new, 1), encoding="utf-8")
        run = run_tests(folder, mutant.tests)
    except subprocess.TimeoutExpired:
        return not mutant.survives, "killed: the tests never end"
    finally:
        file.write_text(text, encoding="utf-8")
    if run.returncode == 1:
        failed = next((line for line in run.stdout.splitlines() if line.startswith("FAILED")), "FAILED").split("::")
        return not mutant.survives, f"killed by `{failed[-1].partition(' ')[0].partition('[')[0]}`"
    if run.returncode == 0:
        return bool(mutant.survives), f"survives: {mutant.survives}" if mutant.survives else "SURVIVES"
    return False, f"pytest ended with {run.returncode}: {run.stdout[-300:]}"


def write(outcomes: dict[str, str]) -> None:
    """Put these outcomes into the table; the others stay."""
    head, line, table = TABLE.read_text(encoding="utf-8").partition("|---|---|---|\n")
    known = {row.split(" | ")[0][2:]: row.rsplit(" | ", 1)[1][:-2] for row in table.splitlines()} | outcomes
    rows = [f"| {mutant.says} | `{mutant.file}` | {known.get(mutant.says, 'not run yet')} |" for mutant in MUTANTS]
    TABLE.write_text(head + line + "\n".join(rows) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    words = [argument for argument in arguments if not argument.startswith("--")]
    chosen = [m for m in MUTANTS if not words or any(word in m.says for word in words)]
    rows, good = {}, True
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_sources(folder)
        for mutant in chosen:
            began = time.monotonic()
            fine, said = outcome(folder, mutant)
            good = good and fine
            print(f"{'ok ' if fine else 'BAD'} {mutant.says}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
            rows[mutant.says] = said
    if "--write" in arguments:
        write(rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
