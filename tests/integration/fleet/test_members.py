"""Which models a fleet has, what a shard does not do alone, and shards that come and go."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from mempair_db.errors import InvalidParameter
from mempair_db.fleet import declare
from mempair_db.fleet.exchange import Exchange
from mempair_db.fleet.verify import verify
from mempair_db.verify.checks import verify as verify_one
from tests.integration.fleet.conftest import MODEL, Shards
from tests.world import SHOP

VISITS = """
create table visits (id integer primary key, at timestamptz, city text, plan text, region text, age integer,
                     spend float8, heavy float8, vector real[], back boolean);
"""
SOME = """
insert into visits
select i, timestamptz '2026-01-01 00:00Z' + i * interval '5 hours', 'city ' || i * 7919 %% 400,
       (array['basic', 'pro'])[1 + i %% 2], (array['north', 'south', null])[1 + i %% 3], 20 + i * 31 %% 50,
       i * 104729 %% 1000 / 7.0, 1, array[1, 2], i * 7919 %% 10 + i %% 2 * 4 > 7
from generate_series(1, 300) i where i %% 2 = %s
"""
BACK: dict[str, Any] = {"source": "visits", "target": "back", "gamma": 10.0}


def wrong(exchange: Exchange, name: str = "churn") -> list[str]:
    return [f"{line.check}: {line.detail}" for line in verify(exchange, name).checks if not line.fine]


def test_a_shard_alone_changes_only_what_is_its_own(make_fleet: Callable[[int], Shards]) -> None:
    fleet = make_fleet(2)
    fleet.declare()
    fleet.spread(1, 120, lambda i: i)
    fleet.sync()
    assert [world.one("select curves from mempair.model") for world in fleet.worlds] == [4, 4]  # as in one database
    assert fleet.known.model("churn").declared["curves"] == 4
    for change in ("ridge => 3", "curves => 0", "on_null => 'skip'", "unlearner => 'symmetric'", "gamma => 0.5"):
        with pytest.raises(psycopg.Error, match=r"shard 's1'.*must be the same on all shards") as refused:
            fleet[1](f"select mempair.alter_model('churn', {change})")
        assert "mempair fleet model" in str(refused.value)
    fleet[1]("select mempair.alter_model('churn', serve_during_refresh => false, keep_receipts => '1 day')")
    assert wrong(fleet.exchange) == []
    (constants,) = (line for line in verify_one(fleet[1].dsn, 1).checks if line.check == "constants")
    assert constants.fine
    assert "mempair fleet verify" in constants.detail


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"target": "region", "features": ["age"]}, "several classes"),
        ({"features": ["age"], "weight": "heavy"}, "weights"),
        ({"features": ["age"], "class_weight": "balanced"}, "class weights"),
        ({"features": ["age", "vector:2"]}, "vectors or arrays"),
        ({"features": ["age"], "unlearner": "symmetric"}, "noise does not add up"),
    ],
)
def test_a_kind_of_model_that_does_not_add_up_is_refused_and_nothing_stays(
    make_fleet: Callable[[int], Shards], other: dict[str, Any], said: str
) -> None:
    fleet = make_fleet(1)
    fleet[0](VISITS)
    fleet[0].execute(SOME, 0)
    with pytest.raises(InvalidParameter, match=said) as refused:
        declare.create(fleet.fleet, "back", BACK | other)
    assert refused.value.remedy
    assert fleet[0].one("select count(*) from mempair.model") == 0
    assert fleet.known.declared("back") is None


def test_features_that_are_computed_from_a_row_add_up_as_columns_do(make_fleet: Callable[[int], Shards]) -> None:
    fleet = make_fleet(2)
    for place, world in enumerate(fleet.worlds):
        world(VISITS)
        world.execute(SOME, place)
    features = ["at:cyclical", "city:hash:16", "plan * region", "age * spend"]
    declare.create(fleet.fleet, "back", BACK | {"features": features})
    for _ in range(2):
        fleet.exchange.once("back")
    assert [world.one("select p.samples from mempair.published p") for world in fleet.worlds] == [300, 300]
    fleet[0]("delete from visits where id = 2")
    fleet.work()
    fleet.exchange.once("back")
    assert wrong(fleet.exchange, "back") == []


def test_a_shard_that_comes_and_one_that_goes(make_fleet: Callable[[int], Shards]) -> None:
    """The model is that of the rows on the shards that belong to it, and so are its constants."""
    fleet = make_fleet(3)
    for world in fleet.worlds:
        world(SHOP)
    fleet.spread(1, 240, lambda i: i)
    whole = fleet.fleet
    two = dataclasses.replace(whole, shards=whole.shards[:2])
    declare.create(two, "churn", MODEL)
    small = Exchange(two, fleet.known, fleet.computing)
    fleet.computing.fleet = two
    small.once("churn")
    small.once("churn")
    assert fleet[0].one("select samples from mempair.published") == 160

    with pytest.raises(InvalidParameter, match=r"shard s2 .* ridge is 3.*, elsewhere 10"):
        declare.create(whole, "churn", MODEL | {"ridge": 3.0})
    assert fleet[2].one("select count(*) from mempair.model") == 0
    assert declare.create(whole, "churn", MODEL) == ["s2"]
    fleet.computing.fleet = whole
    fleet.sync(3)
    assert [served[4] for served in fleet.served()] == [240, 240, 240]
    assert wrong(fleet.exchange) == []

    generation = fleet.known.model("churn").generation
    fleet.computing.fleet = two
    notes = small.once("churn").notes + small.once("churn").notes
    assert any("a shard left" in note for note in notes), notes
    assert fleet.known.model("churn").generation > generation  # its reference rows went with it
    assert [served[4] for served in fleet.served()[:2]] == [160, 160]
    assert set(fleet.known.shards("churn")) == {"s0", "s1"}
    assert wrong(small) == []
    small.close()


def test_a_name_that_a_shard_has_for_a_model_of_its_own_is_refused(make_fleet: Callable[[int], Shards]) -> None:
    fleet = make_fleet(1)
    fleet[0](SHOP)
    fleet[0]("select mempair.create_model('churn', 'shop', target => 'churned', features => array['age'])")
    with pytest.raises(InvalidParameter, match="of its own, of no fleet"):
        declare.create(fleet.fleet, "churn", MODEL)
