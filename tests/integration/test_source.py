"""Reading a whole table: packed by the server into a few values, it gives what row by row gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from psycopg import sql

from mempair_db.database import arrays, models, source
from mempair_db.database.connect import connect
from mempair_db.database.packed import unpack
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
    there = {key: (x.tobytes(), c, y) for rows in found for key, x, c, y in zip(*rows, strict=True)}
    assert there == {key: (x.tobytes(), c, y) for key, x, c, y in zip(*wanted, strict=True)}
    assert sum(len(rows.keys) for rows in found) == len(wanted.keys) == 701
    assert np.isnan(np.concatenate([rows.x for rows in found])).any()


def test_values_that_end_too_early_are_no_rows() -> None:

    with pytest.raises(ValueError, match="3 rows do not end where"):
        unpack(bytes(30), 3, 1, 0)
