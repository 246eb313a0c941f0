"""Names as people have them, with brackets, percent signs, quotes and umlauts: every command prints them whole."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from mempair_db.cli import common
from tests.conftest import Run
from tests.world import World

NAMES = ("[red]x[/red] ü ß [/bold]", "a%sb %(c)s {0} q\"x 'y' 100%")
MODEL, TABLE, COLUMN, LEVEL, KEY, FILE = "MODEL", "TABLE", "COLUMN", "LEVEL", "KEY", "FILE"
CREATE = ("model", "create", MODEL, TABLE, "--target", "y", "--features", f"{COLUMN},plan")
# A command, its exit code, and what it must print; each in capitals stands for a name.
COMMANDS: list[tuple[tuple[str, ...], int, tuple[str, ...]]] = [
    (CREATE, 0, (MODEL, TABLE, COLUMN)),
    (("worker", "--once"), 0, (MODEL,)),
    (CREATE, 1, (MODEL,)),
    (("model", "create", "other", TABLE, "--target", "y", "--features", f"{COLUMN}!"), 1, (TABLE, COLUMN)),
    (("status",), 0, (MODEL,)),
    (("model", "list"), 0, (MODEL, TABLE, COLUMN)),
    (("model", "describe", MODEL), 0, (MODEL, TABLE, COLUMN)),
    (("model", "describe", f"{MODEL}!"), 1, (MODEL,)),
    (("model", "curve", MODEL, "plan"), 0, (LEVEL,)),
    (("model", "curve", MODEL, COLUMN), 0, ()),
    (("model", "alter", MODEL, "--ridge", "3"), 0, (MODEL,)),
    (("retrain", MODEL), 0, ()),
    (("verify", MODEL), 0, (MODEL,)),
    (("reconcile", MODEL), 0, (MODEL,)),
    (("backfill", MODEL), 0, ()),
    (("odometer", "show", MODEL), 0, ()),
    (("odometer", "verify", MODEL), 0, (MODEL,)),
    (("odometer", "attest", MODEL), 0, (MODEL,)),
    (("receipt", MODEL, f"{KEY} 7", "--unsigned"), 0, (MODEL, KEY)),
    (("receipt", MODEL, f"{KEY} 8", "--unsigned"), 1, (MODEL, KEY)),
    (("audit", MODEL, "--quick"), 0, (MODEL,)),
    (("report", MODEL, "--quick", "--out", FILE), 0, (FILE,)),
    (("export", MODEL, "--rows", "--out", f"{FILE}s"), 0, (FILE,)),
    (("simulate", TABLE, "--target", "y", "--features", COLUMN, "--draws", "1", "--gamma", "0.3"), 0, ()),
    (("simulate", f"{TABLE}!", "--target", "y"), 2, (TABLE,)),
    (("model", "pause", MODEL), 0, ()),
    (("model", "resume", MODEL), 0, ()),
    (("doctor",), 0, ()),
    (("health",), 1, (MODEL,)),  # it has failed by then
    (("worker", "--once", "--model", f"{MODEL}!"), 1, (MODEL,)),
    (("purge",), 0, ()),
    (("model", "drop", MODEL), 0, (MODEL,)),
]


@pytest.mark.parametrize("terminal", [False, True], ids=["in a pipe", "in a terminal"])
@pytest.mark.parametrize("name", NAMES)
def test_every_command_prints_names_whole(
    mempair: Run, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, terminal: bool
) -> None:
    table = sql.Identifier(f"t {name}")
    with psycopg.connect(database) as connection:
        column, quoted = sql.Identifier(f"c {name}"), table.as_string(connection)
        connection.execute(
            sql.SQL("create table {} (id text primary key, {} float8, plan text, y boolean)").format(table, column)
        )
        connection.execute(
            sql.SQL(
                "insert into {} select {} || i, i % 40, {} || i % 2, i % 3 = 0 from generate_series(1, 300) i"
            ).format(table, f"k {name} ", f"l {name} ")
        )
    names = {
        MODEL: f"m {name}",
        TABLE: quoted,
        COLUMN: f"c {name}",
        LEVEL: f"l {name} 1",
        KEY: f"k {name}",
        FILE: str(tmp_path / name.replace("/", "")),
    }
    for console in (common.out, common.messages):
        monkeypatch.setattr(console, "_force_terminal", terminal)
        monkeypatch.setattr(console, "width", 500)
    wrong = []
    for command, code, said in COMMANDS:
        if command[0] == "receipt" and code == 0:
            with psycopg.connect(database) as connection:
                connection.execute(sql.SQL("delete from {} where id = {}").format(table, f"k {name} 7"))
            assert mempair("worker", "--once", "--dsn", database)[0] == 0
        if command[0] == "health":
            with psycopg.connect(database) as connection:
                connection.execute("update mempair.model set failure = 'no reason at all'")
        spoken = [_named(part, names) for part in command]
        found, out, err = mempair(*spoken, "--dsn", database)
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out + err)
        missing = [names[each] for each in said if not any(one in plain for one in _written(names[each]))]
        if found != code or missing or "Traceback" in plain:
            wrong.append((command, found, missing, plain[-600:]))
    assert wrong == []


def _written(name: str) -> tuple[str, ...]:
    """A name as it is, as SQL quotes it, as JSON does, and as Python does."""
    quoted = name.replace("'", "''"), name.replace('"', '""')
    return name, *quoted, json.dumps(name, ensure_ascii=False)[1:-1], repr(name)[1:-1]


def _named(part: str, names: dict[str, str]) -> str:
    return re.sub("|".join(names), lambda found: names[found[0]], part)


def test_sql_tells_names_whole(world: World) -> None:
    name = " ".join(NAMES)[:50]
    table, column = sql.Identifier(name), sql.Identifier(f"c {name}")
    world.sql.execute(
        sql.SQL("create table {} (id integer primary key, {} float8, plan text, y boolean)").format(table, column)
    )
    world.sql.execute(
        sql.SQL("insert into {} select i, i % 40, {} || i % 2, i % 3 = 0 from generate_series(1, 300) i").format(
            table, f"l {name} "
        )
    )
    world.sql.execute(
        "select mempair.create_model(%s, %s, target => 'y', features => %s)",
        [name, table.as_string(world.sql), [f"c {name}", "plan"]],
    )
    world.work()
    coefficients = world.sql.execute("select feature, level from mempair.coefficients(%s)", [name]).fetchall()
    assert {feature for feature, _ in coefficients} >= {f"c {name}", "plan"}
    assert {level for _, level in coefficients} >= {f"l {name} 0", f"l {name} 1"}
    explained = world.sql.execute(
        sql.SQL("select feature, value from {} t, mempair.explain({}, t) where t.id = 7").format(table, name)
    ).fetchall()
    assert (f"c {name}", "7") in explained
    assert ("plan", f"l {name} 1") in explained
    assert world.sql.execute("select rows from mempair.evaluate(%s)", [name]).fetchall() == [(300,)]
    assert all(fine for (fine,) in world.sql.execute("select fine from mempair.verify_model(%s)", [name]))
    world.sql.execute("select mempair.drop_model(%s)", [name])
