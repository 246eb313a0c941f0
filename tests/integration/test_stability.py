"""A refresh moves nobody's score by the luck of another sample (EXACT.md, 3 and 7)."""

from __future__ import annotations

import pytest

from mempair_db.worker import reference
from tests.world import SHOP, World


def reference_rows(world: World) -> set[str]:
    return {key for (key,) in world.execute("select row_key from mempair.reference_row")}


def test_a_refresh_keeps_the_reference_rows_that_are_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "REFERENCE_ROWS", 400)
    world(SHOP)
    world.fill(1, 3000)
    world(
        "select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'])"
    )
    world.work()
    before = reference_rows(world)
    assert 100 < len(before) < 600  # one of eight, by chance
    gone = sorted(before)[:20]
    world.execute("delete from shop where id::text = any(%s)", gone)
    world.fill(3001, 3150)
    world("select mempair.retrain('churn')")
    world.work()
    after = reference_rows(world)
    assert before - set(gone) <= after
    # Those that came since have the same chance as all others, and no other row has become one.
    assert {int(key) > 3000 for key in after - before} == {True}
    world.check_exact()
