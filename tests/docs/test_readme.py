"""What README.md shows is what happens."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from typer.main import get_command

from mempair_db.cli import app
from mempair_db.worker.loop import Worker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_sql_session_works_as_written(database: str) -> None:
    (session,) = blocks("sql")
    statements = [part.strip() for part in re.sub(r"--.*", "", session).split(";") if part.strip()]
    with psycopg.connect(database, autocommit=True) as connection:
        columns = (
            "(id integer primary key, age integer, tenure float8, plan text, monthly_spend numeric, churned boolean)"
        )
        for table in ("customers", "new_customers"):
            connection.execute(f"create table {table} {columns}")
        connection.execute(
            "insert into new_customers select i, 18 + i * 7919 % 60, i % 40, (array['basic', 'pro'])[1 + i % 2],"
            " i % 97, i * 7919 % 60 < 30 from generate_series(1, 4000) i"
        )
        answers: list[Any] = []
        for statement in statements:
            Worker(database).run_once()
            cursor = connection.execute(statement)
            answers.append(cursor.fetchall() if cursor.description else cursor.rowcount)
    created, inserted, predictions, deleted, ledger, status, receipt = answers
    assert created
    assert (inserted, deleted) == (4000, 1)
    assert len(predictions) == 4000
    assert all(0 < prediction < 1 for _, prediction in predictions)
    assert "unlearned" in [entry[3] for entry in ledger]
    assert status[0][2] == "ready"
    assert receipt[0][0]["deletions"][0]["kind"] in ("unlearned", "retrained")


def test_the_python_example_works_as_written() -> None:
    (example,) = blocks("python")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 2))
    scope: dict[str, Any] = {"stream": [(row, 1.0 if row[0] > 0 else -1.0) for row in rows]}
    exec(example, scope)
    assert scope["pair"].verify(rows[:-1], rows[:-1, 0] > 0)


def commands() -> set[tuple[str, ...]]:
    """Every `mempair …` in the README, down to the command's name."""
    found = set()
    for text in re.findall(r"`mempair ([^`]*)`", README) + re.findall(r"^\$ mempair (.*)$", README, re.MULTILINE):
        words = text.split("#")[0].split()
        for first in [part.strip() for part in words[0].split(",") if part.strip()]:
            second = words[1].replace("\\|", "|").split("|") if len(words) > 1 else [""]
            found |= {(first, *([name] if name.isalpha() and name.islower() else [])) for name in second}
    return found


@pytest.mark.parametrize("command", sorted(commands()), ids=" ".join)
def test_every_command_it_names_exists(command: tuple[str, ...]) -> None:
    names: Any = get_command(app)
    for name in command:
        if not hasattr(names, "commands"):
            break  # what follows a command is its argument
        assert name in names.commands, f"README.md names `mempair {' '.join(command)}`"
        names = names.commands[name]


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_make_targets_it_names_exist(target: str) -> None:
    assert f"$ make {target}" in README
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


def test_every_link_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in link:
            assert (ROOT / link).exists(), link
