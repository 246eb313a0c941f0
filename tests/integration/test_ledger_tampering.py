"""Somebody with every right changes the ledger: what the chain finds, and what only signed checkpoints find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest
from psycopg import sql

from mempair_db import errors
from mempair_db.ledger import checkpoints, keys, merkle, notes, verify
from mempair_db.ledger.entry import GENESIS, Entry, chain
from mempair_db.ledger.notes import Checkpoint
from tests.world import SHOP, World, fresh_database, opened

KEY = keys.SigningKey.new("db.example.org")

CHURN_AND_TWIN = """
select mempair.create_model('churn', 'shop', target => 'churned', features => array['age', 'plan'],
                            lambda => 0.01, calibration_rows => 200, gamma => 100);
select mempair.create_model('twin', 'shop', target => 'churned', features => array['age'],
                            lambda => 0.01, calibration_rows => 200, gamma => 100);
"""


class Scene(World):
    """A model with a ledger, a checkpoint of it from before the last deletion, and rights to change anything."""

    early: Checkpoint

    def python(self, *signed: Checkpoint) -> verify.Verdict:
        ((number, _, counters),) = verify.find(self.sql, "churn")
        return verify.verify_rows(verify.ledger_rows(self.sql, number), counters=counters, checkpoints=signed)

    def postgres(self) -> tuple[int, str] | None:
        return self.sql.execute("select seq, problem from mempair.verify_odometer('churn')").fetchone()

    def entries(self) -> list[Entry]:
        return [Entry(*row[:12]) for row in verify.ledger_rows(self.sql, 1)]

    def rewrite(self, entries: list[Entry]) -> None:
        """Write the whole chain again with good hashes, and make the state agree with its head."""
        self.sql.execute("delete from mempair.ledger where model_id = 1")
        head = GENESIS
        for entry in entries:
            prev, body = head, entry.body()
            head = chain(prev, body)
            self.sql.execute(
                "insert into mempair.ledger values (%s, %s, 'epoch'::timestamptz + %s * interval '1 microsecond', "
                + ", ".join(["%s"] * 12)
                + ")",
                [*entry, body, prev, head],
            )
        self.sql.execute(
            "update mempair.state set ledger_seq = %s, ledger_hash = %s where model_id = 1", [len(entries), head]
        )


@pytest.fixture(scope="module")
def built(server_dsn: str, template_database: str, superuser: Callable[[str], str]) -> Iterator[tuple[str, Checkpoint]]:
    with fresh_database(server_dsn, template_database) as dsn, opened(dsn) as world:
        world(SHOP, CHURN_AND_TWIN)
        world.fill(1, 2000)
        world.work()
        world("delete from shop where id <= 3")
        world.work()
        with psycopg.connect(dsn) as reader:
            early = Checkpoint.open(checkpoints.make(reader, "churn", KEY), [KEY.public])
        world("create table old_ledger as select * from mempair.ledger where model_id = 1")
        world("create table old_state as select * from mempair.state where model_id = 1")
        world("delete from shop where id = 4")
        world.work()
        yield superuser(dsn), early


@pytest.fixture
def scene(built: tuple[str, Checkpoint]) -> Iterator[Scene]:
    dsn, early = built
    with psycopg.connect(dsn) as connection:
        connection.execute("alter table mempair.ledger disable trigger user")
        scene = Scene(dsn, connection)
        scene.early = early
        yield scene
        connection.rollback()


def edit_a_column(scene: Scene) -> None:
    scene.sql.execute("update mempair.ledger set at = at + interval '1 day' where model_id = 1 and seq = 3")


def edit_column_and_body(scene: Scene) -> None:
    edit_a_column(scene)
    scene.sql.execute("update mempair.ledger l set body = mempair.ledger_body(l) where model_id = 1 and seq = 3")


def edit_column_body_and_hash(scene: Scene) -> None:
    edit_column_and_body(scene)
    scene.sql.execute(
        "update mempair.ledger set hash = sha256('\\x02'::bytea || prev || body) where model_id = 1 and seq = 3"
    )


def remove_an_entry(scene: Scene) -> None:
    scene.sql.execute("delete from mempair.ledger where model_id = 1 and seq = 3")


def remove_and_renumber(scene: Scene) -> None:
    remove_an_entry(scene)
    scene.sql.execute("update mempair.ledger set seq = seq - 1 where model_id = 1 and seq > 3")


def insert_an_entry_at_the_end(scene: Scene) -> None:
    *_, (number, head) = scene.sql.execute(
        "select seq, hash from mempair.ledger where model_id = 1 order by seq"
    ).fetchall()
    entry = scene.entries()[-1]._replace(seq=number + 1)
    body = entry.body()
    scene.sql.execute(
        "insert into mempair.ledger select model_id, seq + 1, at, kind, epoch, clock, rows, rho, rho_spent, rho_cap,"
        " tag, detail, %s, %s, %s from mempair.ledger where model_id = 1 and seq = %s",
        [body, head, chain(head, body), number],
    )


def cut_the_tail(scene: Scene) -> None:
    scene.sql.execute("delete from mempair.ledger where model_id = 1 and seq > %s", [scene.early.size])


def swap_two_models(scene: Scene) -> None:
    scene.sql.execute("update mempair.ledger set model_id = model_id + 10 where seq = 1")
    scene.sql.execute("update mempair.ledger set model_id = 13 - model_id where seq = 1")


def swap_two_ledgers(scene: Scene) -> None:
    scene.sql.execute("update mempair.ledger set model_id = model_id + 10 ")
    scene.sql.execute("update mempair.ledger set model_id = 13 - model_id")


def begin_with_another_genesis(scene: Scene) -> None:
    scene.sql.execute("update mempair.ledger set prev = sha256('') where model_id = 1 and seq = 1")
    scene.sql.execute(
        "update mempair.ledger set hash = sha256('\\x02'::bytea || prev || body) where model_id = 1 and seq = 1"
    )


def spend_less_throughout(scene: Scene) -> None:
    """Good hashes, good sums, but the model's own counters know better."""
    entries, spent = [], 0
    for entry in scene.entries():
        rho = min(entry.rho, 1)
        spent = spent + rho if entry.kind != "calibrated" else 0
        entries.append(entry._replace(rho=rho, rho_spent=spent))
    scene.rewrite(entries)


def forget_a_total(scene: Scene) -> None:
    """Good hashes throughout, but one total is not the sum."""
    scene.rewrite([entry._replace(rho_spent=entry.rho) for entry in scene.entries()])


def claim_more_rows(scene: Scene) -> None:
    scene.rewrite([e._replace(rows=e.rows + 1) if e.kind == "learned" else e for e in scene.entries()])


def raise_the_cap(scene: Scene) -> None:
    scene.rewrite(
        [e._replace(rho_cap=e.rho_cap + 1) if e.rho_cap and e.kind == "unlearned" else e for e in scene.entries()]
    )


def go_back_an_epoch(scene: Scene) -> None:
    entries = scene.entries()
    scene.rewrite([*entries[:-1], entries[-1]._replace(epoch=0)])


CAUGHT_BY_THE_CHAIN: dict[Callable[[Scene], None], tuple[int | None, str]] = {
    edit_a_column: (3, "its body is not that of its columns"),
    edit_column_and_body: (3, "its hash is not that of its body"),
    edit_column_body_and_hash: (4, "it does not follow from the entry before"),
    remove_an_entry: (4, "entries are missing before this one"),
    remove_and_renumber: (3, "its body is not that of its columns"),
    insert_an_entry_at_the_end: (None, "it is not the last entry, as the model's state says it is"),
    cut_the_tail: (None, "it is not the last entry, as the model's state says it is"),
    swap_two_models: (1, "its body is not that of its columns"),
    swap_two_ledgers: (1, "its body is not that of its columns"),
    begin_with_another_genesis: (1, "it does not follow from the entry before"),
    spend_less_throughout: (None, "the model's counters are not the sums up to it"),
    forget_a_total: (None, "its running total is not the sum"),
    claim_more_rows: (None, "its clock is not the number of rows learned"),
    raise_the_cap: (None, "its cap is not that of its epoch"),
    go_back_an_epoch: (None, "its epoch is before that of the entry before"),
}


def test_an_untouched_ledger_is_good(scene: Scene) -> None:
    verdict = scene.python(scene.early)
    assert (verdict.problem, verdict.checkpoints) == (None, [scene.early.size])
    assert verdict.entries > scene.early.size
    assert scene.sql.execute("select * from mempair.verify_odometer()").fetchall() == []


@pytest.mark.parametrize("tamper", CAUGHT_BY_THE_CHAIN, ids=lambda tamper: tamper.__name__)
def test_the_chain_finds(scene: Scene, tamper: Callable[[Scene], None]) -> None:
    seq, problem = CAUGHT_BY_THE_CHAIN[tamper]
    tamper(scene)
    verdict = scene.python()
    assert verdict.problem == problem
    assert seq is None or verdict.seq == seq
    assert scene.postgres() == (verdict.seq, problem)


def rewrite_the_whole_chain(scene: Scene) -> None:
    """Move every entry a day back, with good hashes and a state that agrees."""
    scene.rewrite([entry._replace(at=microseconds(entry) - 86_400_000_000) for entry in scene.entries()])


def microseconds(entry: Entry) -> int:
    assert isinstance(entry.at, int)
    return entry.at


def restore_an_old_copy(scene: Scene) -> None:
    """Ledger and state as they were before the last deletion, as a backup would bring them back."""
    scene.sql.execute("delete from mempair.ledger where model_id = 1")
    scene.sql.execute("insert into mempair.ledger select * from old_ledger where seq < %s", [scene.early.size])
    scene.rewrite(scene.entries())
    scene.sql.execute(
        "update mempair.state s set (spent, deletions, clock, cap) ="
        " (select coalesce(max(l.rho_spent), 0), count(*) filter (where l.rho > 0),"
        "         sum(l.rows) filter (where l.kind = 'learned'), max(l.rho_cap)"
        "  from mempair.ledger l where l.model_id = 1) where s.model_id = 1"
    )


@pytest.mark.parametrize("tamper", [rewrite_the_whole_chain, restore_an_old_copy], ids=lambda tamper: tamper.__name__)
def test_only_a_checkpoint_finds(scene: Scene, tamper: Callable[[Scene], None]) -> None:
    tamper(scene)
    assert scene.python().problem is None
    assert scene.postgres() is None
    verdict = scene.python(scene.early)
    assert verdict.problem is not None
    assert "signed checkpoint" in verdict.problem
    assert verdict.seq == scene.early.size


def test_a_restored_copy_from_after_the_checkpoint_is_found_by_the_next_checkpoint_only(scene: Scene) -> None:
    """What no checkpoint has covered yet can be taken back: that is why they are made often."""
    late = Checkpoint.open(checkpoint_of(scene), [KEY.public])
    scene.sql.execute("delete from mempair.ledger where model_id = 1")
    scene.sql.execute("insert into mempair.ledger select * from old_ledger")
    scene.sql.execute(
        "update mempair.state s set (spent, deletions, ledger_seq, ledger_hash) ="
        " (select o.spent, o.deletions, o.ledger_seq, o.ledger_hash from old_state o) where s.model_id = 1"
    )
    assert scene.python(scene.early).problem is None
    assert scene.python(scene.early, late).problem == f"it is missing: a signed checkpoint has {late.size} entries"


def checkpoint_of(scene: Scene) -> str:
    verdict = scene.python()
    return notes.sign(Checkpoint(scene.early.origin, verdict.entries, verdict.root).text(), KEY)


def test_two_checkpoints_are_shown_to_be_consistent_without_the_ledger(scene: Scene) -> None:
    late = Checkpoint.open(checkpoint_of(scene), [KEY.public])
    leaves = [merkle.leaf_hash(entry.body()) for entry in scene.entries()]
    proof = merkle.consistency_proof(leaves, scene.early.size)
    assert checkpoints.extends(scene.early, late, proof)
    other = merkle.Tree([merkle.leaf_hash(b"other"), *leaves[1:]]).root()
    assert not checkpoints.extends(scene.early, Checkpoint(late.origin, late.size, other), proof)
    assert not checkpoints.extends(scene.early, Checkpoint("elsewhere", late.size, late.root), proof)


def test_no_checkpoint_is_signed_for_a_ledger_that_does_not_hold(built: tuple[str, Checkpoint]) -> None:
    dsn, early = built
    lying = Checkpoint(early.origin, early.size, bytes(32))
    with psycopg.connect(dsn) as connection, pytest.raises(errors.VerificationFailed, match="signed checkpoint"):
        checkpoints.make(connection, "churn", KEY, [lying])
    with psycopg.connect(dsn) as connection, pytest.raises(errors.VerificationFailed, match="not of"):
        checkpoints.make(connection, "twin", KEY, [early])


@pytest.mark.parametrize(
    "statement",
    ["update mempair.ledger set rho = 0", "delete from mempair.ledger", "truncate mempair.ledger"],
)
@pytest.mark.parametrize("role", ["origin", "replica"])
def test_even_the_owner_is_refused_until_he_disables_the_triggers(
    built: tuple[str, Checkpoint], statement: str, role: str
) -> None:
    with psycopg.connect(built[0]) as connection:
        connection.execute(sql.SQL("set session_replication_role = {}").format(role))
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(statement)
        assert refused.value.sqlstate == "MP105"


LEDGER = """
create table ledger (
    model_id integer, seq bigint, "at" timestamptz, kind text, epoch integer, clock bigint, "rows" bigint, rho bigint,
    rho_spent bigint, rho_cap bigint, tag blob, detail text, body blob, prev blob, hash blob)
"""


def parquet(scene: Scene, path: Path, tampering: str = "") -> Path:
    file = path / "ledger.parquet"
    columns = ", ".join(f'"{column}"' for column in verify.COLUMNS)
    found = scene.sql.execute(f"select {columns} from mempair.ledger l order by model_id, seq").fetchall()
    with duckdb.connect() as duck:
        duck.execute(LEDGER)
        duck.executemany(f"insert into ledger values ({', '.join(['?'] * 15)})", found)
        duck.execute("alter table ledger add column model text")
        duck.execute("update ledger set model = case model_id when 1 then 'churn' else 'twin' end")
        if tampering:
            duck.execute(tampering)
        duck.execute(f"copy ledger to '{file}' (format parquet)")
    return file


def test_an_exported_file_is_verified_without_the_database(scene: Scene, tmp_path: Path) -> None:
    file = parquet(scene, tmp_path)
    assert verify.parquet_models(file) == [(1, "churn"), (2, "twin")]
    verdicts = checkpoints.verify_file(file, [scene.early])
    assert [(name, verdict.problem) for _, name, verdict in verdicts] == [("churn", None), ("twin", None)]
    assert verdicts[0][2].checkpoints == [scene.early.size]
    assert verify.verify_parquet(file).problem == "it is of another model"


@pytest.mark.parametrize(
    ("tampering", "problem"),
    [
        ("update ledger set rho_spent = 0", "its body is not that of its columns"),
        ("delete from ledger where seq = 2", "entries are missing before this one"),
        ("update ledger set clock = null", "its body is not that of its columns"),
    ],
)
def test_a_changed_file_is_found_out(scene: Scene, tmp_path: Path, tampering: str, problem: str) -> None:
    verdict = verify.verify_parquet(parquet(scene, tmp_path, tampering), 1)
    assert verdict.problem == problem
    with pytest.raises(errors.VerificationFailed, match=f"entry {verdict.seq}"):
        verdict.require("churn")


def test_the_cut_tail_of_a_file_is_found_with_the_counters_or_a_checkpoint(scene: Scene, tmp_path: Path) -> None:
    ((_, _, counters),) = verify.find(scene.sql, "churn")
    file = parquet(scene, tmp_path, "delete from ledger where model_id = 1 and seq >= 4")
    assert verify.verify_parquet(file, 1).problem is None
    assert "not the last entry" in str(verify.verify_parquet(file, 1, counters=counters).problem)
    assert "is missing" in str(verify.verify_parquet(file, 1, checkpoints=[scene.early]).problem)


def test_a_state_that_was_attested_cannot_be_exchanged_unnoticed(scene: Scene) -> None:
    scene.sql.execute("select mempair.attest_state('churn')")
    assert scene.python().problem is None
    assert scene.postgres() is None
    for change in (
        "update mempair.state set anchor[1] = anchor[1] + 1e-12 where model_id = 1",
        "update mempair.state set theta = anchor || 0::float8 where model_id = 1",
        "insert into mempair.curvature values (1, 99, array[1], array[1])",
        "update mempair.state set attest_salt = sha256('') where model_id = 1",
        "update mempair.state set anchor[1] = 0, version = version + 1 where model_id = 1",
        "update mempair.published set weights = (select array_agg(-w) from unnest(weights) w) where model_id = 1",
    ):
        with scene.sql.transaction(force_rollback=True):
            scene.sql.execute(change)
            found = scene.postgres()
            assert found is not None
            assert found[1] == "the model's state is not the one that the ledger attests"


def test_two_commitments_to_the_same_state_look_unrelated(scene: Scene) -> None:
    for _ in range(2):
        scene.sql.execute("select mempair.attest_state('churn')")
    tags = scene.sql.execute("select distinct tag from mempair.ledger where kind = 'attested'").fetchall()
    assert len(tags) == 2
