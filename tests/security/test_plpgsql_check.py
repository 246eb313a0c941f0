"""Static analysis of every PL/pgSQL function, generated ones too, where the extension plpgsql_check can be had."""

from __future__ import annotations

import psycopg
import pytest

from mempair_db.worker.loop import Worker

# These put words into SQL with %s, which the extension cannot tell from a user's text: numbers, regclass, regprocedure
# and words of our own. They run with their caller's rights, so a caller gains nothing by them.
GENERATORS = {
    *("mempair.write_extractor", "mempair.write_trigger_function", "mempair.attach_triggers", "mempair.write_predict"),
    *("mempair.apply_grants", "mempair.revoke_role", "mempair.erase_queue"),
}
DEFINERS = """
select p.pronamespace::regnamespace || '.' || p.proname from pg_proc p
where p.prosecdef and p.pronamespace = 'mempair'::regnamespace
"""
FUNCTIONS = """
select p.oid::regprocedure::text, coalesce(t.tgrelid, 0), coalesce(t.tgnewtable, t.tgoldtable) is not null,
       t.tgoldtable, t.tgnewtable
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


def test_plpgsql_check_finds_no_errors_and_no_injection(site: object, superuser: object) -> None:
    owner = site.owner  # type: ignore[attr-defined]
    with psycopg.connect(superuser(owner), autocommit=True) as connection:  # type: ignore[operator]
        available = "select from pg_available_extensions where name = 'plpgsql_check'"
        if connection.execute(available).fetchone() is None:
            pytest.skip(
                "this server has no extension plpgsql_check; with MEMPAIR_TEST_DSN the tests use another server"
            )
        connection.execute("create extension plpgsql_check")
        Worker(owner).run_once()
        found = []
        for name, table, _, old, new in connection.execute(FUNCTIONS).fetchall():
            found += connection.execute(CHECK, [name, table, old, new]).fetchall()
        definers = {row[0] for row in connection.execute(DEFINERS)}
    assert [row for row in found if row[2] == "error"] == []
    suspects = {row[0].split("(")[0] for row in found if row[2] == "security"}
    assert suspects <= GENERATORS
    assert suspects.isdisjoint(definers)
