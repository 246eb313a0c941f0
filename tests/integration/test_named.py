"""Rows that were only named when they came: whatever happens before they are read, what is learned is the table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from mempair_db.database import learned, models
from mempair_db.database.connect import connect
from mempair_db.pair.fingerprint import fingerprints
from mempair_db.verify.snapshot import read_queue
from mempair_db.worker import batch, named, reference
from mempair_db.worker import changes as queue
from tests.world import EVERY_ROW, World

TABLE = "create table {kind} t (id {key} primary key, a float8, b text, y boolean) {partitions}"
MODEL = "select mempair.create_model('m', 't', target => 'y', features => '{a,b}')"


class Learner:
    """A worker that keeps the keys it has learned, and nothing else; it reads and nets as the worker does."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.retrains: list[str] = []
        self.gone: list[str] = []

    def work(self) -> bool:
        """Apply one batch; False if nothing waits."""
        with self.connection.transaction():
            model = models.lease(self.connection, 1)
            assert model is not None
            changes = queue.read(self.connection, model)
            if not len(changes):
                return False
            prints, plan = batch.net(self.connection, model, changes)
            if plan.waiting:
                changes = queue.read(self.connection, model, batches=queue.FAR)
                prints, plan = batch.net(self.connection, model, changes)
            if plan.waiting or plan.mismatch:
                self.retrains.append(plan.mismatch or "waits")
                self.read_anew(model)
                return True
            self.gone += [changes.keys[i] for i in plan.gone]
            learned.forget(self.connection, 1, [changes.keys[i] for i in plan.unlearn])
            new = [changes.keys[i] for i in plan.learn]
            learned.enter(self.connection, learned.pack(1, new, prints[list(plan.learn)]))
            batch.empty_queue(self.connection, model, changes)
        return True

    def read_anew(self, model: models.Model) -> None:
        rows = reference.read(self.connection, model, *EVERY_ROW)
        learned.forget_all(self.connection, 1)
        learned.enter(self.connection, learned.pack(1, rows.keys, fingerprints(model.secret, rows.x, rows.y, rows.c)))
        self.connection.execute(model.statement("empty_queue"))

    def check(self, *, waits: bool = False) -> None:
        """Compare what is learned with the table; or, where changes wait, what it will be once they are applied."""
        with self.connection.transaction():
            model = models.look(self.connection, 1)
            assert model is not None
            rows = reference.read(self.connection, model, *EVERY_ROW)
            marks = fingerprints(model.secret, rows.x, rows.y, rows.c).tolist()
            known = self.connection.execute("select row_key, fingerprint from mempair.learned").fetchall()
            if waits:
                waiting = read_queue(self.connection, model)
                assert waiting.plan.mismatch is None
                keys, prints = waiting.changes.keys, waiting.prints.tolist()
                for i in waiting.plan.unlearn:
                    known.remove((keys[i], prints[i]))
                known += [(keys[i], prints[i]) for i in waiting.plan.learn]
        assert sorted(known) == sorted(zip(rows.keys, marks, strict=True))


@pytest.fixture
def sql(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def learner(database: str) -> Iterator[Learner]:
    with connect(database) as connection:
        batch.prepare(connection)
        yield Learner(connection)


def create(sql: psycopg.Connection[Any], key: str = "integer", kind: str = "", partitions: str = "") -> None:
    sql.execute(TABLE.format(key=key, kind=kind, partitions=partitions).replace("create table  t", "create table t"))
    if partitions:
        sql.execute("create table low partition of t for values from (minvalue) to (4)")
        sql.execute("create table high partition of t for values from (4) to (maxvalue)")
    sql.execute(MODEL)


def statement(chance: random.Random) -> str:
    """Something that happens to a few rows."""
    key, other, value = chance.randint(1, 8), chance.randint(1, 8), chance.randint(0, 3)
    row = f"({key}, {value}, 'b{value}', {chance.choice(['true', 'false', 'true', 'null'])})"
    return chance.choice(
        [
            f"insert into t values {row} on conflict (id) do nothing",
            f"insert into t values {row} on conflict (id) do update set a = excluded.a, y = excluded.y",
            f"insert into t select i, {value}, 'b', true from generate_series(1, 8) i on conflict do nothing",
            f"update t set a = {value} where id = {key}",
            f"update t set a = a + 1, b = 'c' where id >= {key}",
            f"update t set y = null where id = {key}",
            f"update t set id = {other} where id = {key} and not exists (select from t where id = {other})",
            f"delete from t where id = {key}",
            f"delete from t where id > {key}",
            f"with gone as (delete from t where id = {key} returning *)"
            f" insert into t select id + 100, a, b, y from gone where id < 100 on conflict do nothing",
            f"delete from t where id = {key}; insert into t values {row} on conflict do nothing",
        ]
    )


@pytest.mark.parametrize("partitions", ["", "partition by range (id)"])
@pytest.mark.parametrize("seed", range(6))
def test_any_history_read_in_batches_of_any_size_ends_with_the_rows_that_are_there(
    sql: psycopg.Connection[Any], learner: Learner, monkeypatch: pytest.MonkeyPatch, seed: int, partitions: str
) -> None:
    create(sql, partitions=partitions)
    chance = random.Random(seed)
    for _ in range(25):
        for _ in range(chance.randint(0, 12)):
            with sql.transaction():
                for _ in range(chance.choice([1, 1, 1, 3])):
                    sql.execute(statement(chance))
        learner.check(waits=True)
        monkeypatch.setattr(queue, "BATCH_ROWS", chance.choice([1, 1, 2, 5, 1000]))
        for _ in range(chance.randint(0, 6)):
            learner.work()
    while learner.work():
        pass
    learner.check()
    assert learner.retrains == []
    for key in set(learner.gone):  # nobody is called gone who was there all the time
        assert sql.execute("select coalesce(bool_or(id::text = %s), false) from t", [key]).fetchone() is not None


TRIGGERS = """
create function correct() returns trigger language plpgsql as
$$ begin update t set a = a + 1 where id = new.id and a < 1; return null; end $$;
create trigger a_correct after insert or update on t for each row execute function correct();
create function clean() returns trigger language plpgsql as
$$ begin if exists (select from t where a >= 3) then delete from t where a >= 3; end if; return null; end $$;
create trigger a_clean after insert or update on t for each statement execute function clean();
create function again() returns trigger language plpgsql as
$$ begin if exists (select from gone where a = 1) then
   insert into t select id, 2, 'again', true from gone where a = 1 on conflict do nothing; end if; return null; end $$;
create trigger a_again after delete on t referencing old table as gone for each statement execute function again();
"""


@pytest.mark.parametrize("seed", range(4))
def test_triggers_of_the_user_that_run_before_ours_leave_what_is_learned_equal_to_the_table(
    sql: psycopg.Connection[Any], learner: Learner, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    create(sql)
    sql.execute(TRIGGERS)
    chance = random.Random(seed)
    for _ in range(20):
        for _ in range(chance.randint(0, 8)):
            sql.execute(statement(chance))
        monkeypatch.setattr(queue, "BATCH_ROWS", chance.choice([1, 2, 5, 1000]))
        for _ in range(chance.randint(0, 4)):
            learner.work()
    monkeypatch.setattr(queue, "BATCH_ROWS", 1000)
    while learner.work():
        pass
    learner.check()


KEYS = {
    "bigint": "i",
    "uuid": "md5(i::text)::uuid",
    "date": "date '2000-01-01' + i",
    "timestamptz": "timestamptz '2000-01-01 UTC' + i * interval '1 hour'",
    "numeric": "i",
    "text": "'key ' || i",
    "char(9)": "'k ' || i",
    "name": "('k' || i)::name",
    "bytea": "int4send(i)",
    "oid": "i::oid",
    "time": "time '00:00' + i * interval '1.5 s'",
    "inet": "'10.0.0.0/8'::inet + i",
    "cidr": "set_masklen('10.0.0.0'::inet + i, 32)::cidr",
    "macaddr": "lpad(to_hex(i), 12, '0')::macaddr",
}


@pytest.mark.parametrize("key", KEYS)
def test_many_rows_are_found_whatever_their_keys_are_and_wherever_they_lie(
    sql: psycopg.Connection[Any], learner: Learner, key: str
) -> None:
    create(sql, key)
    load = (
        f"insert into t select {KEYS[key]}, i %% 50, 'b' || i %% 3, i %% 2 = 0 from generate_series(%s::int, %s::int) i"
    )
    sql.execute(load, [1, 3000])
    is_named = key in ("bigint", "uuid", "date", "timestamptz")
    assert sql.execute("select bool_and(x is null and y is null) from mempair.change_1_a").fetchone() == (is_named,)
    learner.work()
    learner.check()
    sql.execute(f"delete from t where id in (select {KEYS[key]} from generate_series(1, 3000, 3) i)")
    learner.work()
    sql.execute("vacuum t")  # the next ones lie in the gaps, and behind the others
    sql.execute(load, [3001, 9000])
    sql.execute(f"update t set a = -a where id in (select {KEYS[key]} from generate_series(3000, 9000, 7) i)")
    sql.execute(f"delete from t where id in (select {KEYS[key]} from generate_series(3005, 9000, 50) i)")
    learner.check(waits=True)
    while learner.work():
        pass
    learner.check()
    assert learner.retrains == []


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_any_type_is_found_through_the_index_of_the_table(sql: psycopg.Connection[Any], key: str) -> None:
    create(sql, key)
    sql.execute(f"insert into t select {KEYS[key]}, i, 'b', true from generate_series(1, 3000) i")
    sql.execute("analyze t")
    scans = "select seq_scan, idx_scan from pg_stat_xact_user_tables where relname = 't'"
    with sql.transaction():
        wanted = [key for (key,) in sql.execute("select row_key from mempair.source_1 limit 3")]
        ((seq_scans, index_scans),) = sql.execute(scans).fetchall()
        found = sql.execute("select row_key from mempair.find_1(%s)", [wanted]).fetchall()
        assert sql.execute(scans).fetchall() == [(seq_scans, index_scans + 3)]
    assert sorted(found) == sorted((key,) for key in wanted)


def test_rows_that_lie_side_by_side_are_read_block_by_block(
    sql: psycopg.Connection[Any], learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(sql)
    monkeypatch.setattr(named, "_find_each", None)  # nothing is looked for by its key
    sql.execute("insert into t select i, i, 'b', true from generate_series(1, 20000) i")
    learner.work()
    learner.check()


def test_the_queue_shows_nothing_of_a_row_that_came(sql: psycopg.Connection[Any]) -> None:
    create(sql)
    sql.execute("insert into t values (1, 41.5, 'secret', true)")
    sql.execute("insert into t select i, 41.5, 'secret', true from generate_series(2, 5000) i")
    shown = "select count(*) from mempair.change_1_a q where q::text ~ '41[.]5|secret'"
    assert sql.execute(shown).fetchone() == (0,)
    sql.execute("delete from t where id = 1")
    assert sql.execute(shown).fetchone() == (1,)


def test_a_value_that_changed_without_capture_is_never_taken_for_the_learned_one(
    sql: psycopg.Connection[Any], learner: Learner
) -> None:
    create(sql)
    sql.execute("insert into t select i, i, 'b', true from generate_series(1, 9) i")
    learner.work()
    sql.execute(
        "alter table t disable trigger user; update t set a = 77 where id = 5; alter table t enable trigger user"
    )
    sql.execute("insert into mempair.change_1_a (op, rows, keys) values (1, 1, '{5}')")
    learner.work()
    assert learner.retrains == ["a row is not there as it was learned, though its deletion was never captured"]
    learner.check()


def test_rows_that_share_a_key_are_all_learned_by_a_retrain(sql: psycopg.Connection[Any], learner: Learner) -> None:
    create(sql)
    sql.execute("alter table t drop constraint t_pkey")
    sql.execute("insert into t select 1 + i % 2, i, 'b', true from generate_series(1, 4) i")
    learner.work()
    assert len(learner.retrains) == 1
    learner.check()


def test_a_model_that_learns_by_name_is_the_one_that_its_table_gives(shop: World) -> None:
    shop("select mempair.drop_model('churn')")
    shop("select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'])")
    shop.fill(1, 6000)
    shop.work()
    shop.fill(6001, 9000)
    shop("update shop set age = age + 1 where id % 10 = 0", "delete from shop where id % 77 = 0")
    shop("update shop set spend = 3 where id % 100 = 0")
    assert [fine for _, fine, _ in shop.execute("select * from mempair.verify_model('churn')")].count(False) == 0
    shop.work()
    assert [fine for _, fine, _ in shop.execute("select * from mempair.verify_model('churn')")].count(False) == 0
    assert np.array_equal(sorted(shop.learned()), sorted(shop.rows()))


def test_where_sql_cannot_tell_which_version_was_learned_it_says_so(shop: World) -> None:
    shop("select mempair.drop_model('churn')")
    shop("select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan', 'spend'])")
    shop.fill(1, 600)
    shop.work()
    shop(
        "create function clean() returns trigger language plpgsql as"
        " $$ begin if pg_trigger_depth() = 1 then delete from shop where age > 900; end if; return null; end $$"
    )
    shop("create trigger a after update on shop for each statement execute function clean()")
    # What was put in its place is captured as gone before what was learned.
    shop("update shop set age = 999 where id = 7")
    sums = "select fine, detail from mempair.verify_model('churn') where \"check\" = 'sums'"
    assert shop.one(sums) == (
        None,
        "a row that changed several times waits in the queue: verify again once a worker has applied it",
    )
    with connect(shop.dsn) as connection:
        batch.prepare(connection)
        with connection.transaction():
            model = models.look(connection, shop.one("select id from mempair.model"))
            assert model is not None
            waiting = read_queue(connection, model)
            assert [waiting.changes.keys[i] for i in waiting.plan.gone] == ["7"]
    shop.work()
    assert shop.one(sums)[0] is True


@pytest.mark.parametrize("refused", [0, 1], ids=["all can be learned", "one cannot"])
def test_sums_that_are_added_up_while_rows_are_read_are_those_of_the_rows(
    shop: World, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    shop("select mempair.drop_model('churn')")
    shop(
        "select mempair.create_model('churn', 'shop', target => 'churned', features => '{age,plan,spend}',"
        " on_null => 'skip')"
    )
    shop.fill(1, 6005)
    shop.work()
    shop.fill(6006, 11000)  # the first of them lie in a block with others
    shop("update shop set age = null where id = 11000") if refused else None
    monkeypatch.setattr(named, "PIECE", 700)
    with connect(shop.dsn) as connection:
        batch.prepare(connection)
        with connection.transaction():
            model = models.lease(connection, shop.one("select id from mempair.model"))
            assert model is not None
            changes = queue.read(connection, model)
            expected = model.exact.sums_of(changes.x, changes.y, changes.c)
    assert len(changes) == 4995 + 2 * refused
    assert (changes.sums is None) == bool(refused)
    if changes.sums is not None:
        assert changes.sums.to_bytes() == expected.to_bytes()
    shop.work()
    assert [fine for _, fine, _ in shop.execute("select * from mempair.verify_model('churn')")].count(False) == 0
