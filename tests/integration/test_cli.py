"""The command line, as a user types it: output, messages, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from mempair_db import Client, cli
from mempair_db.worker.loop import Worker

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def mempair(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `mempair …` in this process; returns exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mempair", *arguments])
        monkeypatch.setattr(cli.common.out, "width", 300)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return run


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


def test_an_unknown_model_is_an_error_with_a_suggestion(mempair: Run, customers: str) -> None:
    create(mempair, customers)
    code, out, err = mempair("retrain", "churm", "--dsn", customers)
    assert (code, out) == (1, "")
    assert "no model 'churm'" in err
    assert "'churn'" in err


def test_without_the_schema_the_exit_code_is_3_and_the_message_names_the_remedy(
    mempair: Run, empty_database: str
) -> None:
    code, _, err = mempair("status", "--dsn", empty_database)
    assert code == 3
    assert "mempair install" in err


def test_a_wrong_option_is_a_usage_error(mempair: Run) -> None:
    assert mempair("status", "--nonsense")[0] == 2


def test_an_unreachable_server_is_a_message_not_a_traceback(mempair: Run) -> None:
    code, out, err = mempair("status", "--dsn", "host=127.0.0.1 port=1 connect_timeout=2")
    assert (code, out) == (1, "")
    assert err.startswith("error")


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


def test_a_worker_process_ends_in_good_order_on_sigterm(customers: str) -> None:
    Client(customers).create_model("churn", "customers", target="churned", features=["age", "plan"])
    process = subprocess.Popen(
        [sys.executable, "-m", "mempair_db", "worker", "--dsn", customers], stderr=subprocess.DEVNULL
    )
    with psycopg.connect(customers, autocommit=True) as connection:
        for _ in range(600):
            if (
                connection.execute("select from mempair.learned limit 1").rowcount
                and connection.execute("select from mempair.worker").rowcount
            ):
                break
            connection.execute("select pg_sleep(0.1)")
        process.terminate()
        assert process.wait(timeout=20) == 0
        assert connection.execute("select from mempair.worker").rowcount == 0


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
    assert {finding["rows"] for finding in json.loads(out)} == {1, 3}
    assert "1 rows enqueued" in mempair("backfill", "churn", "--chunk", "5", "--dsn", customers)[2]
    assert mempair("reconcile", "churn", "--repair", "--dsn", customers)[0] == 0
    mempair("worker", "--once", "--dsn", customers)
    assert mempair("reconcile", "churn", "--dsn", customers)[0] == 0
    assert mempair("purge", "--full", "--dsn", customers)[0] == 0


def test_behind_names_the_erasures_that_an_older_copy_misses(mempair: Run, customers: str, tmp_path: Path) -> None:
    create(mempair, customers)
    mempair("worker", "--once", "--dsn", customers)
    assert mempair("export", "--out", str(tmp_path / "export"), "--dsn", customers)[0] == 0
    code, _, err = mempair("odometer", "behind", str(tmp_path / "export" / "ledger.parquet"), "--dsn", customers)
    assert code == 0
    assert "No erasure is missing" in err
