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

TABLES = (
    *("model", "former_model", "queue", "learned", "learned_keys", "state", "curvature", "published", "ledger"),
    *("receipt", "rejected", "capture", "escaped", "truncating", "reference_row", "secret"),
    *("worker", "granted", "installed", "alembic_version", "change_1_a", "change_1_b", "source_1"),
    *("model_status", "table_status", "odometer", "errors", "model_card", "workers", "setting"),
)

# What each role may read as a whole; columns that are granted singly are not in here.
READS = {
    "worker": {
        *(
            "model",
            "queue",
            "learned",
            "learned_keys",
            "state",
            "curvature",
            "published",
            "worker",
            "reference_row",
            "secret",
        ),
        *("change_1_a", "change_1_b", "source_1", "model_status"),
    },
    "reader": {"model_status", "table_status", "odometer", "model_card", "workers", "setting"},
    "auditor": {
        *("ledger", "former_model", "model_status", "table_status", "odometer", "errors"),
        *("model_card", "workers", "setting"),
    },
    "stranger": set(),
}
WRITES = {
    "worker": {
        ("curvature", "insert, update, delete"),
        ("learned_keys", "insert, delete"),
        ("reference_row", "insert, delete"),
        ("state", "update"),
        ("published", "update"),
        ("queue", "update"),
        ("worker", "insert, update, delete"),
        ("ledger", "insert"),
        ("receipt", "insert"),
        ("rejected", "insert"),
        ("change_1_a", "insert, delete, truncate"),
        ("change_1_b", "insert, delete, truncate"),
    },
    "reader": set(),
    "auditor": set(),
    "stranger": set(),
}
RIGHTS = ("insert", "update", "delete", "truncate", "references", "trigger")


@pytest.mark.parametrize("kind", READS)
def test_tables_can_be_read_and_written_exactly_as_listed(site: Any, kind: str) -> None:
    with psycopg.connect(site.dsn) as connection:
        for table in TABLES:
            held = {
                right
                for right in ("select", *RIGHTS)
                if connection.execute(
                    "select has_table_privilege(%s, %s, %s)", [site.names[kind], f"mempair.{table}", right]
                ).fetchone()
                == (True,)
            }
            wanted = {"select"} if table in READS[kind] else set()
            wanted |= {right for name, rights in WRITES[kind] if name == table for right in rights.split(", ")}
            assert held == wanted, table


# Beyond these, a role can execute nothing of ours.
EXECUTES = {
    "worker": r"mempair\.(find_model|pending|bucket|crc32|partitions|forget_rejected|find_1|to_double|digest|short_key"
    r"|category|enqueue_source|schema_changes"
    r"|adopt_schema|rotate_queue|erase_queue|expire_receipts"
    r"|mark_dropped_sources|key_1|x_1|c_1|y_1)",
    "reader": r"(mempair\.(pending|deadline|epsilon_of|delta_of|mills"
    r"|predict|try_predict|predict_proba|predict_all)|(public\.)?mempair_(try_)?predict)",
    "auditor": r"mempair\.(pending|deadline|epsilon_of|delta_of|mills"
    r"|capacity|verify_odometer|ledger_body|ledger_number|ledger_bytes)",
    "stranger": r"nothing",
}


@pytest.mark.parametrize("kind", EXECUTES)
def test_functions_can_be_executed_exactly_as_listed(site: Any, kind: str) -> None:
    with psycopg.connect(site.dsn) as connection:
        found = connection.execute(
            "select p.oid::regprocedure::text, has_function_privilege(%s, p.oid, 'execute') from pg_proc p"
            " where p.pronamespace = 'mempair'::regnamespace or p.proname ~ '^mempair'",
            [site.names[kind]],
        ).fetchall()
    assert len(found) > 60
    for name, held in found:
        assert held == bool(re.match(EXECUTES[kind] + r"\(", name)), name


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
        for kind in ("worker", "reader", "auditor"):
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


@pytest.mark.parametrize("kind", ["worker", "auditor", "reader"])
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
    text = (Path(directory("sql")) / "README.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \| `([^`]+)` \| `([^`]+)` \|$", text, re.MULTILINE))
    with psycopg.connect(site.dsn) as connection:
        given = connection.execute("select kind, privilege, object from mempair.privileges()").fetchall()
    wanted = {(kind, privilege, re.sub(r"_1(?=_|\b)", "_n", target)) for kind, privilege, target in given}
    wanted = {row for row in wanted if "customers" not in row[2]}  # the row forms of a table's own predictions
    assert documented == wanted


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


def test_a_worker_notices_a_dropped_table_under_its_own_role(learned: Any) -> None:
    with psycopg.connect(learned.dsn, autocommit=True) as owner:
        owner.execute("drop table customers cascade")
        Worker(learned.as_("worker")).run_once()
        with psycopg.connect(learned.as_("worker"), autocommit=True) as worker:
            worker.execute("select mempair.mark_dropped_sources()")
        assert owner.execute("select status from mempair.model_status").fetchone() == ("failed",)
        assert owner.execute("select * from mempair.verify_odometer()").fetchall() == []


def test_health_can_be_asked_by_the_worker(learned: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        cli.work.health(dsn=learned.as_("worker"))
    assert "no worker has reported" in capsys.readouterr().err
