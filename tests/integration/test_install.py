"""Installing, upgrading and removing the schema."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mempair_db.database import learned, resources
from mempair_db.database.connect import connect
from mempair_db.database.install import install, script, uninstall
from mempair_db.database.resources import directory, stamp
from mempair_db.errors import NotInstalled, UnsupportedRelation
from tests.programs import program
from tests.snapshot import migrate, snapshot


def test_installing_twice_is_installing_once(database: str) -> None:
    once = snapshot(database)
    install(database)
    assert snapshot(database) == once


def test_the_owner_needs_no_special_rights(database: str) -> None:
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "select rolsuper or rolcreaterole or rolcreatedb or rolbypassrls from pg_roles where rolname = current_user"
        ).fetchone()
    assert row == (False,)


def test_the_owner_may_have_any_name(empty_database: str, superuser: Callable[[str], str]) -> None:
    given = conninfo_to_dict(empty_database)
    usual, password = str(given["user"]), str(given.get("password") or "")
    name = f'Ann "O" {given["dbname"]}'
    with psycopg.connect(superuser(empty_database), autocommit=True) as connection:

        def execute(statement: str, *names: str) -> None:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names), password=sql.Literal(password)))

        execute("create role {} login password {password}", name)
        execute("alter database {} owner to {}", str(given["dbname"]), name)
        try:
            dsn = make_conninfo(empty_database, user=name)
            install(dsn)
            install(dsn)
            with psycopg.connect(dsn) as owner:
                owner.execute("create table customers (id bigint primary key, age integer, churned boolean)")
                owner.execute("select mempair.create_model('churn', 'customers', 'churned', array['age'])")
        finally:
            execute("reassign owned by {} to {}", name, usual)
            execute("drop owned by {}", name)
            execute("drop role {}", name)


def test_migrations_one_by_one_equal_a_fresh_install(database: str, empty_database: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(directory("migrations")))
    revisions = [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()]
    for revision in reversed(revisions):
        migrate(empty_database, revision)
    install(empty_database)
    assert snapshot(empty_database) == snapshot(database)


def test_a_revision_that_somebody_left_in_our_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_database: str
) -> None:
    for name in ("sql", "migrations"):
        shutil.copytree(directory(name), tmp_path / name)
    strange = 'revision = "423f"\ndown_revision = "{}"\n\n\ndef upgrade():\n    raise SystemExit("run")\n'
    (tmp_path / "migrations/versions/423f_first.py").write_text(strange.format(stamp().revision))
    monkeypatch.setattr(resources, "PACKAGE", tmp_path)
    stamp.cache_clear()
    install(empty_database)
    printed = script()
    with connect(empty_database) as connection:  # schema and code fit together
        assert connection.execute("select version_num from mempair.alembic_version").fetchone() == (stamp().revision,)
    monkeypatch.undo()
    assert script() == printed


def test_an_upgrade_keeps_what_was_learned(empty_database: str) -> None:
    migrate(empty_database, "mempair_0001")
    rows = [(model, f"key {tick}", tick) for model in (1, 2) for tick in range(1, 5001)]
    statement = "copy mempair.learned (model_id, row_key, tick) from stdin"
    with psycopg.connect(empty_database) as connection, connection.cursor().copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
    install(empty_database)
    with psycopg.connect(empty_database) as connection:
        statement = "select model_id, row_key, tick from mempair.learned order by model_id, tick"
        assert connection.execute(statement).fetchall() == rows
        assert learned.find(connection, 2, ["key 7", "key 5001"]) == {"key 7": (None,)}


# A model as versions before chunks left it: one queue row for each changed row.
OLD_MODEL = """
create table customers (id int primary key, age int, plan text, churned boolean);
alter table customers rename age to years;
insert into mempair.model (name, source, key_columns, features, numeric_features, text_features, target, loss,
                           epsilon, delta, gamma)
values ('churn', 'customers', '{id}', '{age,plan}', '{age}', '{plan}', 'churned', 'logistic', 1, 1e-6, 0.1);
insert into mempair.queue values (1, 1);
insert into mempair.state (model_id) values (1);
insert into mempair.published (model_id, link) values (1, 'logistic');
create sequence mempair.change_1_seq;
create table mempair.change_1_a (seq bigint not null default nextval('mempair.change_1_seq'), op smallint not null,
    row_key text, x float8[], c text[], y float8, captured_at timestamptz, subject text);
create table mempair.change_1_b (like mempair.change_1_a including defaults);
create index on mempair.change_1_a (captured_at) where captured_at is not null;
create index on mempair.change_1_b (captured_at) where captured_at is not null;
create function mempair.key_1(r customers) returns text language sql stable return (r).id::text;
create function mempair.x_1(r customers) returns float8[] language sql stable
return array[coalesce((r).years::integer::float8, 'NaN'::float8)]::float8[];
create function mempair.c_1(r customers) returns text[] language sql stable return array[(r).plan::text];
create function mempair.y_1(r customers) returns float8 language sql stable
return case when (r).churned::boolean = true then 1 when (r).churned is not null then -1 end::float8;
create function mempair.margin_1(r customers, intercept float8, weights float8[], levels text[], level_weights float8[])
returns float8 language sql stable return intercept + weights[1] * (r).years::integer::float8;
create view mempair.source_1 as select mempair.key_1(r) as row_key, mempair.x_1(r) as x, mempair.c_1(r) as c,
    mempair.y_1(r) as y from customers r;
create function mempair.guard_1() returns boolean language sql stable
return 'mempair.x_1(customers)'::regprocedure is not null
    and 'mempair.change_1_a'::regclass is not null and 'mempair.change_1_b'::regclass is not null;
create function mempair.capture_1_insert() returns trigger language plpgsql as $$ begin
    insert into mempair.change_1_a (op, row_key, x, c, y)
    select 1, mempair.key_1(row(t.*)), mempair.x_1(row(t.*)), mempair.c_1(row(t.*)), mempair.y_1(row(t.*))
    from new_rows t;
    return null;
end $$;
create trigger mempair_1_after_insert after insert on customers referencing new table as new_rows for each statement
when ('mempair.guard_1()'::regprocedure is not null) execute function mempair.capture_1_insert();
insert into customers values (1, 30, 'basic', true), (2, 40, null, false);
insert into mempair.change_1_b (op, captured_at) values (3, '2026-01-01');
insert into mempair.change_1_b (op, row_key, x, c, y, captured_at, subject)
values (2, '9', '{1}', '{pro}', 1, '2026-01-02', 'me');
"""


def test_an_upgrade_keeps_changes_that_wait_and_capture_goes_on(empty_database: str) -> None:
    migrate(empty_database, "mempair_0002")
    with psycopg.connect(empty_database) as connection:
        connection.execute(OLD_MODEL)
    install(empty_database)
    waiting = (
        "select op, rows, keys, x, c, y, captured_at::date::text, subjects"
        " from (select * from mempair.change_1_a union all select * from mempair.change_1_b) q order by seq"
    )
    with psycopg.connect(empty_database) as connection:
        expected = [
            (1, 1, ["1"], [[30.0]], [["basic"]], [1.0], None, None),
            (1, 1, ["2"], [[40.0]], [[None]], [-1.0], None, None),
            (3, 1, None, None, None, None, "2026-01-01", None),
            (2, 1, ["9"], [[1.0]], [["pro"]], [1.0], "2026-01-02", ["me"]),
        ]
        assert connection.execute(waiting).fetchall() == expected
        assert connection.execute("select changes, deletions from mempair.pending(1)").fetchone() == (4, 2)
        connection.execute("insert into customers values (3, 50, 'pro', true)")
        connection.execute("delete from customers where id = 1")
        assert connection.execute(waiting).fetchall()[4] == (1, 1, ["3"], None, None, None, None, None)
        assert connection.execute(waiting).fetchall()[5][:6] == (2, 1, ["1"], [[30.0]], [["basic"]], [1.0])
        assert connection.execute("select changes, deletions from mempair.pending(1)").fetchone() == (6, 3)
        assert connection.execute("select mempair.schema_changes(1)").fetchone() == (None,)


def test_the_printed_script_equals_install(database: str, empty_database: str, tmp_path: Path) -> None:
    file = tmp_path / "install.sql"
    file.write_text(script(), encoding="utf-8")
    command = [program("psql", database), "-X", "-q", "-f", str(file), empty_database]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert snapshot(empty_database) == snapshot(database)


def test_uninstall_leaves_nothing_behind(empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        connection.execute("create table customers (id int primary key, age int, plan text, churned boolean)")
        connection.execute("insert into customers values (1, 30, 'basic', true)")
    before = snapshot(empty_database)
    install(empty_database)
    with psycopg.connect(empty_database) as connection:
        connection.execute(
            "select mempair.create_model('churn', 'customers', target => 'churned', features => '{age,plan}')"
        )
    assert snapshot(empty_database) != before
    uninstall(empty_database)
    assert snapshot(empty_database) == before


def test_uninstall_of_nothing_is_harmless(empty_database: str) -> None:
    before = snapshot(empty_database)
    uninstall(empty_database)
    assert snapshot(empty_database) == before


def test_uninstall_does_not_take_a_users_view_along(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create view mine as select mempair_predict('churn', array[1.0]) as prediction")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        uninstall(database)
    with psycopg.connect(database) as connection:
        connection.execute("drop view mine; create view mine as select * from mempair.model_status")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        uninstall(database)


def test_two_installers_at_once_do_not_meet(empty_database: str, database: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(install, [empty_database] * 4))
    assert snapshot(empty_database) == snapshot(database)


def test_an_upgrade_that_meets_a_query_which_holds_views_in_another_order_is_tried_again(
    database: str, superuser: Callable[[str], str]
) -> None:
    with psycopg.connect(superuser(database)) as other, ThreadPoolExecutor() as pool:
        other.execute("set deadlock_timeout = '1min'")  # so that it is the installer who is ended
        other.execute("select from mempair.errors limit 0")
        installed = pool.submit(install, database)
        waiting = (
            "select from pg_locks l join pg_database d on d.oid = l.database"
            " where not l.granted and d.datname = current_database()"
        )
        while not other.execute(waiting).fetchall() and not installed.done():
            time.sleep(0.01)
        other.execute("select from mempair.model_status limit 0")
        other.commit()
        installed.result(timeout=60)


def test_an_upgrade_keeps_models_working(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create table customers (id int primary key, age int, churned boolean)")
        connection.execute(
            "select mempair.create_model('churn', 'customers', target => 'churned', features => '{age}')"
        )
        connection.execute("alter table customers rename age to years")
    before = snapshot(database)
    install(database)
    assert snapshot(database) == before
    with psycopg.connect(database) as connection:
        connection.execute("insert into customers values (1, 30, true)")
        connection.execute("delete from customers")
        assert connection.execute("select x from mempair.change_1_a where op = 2").fetchall() == [([[30.0]],)]


def test_a_schema_of_somebody_else_is_refused(empty_database: str, superuser: Callable[[str], str]) -> None:
    with psycopg.connect(superuser(empty_database)) as connection:
        connection.execute("create schema mempair")
    with pytest.raises(UnsupportedRelation, match="belongs to"):
        install(empty_database)


def test_what_the_installer_may_not_do_is_said_with_the_remedy(
    empty_database: str, superuser: Callable[[str], str]
) -> None:
    user, dbname = (conninfo_to_dict(empty_database)[part] for part in ("user", "dbname"))
    with psycopg.connect(superuser(empty_database), autocommit=True) as admin:
        for obstacle, remedy in (
            ("drop schema public", "create schema public"),
            ("create schema public", f"grant usage, create on schema public to {user}"),
            (f"alter database {dbname} owner to current_user", f"grant create on database {dbname} to {user}"),
        ):
            admin.execute(obstacle)
            with pytest.raises(psycopg.Error) as refused:
                install(empty_database)
            assert f"{remedy};" in (refused.value.diag.message_hint or "")
            admin.execute(remedy if remedy.startswith("grant") else "select")
        install(empty_database)
        admin.execute(f"alter database {dbname} owner to {user}")


def test_a_missing_schema_is_named_as_such(empty_database: str) -> None:
    for statement in ("select mempair.capacity('churn')", "select * from mempair.model_status"):
        with pytest.raises(NotInstalled, match="mempair install"), connect(empty_database) as connection:
            connection.execute(statement)
    install(empty_database)
    with pytest.raises(psycopg.errors.UndefinedTable), connect(empty_database) as connection:
        connection.execute("select * from mempair.no_such_table")
