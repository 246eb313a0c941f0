"""The ledger's bytes are the same from Python, Postgres and DuckDB, and constraints refuse what no worker writes."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg import errors as pg

from mempair_db.ledger.entry import Entry, chain
from mempair_db.ledger.verify import duckdb_macros

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, timezone.utc)
LONG = 2**63 - 1

ENTRIES = {
    "plain": Entry(1, 1, AT, "learned", 1, 10, 10, 0, 0, None, None, None),
    "full": Entry(1, 2, AT, "unlearned", 1, 10, 1, 5, 5, 9, bytes(range(32)), "x"),
    "zeros": Entry(0, 0, AT, "", 0, 0, 0, 0, 0, 0, b"", ""),
    "largest": Entry(2**31 - 1, LONG, AT, "k", 2**31 - 1, LONG, LONG, LONG, LONG, LONG, b"\xff" * 32, "z"),
    "smallest": Entry(-(2**31), -LONG - 1, AT, "k", -(2**31), -LONG - 1, -1, -2, -3, -LONG - 1, b"\x00", "z"),
    "other alphabets": Entry(1, 1, AT, "ключ", 1, 1, 1, 1, 1, 1, None, "é 漢字 🗝 \u202e\u0301\n\t'\"\\"),
    "looks like bytes": Entry(1, 1, AT, "\\x00", 1, 1, 1, 1, 1, None, b"\\x", "\\x00ff NULL"),
    "1970": Entry(1, 1, datetime(1970, 1, 1, tzinfo=timezone.utc), "k", 1, 1, 1, 0, 0, None, None, None),
    "a microsecond before 1970": Entry(
        1, 1, datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc), "k", 1, 1, 1, 0, 0, None, None, None
    ),
    "long ago": Entry(1, 1, datetime(1, 1, 1, 0, 0, 0, 1, timezone.utc), "k", 1, 1, 1, 0, 0, None, None, None),
    "far away": Entry(
        1, 1, datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc), "k", 1, 1, 1, 0, 0, None, None, None
    ),
}

POSTGRES = """
select mempair.ledger_body(row(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, null, null, null)::mempair.ledger)
"""


@pytest.fixture(scope="module")
def duck() -> Any:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(duckdb_macros())
        yield connection


def test_postgres_makes_the_same_bytes(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("set timezone = 'Asia/Kathmandu'")
        for name, entry in ENTRIES.items():
            assert connection.execute(POSTGRES, entry).fetchone() == (entry.body(),), name


@pytest.mark.parametrize("name", ENTRIES)
def test_duckdb_makes_the_same_bytes(duck: duckdb.DuckDBPyConnection, name: str) -> None:
    entry = ENTRIES[name]
    casts = "$1, $2, $3::timestamptz, $4, $5, $6, $7, $8, $9, $10, $11::blob, $12::varchar"
    assert duck.execute(f"select ledger_body({casts})", list(entry)).fetchone() == (entry.body(),)


def test_different_entries_never_have_the_same_bytes() -> None:
    shifted = Entry(1, 1, AT, "ab", 1, 1, 1, 1, 1, None, None, "c")._replace
    variants = {
        shifted(kind="ab", detail="c").body(),
        shifted(kind="a", detail="bc").body(),
        shifted(tag=b"", detail=None).body(),
        shifted(tag=None, detail="").body(),
        shifted(rho_cap=0).body(),
        shifted(rho=2).body(),
    }
    assert len(variants) == 6


def entry_row(**changes: Any) -> list[Any]:
    entry = Entry(1, 1, AT, "learned", 1, 10, 10, 0, 0, None, None, None)._replace(**changes)
    body = entry.body()
    return [*entry, body, bytes(32), chain(bytes(32), body)]


TAG = bytes(32)

ALLOWED: dict[str, dict[str, Any]] = {
    "learned": {},
    "calibrated": {"kind": "calibrated", "rho_cap": 9, "detail": "lambda=1"},
    "gate opened": {"kind": "gate_opened"},
    "unlearned by noise": {"kind": "unlearned", "rows": 1, "rho": 5, "rho_spent": 7, "rho_cap": 9, "tag": TAG},
    "unlearned exactly": {"kind": "unlearned", "rows": 1, "rho_spent": 7, "tag": TAG, "detail": "by exact retrain"},
    "cancelled": {"kind": "cancelled", "rows": 1, "tag": TAG, "detail": "never learned"},
    "retrained": {"kind": "retrained", "rho_cap": 9, "detail": "why"},
    "retrained to nothing": {"kind": "retrained", "rows": 0, "clock": 0, "detail": "why"},
    "config": {"kind": "config", "rows": 0, "detail": "paused"},
    "purged": {"kind": "purged", "rows": 0, "detail": "queue tables truncated"},
    "attested": {"kind": "attested", "rows": 0, "tag": TAG, "detail": "version 3"},
}

REFUSED: dict[str, dict[str, Any]] = {
    "an unknown kind": {"kind": "other"},
    "a negative spend": {"rho": -1},
    "a spend above the total": ALLOWED["unlearned by noise"] | {"rho": 8},
    "a total above the cap": ALLOWED["unlearned by noise"] | {"rho_spent": 10},
    "a spend by learning": {"rho": 1, "rho_spent": 1, "rho_cap": 9},
    "a deletion without a tag": ALLOWED["unlearned by noise"] | {"tag": None},
    "a deletion of two rows": ALLOWED["unlearned by noise"] | {"rows": 2},
    "a deletion without a cap": ALLOWED["unlearned by noise"] | {"rho_cap": None},
    "a free deletion without a reason": ALLOWED["unlearned exactly"] | {"detail": None},
    "a paid deletion with a remark": ALLOWED["unlearned by noise"] | {"detail": "customer 42"},
    "a short tag": ALLOWED["cancelled"] | {"tag": b"42"},
    "a tag on learning": {"tag": TAG},
    "a remark on learning": {"detail": "customer 42"},
    "learning nothing": {"rows": 0},
    "a time that is none": {"at": "infinity"},
    "entry zero": {"seq": 0},
    "a clock before zero": {"clock": -1},
}

INSERT = "insert into mempair.ledger values (" + ", ".join(["%s"] * 15) + ")"


@pytest.fixture(scope="module")
def owner(server_dsn: str, template_database: str) -> Any:
    """A connection whose every change is rolled back."""
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415

    with psycopg.connect(make_conninfo(server_dsn, dbname=template_database)) as connection:
        yield connection
        connection.rollback()


@pytest.mark.parametrize("name", ALLOWED)
def test_entries_of_every_kind_are_accepted(owner: psycopg.Connection[Any], name: str) -> None:
    with owner.transaction(force_rollback=True):
        owner.execute(INSERT, entry_row(**ALLOWED[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_entries_that_contradict_their_kind_are_refused(owner: psycopg.Connection[Any], name: str) -> None:
    row = entry_row(**{k: v for k, v in REFUSED[name].items() if k != "at"})
    if "at" in REFUSED[name]:
        row[2] = REFUSED[name]["at"]
    with pytest.raises(pg.CheckViolation), owner.transaction(force_rollback=True):
        owner.execute(INSERT, row)
