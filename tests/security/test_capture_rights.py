"""Capture runs with the rights of the schema's owner: nothing that a table's owner can define may run inside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from mempair_db.database.install import install
from mempair_db.errors import UnsupportedRelation

ATTACKER = """
create schema theirs;
create table theirs.spoils (who text, is_superuser boolean, how text);
grant usage on schema theirs to public;
grant insert on theirs.spoils to public;
create function theirs.steal(how text) returns void language plpgsql as $$
begin
    insert into theirs.spoils values (current_user, (select rolsuper from pg_roles where rolname = current_user), how);
end $$;
create type theirs.kind as enum ('a', 'b');
create function theirs.cast_kind(k theirs.kind) returns text language plpgsql as
$$ begin perform theirs.steal('cast to text'); return 'x'; end $$;
create function theirs.cast_float(k theirs.kind) returns float8 language plpgsql as
$$ begin perform theirs.steal('cast to float8'); return 1; end $$;
create function theirs.cast_json(k theirs.kind) returns json language plpgsql as
$$ begin perform theirs.steal('cast to json'); return '1'; end $$;
create function theirs.equal(k theirs.kind, l theirs.kind) returns boolean language plpgsql as
$$ begin perform theirs.steal('operator'); return true; end $$;
create operator theirs.= (leftarg = theirs.kind, rightarg = theirs.kind, function = theirs.equal);
create function theirs.check_kind(k theirs.kind) returns boolean language plpgsql as
$$ begin perform theirs.steal('check of a domain'); return true; end $$;
create function theirs.check_number(k integer) returns boolean language plpgsql as
$$ begin perform theirs.steal('check of a domain'); return true; end $$;
create domain theirs.guarded as theirs.kind check (theirs.check_kind(value));
create domain theirs.number as integer check (theirs.check_number(value));
create table theirs.t (id theirs.number, k theirs.kind, g theirs.guarded, n theirs.number, label theirs.kind,
                       who theirs.kind, primary key (id)) partition by range (id);
create table theirs.low partition of theirs.t for values from (0) to (100);
create table theirs.odd (n theirs.number, id theirs.number not null, label theirs.kind, who theirs.kind,
                         g theirs.guarded, k theirs.kind);
alter table theirs.t attach partition theirs.odd for values from (100) to (1000);
"""
CASTS = """
create function theirs.cast_row(r theirs.odd) returns theirs.t language plpgsql as
$$ begin perform theirs.steal('cast of a partition''s row'); return null; end $$;
create function theirs.cast_row(r theirs.low) returns theirs.t language plpgsql as
$$ begin perform theirs.steal('cast of a partition''s row'); return null; end $$;
create cast (theirs.odd as theirs.t) with function theirs.cast_row(theirs.odd) as implicit;
create cast (theirs.low as theirs.t) with function theirs.cast_row(theirs.low) as implicit;
create cast (theirs.kind as text) with function theirs.cast_kind(theirs.kind) as implicit;
create cast (theirs.kind as float8) with function theirs.cast_float(theirs.kind) as implicit;
create cast (theirs.kind as json) with function theirs.cast_json(theirs.kind);
"""
MODEL = """
select mempair.create_model('m', 'theirs.t', target => 'label', positive => 'a', features => '{k,g,n}',
                            subject => 'who', key => '{id}')
"""
WRITES = """
insert into theirs.t values (1, 'a', 'b', 1, 'a', 'a'), (2, 'b', 'a', 2, 'b', 'b'), (3, 'b', 'a', 3, 'b', 'b');
insert into theirs.t values (101, 'a', 'b', 1, 'a', 'a'), (102, 'a', 'b', 1, 'a', 'a');
insert into theirs.odd (id, k, g, n, label, who) values (103, 'a', 'b', 1, 'a', 'a'), (104, 'a', 'b', 1, 'a', 'a');
update theirs.t set k = 'a', n = 3 where id = 2;
update theirs.t set k = 'a', n = 4;
update theirs.low set n = 5;
delete from theirs.t where id = 1;
truncate theirs.low;
truncate theirs.odd;
insert into theirs.t values (1, 'a', 'b', 1, 'a', 'a'), (2, 'b', 'a', 2, 'b', 'b');
"""


@pytest.fixture
def admin(empty_database: str, superuser: Callable[[str], str]) -> Iterator[psycopg.Connection[Any]]:
    """A superuser who installs, and a table's owner, mempair_owner here, who wants to become one."""
    install(superuser(empty_database))
    with psycopg.connect(superuser(empty_database), autocommit=True) as connection:
        yield connection


@pytest.fixture
def owner(empty_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        yield connection


def stolen(owner: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """What ran as a superuser. The owner's own functions run in the owner's own statements, as the owner."""
    return owner.execute("select distinct who, how from theirs.spoils where who <> current_user").fetchall()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_tables_owner_runs_nothing_with_our_rights(
    admin: psycopg.Connection[Any], owner: psycopg.Connection[Any], when: str
) -> None:
    owner.execute(ATTACKER)
    if when == "before":
        owner.execute(CASTS)
    admin.execute(MODEL)
    if when == "after":
        owner.execute(CASTS)
    owner.execute(WRITES)
    admin.execute("select * from mempair.source_1")
    admin.execute("select mempair.enqueue_source(1), mempair.schema_changes(1)")
    admin.execute("select * from mempair.reconcile('m', repair => true)")
    for part, key in (("low", 50), ("odd", 150)):
        owner.execute(f"insert into theirs.{part} (id, k, g, n, label, who) values ({key}, 'a', 'b', 1, 'a', 'a')")
        admin.execute(f"select mempair.backfill_blocks('m', 'theirs.{part}', 0, 10)")
    admin.execute(
        "update mempair.published set ready = true, weights = '{1}', intercept = 0, levels = '{1,1:a,2:a}',"
        " level_weights = '{0,1,1}', centers = '{0}'"
    )
    admin.execute("grant usage on schema mempair to public; grant execute on all functions in schema mempair to public")
    admin.execute("grant execute on function mempair_predict(text, theirs.t) to public")
    owner.execute("select mempair_predict('m', t) from theirs.t t")
    owner.execute("select * from mempair.predict_all('m')")
    assert stolen(owner) == []
    assert owner.execute("select count(*) from theirs.spoils").fetchone() != (0,)
    captured = admin.execute(
        "select c from (select * from mempair.change_1_a union all select * from mempair.change_1_b) q"
        " where op = 2 order by seq limit 1"
    ).fetchone()
    assert captured == ([["b", "a"]],)  # and not what the cast says


POLICY = """
create function theirs.policy() returns boolean language plpgsql as
$$ begin perform theirs.steal('policy'); return true; end $$;
alter table theirs.low enable row level security;
alter table theirs.low force row level security;
alter table theirs.t enable row level security;
alter table theirs.t force row level security;
create policy p on theirs.low using (theirs.policy()) with check (true);
create policy p on theirs.t using (theirs.policy()) with check (true);
"""


def test_a_policys_functions_never_run_with_our_rights(
    database: str, superuser: Callable[[str], str], roles: dict[str, str]
) -> None:
    """Here the schema's owner is no superuser, so policies of somebody else's table apply to it."""
    with psycopg.connect(superuser(database), autocommit=True) as admin:
        them = roles["stranger"]
        admin.execute(f"grant create on database {admin.info.dbname} to {them}")
    with (
        psycopg.connect(database, autocommit=True) as ours,
        psycopg.connect(database, user=them, password=them, autocommit=True) as theirs,
    ):
        theirs.execute(ATTACKER)
        theirs.execute("grant all on all tables in schema theirs to mempair_owner")
        theirs.execute("grant execute on all functions in schema theirs to public")
        ours.execute(MODEL)
        theirs.execute("insert into theirs.t values (1, 'a', 'b', 1, 'a', 'a'), (2, 'b', 'a', 2, 'b', 'b')")
        ours.execute(
            "update mempair.published set ready = true, weights = '{1}', intercept = 0, levels = '{}',"
            " level_weights = '{}'"
        )
        theirs.execute(POLICY)
        ours.execute("truncate mempair.change_1_a, mempair.change_1_b")
        theirs.execute("truncate theirs.low")
        assert ours.execute("select changes from mempair.pending(1)").fetchone() == (0,)
        assert "low was truncated" in str(ours.execute("select mempair.schema_changes(1)").fetchone())
        for statement in (
            "select * from mempair.predict_all('m')",
            "select * from mempair.reconcile('m')",
            "select mempair.enqueue_source(1)",
            "select mempair.backfill_blocks('m', 'theirs.low', 0, 10)",
        ):
            with pytest.raises(psycopg.Error, match=r"row-level security|row security|policies"):
                ours.execute(statement)
        found = theirs.execute("select who, how from theirs.spoils where how = 'policy' and who <> current_user")
        assert found.fetchall() == []
        theirs.execute("drop schema theirs cascade")
        ours.execute("select mempair.drop_model('m')")


@pytest.mark.parametrize("signature", ["mempair_predict(text, float8[])", "mempair_try_predict(text, integer)"])
def test_a_function_of_somebody_else_with_our_name_is_refused(
    empty_database: str, superuser: Callable[[str], str], signature: str
) -> None:
    with psycopg.connect(empty_database) as stranger:
        stranger.execute(f"create function public.{signature} returns float8 language sql as 'select 1::float8'")
    with pytest.raises(UnsupportedRelation, match=r"predict\(.* already exists and belongs to mempair_owner"):
        install(superuser(empty_database))
    with psycopg.connect(empty_database) as stranger:
        stranger.execute(f"drop function public.{signature}")
    install(superuser(empty_database))


def test_a_row_form_that_somebody_else_made_first_is_refused(
    admin: psycopg.Connection[Any], owner: psycopg.Connection[Any]
) -> None:
    owner.execute("create table t (id int primary key, x float8, y boolean)")
    owner.execute(
        "create function mempair_predict(model_name text, r t) returns float8 language sql as 'select 1::float8'"
    )
    with pytest.raises(psycopg.Error, match="belongs to mempair_owner") as refusal:
        admin.execute("select mempair.create_model('m', 't', target => 'y', features => '{x}')")
    assert refusal.value.sqlstate == "MP003"


# Every function that runs with the owner's rights although somebody else calls it. A new one is added here when it has
# been read with that in mind: what can the caller, or the owner of a model's table, make it do?
DEFINERS = (
    r"mempair\.(find_model|pause_model|resume_model|retrain|request|predict_encoded|predict_array_carefully|predict_elsewhere|predict_all|predict_class_all|receipt|expire_receipts|append_entries|append_entry"
    r"|pending|mark_dropped_sources|capacity|state_is_attested|refuse_ledger_change|verify_odometer|wrong_counters|wrong_entries|enqueue_source|schema_changes|adopt_schema|forget_rejected"
    r"|published_digest|store_version|erase_versions|serve_version|hold_version|latest_published|latest_classes|undo_alteration|predict|try_predict|predict_proba|served|explain|coefficients|curve|find_\d+|place_\d+|capture_\d+_\w+)\(|(public\.)?mempair_(try_)?predict(_class|_proba)?\("
)


def test_every_function_that_runs_as_its_owner_has_been_thought_about(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(ATTACKER)
        connection.execute(MODEL)
        found = connection.execute(
            "select p.oid::regprocedure::text, p.prosrc, coalesce(p.proconfig, '{}') from pg_proc p"
            " where (p.pronamespace = 'mempair'::regnamespace or p.proname like 'mempair%%') and p.prosecdef"
        ).fetchall()
        assert len(found) > 20
        for name, source, settings in found:
            assert re.match(DEFINERS, name), name
            assert "search_path=pg_catalog, pg_temp" in settings, name
            # Whatever reads a user's table by name does not let its policies run.
            reads_rows = re.search(r"mempair_row|source_%s|from only", source)
            if reads_rows:
                assert "row_security=off" in settings or "row_security_active" in source, name
            # No behaviour depends on what a user can set, except who the user is.
            asked = set(re.findall(r"current_setting\('+(\w+(?:\.\w+)?)", source))
            assert asked <= {"role", "transaction_isolation", "work_mem"}, name  # work_mem is put back as it was


def test_extractors_are_made_of_nothing_but_postgres_and_us(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(ATTACKER)
        connection.execute(CASTS)
        connection.execute(MODEL)
        # Built-in functions, operators and casts are not recorded: what is recorded here must be ours.
        foreign = connection.execute("""
            select d.objid::regprocedure::text, pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
            from pg_depend d join pg_proc p on p.oid = d.objid and d.classid = 'pg_proc'::regclass
            where p.pronamespace = 'mempair'::regnamespace
              and (d.refclassid in ('pg_cast'::regclass, 'pg_operator'::regclass)
                   or (d.refclassid = 'pg_proc'::regclass
                       and (select f.pronamespace from pg_proc f where f.oid = d.refobjid) <> 'mempair'::regnamespace))
        """).fetchall()
        assert foreign == []
        ours = connection.execute("select pg_get_functiondef('mempair.c_1'::regproc)").fetchone()
        assert ours is not None
        assert "enum_out" in ours[0]
