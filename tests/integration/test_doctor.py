"""The doctor names what is wrong around a database and what to do; its exit code serves scripts."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from mempair_db.database import doctor
from mempair_db.database.install import install
from mempair_db.errors import UnsupportedDatabase, VerificationFailed
from mempair_db.ledger import keys, receipts
from tests.conftest import Run
from tests.world import CHURN, OWNER, OWNER_PASSWORD, SHOP, World, make_owner, opened

Superuser = Callable[[str], str]
KEY = keys.SigningKey.new("db.example.org")


def findings(mempair: Run, dsn: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and fact and remedy of every check that found something."""
    code, output, _ = mempair("doctor", "--json", "--dsn", dsn)
    return code, {row["check"]: (row["fact"], row["remedy"]) for row in json.loads(output) if row["remedy"]}


def test_a_healthy_database_has_no_findings(shop: World, superuser: Superuser, mempair: Run) -> None:
    role = f"role_{secrets.token_hex(6)}"
    with psycopg.connect(superuser(shop.dsn), autocommit=True) as admin:
        admin.execute(f"create role {role}")
        for kind in ("worker", "reader", "auditor", "operator"):
            shop(f"select mempair.grant_role('{role}', '{kind}')")
            assert findings(mempair, shop.dsn) == (0, {})
        shop("select mempair.revoke_role(role_name, kind) from mempair.granted")
        admin.execute(f"drop role {role}")
    assert findings(mempair, shop.dsn) == (0, {})
    code, output, _ = mempair("doctor", "--dsn", shop.dsn)
    assert code == 0
    assert [line.split("  ")[0] for line in output.splitlines()] == [
        *("server", "encoding", "clocks", "schema", "rights", "triggers", "bypass", "subscriptions", "tables"),
        *("statistics", "unlogged", "row security", "timeouts"),
    ]


# What goes wrong (as the owner, or as a superuser), which check notices, and what it says to do.
TROUBLES = {
    "disabled triggers": ("alter table shop disable trigger user", "", "triggers", "mempair reconcile churn --repair"),
    "a missing trigger": (
        "drop trigger mempair_1_after_delete on shop",
        "",
        "triggers",
        "mempair reconcile churn --repair",
    ),
    "a dropped table": ("drop table shop cascade", "", "triggers", "mempair.drop_model('churn')"),
    "no triggers at all": (
        "",
        "alter database {database} set session_replication_role = replica",
        "bypass",
        "Reset it",
    ),
    "a subscription": (
        "",
        "create subscription {database} connection '' publication p with (connect = false, slot_name = none);"
        " insert into pg_subscription_rel select oid, 'shop'::regclass, 'r', null from pg_subscription"
        " where subname = '{database}'",
        "subscriptions",
        "mempair retrain churn",
    ),
    "no primary key": ("alter table shop drop constraint shop_pkey", "", "tables", "add the primary key again"),
    "a table that became a partition": (
        "create table above (like shop) partition by range (id); alter table above attach partition shop default",
        "",
        "tables",
        "a model on the table above",
    ),
    "tables that inherit": ("create table child () inherits (shop)", "", "tables", "declarative partitions"),
    "an unlogged table": ("alter table shop set unlogged", "", "unlogged", "alter table shop set logged"),
    "hidden rows": (
        "alter table shop enable row level security, force row level security",
        "",
        "row_security",
        "no force row level security",
    ),
    "an impatient server": (
        f"alter role {OWNER} in database {{database}} set idle_session_timeout = '5s'",
        "",
        "timeouts",
        "set idle_session_timeout = 0",
    ),
    "a lost grant": (
        "select mempair.grant_role('{role}', 'reader'); revoke all on mempair.model_status from {role}",
        "create role {role}",
        "rights",
        "mempair grant --reader",
    ),
    "a worker's lost grant": (
        "select mempair.grant_role('{role}', 'worker'); revoke all on mempair.source_1 from {role}",
        "create role {role}",
        "rights",
        "mempair grant --worker",
    ),
    "a lost grant on columns": (
        "select mempair.grant_role('{role}', 'worker'); revoke update (epoch) on mempair.model from {role}",
        "create role {role}",
        "rights",
        "mempair grant --worker",
    ),
    "a lost grant on a function": (
        "select mempair.grant_role('{role}', 'worker'); revoke execute on function mempair.key_1 from {role}",
        "create role {role}",
        "rights",
        "mempair grant --worker",
    ),
    "a lost grant on a sequence": (
        "select mempair.grant_role('{role}', 'worker'); revoke usage on sequence mempair.change_1_seq from {role}",
        "create role {role}",
        "rights",
        "mempair grant --worker",
    ),
    "a lost grant on the schema": (
        "select mempair.grant_role('{role}', 'auditor'); revoke usage on schema mempair from {role}",
        "create role {role}",
        "rights",
        "mempair grant --auditor",
    ),
    "a role that is gone": (
        "insert into mempair.granted (role_name, kind) values ('{role}', 'reader')",
        "",
        "rights",
        "mempair grant --revoke --reader",
    ),
    "an older schema": ("comment on table mempair.alembic_version is null", "", "schema", "mempair install"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_trouble_is_named_with_its_remedy(shop: World, superuser: Superuser, mempair: Run, trouble: str) -> None:
    by_owner, by_superuser, check, remedy = TROUBLES[trouble]
    names = {"database": shop.sql.info.dbname, "role": f"role_{secrets.token_hex(6)}"}
    with psycopg.connect(superuser(shop.dsn), autocommit=True) as admin:
        admin.execute(by_superuser.format(**names))
        shop(by_owner.format(**names))
        try:
            code, found = findings(mempair, shop.dsn)
        finally:
            if "create subscription" in by_superuser:
                admin.execute(sql.SQL("drop subscription {}").format(sql.Identifier(names["database"])))
            if "create role" in by_superuser:
                admin.execute("drop owned by {role}; drop role {role}".format(**names))
    assert code == 1
    assert list(found) == [check]
    assert remedy in found[check][1]


def test_a_command_that_is_named_can_be_given_as_it_is(world: World, mempair: Run) -> None:
    world(SHOP, CHURN.replace("'churn'", "'who leaves?'"), "alter table shop disable trigger user")
    _, found = findings(mempair, world.dsn)
    program, *words = shlex.split(found["triggers"][1])
    assert (program, words) == ("mempair", ["reconcile", "who leaves?", "--repair"])
    assert mempair(*words, "--dsn", world.dsn)[0] == 0
    assert findings(mempair, world.dsn) == (0, {})


def test_stale_statistics_are_named_where_autovacuum_does_not_come(
    shop: World, superuser: Superuser, mempair: Run
) -> None:
    shop("analyze shop")
    with psycopg.connect(shop.dsn) as connection:
        connection.execute("insert into shop select i, 1, 'basic', 1, 'n', true from generate_series(1, 30000) i")
    assert findings(mempair, shop.dsn) == (0, {})  # autovacuum will come
    shop("alter table shop set (autovacuum_enabled = off)")
    code, found = findings(mempair, shop.dsn)
    assert (code, found["statistics"][1]) == (1, "analyze shop;")
    shop("analyze shop")
    deadline = time.monotonic() + 10  # before version 15, a process of its own collects what is known of tables
    while findings(mempair, shop.dsn)[0] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert findings(mempair, shop.dsn) == (0, {})
    with psycopg.connect(superuser(shop.dsn)) as admin:  # what pg_upgrade leaves behind
        admin.execute("update pg_class set reltuples = -1 where oid = 'shop'::regclass")
    assert findings(mempair, shop.dsn) == (1, {"statistics": ("shop was never analysed", "analyze shop;")})


def test_clocks_that_differ_are_named(shop: World, mempair: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Fast:
            return super().now(tz) + timedelta(minutes=1)

    monkeypatch.setattr(doctor, "datetime", Fast)
    code, found = findings(mempair, shop.dsn)
    assert (code, found["clocks"][0]) == (1, "server and client are 60 s apart")
    assert "server and client are 60 s apart. Synchronise both" in mempair("doctor", "--dsn", shop.dsn)[1]


def test_a_role_without_rights_is_told_whom_to_ask(shop: World, superuser: Superuser, mempair: Run) -> None:
    with psycopg.connect(superuser(shop.dsn), autocommit=True) as admin:
        admin.execute("drop role if exists doctor_nobody; create role doctor_nobody login password 'x'")
    code, found = findings(mempair, make_conninfo(shop.dsn, user="doctor_nobody", password="x"))
    assert code == 1
    assert "owner" in found["schema"][1]


@contextlib.contextmanager
def encoded(server_dsn: str, encoding: str) -> Iterator[str]:
    """A database in another encoding."""
    name = f"encoded_{secrets.token_hex(6)}"
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        make_owner(admin)
        provider = "locale_provider libc" if admin.info.server_version >= 150000 else ""
        admin.execute(
            f"create database {name} owner {OWNER} template template0 encoding '{encoding}' {provider}"
            " lc_collate 'C' lc_ctype 'C'"
        )
        try:
            yield make_conninfo(server_dsn, dbname=name, user=OWNER, password=OWNER_PASSWORD)
        finally:
            admin.execute(f"drop database {name} with (force)")


def test_a_database_without_an_encoding_is_refused(server_dsn: str, mempair: Run) -> None:
    with encoded(server_dsn, "SQL_ASCII") as dsn:
        with pytest.raises(UnsupportedDatabase, match="SQL_ASCII"):
            install(dsn)
        code, found = findings(mempair, dsn)
        assert code == 1
        assert "SQL_ASCII" in found["encoding"][0]


@pytest.mark.parametrize(
    ("encoding", "words"), [("LATIN1", ["Größe", "façade", "¿qué?"]), ("EUC_JP", ["東京", "京都", "カナ"])]
)
@pytest.mark.parametrize("unlearner", ["exact", "symmetric"])
def test_databases_in_other_encodings_learn_and_forget(
    server_dsn: str, mempair: Run, encoding: str, words: list[str], unlearner: str
) -> None:
    with encoded(server_dsn, encoding) as dsn:
        install(dsn)
        with opened(make_conninfo(dsn, client_encoding="UTF8")) as world:
            world("create table visits (key text primary key, place text, stays boolean)")
            world.execute(
                "insert into visits select (%s::text[])[1 + i %% 3] || i, (%s::text[])[1 + i %% 3], i %% 3 = 0"
                " from generate_series(1, 300) i",
                *(words, words),
            )
            options = "unlearner => 'symmetric', epsilon => 20, lambda => 0.05," if unlearner == "symmetric" else ""
            world(
                f"select mempair.create_model('stay', 'visits', target => 'stays', features => '{{place}}', {options}"
                " gamma => 0.9, calibration_rows => 100)"
            )
            world.work()
            world.execute("delete from visits where key = %s", f"{words[0]}3")
            world.work()
            assert world.learned() == {key for (key,) in world.execute("select key from visits")}
            likely, unlikely = (
                world.one("select mempair_predict('stay', v) from visits v where place = %s limit 1", word)
                for word in words[:2]
            )
            assert likely > unlikely
            assert world.one("select mempair.receipt('stay', %s)", f"{words[0]}3")["key"] == f"{words[0]}3"
            assert world.execute("select * from mempair.verify_odometer('stay')") == []
            # Longer than 1,000 bytes, or only in UTF-8: stored is a digest of the database's own bytes, or the key.
            long_keys = [words[0] * 400, words[0] * (1_000 // len(words[0].encode()) + 5)]
            for key in long_keys:
                world.execute("insert into visits values (%s, %s, true)", key, words[0])
            world.work()
            world.execute("delete from visits where key = any (%s)", long_keys)
            world.work()
            for key in long_keys:
                with psycopg.connect(world.dsn) as connection:
                    document = receipts.issue(connection, "stay", key, KEY)
                assert document is not None
                assert "it is for your key value" in receipts.check(json.loads(json.dumps(document)), [KEY.public], key)
                with pytest.raises(VerificationFailed, match="another key value"):
                    receipts.check(document, [KEY.public], key + words[1])
        assert findings(mempair, dsn) == (0, {})
