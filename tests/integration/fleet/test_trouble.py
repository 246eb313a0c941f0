"""What a user is told when something about a fleet is wrong: which database, why, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from mempair_db.errors import InvalidParameter
from mempair_db.fleet.config import parse
from tests.conftest import Run
from tests.integration.fleet.conftest import Shards
from tests.integration.fleet.test_exchange import file_of
from tests.world import SHOP

A = {"name": "a", "dsn": "x"}
FINE: dict[str, Any] = {"coordinator": {"dsn": "x"}, "shard": [A]}
CREATE = ("fleet", "model", "create", "churn", "shop", "--target", "churned", "--features")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "has no shard"),
        ({"shard": [A]}, r"no \[coordinator\]"),
        (FINE | {"coordinator": "x"}, r"\[coordinator\] of .* is no table"),
        (FINE | {"coordinator": {"name": "c", "dsn": "x"}}, "has name, which means nothing"),
        (FINE | {"shard": [{"name": "a"}]}, "shard 1 of .* needs dsn or env"),
        (FINE | {"shard": [A, {"dsn": "x"}]}, "shard 2 of .* has no name made of letters, digits and underscores[.]"),
        (FINE | {"shard": [{"name": "a b", "dsn": "x"}]}, "but 'a b'"),
        (FINE | {"shard": [{"name": "a", "dsn": 5}]}, "has a dsn that is no text"),
        (FINE | {"shard": ["a"]}, "shard 1 of .* is no table"),
        (FINE | {"shard": [A, A]}, "two shards with the name a"),
        (FINE | {"dask": {"threads": 1}}, "has threads, which means nothing.*pinned, scheduler, workers"),
        (FINE | {"dask": {"workers": "two"}}, "workers = 'two'.*a number above 0"),
        (FINE | {"dask": {"pinned": 1}}, "pinned = 1.*true or false"),
    ],
)
def test_a_file_that_is_wrong_is_told_how(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameter, match=said) as refused:
        parse(values)
    assert refused.value.remedy


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = parse({"coordinator": {"env": "NOT_SET"}, "shard": [{"name": "a", "env": "SET"}]})
    monkeypatch.setenv("SET", "dbname=a")
    assert fleet.shards[0].dsn == "dbname=a"
    with pytest.raises(InvalidParameter, match=r"of the coordinator .* NOT_SET, which is not set"):
        _ = fleet.coordinator.dsn


def file_with(folder: Path, coordinator: str, *shards: str) -> str:
    """A file with shards a, b, …; returns where it is."""
    file = folder / "fleet.toml"
    lines = [f'[[shard]]\nname = "{chr(97 + i)}"\ndsn = "{dsn}"\n' for i, dsn in enumerate(shards)]
    file.write_text(f'[coordinator]\ndsn = "{coordinator}"\n' + "".join(lines))
    return str(file)


def test_the_command_line_names_the_file_and_the_database(
    make_fleet: Callable[[int], Shards], tmp_path: Path, mempair: Run
) -> None:
    fleet = make_fleet(2)
    first, second = (world.dsn for world in fleet.worlds)
    code, _, said = mempair("fleet", "status", "--fleet", str(tmp_path / "none.toml"))
    assert (code, "There is no file" in said, "--fleet" in said) == (2, True, True)
    (tmp_path / "bad.toml").write_text("[coordinator\n")
    code, _, said = mempair("fleet", "status", "--fleet", str(tmp_path / "bad.toml"))
    assert (code, "is not TOML" in said) == (2, True)

    nowhere = make_conninfo(second, dbname="nowhere")
    code, _, said = mempair("fleet", "init", "--fleet", file_with(tmp_path, first, first, nowhere))
    assert (code, "shard b cannot be reached" in said, "nowhere" in said) == (1, True, True), said
    code, _, said = mempair("fleet", "init", "--fleet", file_with(tmp_path, first, first, "postgresql//u:secret@h/d"))
    assert (code, "The DSN of shard b is not one" in said, "secret" in said) == (2, True, False), said
    code, _, said = mempair("fleet", "status", "--fleet", file_with(tmp_path, nowhere, first))
    assert (code, "the coordinator cannot be reached" in said) == (1, True), said

    here = file_with(tmp_path, first, first, second)
    fleet[0](SHOP)
    code, _, said = mempair(*CREATE, "age,plan", "--fleet", here)  # b has no such table
    assert code != 0
    assert "Shard b: " in said
    assert "shop" in said
    fleet[1](SHOP.replace("age float8", "years float8"))
    code, _, said = mempair(*CREATE, "age,plan", "--fleet", here)
    assert code != 0
    assert "Shard b: " in said
    assert "age" in said
    code, _, said = mempair("fleet", "verify", "other", "--fleet", here)
    assert (code, "has no model 'other'" in said, "fleet model create" in said) == (1, True, True), said


def test_a_shard_of_another_version_is_refused_and_the_others_go_on(
    make_fleet: Callable[[int], Shards], tmp_path: Path, mempair: Run
) -> None:
    fleet = make_fleet(2)
    fleet.declare()
    fleet.spread(1, 120, lambda i: i)
    fleet.sync()
    stamp = fleet[1].one("select obj_description('mempair.alembic_version'::regclass)")
    fleet[1](f"comment on table mempair.alembic_version is '{stamp.replace('mempair_00', 'mempair_99')}'")
    fleet[0]("delete from shop where id = 2")
    fleet[0].work()
    here = str(file_of(fleet, tmp_path))
    code, _, said = mempair("fleet", "sync", "--once", "--fleet", here)
    assert (code, "Shard s1: " in said, "do not fit together" in said) == (1, True, True), said
    code, out, _ = mempair("fleet", "status", "--fleet", here)
    assert (code, "do not fit" in " ".join(out.split())) == (0, True), out
    fleet[1](f"comment on table mempair.alembic_version is '{stamp.replace(stamp.split()[0], 'mempair_0001')}'")
    code, _, said = mempair("fleet", "verify", "churn", "--fleet", here)
    assert (code, "Shard s1: " in said, "mempair fleet init" in said) == (6, True, True), said
    fleet[1](f"comment on table mempair.alembic_version is '{stamp}'")
    fleet.sync()
    assert fleet.served()[1][4] == 119
