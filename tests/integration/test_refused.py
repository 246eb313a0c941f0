"""Rows that cannot be learned: where they are listed, for how long, and what takes them off the list."""

from __future__ import annotations

import pytest

from tests.world import World

KINDS = {
    "exact": "on_null => 'skip'",
    "certified": "on_null => 'skip', unlearner => 'symmetric', lambda => 0.01, gamma => 100, calibration_rows => 100",
}
CREATE = [
    "create table t (id int primary key, x float8, y boolean)",
    "insert into t select i, i % 17, i % 3 = 0 from generate_series(1, 300) i",
    "insert into t select i, null, true from generate_series(1001, 1004) i",
]


def refused(world: World) -> list[str]:
    return [key for (key,) in world.execute("select row_key from mempair.rejected order by row_key")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_row_is_listed_until_it_goes_changes_or_was_listed_long_enough(world: World, kind: str) -> None:
    world(*CREATE)
    world(f"select mempair.create_model('m', 't', target => 'y', features => '{{x}}', {KINDS[kind]})")
    world.work()
    assert refused(world) == ["1001", "1002", "1003", "1004"]
    world(
        "delete from t where id = 1001", "update t set x = 5 where id = 1002", "update t set y = false where id = 1003"
    )
    world.work()
    assert refused(world) == ["1003", "1004"]
    assert "1002" in world.learned()
    world("select mempair.retrain('m')")
    world.work()
    assert refused(world) == ["1003", "1004"]  # a retrain looks at all rows again, and lists them again
    assert world.execute("select * from mempair.reconcile('m')") == []
    world("update mempair.rejected set at = now() - interval '10 years' where row_key = '1003'")
    world.work()
    assert refused(world) == ["1004"]
    world("truncate t")
    world.work()
    assert refused(world) == []
