"""The command line, as a user types it: output, messages, exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from rich.console import Console
from typer.main import get_command

from mempair_db import Client, __version__
from mempair_db.cli import app, work
from mempair_db.worker.loop import Worker
from tests.conftest import Run


@pytest.fixture
def customers(database: str) -> str:
    with psycopg.connect(database) as connection:
        connection.execute("create table customers (id integer primary key, age integer, plan text, churned boolean)")
        connection.execute(
            "insert into customers select i, 18 + i * 7919 % 60, case i % 2 when 0 then 'basic' else 'pro' end,"
            " i * 7919 % 60 < 30 from generate_series(1, 3000) i"
        )
    return database


def create(mempair: Run, dsn: str) -> tuple[int, str, str]:
    options = ("--target", "churned", "--features", "age, plan", "--lambda", "0.01", "--gamma", "0.3", "--dsn", dsn)
    return mempair("model", "create", "churn", "public.customers", *options)


def test_a_model_is_created_taught_asked_and_dropped_from_the_command_line(mempair: Run, customers: str) -> None:
    code, out, err = create(mempair, customers)
    assert (code, out) == (0, "")
    assert "declared on public.customers" in err

    assert mempair("worker", "--once", "--dsn", customers)[0] == 0
    code, out, _ = mempair("status", "--json", "--dsn", customers)
    assert code == 0
    (model,) = json.loads(out)
    assert (model["model"], model["status"], model["pending_changes"]) == ("churn", "ready", 0)
    assert "churn" in mempair("status", "--dsn", customers)[1]
    assert "age, plan" in mempair("model", "list", "--dsn", customers)[1]

    with psycopg.connect(customers) as connection:
        connection.execute("delete from customers where id = 7")
    mempair("worker", "--once", "--model", "churn", "--dsn", customers)
    code, out, _ = mempair("odometer", "show", "churn", "--json", "--dsn", customers)
    assert [entry["kind"] for entry in json.loads(out)][-2:] == ["unlearned", "purged"]
    assert mempair("odometer", "verify", "churn", "--dsn", customers)[0] == 0
    code, out, _ = mempair("receipt", "churn", "7", "--unsigned", "--dsn", customers)
    assert code == 0
    assert "unlearned" in out
    assert mempair("purge", "--dsn", customers)[0] == 0

    code, _, err = mempair("retrain", "churn", "--dsn", customers)
    assert code == 0
    assert "retrained on 2999 rows" in err

    assert mempair("model", "pause", "churn", "--dsn", customers)[0] == 0
    assert json.loads(mempair("status", "--json", "--dsn", customers)[1])[0]["status"] == "paused"
    assert mempair("model", "resume", "churn", "--dsn", customers)[0] == 0
    assert mempair("model", "drop", "churn", "--dsn", customers)[0] == 0
    assert json.loads(mempair("model", "list", "--json", "--dsn", customers)[1]) == []


def test_a_wrong_option_is_a_usage_error(mempair: Run) -> None:
    assert mempair("status", "--nonsense")[0] == 2


def test_install_and_uninstall(mempair: Run, empty_database: str) -> None:
    assert mempair("install", "--dsn", empty_database)[0] == 0
    assert mempair("install", "--dsn", empty_database)[0] == 0
    assert mempair("status", "--dsn", empty_database)[0] == 0
    assert mempair("uninstall", "--yes", "--dsn", empty_database)[0] == 0
    assert mempair("status", "--dsn", empty_database)[0] == 3


def test_sql_install_prints_a_script(mempair: Run) -> None:
    code, out, _ = mempair("sql", "install")
    assert code == 0
    assert "create table mempair.model" in out


def test_the_client_speaks_to_the_same_functions(customers: str) -> None:
    client = Client(customers)
    client.install()
    client.create_model("age", "customers", target="churned", features=["age"], **{"lambda": 0.01, "gamma": 0.3})
    assert client.status("age") == "calibrating"
    Worker(customers).run_once()
    assert client.status("age") == "ready"
    assert client.predict("age", [20.0]) > 0.5 > client.predict("age", [75.0])
    assert client.receipt("age", "1") is None
    client.drop_model("age")


def test_health_names_what_is_wrong(mempair: Run, customers: str) -> None:
    create(mempair, customers)
    code, _, err = mempair("health", "--dsn", customers)
    assert code == 1
    assert "no worker has reported" in err
    with psycopg.connect(customers, autocommit=True) as connection:
        connection.execute("insert into mempair.worker (host, pid) values ('somewhere', 1)")
        assert mempair("health", "--dsn", customers)[0] == 0
        connection.execute("delete from customers where id = 1")
        assert mempair("health", "--dsn", customers)[0] == 0
        code, _, err = mempair("health", "--patience", "0", "--dsn", customers)
        assert code == 1
        assert "waits since" in err
        connection.execute("update mempair.model set failure = 'because'")
        code, _, err = mempair("health", "--dsn", customers)
        assert code == 1
        assert "has failed: because" in err


def test_reconcile_and_backfill_from_the_command_line(mempair: Run, customers: str) -> None:
    create(mempair, customers)
    mempair("worker", "--once", "--dsn", customers)
    code, out, err = mempair("reconcile", "churn", "--dsn", customers)
    assert (code, out) == (0, "")
    assert "exactly what its table holds" in err
    with psycopg.connect(customers, autocommit=True) as connection:
        connection.execute("alter table customers disable trigger user")
        connection.execute("insert into customers values (9001, 30, 'pro', true)")
    code, out, _ = mempair("reconcile", "churn", "--json", "--dsn", customers)
    assert code == 5
    assert {finding["rows"] for finding in json.loads(out)} == {1, 4}
    assert "1 rows enqueued" in mempair("backfill", "churn", "--chunk", "5", "--dsn", customers)[2]
    assert mempair("reconcile", "churn", "--repair", "--dsn", customers)[0] == 0
    mempair("worker", "--once", "--dsn", customers)
    assert mempair("reconcile", "churn", "--dsn", customers)[0] == 0
    assert mempair("purge", "--full", "--dsn", customers)[0] == 0


def test_restored_names_the_erasures_that_an_older_copy_misses(mempair: Run, customers: str, tmp_path: Path) -> None:
    create(mempair, customers)
    mempair("worker", "--once", "--dsn", customers)
    assert mempair("export", "--out", str(tmp_path / "export"), "--dsn", customers)[0] == 0
    code, _, err = mempair("odometer", "restored", str(tmp_path / "export" / "ledger.parquet"), "--dsn", customers)
    assert code == 0
    assert "No erasure is missing" in err


def test_the_dsn_may_stand_before_the_command(mempair: Run, customers: str, empty_database: str) -> None:
    assert mempair("--dsn", customers, "status")[0] == 0
    assert mempair("model", "--dsn", customers, "list")[0] == 0
    assert mempair("--dsn", empty_database, "model", "--dsn", customers, "list")[0] == 0
    assert mempair("--dsn", customers, "model", "list", "--json")[1] == "[]\n"
    assert mempair("--dsn", customers, "status", "--dsn", empty_database)[0] == 3


def test_the_version_is_told(mempair: Run) -> None:
    assert mempair("--version") == (0, f"mempair_db {__version__}\n", "")


@pytest.mark.parametrize(("function", "command"), [("create_model", "create"), ("alter_model", "alter")])
def test_every_parameter_of_the_function_is_an_option_with_its_default(
    customers: str, function: str, command: str
) -> None:
    arguments = (
        "select proargnames, pg_get_function_arguments(oid) from pg_proc where proname = %s order by oid limit 1"
    )
    with psycopg.connect(customers) as connection:
        names, text = connection.execute(arguments, [function]).fetchone() or ((), "")
    options = {option.name: option for option in get_command(app).commands["model"].commands[command].params}  # type: ignore[attr-defined]
    asked = {"model_name": "name", "source": "table", "lambda": "lam"}
    for name in names:
        default = re.search(rf"\b{name} [a-z \[\]]+ DEFAULT ([^,]+)", text)
        option = options[asked.get(name, name)]
        if default:
            plain = default[1].split("::")[0].strip("'").lower()
            assert str(option.default).lower().removesuffix(".0") == plain.replace("null", "none").removesuffix(".0"), (
                name
            )


def test_a_model_is_described_and_changed_from_the_command_line(mempair: Run, customers: str) -> None:
    options = ("--target", "churned", "--features", "age,plan", "--curves", "2", "--dsn", customers)
    code, _, err = mempair("model", "create", "exact", "customers", *options)
    assert code == 0
    assert "(exact) predicts the probability" in err
    assert re.search(r"exact +calibrating +0 +0 +from about 100 rows", mempair("status", "--dsn", customers)[1])
    mempair("worker", "--once", "--dsn", customers)
    code, out, _ = mempair("status", "--dsn", customers)
    assert re.search(r"exact +ready +1 +3000 +yes .* exact", out)
    (described,) = json.loads(mempair("model", "describe", "exact", "--json", "--dsn", customers)[1])
    assert (described["curves"], described["capacity"], described["rows_learned"]) == (2, "Infinity", 3000)
    assert described["features"] == "age, plan"
    assert "epsilon" not in described
    assert re.search(r"^ *unlearner +exact", mempair("model", "describe", "exact", "--dsn", customers)[1], re.MULTILINE)
    code, _, err = mempair("model", "alter", "exact", "--unlearner", "passive", "--curves", "0", "--dsn", customers)
    assert (code, "a worker reads its table anew" in err) == (0, True)
    (described,) = json.loads(mempair("model", "describe", "exact", "--json", "--dsn", customers)[1])
    assert (described["unlearner"], described["epsilon"]) == ("passive", 1.0)


def test_names_full_of_brackets_are_shown_as_they_are(mempair: Run, database: str, tmp_path: Path) -> None:
    name, table = "[/bold] 'x' [red]", '"[/t] [link]"'
    with psycopg.connect(database) as connection:
        connection.execute(f'create table {table} (id integer primary key, "[/a]" float8, plan text, y boolean)')
        connection.execute(f"insert into {table} select i, i % 40, '[/p]', i % 3 = 0 from generate_series(1, 300) i")
    options = ("--target", "y", "--features", "[/a],plan", "--dsn", database)
    code, _, err = mempair("model", "create", name, table, *options)
    assert (code, f"Model {name} is declared on {table}." in err, '"[/a]" double precision' in err) == (0, True, True)
    for command in (
        ("worker", "--once"),
        ("status",),
        ("model", "list"),
        ("model", "describe", name),
        ("model", "alter", name, "--ridge", "3"),
        ("retrain", name),
        ("verify", name),
        ("reconcile", name),
        ("backfill", name),
        ("odometer", "show", name),
        ("odometer", "verify", name),
        ("audit", name, "--quick"),
        ("model", "pause", name),
        ("model", "resume", name),
        ("purge",),
        ("model", "curve", name, "[/a]"),
        ("export", name, "--rows", "--out", str(tmp_path / "[/out]")),
        ("model", "drop", name),
    ):
        code, out, err = mempair(*command, "--dsn", database)
        assert code == 0, (command, err)
        assert command[0] not in ("status", "verify", "audit") or "[/" in out + err, command


def test_a_table_in_a_pipe_is_whole(customers: str) -> None:
    with psycopg.connect(customers) as connection:
        columns = ", ".join(f"a_feature_with_a_long_name_{i} float8" for i in range(30))
        connection.execute(f"create table wide (id integer primary key, y boolean, {columns})")
        names = ",".join(f"a_feature_with_a_long_name_{i}" for i in range(30))
        connection.execute("select mempair.create_model('m', 'wide', target => 'y', features => %s)", [names])
    done = mempair_process("model", "list", "--dsn", customers)
    assert names.replace(",", ", ") in done.stdout


def mempair_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mempair_db", *arguments],
        env=os.environ | {"COLUMNS": "80"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_psql_takes_its_own_options(customers: str) -> None:
    done = mempair_process("psql", "-c", "select 41 + 1 as answer", "--dsn", customers, "-t", "-A")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_a_command_inside_psql_means_the_same_database(customers: str) -> None:
    done = mempair_process("psql", "-c", r'\! echo "$MEMPAIR_DSN"', "--dsn", customers)
    assert done.stdout == f"{customers}\n", done.stderr


def test_once_fails_with_the_reason_if_a_model_does(mempair: Run, customers: str) -> None:
    Client(customers).create_model("churn", "customers", target="churned", features=["age"])
    assert mempair("worker", "--once", "--dsn", customers)[0] == 0
    with psycopg.connect(customers, autocommit=True) as connection:
        connection.execute("update mempair.state set sums = 'broken'")
        connection.execute("delete from customers where id = 7")
    code, _, err = mempair("worker", "--once", "--dsn", customers)
    assert code == 1
    assert "model churn failed: ValueError" in err


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_says_where_it_works_and_what_it_did_when_it_is_told_to_end(
    customers: str, how: signal.Signals
) -> None:
    Client(customers).create_model("churn", "customers", target="churned", features=["age"])
    process = worker_process(customers)
    with psycopg.connect(customers, autocommit=True) as connection:
        for _ in range(600):
            if (
                connection.execute("select from mempair.learned limit 1").rowcount
                and connection.execute("select from mempair.worker").rowcount
            ):
                break
            connection.execute("select pg_sleep(0.1)")
        process.send_signal(how)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 0
        assert connection.execute("select from mempair.worker").rowcount == 0
    lines = err.splitlines()
    assert re.search(r"worker \S+ in database \S+ at \S+ as \S+: 1 model; learning", lines[0])
    assert "the worker ends after" in lines[-1]
    assert "so far: 3000 learned, 1 retrained" in lines[-1]
    assert "Traceback" not in err


def test_a_wrong_dsn_shows_its_cause_at_the_first_try() -> None:
    process = worker_process("host=127.0.0.1 port=1 connect_timeout=2")
    assert process.stderr is not None
    first = process.stderr.readline()
    process.terminate()
    _, rest = process.communicate(timeout=20)
    assert "Connection refused" in first
    assert "trying again" in first
    assert rest.splitlines()[-1].endswith("; it never reached its database")


def worker_process(dsn: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mempair_db", "worker", "--dsn", dsn], stderr=subprocess.PIPE, text=True
    )


def test_features_can_be_json(mempair: Run, customers: str) -> None:
    options = ("--target", "churned", "--features", '{"age": null, "plan": "hash:8"}')
    code, _, err = mempair("--dsn", customers, "model", "create", "m", "customers", *options)
    assert code == 0, err
    assert "features: age integer; plan:hash:8" in err


def test_a_terminal_shows_whole_words_where_the_reasons_are_long(
    customers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(customers) as connection:
        connection.execute("select mempair.create_model('churn', 'customers', target => 'churned', features => 'age')")
    printed = io.StringIO()
    monkeypatch.setattr(work, "out", Console(file=printed, force_terminal=True, width=80, color_system=None))
    work.status(dsn=customers, watch=False, as_json=False)
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    assert "calibrating" in lines[1]
    assert "from about 100" in lines[1]
    assert "churn: waits for a worker to read the table: the rows that were there" in lines
