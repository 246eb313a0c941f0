"""Reading a whole table: packed by the server into a few values, it gives what row by row gives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from psycopg import sql

from mempair_db.database import arrays, models, packed, source
from mempair_db.database.connect import connect
from mempair_db.worker import batch, reference
from tests.integration.test_verify_sql import RANDOM, fill
from tests.world import World

PARTITIONED = RANDOM + " partition by range (id)"
PARTS = "create table t1 partition of t for values from (0) to (300); create table t2 partition of t default"


@pytest.mark.parametrize("table", [RANDOM, f"{PARTITIONED}; {PARTS}"], ids=["plain", "partitioned"])
@pytest.mark.parametrize("parts", [1, 5])
def test_packed_rows_are_the_rows(world: World, monkeypatch: pytest.MonkeyPatch, table: str, parts: int) -> None:
    monkeypatch.setattr(source, "AT_ONCE", 20_000)  # several values, of several blocks each
    world(table)
    fill(world, 0, 700, seed=3)
    world(
        "insert into t (id, c, label) values (5000, repeat('long ', 3000), true), (5001, 'unlabelled', null)",
        "select mempair.create_model('m', 't', target => 'label', features => array['a', 'b', 'c', 'd'])",
    )
    rows = same_rows(world, parts)
    assert len(rows) == 701
    assert any(np.isnan(x).any() for x in rows)


NUMBERS = [f"n{i}" for i in range(9)]
ODD = [None, float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, -1.7976931348623157e308, 1 / 3, 2.0**53 + 2]


@pytest.mark.parametrize("width", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("more", ["", "v", "c"])
def test_numbers_are_packed_whole_however_many_there_are(world: World, width: int, more: str) -> None:
    world(f"create table t (id integer primary key, {' float8, '.join(NUMBERS)} float8, v float8[], c text, y float8)")
    odd = [[ODD[(i + j) % len(ODD)] for j in range(9)] for i in range(40)]
    for i, numbers in enumerate(odd):
        v = [float(i), None, 0.5]
        world.sql.execute(f"insert into t values ({', '.join(['%s'] * 13)})", [i, *numbers, v, f"level {i % 3}", i])
    features = [*NUMBERS[:width], *([more] if more else [])]
    world.sql.execute("select mempair.create_model('m', 't', target => 'y', features => %s::text[])", [features])
    rows = same_rows(world, 1)
    assert [x[:width].tobytes() for x in rows] == [
        np.array([np.nan if v is None else v for v in numbers[:width]], float).tobytes() for numbers in odd
    ]


def test_rows_whose_array_has_another_length_are_packed_like_others(world: World) -> None:
    world("create table t (id integer primary key, a float8, v float8[], y float8)")
    world("select mempair.create_model('m', 't', target => 'y', features => array['a', 'v:3'])")
    world("insert into t values (1, 1, '{1, 2}', 1), (2, 1, null, 2), (3, 1, '{1, 2, 3}', 3)")
    assert [np.isnan(x[1:4]).all() for x in same_rows(world, 1)] == [True, True, False]


def same_rows(world: World, parts: int) -> list[Any]:
    """Read a whole table packed, in so many parts, and row by row; return the numbers that both have, by key."""
    with connect(world.dsn) as connection:
        batch.prepare(connection)
        model = models.look(connection, 1)
        assert model is not None
        statement = sql.SQL("select row_key, x, c, y from mempair.source_1 where y is not null").format()
        wanted = reference.decode(model, arrays.fetch(connection, statement))
        blocks, _ = source.size_of(connection, model)
        bounds = [blocks * i // parts for i in range(parts)] + [source.LAST]
        found = [rows for a, b in pairwise(bounds) for rows in source.chunks(connection, model, a, b)]
    assert len(found) >= parts
    there = {key: row for rows in found for key, row in _by_key(rows)}
    assert there == dict(_by_key(wanted))
    assert sum(len(rows.keys) for rows in found) == len(wanted.keys)
    return [x for _, x in sorted(zip(map(int, wanted.keys), wanted.x, strict=True), key=lambda row: row[0])]


def _by_key(rows: packed.Rows) -> list[tuple[str, tuple[bytes, object, float]]]:
    texts = rows.c if len(rows.c) else [()] * len(rows.keys)
    return [(key, (x.tobytes(), c, y)) for key, x, c, y in zip(rows.keys, rows.x, texts, rows.y, strict=True)]


def test_values_that_end_too_early_are_no_rows() -> None:

    with pytest.raises(ValueError, match="3 rows do not end where"):
        packed.unpack(bytes(30), 3, 1, 0)
