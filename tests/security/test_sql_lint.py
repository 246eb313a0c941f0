"""Rules that every SQL object of ours keeps, checked in the catalog and in the files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mempair_db.database.install import script
from mempair_db.database.resources import directory, sql_files
from tests.security.conftest import MODELS

OURS = "(p.pronamespace = 'mempair'::regnamespace or p.proname like 'mempair%')"
# Functions with a SET clause are never inlined, and these must be. BEGIN ATOMIC resolves their names when they are
# created, which create_model and the installer do under a pinned path, so what the caller's path says is irrelevant.
ATOMIC = re.compile(r"^create or replace function [^$]*?\nbegin atomic\n.*?^end;$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(MODELS)
        yield connection


def names(connection: psycopg.Connection, condition: str) -> list[str]:
    query = f"select p.oid::regprocedure::text from pg_proc p where {OURS} and {condition} order by 1"
    return [row[0] for row in connection.execute(query)]


def test_every_function_has_a_pinned_path_or_needs_none(connection: psycopg.Connection) -> None:
    pinned = "p.proconfig @> array['search_path=pg_catalog, pg_temp']"
    assert names(connection, f"p.prosqlbody is null and {pinned} is not true") == []
    assert len(names(connection, pinned)) > 50


def test_functions_without_a_pinned_path_run_with_the_callers_rights(connection: psycopg.Connection) -> None:
    pinned = "p.proconfig @> array['search_path=pg_catalog, pg_temp']"
    assert names(connection, f"p.prosqlbody is not null and p.prosecdef and {pinned} is not true") == []


def test_nothing_is_open_to_everybody(connection: psycopg.Connection) -> None:
    # Functions are open unless closed, which shows as no list of rights at all; other objects are closed unless opened.
    everybody = "exists (select from aclexplode({}) as entry where entry.grantee = 0)"
    assert names(connection, everybody.format("coalesce(p.proacl, acldefault('f', p.proowner))")) == []
    relations = "select oid::regclass::text from pg_class c where relnamespace = 'mempair'::regnamespace and "
    assert connection.execute(relations + everybody.format("c.relacl")).fetchall() == []
    schemas = "select nspname from pg_namespace n where nspname = 'mempair' and "
    assert connection.execute(schemas + everybody.format("n.nspacl")).fetchall() == []


def test_predictions_are_stable_and_safe_in_parallel(connection: psycopg.Connection) -> None:
    forms = (
        "p.proname in ('mempair_predict', 'mempair_try_predict', 'predict', 'try_predict', 'predict_proba',"
        " 'mempair_predict_class', 'mempair_predict_proba')"
    )
    assert len(names(connection, forms)) == 7 * 3
    assert names(connection, f"{forms} and (p.provolatile, p.proparallel, p.prosecdef) <> ('s', 's', true)") == []


def test_no_function_that_reads_tables_claims_to_be_immutable(connection: psycopg.Connection) -> None:
    reads = r"p.prosrc ~* '\m(from|join|into)\s+mempair\.'"
    assert names(connection, f"p.provolatile = 'i' and {reads}") == []


def test_trigger_functions_cannot_be_attached_by_others(connection: psycopg.Connection) -> None:
    triggers = names(connection, "p.prorettype = 'trigger'::regtype and p.prosecdef")
    assert len(triggers) >= 12  # and test_nothing_is_open_to_everybody says that nobody else may use them


def test_pgspot_finds_nothing(tmp_path: Path) -> None:
    # It cannot read BEGIN ATOMIC, psql's own commands, or variables of a composite type, and must see the schema made.
    text = "create schema mempair;\n" + ATOMIC.sub("", re.sub(r"^\\.*$", "", script(), flags=re.MULTILINE))
    file = tmp_path / "install.sql"
    file.write_text(text, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("pgspot")), "--no-plpgsql", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Errors: 0 Warnings: 0 Unknown: 0" in done.stdout, done.stdout
    assert done.returncode == 0


def test_what_is_installed_is_ascii_which_every_encoding_of_a_database_has() -> None:
    assert [line for line in script().splitlines() if not line.isascii()] == []


def test_dynamic_sql_is_only_made_by_format() -> None:
    execute = re.compile(
        r"^.*\bexecute\s+(?!function\b|on\b)(?!(pg_catalog\.)?format\().*$", re.MULTILINE | re.IGNORECASE
    )
    for file in [*sql_files(), *directory("sql").glob("install/*.sql")]:
        code = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
        found = [match.group(0).strip() for match in execute.finditer(code)]
        assert [line for line in found if "'execute'" not in line] == [], file.name
        assert re.findall(r"execute format\([^;]*?\)\s*\|\|", code) == [], file.name


def test_user_given_names_reach_dynamic_sql_only_quoted() -> None:
    """`%s` takes ids, regclass and our own words; a column, role or trigger name needs `%I`, a value `%L`."""
    suspicious = re.compile(r'"%s"|\'\'%s\'\'|\bcolumn %s|\brole %s|\bto %s\b|\(r\)\.%s')
    for file in sql_files():
        code = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
        assert suspicious.findall(code) == [], file.name


def test_the_documentation_names_every_parameter_code_and_object(connection: psycopg.Connection) -> None:
    text = (directory("sql") / "README.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))
    words = {word for each in documented for word in re.findall(r"\w+", each)}
    parameters = "select unnest(proargnames) from pg_proc where proname = 'create_model'"
    assert {row[0] for row in connection.execute(parameters)} - words == set()
    codes = {code for file in sql_files() for code in re.findall(r"'(MP\d+)'", file.read_text(encoding="utf-8"))}
    assert codes - documented == set()
    relations = "select relname from pg_class where relnamespace = 'mempair'::regnamespace and relkind in ('r', 'v')"
    made_per_model = re.compile(r"^(change|source)_\d")
    assert {name for (name,) in connection.execute(relations) if not made_per_model.match(name)} - words == set()


def test_a_text_with_a_backslash_is_the_same_under_every_setting_of_a_session() -> None:
    """Where standard_conforming_strings is off, a backslash in a bare text is an escape."""
    bare = re.compile(r"(?<![\w'])'(?:[^'\n]|'')*\\(?:[^'\n]|'')*'")
    found = [
        f"{file.name}: {line.strip()}"
        for file in directory("sql").rglob("*.sql")
        for line in file.read_text(encoding="utf-8").splitlines()
        if bare.search(line.split("--")[0])
    ]
    assert found == []
