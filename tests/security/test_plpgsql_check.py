"""Static analysis of every PL/pgSQL function, generated ones too, where the extension plpgsql_check can be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mempair_db.database.install import install
from mempair_db.embedded.server import Server
from tests.security.conftest import MODELS

ODD = """
create table odd (y boolean, x float8, id int not null);
alter table parts attach partition odd for values from (10) to (20);
select mempair.reconcile('parts', repair => true);
"""

# These put words into SQL with %s, which the extension cannot tell from a user's text: numbers, regclass, regprocedure
# and words of our own. They run with their caller's rights, so a caller gains nothing by them.
GENERATORS = {
    *("mempair.write_extractor", "mempair.write_trigger_function", "mempair.attach_triggers", "mempair.write_predict"),
    "mempair.write_finder",
    *("mempair.apply_grants", "mempair.revoke_role", "mempair.erase_queue", "mempair.backfill_blocks"),
    *("mempair.enqueue", "mempair.some_values", "mempair.array_size", "mempair.check_classes"),
    # These take a condition, which is the caller's own SQL.
    *("mempair.compare", "mempair.evaluate", "mempair.roc", "mempair.checked_condition"),
}
# These fill a record by dynamic SQL, whose columns the extension cannot know.
DYNAMIC = {"mempair.pending"}
DEFINERS = """
select p.pronamespace::regnamespace || '.' || p.proname from pg_proc p
where p.prosecdef and p.pronamespace = 'mempair'::regnamespace
"""
FUNCTIONS = """
select p.oid::regprocedure::text, coalesce(t.tgrelid, 0), t.tgoldtable, t.tgnewtable
from pg_proc p join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
left join lateral (select t.* from pg_trigger t where t.tgfoid = p.oid limit 1) as t on true
where p.pronamespace = 'mempair'::regnamespace or p.proname ~ '^mempair'
"""
CHECK = """
select functionid::regprocedure::text, lineno, level, message
from plpgsql_check_function_tb(%s::regprocedure, relid => %s::oid::regclass, oldtable => %s, newtable => %s,
                               security_warnings => true, other_warnings => true, performance_warnings => false,
                               extra_warnings => false)
"""


@pytest.fixture
def linter(server_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of the system's PostgreSQL that has the extension, with schema mempair and models of every kind."""
    controls = sorted(Path("/usr/share/postgresql").glob("*/extension/plpgsql_check.control"))
    if not controls:
        pytest.skip("no PostgreSQL of this system has plpgsql_check (Debian: postgresql-<version>-plpgsql-check)")
    monkeypatch.setenv("MEMPAIR_PG_BIN", f"/usr/lib/postgresql/{controls[-1].parent.parent.name}/bin")
    dsn = Server(server_home).start()
    install(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create extension plpgsql_check")
        connection.execute(MODELS + ODD)
    yield dsn
    Server(server_home).stop("immediate")  # while the variable says whose binaries they are


def test_plpgsql_check_finds_no_errors_and_no_injection(linter: str) -> None:
    with psycopg.connect(linter, autocommit=True) as connection:
        found = []
        for name, table, old, new in connection.execute(FUNCTIONS).fetchall():
            found += connection.execute(CHECK, [name, table, old, new]).fetchall()
        definers = {row[0] for row in connection.execute(DEFINERS)}
    errors = [row for row in found if row[2] == "error" and row[0].split("(")[0] not in DYNAMIC]
    assert errors == []
    suspects = {row[0].split("(")[0] for row in found if row[2] == "security"}
    assert suspects <= GENERATORS
    assert suspects.isdisjoint(definers)
