"""Least privilege: each role does its whole job under its own grants, and nothing else."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from psycopg import sql
from psycopg.conninfo import make_conninfo

from mempair_db import cli
from mempair_db.database.resources import directory
from mempair_db.demo import customers, story
from mempair_db.ledger import checkpoints, keys, verify
from mempair_db.worker.loop import Worker
from mempair_db.worker.metrics import Metrics

KINDS = ("worker", "reader", "auditor", "operator", "stranger")
RIGHTS = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
README = (Path(directory("sql")) / "README.md").read_text(encoding="utf-8")
# Role, privileges, object, as sql/README.md lists them; model n is model 1 here.
LISTED = [
    (kind, privileges, re.sub(r"_n(?=_|\b)", "_1", target))
    for kind, privileges, target in re.findall(r"^\| `(\w+)` \| `([^`]+)` \| `([^`]+)` \|$", README, re.MULTILINE)
]


def listed(kind: str, table: str, column: str) -> set[str]:
    """What the documentation lets a role do with a column of a table."""
    found = set()
    for role, privileges, target in LISTED:
        if (role, target) == (kind, f"table mempair.{table}"):
            some = re.fullmatch(r"(\w+) \((.*)\)", privileges)
            if some is None:
                found.update(privileges.split(", "))
            elif column in some[2].split(", "):
                found.add(some[1])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_and_view_can_be_used_exactly_as_listed(site: Any, kind: str) -> None:
    held = site.execute(
        "select c.relname, a.attname, array(select r from unnest(%s::text[]) r"
        " where case when r in ('delete', 'truncate', 'trigger') then"
        " has_table_privilege(%s, c.oid, r) else has_column_privilege(%s, c.oid, a.attnum, r) end)"
        " from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped"
        " where c.relnamespace = 'mempair'::regnamespace and c.relkind in ('r', 'v', 'm', 'p', 'f')",
        *(list(RIGHTS), site.names[kind], site.names[kind]),
    )
    assert len({table for table, _, _ in held}) > 25
    for table, column, rights in held:
        assert set(rights) == listed(kind, table, column), f"{table}.{column}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_function_can_be_executed_exactly_as_listed(site: Any, kind: str) -> None:
    found = site.execute(
        "select p.oid::regprocedure::text, p.pronamespace::regnamespace || '.' || p.proname,"
        " has_function_privilege(%s, p.oid, 'execute') from pg_proc p"
        " where p.pronamespace = 'mempair'::regnamespace or p.proname ~ '^mempair'",
        site.names[kind],
    )
    allowed = {target.removeprefix("function ") for role, _, target in LISTED if role == kind}
    named = {target.partition("(")[0] for target in allowed}
    assert len(found) > 60
    for signature, name, held in found:
        of_a_row = signature.endswith(",customers)") and name in named  # a row form goes with the form for arrays
        assert held == (of_a_row or name in allowed or f"public.{signature}" in allowed or signature in allowed), (
            signature
        )


@pytest.mark.parametrize("kind", KINDS)
def test_every_sequence_can_be_used_exactly_as_listed(site: Any, kind: str) -> None:
    found = site.execute(
        "select c.relname, has_sequence_privilege(%s, c.oid, 'usage') from pg_class c"
        " where c.relnamespace = 'mempair'::regnamespace and c.relkind = 'S'",
        site.names[kind],
    )
    for name, held in found:
        assert held == ((kind, "usage", f"sequence mempair.{name}") in LISTED), name


def test_everything_that_is_listed_is_there(site: Any) -> None:
    """A right to what is gone is no right: neither comparison above would see it."""
    relations = site.execute(
        "select case relkind when 'S' then 'sequence ' else 'table ' end || 'mempair.' || relname"
        " from pg_class where relnamespace = 'mempair'::regnamespace"
    )
    functions = site.execute(
        "select 'function ' || pronamespace::regnamespace || '.' || proname,"
        " 'function ' || regexp_replace(oid::regprocedure::text, '^(?!mempair\\.)', 'public.') from pg_proc"
        " where pronamespace = 'mempair'::regnamespace or proname ~ '^mempair'"
    )
    there = {"schema mempair"} | {name for (name,) in relations} | {name for names in functions for name in names}
    assert not [target for _, _, target in LISTED if target not in there]


def test_the_worker_does_its_whole_job_under_its_own_role(learned: Any) -> None:
    """Learning and unlearning are behind us; update, retrain, too few rows, truncate, erasure, metrics, heartbeat."""
    worker = Worker(learned.as_("worker"))
    with psycopg.connect(learned.dsn, autocommit=True) as owner:
        owner.execute("update customers set age = age + 1 where id = 2")
        owner.execute("select mempair.alter_model('churn', on_null => 'skip')")
        owner.execute("insert into customers values (5000, null, 'a', '', true)")
        worker.run_once()
        owner.execute("select mempair.retrain('churn')")
        worker.run_once()
        owner.execute("delete from customers where id > 100")
        owner.execute("select mempair.retrain('churn')")
        worker.run_once()
        owner.execute("truncate customers")
        worker.run_once()
        kinds = {kind for (kind,) in owner.execute("select kind from mempair.ledger")}
        assert kinds >= {
            "calibrated",
            "learned",
            "gate_opened",
            "unlearned",
            "rejected",
            "retrained",
            "epoch",
            "purged",
        }
        assert owner.execute("select * from mempair.verify_odometer()").fetchall() == []
        metrics = Metrics(0)
        with psycopg.connect(learned.as_("worker"), autocommit=True) as own:
            metrics.lag(own)
        metrics.close()
        thread = threading.Thread(target=worker.run)
        thread.start()
        deadline = time.monotonic() + 20
        while owner.execute("select count(*) from mempair.worker").fetchone() != (1,) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert owner.execute("select count(*) from mempair.worker").fetchone() == (1,)
        worker.stop()
        thread.join()
        assert owner.execute("select count(*) from mempair.worker").fetchone() == (0,)


def test_a_worker_that_lost_a_grant_says_who_gives_it_back(learned: Any) -> None:
    worker = sql.Identifier(learned.names["worker"])
    learned.sql.execute(sql.SQL("revoke select on mempair.source_1 from {}").format(worker))
    learned("select mempair.retrain('churn')")
    (failure,) = Worker(learned.as_("worker")).run_once().values()
    assert "permission denied for view source_1. A worker's role needs its grants: mempair grant --worker" in failure
    learned.execute("select mempair.grant_role(%s, 'worker')", learned.names["worker"])
    learned("select mempair.resume_model('churn')")
    assert not Worker(learned.as_("worker")).run_once()


def test_the_reader_predicts_and_looks(learned: Any) -> None:
    with psycopg.connect(learned.as_("reader")) as connection:
        for statement in (
            "select mempair_predict('churn', c) from customers c",
            "select mempair_try_predict('churn', c) from customers c",
            "select mempair.predict('churn', c), mempair.predict_proba('churn', c) from customers c",
            "select * from mempair.predict_all('churn')",
            "select * from mempair.model_status",
            "select * from mempair.odometer",
        ):
            assert connection.execute(statement).rowcount > 0, statement


def test_the_steps_of_the_demo_work_under_those_roles(database: str, roles: dict[str, str]) -> None:
    """The owner declares, inserts and deletes; the worker's role works; the reader's role predicts and looks."""
    with psycopg.connect(database, autocommit=True) as owner:
        for kind in ("worker", "reader"):
            owner.execute("select mempair.grant_role(%s, %s)", [roles[kind], kind])
        owner.execute("create schema mempair_demo")
        owner.execute(customers.TABLE)
        owner.execute(story.MODEL)
        reader = sql.Identifier(roles["reader"])
        owner.execute(sql.SQL("grant usage on schema mempair_demo to {}").format(reader))
        owner.execute(sql.SQL("grant select on mempair_demo.customers to {}").format(reader))
        customers.insert(owner, customers.invent(1, 4_000))
        for step in ("", story.DELETE):
            owner.execute(step)
            Worker(make_conninfo(database, user=roles["worker"], password=roles["worker"])).run_once()
        with psycopg.connect(database, user=roles["reader"], password=roles["reader"]) as connection:
            assert connection.execute(story.PREDICT).rowcount == 5
            kinds = [row[1] for row in connection.execute(story.LEDGER)]
        assert {"calibrated", "retrained", "gate_opened", "unlearned", "purged"} <= set(kinds)


def test_the_auditor_verifies_and_signs_without_seeing_anything_learned(learned: Any) -> None:
    key = keys.SigningKey.new("auditor")
    with psycopg.connect(learned.as_("auditor")) as connection:
        assert verify.verify_database(connection, "churn").problem is None
        connection.rollback()
        assert checkpoints.make(connection, "churn", key).startswith("auditor/1/churn\n")
        connection.rollback()
        assert connection.execute("select * from mempair.verify_odometer()").fetchall() == []
        assert connection.execute("select mempair.capacity('churn') > 0").fetchone() == (True,)
        connection.execute("select * from mempair.errors")


def test_models_created_later_and_upgrades_are_covered_and_revoking_takes_everything_back(learned: Any) -> None:
    from mempair_db.database.install import install  # noqa: PLC0415

    with psycopg.connect(learned.dsn, autocommit=True) as owner:
        owner.execute(
            "select mempair.create_model('spend', 'customers', target => 'age', features => array['plan'],"
            " lambda => 0.01, calibration_rows => 200, gamma => 100)"
        )
        install(learned.dsn)
        Worker(learned.as_("worker")).run_once()
        with psycopg.connect(learned.as_("reader")) as connection:
            assert connection.execute("select mempair_predict('spend', c) from customers c limit 1").rowcount == 1
        for kind in KINDS[:-1]:
            owner.execute("select mempair.revoke_role(%s, %s)", [learned.names[kind], kind])
            (left,) = owner.execute(
                "select (select count(*) from pg_class c, aclexplode(c.relacl) a where a.grantee = r.oid)"
                " + (select count(*) from pg_attribute c, aclexplode(c.attacl) a where a.grantee = r.oid)"
                " + (select count(*) from pg_namespace c, aclexplode(c.nspacl) a where a.grantee = r.oid)"
                " + (select count(*) from pg_proc c, aclexplode(c.proacl) a where a.grantee = r.oid)"
                " from pg_roles r where rolname = %s",
                [learned.names[kind]],
            ).fetchone() or (None,)
            assert left == (1 if kind == "reader" else 0)  # the reader's own right on customers is not ours to take


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_role_that_is_gone_does_not_keep_models_from_being_created(site: Any, kind: str) -> None:
    with psycopg.connect(site.dsn, autocommit=True) as owner:
        owner.execute("insert into mempair.granted values ('nobody at all', %s)", [kind])
        owner.execute(
            "select mempair.create_model('other', 'customers', target => 'churned', features => array['age'])"
        )
        with pytest.raises(psycopg.Error, match="no role"):
            owner.execute("select mempair.grant_role('nobody at all', %s)", [kind])
        with pytest.raises(psycopg.Error) as bad:
            owner.execute("select mempair.grant_role(current_user, 'boss')")
        assert bad.value.sqlstate == "MP001"


def test_the_command_line_grants_and_prints_the_same(
    database: str, roles: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mempair(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["mempair", *arguments, "--dsn", database])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code
        return capsys.readouterr().out

    printed = mempair("sql", "grants", "--reader", roles["reader"])
    statements = [line for line in printed.splitlines() if not line.startswith("--")]
    with psycopg.connect(database) as connection:
        connection.execute("\n".join(statements))
        by_hand = rights(connection, roles["reader"])
        connection.rollback()
    mempair("grant", "--reader", roles["reader"])
    with psycopg.connect(database) as connection:
        assert rights(connection, roles["reader"]) == by_hand
        assert len(by_hand) > 5
    mempair("grant", "--reader", roles["reader"], "--revoke")
    with psycopg.connect(database) as connection:
        assert rights(connection, roles["reader"]) == []


def rights(connection: psycopg.Connection[Any], role: str) -> list[Any]:
    return connection.execute(
        "select c.oid::regclass::text, a.privilege_type from pg_class c, aclexplode(c.relacl) a, pg_roles r"
        " where a.grantee = r.oid and r.rolname = %(role)s"
        " union all"
        " select c.oid::regprocedure::text, a.privilege_type from pg_proc c, aclexplode(c.proacl) a, pg_roles r"
        " where a.grantee = r.oid and r.rolname = %(role)s order by 1, 2",
        {"role": role},
    ).fetchall()


def test_the_documentation_lists_every_grant(site: Any) -> None:
    """The table of sql/README.md against what mempair.privileges() gives, for model n."""
    with psycopg.connect(site.dsn) as connection:
        given = connection.execute("select kind, privilege, object from mempair.privileges()").fetchall()
    wanted = {row for row in given if "customers" not in row[2]}  # the row forms of a table's own predictions
    assert set(LISTED) == wanted


Refused = Callable[[str, str], None]

READER_TRIES = [
    "select weights from mempair.published",
    "select anchor from mempair.state",
    "select ledger_seq from mempair.state",
    "select v from mempair.curvature",
    "select x from mempair.change_1_a",
    "select x from mempair.source_1",
    "select salt from mempair.receipt",
    "select mempair.receipt('churn', '1')",
    "select constants from mempair.model",
    "select mempair.find_model('churn')",
    "select row_key from mempair.learned",
    "select row_key from mempair.errors",
    "select mempair.x_1(c) from customers c",
    "select mempair.retrain('churn')",
    "select mempair.drop_model('churn')",
    "select mempair.privileges()",
]

WORKER_TRIES = [
    "select * from mempair.ledger",
    "update mempair.ledger set rho = 0",
    "delete from mempair.ledger",
    "truncate mempair.ledger",
    "alter table mempair.ledger disable trigger user",
    "create trigger mine before insert on mempair.ledger execute function mempair.refuse_ledger_change()",
    "select salt from mempair.receipt",
    "delete from mempair.receipt",
    "update mempair.receipt set salt = ''",
    "select secret from customers",
    "select * from customers",
    "insert into mempair.model (name) values ('mine')",
    "update mempair.model set epsilon = 100",
    "update mempair.model set source = 'pg_class'",
    "delete from mempair.model",
    "insert into mempair.granted values (current_user, 'auditor')",
    "select mempair.grant_role(current_user, 'reader')",
    "select mempair.receipt('churn', '1')",
    "set role postgres",
]

AUDITOR_TRIES = [
    "select anchor from mempair.state",
    "select constants from mempair.model",
    "select weights from mempair.published",
    "select * from mempair.learned",
    "select * from mempair.receipt",
    "select * from mempair.change_1_a",
    "insert into mempair.ledger default values",
    "select mempair_predict('churn', array[1.0]::float8[])",
]

STRANGER_TRIES = [
    "select * from mempair.model_status",
    "select mempair_predict('churn', array[1.0]::float8[])",
    "select mempair.create_model('mine', 'customers', target => 'churned', features => array['age'])",
    "create table mempair.mine ()",
    "select * from customers",
]


def test_a_reader_sees_no_weights_window_queue_or_receipts(learned: Any, refused: Refused) -> None:
    for statement in READER_TRIES:
        refused(learned.as_("reader"), statement)


def test_a_worker_rewrites_no_ledger_and_reads_no_receipt(learned: Any, refused: Refused) -> None:
    for statement in WORKER_TRIES:
        refused(learned.as_("worker"), statement)


def test_an_auditor_sees_nothing_learned(learned: Any, refused: Refused) -> None:
    for statement in AUDITOR_TRIES:
        refused(learned.as_("auditor"), statement)


def test_a_stranger_can_do_nothing(learned: Any, refused: Refused) -> None:
    for statement in STRANGER_TRIES:
        refused(learned.as_("stranger"), statement)


OPERATOR_TRIES = [
    "select constants from mempair.model",
    "select * from mempair.ledger",
    "select mempair.receipt('churn', '1')",
    "select mempair_predict('churn', array[1.0]::float8[])",
    "select mempair.alter_model('churn', gamma => 1)",
    "select mempair.drop_model('churn')",
    "update mempair.model set paused = true",
]


def test_an_operator_pauses_resumes_and_retrains_under_its_own_name(learned: Any, refused: Refused) -> None:
    with psycopg.connect(learned.as_("operator"), autocommit=True) as operator:
        operator.execute("select mempair.pause_model('churn')")
        assert operator.execute("select status from mempair.model_status").fetchone() == ("paused",)
        operator.execute("select mempair.resume_model('churn')")
        operator.execute("select mempair.retrain('churn')")
    details = [detail for (detail,) in learned.execute("select detail from mempair.ledger where kind = 'config'")]
    assert sum(learned.names["operator"] in detail for detail in details) == 3
    for statement in OPERATOR_TRIES:
        refused(learned.as_("operator"), statement)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_roles_are_granted_and_revoked_after_a_table_was_dropped(learned: Any, kind: str) -> None:
    learned("create table other (id int primary key, age float8, y boolean)")
    learned("drop table customers cascade")
    learned.execute("select mempair.revoke_role(%s, %s)", learned.names[kind], kind)
    learned.execute("select mempair.grant_role(%s, %s)", learned.names[kind], kind)
    learned("select mempair.create_model('other', 'other', target => 'y', features => array['age'])")
    learned("insert into other select i, i % 7, i % 2 = 0 from generate_series(1, 200) i")
    Worker(learned.as_("worker")).run_once()
    assert learned.one("select rows_learned from mempair.model_status where model = 'other'") == 200


def test_a_worker_notices_a_dropped_table_under_its_own_role(learned: Any) -> None:
    with psycopg.connect(learned.dsn, autocommit=True) as owner:
        owner.execute("drop table customers cascade")
        Worker(learned.as_("worker")).run_once()
        with psycopg.connect(learned.as_("worker"), autocommit=True) as worker:
            worker.execute("select mempair.mark_dropped_sources()")
        assert owner.execute("select status from mempair.model_status").fetchone() == ("failed",)
        assert owner.execute("select * from mempair.verify_odometer()").fetchall() == []


@pytest.mark.parametrize("kind", ["worker", "reader", "auditor", "operator"])
def test_health_can_be_asked_by_every_role(learned: Any, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    with pytest.raises(typer.Exit):
        cli.work.health(dsn=learned.as_(kind))
    assert "no worker has reported" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["reader", "auditor", "operator"])
def test_who_sees_models_and_ledger_in_sql_sees_them_on_the_command_line(
    learned: Any, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    cli.models.model_list(dsn=learned.as_(kind), as_json=True)
    cli.evidence.odometer_show("churn", dsn=learned.as_(kind), as_json=True)
    shown = capsys.readouterr().out
    assert '"status": "ready"' in shown
    assert '"kind": "learned"' in shown


def test_an_operator_asks_for_a_retrain_on_the_command_line(learned: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cli.work.retrain("churn", dsn=learned.as_("operator"))
    assert "A worker will retrain churn" in capsys.readouterr().err
    assert learned.one("select retrain_requested from mempair.model") == f"requested by {learned.names['operator']}"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        cli.work.retrain("churn", dsn=learned.as_("reader"))
