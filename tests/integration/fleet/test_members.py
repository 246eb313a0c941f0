"""Which models a fleet has, what a shard does not do alone, and shards that come and go."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mempair_db.errors import InvalidParameter, MempairError
from mempair_db.fleet import declare
from mempair_db.fleet.exchange import Exchange
from mempair_db.fleet.files import export_fleet, verify_files
from mempair_db.fleet.refresh import refresh_fleet
from mempair_db.fleet.verify import verify
from mempair_db.verify.checks import verify as verify_one
from tests.conftest import Run
from tests.integration.fleet.conftest import MODEL, Shards
from tests.integration.fleet.test_exchange import file_of
from tests.world import SHOP, World

VISITS = """
create table visits (id integer primary key, at timestamptz, city text, plan text, region text, age integer,
                     spend float8, heavy float8, vector real[], back boolean, kind text);
"""
SOME = """
insert into visits
select i, timestamptz '2026-01-01 00:00Z' + i * interval '5 hours', 'city ' || i * 7919 %% 400,
       (array['basic', 'pro'])[1 + i %% 2], (array['north', 'south', null])[1 + i %% 3], 20 + i * 31 %% 50,
       i * 104729 %% 1000 / 7.0, i %% 4, array[i %% 5, i * 31 %% 7], i * 7919 %% 10 + i %% 2 * 4 > 7,
       case when i = 100 then 'once' else (array['new', 'old', 'some'])[1 + (i * 31 %% 50 + i %% 9) / 20] end
from generate_series(1, 300) i where i %% %s = %s
"""
BACK: dict[str, Any] = {"source": "visits", "target": "back", "gamma": 10.0}


def wrong(exchange: Exchange, name: str = "churn") -> list[str]:
    return [f"{line.check}: {line.detail}" for line in verify(exchange, name).checks if not line.fine]


def wrong_alone(world: World) -> list[str]:
    """What one shard finds wrong by itself, in Python and in SQL."""
    found = [line.check for line in verify_one(world.dsn, 1).checks if not line.fine]
    return found + [row[0] for row in world.execute("select * from mempair.verify_model('back')") if row[1] is False]


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


def test_a_certified_model_is_refused_and_nothing_stays(make_fleet: Callable[[int], Shards]) -> None:
    fleet = make_fleet(1)
    fleet[0](VISITS)
    with pytest.raises(InvalidParameter, match="noise does not add up") as refused:
        declare.create(fleet.fleet, "back", BACK | {"features": ["age"], "unlearner": "symmetric"})
    assert refused.value.remedy
    assert fleet[0].one("select count(*) from mempair.model") == 0
    assert fleet.known.declared("back") is None


KINDS: tuple[dict[str, Any], ...] = (
    {"target": "kind", "features": ["age", "spend", "plan"], "class_weight": "balanced"},
    {"target": "back", "features": ["age", "vector:2"], "weight": "heavy"},
    {"target": "spend", "features": ["age", "plan", "vector:2"], "weight": "heavy", "curves": 2},
)


@pytest.mark.parametrize("kind", KINDS, ids=["classes", "weights and arrays", "regression"])
def test_classes_weights_and_arrays_add_up_too(
    make_fleet: Callable[[int], Shards], kind: dict[str, Any], tmp_path: Path
) -> None:
    """The same rows in one database and in three: the same constants, and sums, before and after a deletion."""
    found = []
    for shards in (1, 3):
        fleet = make_fleet(shards)
        for place, world in enumerate(fleet.worlds):
            world(VISITS)
            world.execute(SOME, shards, place)
        declare.create(fleet.fleet, "back", BACK | kind)
        refresh_fleet(fleet.computing, fleet.known, "back", "test", 7)
        fleet.exchange.once("back")
        assert [world.one("select p.samples from mempair.published p") for world in fleet.worlds] == [300] * shards
        before = fleet.known.model("back").reference
        fleet[2 % shards]("delete from visits where id = 2")
        fleet[0]("update visits set vector = '{9}' where id = 3")  # of another length: no longer learned
        fleet.work()
        for _ in range(2):
            fleet.exchange.once("back")
        assert wrong(fleet.exchange, "back") == []
        model = fleet.known.model("back")
        total = fleet.known.total(model)
        assert before is not None
        assert model.reference is not None
        assert total is not None
        assert total.n == (299 if kind["target"] == "kind" else 298)
        found.append((before.to_bytes(), model.reference.to_bytes(), total.to_bytes()))
        labels = ("new", "old", "some") if kind["target"] == "kind" else ()  # "once" has one row
        assert before.labels == labels
        assert wrong_alone(fleet[0]) == []
    assert found[0] == found[1]
    export_fleet(fleet.computing, "back", tmp_path / "out", rows=True)
    report = verify_files(fleet.computing, tmp_path / "out", "back")
    assert report.fine, report


def test_a_class_that_comes_to_several_shards_gets_its_place(make_fleet: Callable[[int], Shards]) -> None:
    """No shard has five rows of it; all together have."""
    fleet = make_fleet(3)
    for place, world in enumerate(fleet.worlds):
        world(VISITS)
        world.execute(SOME, 3, place)
    declare.create(fleet.fleet, "back", BACK | KINDS[0])
    for _ in range(2):
        fleet.exchange.once("back")
    for place, world in enumerate(fleet.worlds):
        world(f"update visits set kind = 'once' where id in ({3 * place + 30 + place}, {3 * place + 60 + place})")
    fleet.work()
    notes = fleet.exchange.once("back").notes
    assert "refreshed: there are rows of a new class" in notes
    classes = [
        world.one("select array_agg(class order by place) from mempair.published_class") for world in fleet.worlds
    ]
    assert classes == [["new", "old", "once", "some"]] * 3
    assert fleet.exchange.once("back").notes == []  # the row that has no place does not ask again
    assert wrong(fleet.exchange, "back") == []


def test_features_that_are_computed_from_a_row_add_up_as_columns_do(make_fleet: Callable[[int], Shards]) -> None:
    fleet = make_fleet(2)
    for place, world in enumerate(fleet.worlds):
        world(VISITS)
        world.execute(SOME, 2, place)
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


def test_a_model_is_altered_on_all_shards_or_on_none(
    make_fleet: Callable[[int], Shards], mempair: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = make_fleet(2)
    fleet.declare()
    fleet.spread(1, 120, lambda i: i)
    fleet[0]("update shop set age = null where id = 4")
    fleet.sync()
    monkeypatch.setenv("MEMPAIR_FLEET", str(file_of(fleet, tmp_path)))

    def altered() -> list[Any]:
        return [world.one("select ridge, curves, on_null from mempair.model") for world in fleet.worlds]

    code, _, said = mempair("fleet", "model", "alter", "churn", "--gamma", "0.0001")
    assert (code, "too few for gamma" in said) == (2, True)
    fleet[1]("alter table mempair.model add constraint no_three check (ridge <> 3)")  # the second shard refuses
    assert mempair("fleet", "model", "alter", "churn", "--ridge", "3")[0] == 1
    assert altered() == [(10.0, 4, "impute")] * 2
    fleet[1]("alter table mempair.model drop constraint no_three")
    before = fleet.served()
    code, _, said = mempair("fleet", "model", "alter", "churn", "--ridge", "3", "--curves", "0", "--on-null", "skip")
    assert (code, "the next exchange" in said) == (0, True)
    assert altered() == [(3.0, 0, "skip")] * 2
    fleet[1]("select mempair.retrain('churn')")  # under the terms of the constants that it has
    fleet[0]("delete from shop where id = 2")
    fleet.work()
    assert [served[-1] for served in fleet.served()] == [True, True]
    notes = fleet.sync(1).notes
    assert "refreshed: altered: ridge=3.0 curves=0 on_null=skip" in notes
    fleet.sync(1)
    assert fleet.reference().encoding.numbers[0].knots == ()
    assert [served[4] for served in fleet.served()] == [118, 118]  # without the deleted row, and the one to skip
    assert fleet.served() != before
    assert fleet.sync(1).notes == []
    assert wrong(fleet.exchange) == []
    assert mempair("fleet", "model", "alter", "churn", "--keep-receipts", "1 day")[0] == 0  # nothing to refresh
    assert fleet.known.model("churn").refresh_requested is None


def test_an_alteration_that_was_interrupted_waits_for_the_rest(make_fleet: Callable[[int], Shards]) -> None:
    fleet = make_fleet(2)
    fleet.declare()
    fleet.spread(1, 120, lambda i: i)
    fleet.sync()
    with fleet[1].sql.transaction():  # as if the command had been killed between two commits
        fleet[1]("set local mempair.fleet_alters = on", "select mempair.alter_model('churn', ridge => 3)")
    with pytest.raises(MempairError, match="has another ridge on shard s0 than on s1") as refused:
        refresh_fleet(fleet.computing, fleet.known, "churn", "test")
    assert "fleet model alter" in str(refused.value.remedy)
    assert declare.alter(fleet.fleet, "churn", {"ridge": 3.0})
    fleet.sync()
    assert wrong(fleet.exchange) == []


def test_a_fleet_with_too_few_rows_left_begins_anew(make_fleet: Callable[[int], Shards]) -> None:
    """The constants come from rows that are gone, and others cannot be chosen: nothing of them may stay."""
    fleet = make_fleet(2)
    fleet.declare()
    fleet.spread(1, 120, lambda i: i)
    fleet.sync()
    for world in fleet.worlds:
        world("delete from shop where id > 30")
    fleet.work()
    assert fleet.sync().down == {}
    model = fleet.known.model("churn")
    assert (model.generation, model.constants, model.refresh_requested) == (2, None, None)
    for place, world in enumerate(fleet.worlds):
        assert world.one("select count(*) from mempair.fleet_part") == 0
        assert world.one(
            "select constants is null and not exists (select from mempair.reference_row) from mempair.model"
        )
        assert world.one("select not ready and weights is null from mempair.published")
        (deletion,) = world.one("select mempair.receipt('churn', %s)", str(31 + (31 + place) % 2))["deletions"]
        assert deletion["everywhere"] is not None
    fleet.spread(201, 300, lambda i: i)
    fleet.work()
    fleet.sync()
    assert [served[4] for served in fleet.served()] == [130, 130]
    assert wrong(fleet.exchange) == []


def test_a_name_that_a_shard_has_for_a_model_of_its_own_is_refused(make_fleet: Callable[[int], Shards]) -> None:
    fleet = make_fleet(1)
    fleet[0](SHOP)
    fleet[0]("select mempair.create_model('churn', 'shop', target => 'churned', features => array['age'])")
    with pytest.raises(InvalidParameter, match="of its own, of no fleet"):
        declare.create(fleet.fleet, "churn", MODEL)
