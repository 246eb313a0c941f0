from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mempair_db.cli import app
from mempair_db.ledger import keys, notes
from mempair_db.measure import audit, capacity, claims, leave_one_out, regret, replay
from mempair_db.measure.attest import attest
from mempair_db.offline import stream
from mempair_db.offline.folder import read
from mempair_db.pair import bounds, events
from mempair_db.pair.comparators import best_static, row_losses
from mempair_db.pair.state import empty, to_bytes

TINY = audit.Effort(leave_out=8, samples=1_000, draws=2)


def verdicts(result: audit.Audit) -> dict[str, str]:
    return {claim.name: claim.verdict for claim in result.claims}


@pytest.fixture(scope="module")
def audited(story: Any) -> audit.Audit:
    return audit.audit(story, effort=TINY)


def test_every_claim_of_an_honest_model_holds(audited: audit.Audit) -> None:
    assert set(verdicts(audited).values()) == {"holds"}, audited.claims
    assert len(audited.claims) == 14


def test_figures_survive_json_and_give_a_digest(audited: audit.Audit) -> None:
    text = json.dumps(audited.to_json(), allow_nan=False)
    assert set(json.loads(text)["figures"]) == {
        *(
            "empirical",
            "replay",
            "constants",
            "predictions",
            "noise",
            "leave_one_out",
            "regret",
            "regret_with_deletions",
            "deletion_curve",
        ),
    }
    assert len(audited.digest()) == 64


def test_without_rows_only_what_needs_none_is_judged(shop: Any, tmp_path: Path) -> None:
    found = verdicts(audit.audit(shop.export(tmp_path / "e", rows=False), effort=TINY))
    assert found["ledger"] == found["budget"] == found["control"] == "holds"
    assert found["replay"] == found["stability"] == found["regret"] == found["capacity"] == "not measured"


def test_an_edited_ledger_fails_with_exit_code_5(shop: Any, tmp_path: Path) -> None:
    shop.delete(3)
    model = shop.export(tmp_path / "e", rows=False)
    ledger = pq.read_table(model.folder / "ledger.parquet")
    at = ledger["kind"].to_pylist().index("unlearned")
    rho = ledger["rho"].to_pylist()
    rho[at] -= 1
    edited = ledger.set_column(ledger.schema.get_field_index("rho"), "rho", pa.array(rho, pa.int64()))
    pq.write_table(edited, model.folder / "ledger.parquet")
    run = CliRunner().invoke(app, ["audit", "--from", str(model.folder), "--quick"])
    assert run.exit_code == 5
    assert "its body is not that of its columns" in " ".join(run.stdout.split())


@pytest.mark.parametrize(("term", "value"), [("epsilon", "0.5"), ("delta", "1e-9")])
def test_a_promise_that_was_made_stricter_afterwards_fails_with_exit_code_5(
    shop: Any, tmp_path: Path, term: str, value: str
) -> None:
    shop.delete(3)
    assert claims.budget(shop.export(tmp_path / "before", rows=False)).verdict == "holds"
    shop(f"update mempair.model set {term} = {value}, promise = jsonb_set(promise, '{{{term}}}', '{value}')")
    model = shop.export(tmp_path / "after", rows=False)
    run = CliRunner().invoke(app, ["audit", "--from", str(model.folder), "--quick"])
    assert run.exit_code == 5
    assert "the cap is not that of the promised" in " ".join(run.stdout.split())


def test_a_cut_tail_is_noticed(shop: Any, tmp_path: Path) -> None:
    model = shop.export(tmp_path / "e", rows=False)
    pq.write_table(model.ledger.slice(0, len(model.ledger) - 1), model.folder / "ledger.parquet")
    assert verdicts(audit.audit(read(model.folder), effort=TINY))["ledger"] == "fails"


def test_waiting_deletions_and_an_unpurged_queue_are_open(shop: Any, tmp_path: Path) -> None:
    shop.execute("delete from customers where id = 8")
    found = verdicts(audit.audit(shop.export(tmp_path / "e"), effort=TINY))
    assert found["served"] == found["purged"] == found["replay"] == "open"


def test_leaving_out_by_forks_equals_a_replay_without_the_row(story: Any) -> None:
    ticks = leave_one_out.candidates(story, 5)
    found = leave_one_out.leave_out(story, ticks)
    live = story.live()
    for fork in found.forks:
        pair = replay.ideal(story, until=fork.tick - 1)
        pair.apply(np.zeros(1, np.int16), np.zeros((1, 2)), np.zeros(1), [(None,)])
        for rows in story.batches(after=fork.tick):
            pair.apply(rows.ops, rows.x, rows.y, rows.c)
        assert np.allclose(pair.arrays.anchor, fork.state.anchor, rtol=0, atol=1e-12)
    assert np.allclose(replay.ideal(story).arrays.theta, found.learned.theta, rtol=0, atol=1e-12)
    k = live.epoch.constants
    assert found.sensitivity == bounds.sensitivity(k.G, k.lam, 2_800, k.t0, "symmetric")


def test_candidates_are_first_middle_last_steepest_and_random(story: Any) -> None:
    found = leave_one_out.candidates(story, 20)
    assert len(found) == 20
    assert set(found.values()) == {"first", "middle", "last", "largest gradient", "random"}
    there = [tick for rows in story.batches() for tick in rows.ticks[rows.there].tolist()]
    assert len(there) == 2_797  # three were deleted
    assert set(there[:4]) <= set(found) <= set(there)


def test_one_thread_and_two_give_the_same_bits(story: Any) -> None:
    ticks = leave_one_out.candidates(story, 6)
    one, two = (leave_one_out.leave_out(story, ticks, threads=n) for n in (1, 2))
    assert [to_bytes(f.state) for f in one.forks] == [to_bytes(f.state) for f in two.forks]


def test_regret_is_the_sum_it_says_it_is(story: Any) -> None:
    rows = stream.load(story)
    found = regret.measure(rows)
    k, there = rows.epoch.constants, rows.ops == events.INSERT
    best = best_static(rows.X[there], rows.y[there], "logistic", k.lam)
    state, by_hand = empty(rows.epoch.d, rows.parameters.tau), 0.0
    for i in range(found.curve[0].clock):
        x, y = rows.X[i : i + 1], rows.y[i : i + 1]
        if there[i]:
            here, there_best = (float(row_losses(x, y, w, "logistic", k.lam)[0]) for w in (state.theta, best))
            by_hand += here - there_best
        events.apply(state, k, rows.ops[i : i + 1], x, y, np.empty((0, rows.epoch.d)))
    assert found.curve[0].regret == pytest.approx(by_hand, abs=1e-9)
    assert found.last.clock == 2_800
    assert found.holds


def test_the_regret_bound_holds_with_deletions_half_way(story: Any) -> None:
    found = regret.measure(stream.load(story), deletions=3)
    assert found.holds
    assert found.last.bound > regret.measure(stream.load(story)).last.bound


def test_far_beyond_capacity_the_model_is_gone(story: Any) -> None:
    found = capacity.measure(stream.load(story), draws=15)
    first, last = found.steps[0], found.steps[-1]
    assert last.m > 4 * found.capacity
    assert last.fit < first.retrained - 0.05
    assert last.noise > first.noise
    assert found.extra.holds


def test_a_live_model_further_away_than_proved_fails(story: Any) -> None:
    result = replay.compare(story)
    assert replace(result, anchor_distance=10 * result.anchor_bound).holds is False


def test_an_attestation_is_a_signed_ledger_entry(shop: Any, tmp_path: Path) -> None:
    key = keys.create("auditor.example.org", tmp_path / "key")
    run = CliRunner().invoke(
        app, ["audit", "churn", "--dsn", shop.dsn, "--quick", "--attest", "--key", str(tmp_path / "key"), "--json"]
    )
    assert run.exit_code == 0, run.output
    (kind, detail), *_ = shop.execute("select kind, detail from mempair.ledger order by seq desc limit 1")
    assert kind == "attested"
    text = notes.open_note(detail, [key.public])
    assert f"sha256:{json.loads(run.stdout)['sha256']}" in text
    verify = CliRunner().invoke(app, ["odometer", "verify", "churn", "--dsn", shop.dsn])
    assert verify.exit_code == 0
    assert replay.compare(shop.export(tmp_path / "e")).exact


def test_an_attestation_erases_no_version_that_is_kept(shop: Any, tmp_path: Path) -> None:
    shop("select mempair.keep_version('churn')")
    result = audit.Audit("churn", 1, 2500, "today")
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        attest(connection, 1, result, keys.create("auditor.example.org", tmp_path / "key"))
    assert shop.one("select versions from mempair.published") > 0


def test_attesting_without_a_key_writes_nothing(shop: Any, tmp_path: Path) -> None:
    run = CliRunner().invoke(
        app, ["audit", "churn", "--dsn", shop.dsn, "--quick", "--attest", "--key", str(tmp_path / "none")]
    )
    assert run.exit_code != 0
    with psycopg.connect(shop.dsn) as connection:
        assert connection.execute("select count(*) from mempair.ledger where kind = 'attested'").fetchone() == (0,)


@pytest.mark.parametrize(
    "options",
    [
        {"unlearner": "passive"},
        {"m": 3, "tau": 1, "gamma": 0.3},
        {"features": ["plan"]},
        {"target": "spend", "features": ["age", "plan"]},
    ],
    ids=["passive", "fixed m", "texts only", "regression"],
)
def test_other_kinds_of_models_are_audited_too(make_shop: Callable[..., Any], tmp_path: Path, options: Any) -> None:
    shop = make_shop(**options)
    shop.delete(7)
    result = audit.audit(shop.export(tmp_path / "e"), effort=TINY)
    assert not result.failed, result.failed
    assert verdicts(result)["stability"] == "holds"
