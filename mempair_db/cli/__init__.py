"""The command line: one function per command. Data goes to stdout, messages to stderr.

Exit codes: 0 fine, 1 failed, 2 usage, 3 not installed, 4 exhausted, 5 verification failed, 6 schema
and mempair_db do not fit together.
"""

from __future__ import annotations

import os
import sys

import psycopg

from mempair_db import errors
from mempair_db.cli import bench, doctor, evidence, fleet, models, offline, receipts, roles, start, verify, web, work
from mempair_db.cli.common import app, say

__all__ = [
    "app",
    "bench",
    "doctor",
    "evidence",
    "fleet",
    "main",
    "models",
    "offline",
    "receipts",
    "roles",
    "start",
    "verify",
    "web",
    "work",
]

READ_ONLY = "This server is a standby, or default_transaction_read_only is set: connect to the one that is written to."
RIGHTS = "Let the owner of the schema run `mempair grant --worker ROLE`, or --reader, --auditor, --operator."


def main() -> None:
    """Run a command and turn errors into messages and exit codes."""
    # A worker reads on several connections at once, beside the server: threads inside its small products only wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except errors.MempairError as error:
        say(f"{error}", "error", "red")
        sys.exit(error.exit_code)
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error).strip()
        hint = error.diag.message_hint or ""
        if error.sqlstate is None and isinstance(error, psycopg.ProgrammingError):  # a DSN that cannot be read
            hint = "Write postgresql://user@host/database, or host=... dbname=..."
        if text.startswith("permission denied for"):
            hint = f"{hint} {RIGHTS}".strip()
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            hint = READ_ONLY
        say(f"{text}{'.' if hint and text[-1:] not in '.?!' else ''} {hint}".strip(), "error", "red")
        sys.exit(1)
    except OSError as error:  # a folder that cannot be written, a disk that is full
        where = f": {error.filename}" if error.filename else ""
        say(f"{error.strerror or error}{where}", "error", "red")
        sys.exit(1)
