"""The learned keys: what is entered is found, what is forgotten is gone, whatever the keys look like."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mempair_db.database import learned

# Postgres keeps neither a zero byte nor half a surrogate pair.
KEYS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with psycopg.connect(database) as connection:
        yield connection
        connection.rollback()


def enter(connection: Connection, keys: list[str], first_tick: int, model: int = 1) -> None:
    prints = np.array([len(key) for key in keys], np.int64)
    learned.enter(connection, learned.pack(model, keys, prints, first_tick, connection.info.encoding))


def ticks(connection: Connection, model: int = 1) -> list[tuple[str, int]]:
    return connection.execute(
        "select row_key, tick from mempair.learned where model_id = %s order by tick", [model]
    ).fetchall()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(KEYS, unique=True, max_size=40), max_size=4), data=st.data())
def test_what_is_entered_is_found_and_what_is_forgotten_is_gone(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, batches: list[list[str]], data: st.DataObject
) -> None:
    connection.rollback()
    expected: dict[str, int] = {}
    tick = 1
    for keys in batches:
        new = [key for key in keys if key not in expected]
        enter(connection, new, tick)
        expected |= dict(zip(new, range(tick, tick + len(new)), strict=True))
        tick += len(new)
    enter(connection, ["another model", *expected], 1, model=2)
    assert ticks(connection) == list(expected.items())
    gone = data.draw(st.lists(st.sampled_from(sorted(expected)), unique=True)) if expected else []
    for many in data.draw(st.permutations([5_000, 0])):  # both ways to find; either way to forget
        monkeypatch.setattr(learned, "MANY", many)
        assert learned.find(connection, 1, [*gone, *gone, "no such key at all"]) == {key: (len(key),) for key in gone}
    learned.forget(connection, 1, [*gone, "no such key at all"])
    left = {key: tick for key, tick in expected.items() if key not in gone}
    assert ticks(connection) == list(left.items())
    assert learned.find(connection, 1, sorted(expected)) == {key: (len(key),) for key in left}
    assert learned.forget_all(connection, 1) == len(left)
    assert ticks(connection) == []
    assert len(ticks(connection, 2)) == 1 + len(expected)


def test_a_large_batch_takes_one_row_per_bucket_and_a_look_up_reads_few_of_them(connection: Connection) -> None:
    enter(connection, [f"key {i}" for i in range(50_000)], 1)
    assert connection.execute("select count(*) from mempair.learned_keys").fetchone() == (1024,)
    connection.execute("analyze mempair.learned_keys")
    plan = connection.execute(
        "explain (analyze, format json) select from mempair.learned l"
        " where l.model_id = 1 and l.row_key = 'key 7' and l.bucket = mempair.bucket('key 7')"
    ).fetchone()
    assert plan is not None
    assert "learned_keys_model_id_bucket_idx" in str(plan[0])
    assert ticks(connection)[6] == ("key 6", 7)


def test_a_bucket_is_the_same_in_sql_and_in_python(connection: Connection) -> None:
    keys = ["", "42", "é", "鍵", "a" * 900, *map(str, range(200))]
    rows = connection.execute(
        "select mempair.bucket(k) from unnest(%s::text[]) with ordinality u(k, n) order by n", [keys]
    )
    assert [bucket for (bucket,) in rows] == learned.buckets(keys).tolist()
