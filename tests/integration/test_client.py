"""The Python client: every kind of feature, one pool of connections, and the same for asyncio."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pytest

from mempair_db import AsyncClient, Client, errors
from tests.world import World, opened

TABLE = """
create type mood as enum ('calm', 'wild');
create schema "My Shop";
create table "My Shop"."Visits" (
    day date not null, "No" integer not null, age integer, spend numeric, plan text, mood mood, vip boolean,
    seen timestamptz default now(), tags jsonb, bought boolean, primary key (day, "No"));
"""
FEATURES = ["age", "spend", "plan", "mood", "vip", "seen"]


def row(i: int) -> dict[str, Any]:
    return {
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(i % 5),
        "No": i,
        "age": 20 + i * 31 % 40,
        "spend": Decimal(i * 7 % 100) / 3,
        "plan": ["a", "b", None][i % 3],
        "mood": ["calm", "wild"][i % 2],
        "vip": i % 4 == 0,
        "tags": {"n": i},
        "bought": i * 31 % 40 + i * 7 % 100 > 60,
    }


def create(client: Client) -> None:
    client.create_model("visits", '"My Shop"."Visits"', target="bought", features=FEATURES, gamma=10)


@pytest.mark.parametrize("pooled", [False, True])
def test_a_client_learns_predicts_and_forgets_rows_of_every_type(world: World, pooled: bool) -> None:
    world(TABLE)
    client = Client(world.dsn)
    if pooled:
        client.__enter__()
    create(client)
    assert client.learn("visits", [row(i) for i in range(300)]) == 300
    world.work()
    assert client.status("visits") == "ready"
    asked = row(7) | {"seen": "2026-01-01T00:00:00Z"}
    served = world.one(
        """select mempair_predict('visits', v) from "My Shop"."Visits" v where "No" = 7""",
    )
    seen = world.one("""select seen from "My Shop"."Visits" where "No" = 7""")
    assert client.predict("visits", row(7) | {"seen": seen}) == pytest.approx(served)
    explained = client.explain("visits", asked)
    assert {each["feature"] for each in explained} == {"intercept", *FEATURES}
    assert client.evaluate("visits")["rows"] == 300
    assert client.evaluate("visits", '"No" < 10')["rows"] == 10
    assert client.evaluate("visits", which="unlearned")["rows"] == 0
    assert {"feature", "weight", "standard_error"} <= client.coefficients("visits")[0].keys()
    assert client.forget("visits", (row(7)["day"], 7)) == 1
    assert client.forget("visits", (row(7)["day"], 7)) == 0
    world.work()
    receipt = client.receipt("visits", '["2026-01-03", "7"]')
    assert receipt is not None
    assert receipt["key"] == '["2026-01-03", "7"]'
    assert client.receipt("visits", (row(7)["day"], 7)) is not None
    with pytest.raises(errors.InvalidParameter, match="day, No"):
        client.forget("visits", 7)
    with pytest.raises(errors.UnknownModel, match="visit'"):
        client.predict("visit", {"age": 3})
    with pytest.raises(errors.InvalidParameter, match=r"'visits' has no column 'agee'. Did you mean 'age'\?"):
        client.predict("visits", {"agee": 3, "plan": "a"})
    with pytest.raises(errors.InvalidParameter, match="None is not a row"):
        client.predict("visits", None)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameter, match="learn takes a list of rows"):
        client.learn("visits", {"id": 1})  # type: ignore[arg-type]
    with pytest.raises(errors.UnknownModel, match=r"^There is no model 'vistis'\."):
        client.learn("vistis", [])
    with pytest.raises(errors.InvalidParameter, match="The row has no value"):
        client.predict("visits", {"age": None})
    client.drop_model("visits")
    client.__exit__()


PARAMETERS: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt option": ({"gama": 1}, r"no parameter 'gama'.*Did you mean 'gamma'\?"),
    "misspelt features": ({"features": (), "featurs": ["x"]}, r"no parameter 'featurs'.*Did you mean 'features'\?"),
    "a misspelt target": ({"target": "", "taget": "y"}, r"no parameter 'taget'.*Did you mean 'target'\?"),
    "no features": ({"features": ()}, r"needs 'features'. Such as features=\[\"age\", \"plan\"\]"),
    "no target": ({"target": ""}, r"needs 'target'. Such as target=\"churned\""),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_parameter_that_is_wrong_is_named_with_what_to_write(world: World, case: str) -> None:
    given, message = PARAMETERS[case]
    world("create table t (id integer primary key, x float8, y boolean)")
    with pytest.raises(errors.InvalidParameter, match=message):
        Client(world.dsn).create_model("m", "t", **{"target": "y", "features": ["x"]} | given)


@pytest.mark.parametrize("features", ["age, day:cyclical", {"age": None, "day": "cyclical"}], ids=["text", "mapping"])
def test_features_can_be_given_as_in_sql(world: World, features: str | dict[str, str | None]) -> None:
    world("create table t (id integer primary key, age float8, day date, y boolean)")
    Client(world.dsn).create_model("m", "t", target="y", features=features)
    assert world.one("select features from mempair.model") == ["age", "day:cyclical"]


def test_a_failed_transaction_leaves_the_pool_usable_and_no_row_behind(world: World) -> None:
    world(TABLE)
    with Client(world.dsn, connections=1) as client:
        create(client)
        with pytest.raises(Exception, match="violates not-null"):
            client.learn("visits", [row(1), row(2) | {"No": None}])
        assert world.one('select count(*) from "My Shop"."Visits"') == 0
        assert client.learn("visits", [row(1)]) == 1


def test_threads_share_a_pool(world: World) -> None:
    world(TABLE)
    found: list[float] = []
    with Client(world.dsn, connections=2) as client:
        create(client)
        client.learn("visits", [row(i) for i in range(200)])
        world.work()
        threads = [threading.Thread(target=lambda: found.append(client.predict("visits", row(3)))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sessions = world.one(
            "select count(*) from pg_stat_activity where application_name = 'mempair client'"
            " and datname = current_database()"
        )
    assert sessions <= 2
    assert len(found) == 8


@pytest.mark.parametrize("pooled", [False, True])
def test_the_same_questions_can_be_asked_in_asyncio(world: World, pooled: bool) -> None:
    world(TABLE)

    async def ask() -> None:
        client = AsyncClient(world.dsn)
        if pooled:
            await client.__aenter__()
        await client.create_model("visits", '"My Shop"."Visits"', target="bought", features=FEATURES, gamma=10)
        assert await client.learn("visits", [row(i) for i in range(200)]) == 200
        await asyncio.to_thread(world.work)
        assert await client.status("visits") == "ready"
        many = await asyncio.gather(*(client.predict("visits", row(i)) for i in range(10)))
        assert all(0 < p < 1 for p in many)
        assert (await client.evaluate("visits"))["rows"] == 200
        assert len(await client.explain("visits", row(3))) == 1 + len(FEATURES)
        assert await client.coefficients("visits")
        assert await client.forget("visits", (row(3)["day"], 3)) == 1
        await asyncio.to_thread(world.work)
        assert await client.receipt("visits", '["2026-01-04", "3"]') is not None
        with pytest.raises(errors.UnknownModel):
            await client.predict("nobody", {"age": 1})
        await client.drop_model("visits")
        await client.__aexit__()

    asyncio.run(ask())


def test_numbers_alone_can_be_given_as_they_are(world: World) -> None:
    world("create table t (id integer primary key, x float8, z float8, y boolean)")
    client = Client(world.dsn)
    client.create_model("m", "t", target="y", features=["x", "z"], gamma=10)
    client.learn("m", [{"id": i, "x": i % 7, "z": i % 5, "y": i % 7 > 3} for i in range(200)])
    world.work()
    assert client.predict("m", [6.0, 1.0]) == pytest.approx(client.predict("m", {"x": 6, "z": 1}))


def note(i: int) -> dict[str, Any]:
    kind = i % 3
    meaning = [float(kind == 0) + i * 7 % 10 / 20, float(kind == 1) + i * 3 % 10 / 20, float(kind == 2)]
    return {"id": i, "meaning": meaning, "small": [i % 4, i % 5], "topic": ["art", "law", "sport"][kind]}


def test_arrays_are_learned_and_classes_told_apart(world: World) -> None:
    world("create table notes (id integer primary key, meaning float8[], small real[], topic text)")
    with Client(world.dsn) as client:
        features = ["meaning:3", "small:2"]
        client.create_model("topic", "notes", target="topic", features=features, gamma=10)
        assert client.learn("topic", [note(i) for i in range(300)]) == 300
        world.work()
        assert [client.predict_class("topic", note(i)) for i in range(3)] == ["art", "law", "sport"]
        found = client.predict_proba("topic", note(4))
        served = world.execute("select p.* from notes n, mempair_predict_proba('topic', n) p where id = 4")
        assert found == pytest.approx(dict(served))
        assert next(iter(found)) == "law"
        assert client.predict_class("topic", [1.2, 0.1, 0.0, 1, 1]) == "art"  # the numbers alone, in their order
        assert client.learn("topic", [note(300) | {"meaning": np.array([1, 0.5, 0]), "small": [1, 0.5]}]) == 1
        assert world.one("select meaning, small from notes where id = 300") == ([1, 0.5, 0], [1, 0.5])
        as_array = note(4) | {"meaning": np.array(note(4)["meaning"]), "id": np.int64(4)}
        assert client.predict_proba("topic", as_array) == found
        assert sum(client.predict_proba("topic", [1.2, 0.1, 0.0, 1, 1]).values()) == pytest.approx(1.0)
        assert client.evaluate("topic")["accuracy"] > 0.95
        with pytest.raises(errors.MempairError, match=r"several classes apart.*predict_class"):
            client.predict("topic", note(1))

    async def ask() -> tuple[str | None, dict[str | None, float]]:
        async with AsyncClient(world.dsn) as client:
            return await client.predict_class("topic", note(4)), await client.predict_proba("topic", note(4))

    assert asyncio.run(ask()) == ("law", found)


def test_vectors_of_pgvector_can_be_given_as_lists(database: str, superuser: Callable[[str], str]) -> None:
    with psycopg.connect(superuser(database), autocommit=True) as connection:
        if not connection.execute("select from pg_available_extensions where name = 'vector'").fetchall():
            pytest.skip("this server has no pgvector")
        connection.execute("create extension vector")
    with opened(database) as world:
        world("create table notes (id integer primary key, meaning vector(3), topic text)")
        client = Client(world.dsn)
        client.create_model("topic", "notes", target="topic", features=["meaning"], gamma=10)
        notes = [{k: v for k, v in note(i).items() if k != "small"} for i in range(150)]
        client.learn("topic", notes)
        world.work()
        assert [client.predict_class("topic", notes[i]) for i in range(3)] == ["art", "law", "sport"]


def test_what_the_server_remarks_is_returned_and_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world(
        "create table t (id integer primary key, age float8, plan text, y boolean)",
        "insert into t select i, i % 40, null, i % 3 = 0 from generate_series(1, 50) i",
    )
    caplog.set_level("INFO", "mempair.client")
    with Client(world.dsn, connections=1) as client:
        remarks = client.create_model("m", "t", target="y", features="age, plan")
        assert remarks[0].message == (
            "model 'm' (exact) predicts the probability that y is true, because that is a boolean"
        )
        warnings = [str(remark) for remark in remarks if remark.warning]
        assert "feature 'plan' is missing in all 50 rows looked at. It is learned once it is there" in warnings[0]
        assert "begins to learn when 100 rows with a target are there; now there are 50" in warnings[1]
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == warnings
        assert len(caplog.records) == len(remarks)
        caplog.clear()
        assert client.receipt("m", 7) is None
        assert "there is no receipt of '7' for model 'm'. The key is id." in caplog.records[0].getMessage()
        (changed,) = client.alter_model("m", calibration_rows=20)
        assert changed.message.startswith("model 'm' is changed: calibration_rows=20")
        assert len(caplog.records) == 2  # the connection is listened to no more than once
    world.work()
    assert world.one("select status, rows_learned from mempair.model_status") == ("ready", 50)


async def ask(dsn: str) -> list[str]:
    async with AsyncClient(dsn) as client:
        remarks = await client.create_model("m", "t", target="y", features="age")
        await client.alter_model("m", ridge=3)
        with pytest.raises(
            errors.InvalidParameter, match=r"alter_model has no parameter 'rigde'. Did you mean 'ridge'"
        ):
            await client.alter_model("m", rigde=3)
        return [str(remark) for remark in remarks]


def test_an_async_client_returns_them_too(world: World) -> None:
    world("create table t (id integer primary key, age float8, y boolean)")
    assert any("public.t has no row with a target yet" in said for said in asyncio.run(ask(world.dsn)))
    assert world.one("select ridge from mempair.model") == 3
