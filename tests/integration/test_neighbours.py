"""What happens to one model's table before a retrain never reaches another model."""

from __future__ import annotations

import pytest

from tests.world import World

TABLE = "create table {} (id integer primary key, age float8, y boolean)"
ROWS = "insert into {} select i, i % 17, i % 3 = 0 from generate_series(1, 300) i"
MODEL = "select mempair.create_model('{0}', '{0}', target => 'y', features => '{{age}}')"


@pytest.mark.parametrize(
    "trouble",
    [
        "alter table bad drop column age cascade",
        "alter table bad enable row level security, force row level security",
    ],
)
def test_a_table_that_cannot_be_read_for_a_retrain_fails_its_own_model_alone(world: World, trouble: str) -> None:
    for name in ("bad", "good"):
        world(TABLE.format(name), ROWS.format(name), MODEL.format(name))
    world.work()
    world(trouble, "select mempair.retrain('bad')", "delete from good where id = 7")
    world.work()
    assert world.one("select status, reason is not null from mempair.model_status where model = 'bad'") == (
        "failed",
        True,
    )
    assert world.one("select status, rows_learned from mempair.model_status where model = 'good'") == ("ready", 299)


def test_a_database_that_ends_idle_transactions_does_not_end_a_batch(world: World) -> None:
    world(TABLE.format("good"), ROWS.format("good"), MODEL.format("good"))
    for limit in ("idle_in_transaction_session_timeout = 1", "statement_timeout = 1000"):
        world(f"do $$ begin execute format('alter database %I set {limit}', current_database()); end $$")
    world.work()
    world("delete from good where id = 7")
    world.work()
    assert world.one("select status, rows_learned from mempair.model_status") == ("ready", 299)
