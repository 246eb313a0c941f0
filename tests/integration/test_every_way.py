"""Every way a row can come or go: afterwards the model has learned exactly the rows of the table."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from mempair_db.worker.loop import Worker
from tests.world import World

FEATURES = "target => 'y', features => array['x'], lambda => 0.1, gamma => 0.5, calibration_rows => 100"
FILL = "insert into {} (id, x, y) select i, i % 17, i * 7919 % 17 < 8 from generate_series({}, {}) i"


class Desk(World):
    """Tables of any kind, and a model on one of them."""

    def model(self, table: str, name: str = "m", options: str = "") -> None:
        self(f"select mempair.create_model('{name}', '{table}', {FEATURES}{options})")

    def insert(self, table: str, first: int, last: int) -> None:
        self(FILL.format(table, first, last))

    def keys(self, table: str, key: str = "id::text") -> set[str]:
        return {found for (found,) in self.sql.execute(f"select {key} from {table} where y is not null")}

    def check(self, table: str = "t") -> None:
        """Compare; the sets, not the numbers, so that nothing can make up for anything else."""
        self.work()
        assert self.learned("m") == self.keys(table)
        assert self.sql.execute("select * from mempair.reconcile('m')").fetchall() == []


@pytest.fixture
def desk(world: World) -> Desk:
    return Desk(world.dsn, world.sql)


@pytest.fixture
def table(desk: Desk) -> Desk:
    """Table t with 300 learned rows."""
    desk("create table t (id integer primary key, x float8, y boolean, note text)")
    desk.model("t")
    desk.insert("t", 1, 300)
    desk.check()
    return desk


WAYS = {
    "one row": ["insert into t values (1001, 1, true)"],
    "many rows": ["insert into t values (1001, 1, true), (1002, 2, false), (1003, 3, true)"],
    "insert select": ["insert into t (id, x, y) select id + 1000, x, y from t"],
    "upsert do update": [
        "insert into t values (1, 9, true), (1001, 1, true) on conflict (id) do update set x = excluded.x"
    ],
    "upsert do nothing": ["insert into t values (1, 9, true), (1001, 1, true) on conflict do nothing"],
    "merge": [
        "merge into t using (values (1, 5.0), (2, 6.0), (1001, 7.0)) v(id, x) on t.id = v.id"
        " when matched and v.id = 1 then delete when matched then update set x = v.x"
        " when not matched then insert values (v.id, v.x, true)"
    ],
    "cte": [
        "with gone as (delete from t where id <= 5 returning *)"
        " insert into t (id, x, y) select id + 1000, x, y from gone"
    ],
    "update of a feature": ["update t set x = x + 1 where id <= 5"],
    "update of the key": ["update t set id = id + 5000 where id <= 5"],
    "keys that move up": ["update t set id = -id", "update t set id = 1 - id"],
    "update of something else": ["update t set note = 'x'"],
    "update of nothing": ["update t set x = x"],
    "label taken and given": ["update t set y = null where id <= 5", "update t set y = true where id <= 3"],
    "delete": ["delete from t where id <= 5"],
    "delete and insert again": ["delete from t where id <= 5", "insert into t values (1, 1, true), (2, 2, true)"],
    "insert, update, delete at once": [
        "insert into t values (1001, 1, true)",
        "update t set x = 3 where id = 1001",
        "delete from t where id = 1001",
    ],
    "rollback": ["begin", "delete from t where id <= 5", "insert into t values (1001, 1, true)", "rollback"],
    "savepoints": [
        "begin",
        "insert into t values (1001, 1, true)",
        "savepoint s",
        "delete from t",
        "rollback to s",
        "delete from t where id = 1",
        "commit",
    ],
    "truncate": ["truncate t", FILL.format("t", 1, 150)],
    "truncate rolled back": ["begin", "truncate t", "rollback"],
    "unlabelled": ["insert into t values (1001, 1, null)", "insert into t values (1002, null, true)"],
}


SILENT = {"update of something else", "update of nothing", "rollback", "truncate rolled back"}


@pytest.mark.parametrize("way", WAYS)
def test_the_model_has_learned_the_rows_of_the_table_after(table: Desk, way: str) -> None:
    if way == "merge" and table.sql.info.server_version < 150000:
        pytest.skip("MERGE came with version 15")
    table(*WAYS[way])
    (events,) = table.sql.execute("select pending_changes from mempair.model_status").fetchone() or (None,)
    assert (events == 0) == (way in SILENT)
    table.check()


def test_copy(table: Desk) -> None:
    with table.sql.cursor() as cursor, cursor.copy("copy t (id, x, y) from stdin") as copy:
        for i in range(1001, 1101):
            copy.write_row((i, i % 7, i % 2 == 0))
    table.check()


def test_a_cascade_from_a_parent_and_a_truncate_cascade(desk: Desk) -> None:
    desk("create table parent (id integer primary key)", "insert into parent select generate_series(1, 300)")
    desk("create table t (id integer primary key references parent on delete cascade, x float8, y boolean)")
    desk.model("t")
    desk.insert("t", 1, 300)
    desk.check()
    desk("delete from parent where id <= 7")
    desk.check()
    desk("truncate parent cascade")
    desk.check()


def test_constraints_that_are_checked_at_commit(desk: Desk) -> None:
    desk("create table other (id integer primary key, t integer)")
    desk("create table t (id integer primary key, x float8, y boolean)")
    desk("alter table other add foreign key (t) references t deferrable initially deferred")
    desk.model("t")
    desk("begin", "insert into other values (1, 7)")
    desk.insert("t", 1, 300)
    desk("commit")
    desk.check()
    desk("begin", "delete from t where id = 7")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        desk("commit")
    desk.check()


def test_a_key_that_two_rows_may_share_for_a_while_is_refused(desk: Desk) -> None:
    desk("create table t (id integer primary key deferrable initially deferred, x float8, y boolean)")
    with pytest.raises(psycopg.errors.DatabaseError, match="primary key") as error:
        desk.model("t")
    assert error.value.sqlstate == "MP002"


@pytest.fixture
def parts(desk: Desk) -> Desk:
    """Table t in two partitions."""
    desk(
        "create table t (id integer primary key, x float8, y boolean) partition by range (id)",
        "create table low partition of t for values from (0) to (1000)",
        "create table high partition of t for values from (1000) to (2000)",
    )
    desk.model("t")
    desk.insert("t", 1, 200)
    desk.insert("t", 1001, 1200)
    desk.check()
    return desk


PARTITION_WAYS = {
    "through the parent": ["insert into t values (500, 1, true)", "delete from t where id = 1001"],
    "into a leaf": ["insert into low values (500, 1, true)", "delete from high where id <= 1005"],
    "row movement": ["update t set id = id + 1000 where id between 300 and 1", "update t set id = 1500 where id = 5"],
    "truncate of a leaf": ["truncate high"],
    "truncate of the table": ["truncate t", FILL.format("t", 1, 150)],
}


@pytest.mark.parametrize("way", PARTITION_WAYS)
def test_partitions(parts: Desk, way: str) -> None:
    parts(*PARTITION_WAYS[way])
    parts.check()


def reconciled(desk: Desk) -> list[str]:
    """Repair, let the worker do what follows, and see that nothing is left to repair."""
    found = [finding for (finding, *_) in desk.sql.execute("select * from mempair.reconcile('m', repair => true)")]
    desk.check()
    return found


def test_a_partition_attached_later_is_found_and_captured_from_then_on(parts: Desk) -> None:
    parts("create table more (id integer not null, x float8, y boolean)", FILL.format("more", 2001, 2050))
    parts("alter table t attach partition more for values from (2000) to (3000)")
    parts("insert into t values (2500, 1, true)")  # statements on the table are captured all the same
    parts.work()
    assert "2500" in parts.learned()
    assert reconciled(parts) == []  # the worker has noticed it, and read the table anew
    parts("insert into more values (2600, 1, true)", "delete from more where id = 2001")
    parts.check()


@pytest.mark.parametrize("how", ["alter table t detach partition high", "drop table high"])
def test_a_partition_that_goes_is_noticed_and_forgotten_by_a_retrain(parts: Desk, how: str) -> None:
    parts(how)
    assert reconciled(parts) == ["deletions that were never captured"]
    assert parts.sql.execute("select epoch from mempair.model").fetchone() == (2,)


def test_writes_of_a_replica_are_found(table: Desk, superuser: Callable[[str], str]) -> None:
    with psycopg.connect(superuser(table.dsn), autocommit=True) as replica:
        replica.execute("set session_replication_role = replica")
        replica.execute("insert into t values (1001, 1, true)")
        replica.execute("delete from t where id = 7")
    table.work()
    assert table.learned() != table.keys("t")
    assert reconciled(table) == ["rows that were never captured", "deletions that were never captured"]


def test_disabled_triggers_are_found_and_enabled(table: Desk) -> None:
    table("alter table t disable trigger user", "insert into t values (1001, 1, true)")
    assert reconciled(table) == ["rows that were never captured", "triggers missing or disabled"]
    table("delete from t where id = 1001")
    table.check()


def test_reconcile_without_repair_changes_nothing(table: Desk) -> None:
    table("alter table t disable trigger user", "delete from t where id = 7")
    first = table.sql.execute("select * from mempair.reconcile('m')").fetchall()
    assert first == table.sql.execute("select * from mempair.reconcile('m')").fetchall()
    table.work()
    assert "7" in table.learned()


QUOTED = "'it''s \"' || i"


@pytest.mark.parametrize(
    ("columns", "inserted", "values", "key"),
    [
        ("a integer, b text, primary key (a, b)", "a, b", f"i, {QUOTED}", "jsonb_build_array(a::text, b)::text"),
        ("a text primary key", "a", QUOTED, "a"),
        ("a uuid primary key", "a", "gen_random_uuid()", "a::text"),
        ("a integer generated always as identity primary key, b integer", "b", "i", "a::text"),
        ("a integer primary key, b float8 generated always as (x * 2) stored", "a", "i", "a::text"),
    ],
    ids=["composite", "text with quotes", "uuid", "identity", "generated column"],
)
def test_keys_of_every_kind(desk: Desk, columns: str, inserted: str, values: str, key: str) -> None:
    desk(f"create table t ({columns}, x float8, y boolean)")
    desk.model("t")
    desk(f"insert into t ({inserted}, x, y) select {values}, i % 17, i % 3 = 0 from generate_series(1, 300) i")
    desk.work()
    assert desk.learned() == desk.keys("t", key)
    desk("delete from t where x = 3", "update t set x = x + 1 where x = 5")
    desk.work()
    assert desk.learned() == desk.keys("t", key)


def test_a_table_whose_rows_are_guarded_by_policies(desk: Desk, superuser: Callable[[str], str]) -> None:
    desk("create table t (id integer primary key, x float8, y boolean)")
    desk.model("t")
    desk("alter table t enable row level security", "create policy half on t using (id % 2 = 0) with check (true)")
    with psycopg.connect(superuser(desk.dsn), autocommit=True) as admin:
        admin.execute("create role clerk_of_policies login password 'x'")
        try:
            admin.execute("grant select, insert, delete on t to clerk_of_policies")
            with psycopg.connect(desk.dsn, user="clerk_of_policies", password="x", autocommit=True) as clerk:
                clerk.execute(FILL.format("t", 1, 300))
                clerk.execute("delete from t")  # only the rows the policy shows
            desk.check()
            assert len(desk.keys("t")) == 150
        finally:
            admin.execute("drop owned by clerk_of_policies")
            admin.execute("drop role clerk_of_policies")


def test_renames_under_load_lose_nothing(table: Desk) -> None:
    failures: list[BaseException] = []

    def write(first: int) -> None:
        try:
            with psycopg.connect(table.dsn, autocommit=True) as connection:
                for i in range(first, first + 60):
                    for name in ("t", "u"):  # whatever it is called now
                        try:
                            connection.execute(f"insert into {name} values ({i}, 1, true)")
                            break
                        except psycopg.errors.UndefinedTable:
                            continue
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(1000 * n,)) for n in range(1, 5)]
    for writer in writers:
        writer.start()
    for _ in range(5):
        table(
            "alter table t rename to u",
            "alter table u rename x to xx",
            "alter table u rename xx to x",
            "alter table u rename to t",
        )
    for writer in writers:
        writer.join()
    assert failures == []
    table.check()


def test_a_dropped_table_counts_as_erased_and_predictions_stop(table: Desk) -> None:
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        table("drop table t")
    table("drop table t cascade")
    Worker(table.dsn).run_once()
    status, reason = table.sql.execute("select status, reason from mempair.model_status").fetchone() or ("", "")
    assert status == "failed"
    assert "dropped" in reason
    assert table.sql.execute("select from mempair.learned").rowcount == 0
    with pytest.raises(psycopg.errors.DatabaseError) as error:
        table("select mempair_predict('m', array[1.0])")
    assert error.value.sqlstate == "MP102"
    assert table.sql.execute("select * from mempair.verify_odometer('m')").fetchall() == []
    assert table.sql.execute("select rows from mempair.ledger where detail = 'the table was dropped'").fetchone() == (
        300,
    )
    table("select mempair.drop_model('m')")


def test_backfill_while_others_write_loses_and_doubles_nothing(desk: Desk) -> None:
    desk("create table t (id integer primary key, x float8, y boolean)")
    desk.insert("t", 1, 20_000)
    desk.model("t", options=", backfill => false")
    desk.work()
    assert desk.learned() == set()
    stop = threading.Event()

    def disturb() -> None:
        with psycopg.connect(desk.dsn, autocommit=True) as connection:
            i = 0
            while not stop.is_set():
                i += 1
                connection.execute(f"delete from t where id = {i * 37 % 20_000 + 1}")
                connection.execute(f"update t set x = x + 1 where id = {i * 91 % 20_000 + 1}")
                connection.execute(f"insert into t values ({100_000 + i}, 1, true)")

    def learn() -> None:
        while not stop.is_set():
            Worker(desk.dsn).run_once()

    others = [threading.Thread(target=disturb), threading.Thread(target=learn)]
    for other in others:
        other.start()
    try:
        blocks = (desk.sql.execute("select pg_relation_size('t') / 8192").fetchone() or (0,))[0]
        for first in range(0, blocks, 10):
            desk(f"select mempair.backfill_blocks('m', 't', {first}, 10)")
    finally:
        stop.set()
        for other in others:
            other.join()
    desk.check()


def test_a_long_queue_is_counted_exactly(table: Desk) -> None:
    table.insert("t", 1001, 251_000)
    table("delete from t where id <= 20")
    changes, deletions = table.sql.execute(
        "select pending_changes, pending_deletions from mempair.model_status"
    ).fetchone() or (0, 0)
    assert (changes, deletions) == (250_020, 20)


def test_sixteen_clients_on_the_same_rows_some_of_them_slow_to_commit(table: Desk) -> None:
    stop = threading.Event()

    def write(client: int) -> None:
        with psycopg.connect(table.dsn) as connection:
            for i in range(20):
                key = 1001 + (client * 7 + i * 3) % 25  # the clients share the keys
                if (client + i) % 3:
                    connection.execute(
                        f"insert into t values ({key}, {i}, true) on conflict (id) do update set x = {i}"
                    )
                else:
                    connection.execute(f"delete from t where id = {key}")
                if client % 4 == 0:  # its numbers are taken now and committed late
                    connection.execute("select pg_sleep(0.02)")
                connection.commit()

    def learn() -> None:
        while not stop.is_set():
            Worker(table.dsn).run_once()

    worker = threading.Thread(target=learn)
    clients = [threading.Thread(target=write, args=(client,)) for client in range(16)]
    worker.start()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    stop.set()
    worker.join()
    table.check()
