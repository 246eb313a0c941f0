"""mempair.capacity is CertifiedPair.capacity."""

from __future__ import annotations

import psycopg
import pytest

from mempair_db.database import models
from mempair_db.worker import batch
from mempair_db.worker.loop import Worker


@pytest.mark.parametrize(("unlearner", "target"), [("symmetric", "yes"), ("passive", "yes"), ("symmetric", "price")])
def test_capacity_in_sql_is_that_of_the_pair(database: str, unlearner: str, target: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id integer primary key, a float8, b text, yes boolean, price float8)")
        connection.execute(
            "select mempair.create_model('m', 't', target => %s, features => array['a', 'b'], unlearner => %s,"
            " calibration_rows => 200, clip => 2)",
            [target, unlearner],
        )
        assert connection.execute("select mempair.capacity('m')").fetchone() == (None,)
        connection.execute(
            "insert into t select i, i % 10, (i % 3)::text, i % 10 > 4, i % 10 from generate_series(1, 500) i"
        )
        Worker(database).run_once()
        with psycopg.connect(database) as other:
            batch.prepare(other)
            model = models.lease(other, 1)
            assert model is not None
            expected = model.certified.pair.capacity()
        assert connection.execute("select mempair.capacity('m')").fetchone() == (pytest.approx(expected, rel=1e-12),)
