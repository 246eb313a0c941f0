"""With CI=true a test that is skipped for no good reason fails the run.

Good reasons are those of `EXPECTED`, and that a tool is missing which `.ci/run` could not install and said so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import pytest

EXPECTED = (
    "about what root does differently",
    "mounting a small file system needs root",
    "this machine does not allow mounts",
    "only POSIX has these permissions",
    "came with version",
    "no duckdb-extension-postgres-scanner of exactly DuckDB's version is installed",
    "needs a PostgreSQL on the PATH",
)
TOOLS = {"pgbouncer": "pgbouncer", "chromium": "Chromium", "plpgsql_check": "plpgsql_check", "pgvector": "pgvector"}
"""What `.ci/run` or `tests/matrix.py` calls a tool, and the word that a reason has for it."""

skipped: list[tuple[str, str]] = []


def unexpected(found: Iterable[tuple[str, str]], missing: str) -> list[tuple[str, str]]:
    """Return the skipped tests that have no good reason, with the reason they gave."""
    accepted = [*EXPECTED, *(TOOLS[tool] for tool in missing.split() if tool in TOOLS)]
    pattern = re.compile("|".join(map(re.escape, accepted)))
    return [(test, reason) for test, reason in found if not pattern.search(reason)]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember why a test was skipped; an expected failure is none of these."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped.append((report.nodeid, reason))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of CI."""
    if os.environ.get("CI") != "true" or hasattr(session.config, "workerinput"):
        return
    found = unexpected(skipped, os.environ.get("MEMPAIR_CI_MISSING", ""))
    for test, reason in found:
        print(f"\nUNEXPECTED SKIP {test}: {reason}")
    if found and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
