from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

from mempair_db.cli import app
from mempair_db.errors import InvalidParameter
from mempair_db.measure import replay
from mempair_db.offline.folder import read
from mempair_db.pair.state import to_bytes


def test_without_deletions_the_replay_equals_the_live_state_bit_for_bit(shop: Any, tmp_path: Path) -> None:
    for number in range(3):  # several batches, of several sizes
        shop.fill(3_000 + 100 * number, 3_000 + 100 * number + 7 * number + 1)
        shop.work()
    result = replay.compare(shop.export(tmp_path / "e"))
    assert result.exact
    assert result.holds
    assert result.anchor_distance == result.theta_distance == result.predictions.largest == 0.0


def test_a_regression_replays_bit_for_bit(database: str, tmp_path: Path, make_shop: Callable[..., Any]) -> None:
    shop = make_shop(on_null="impute")
    shop.execute("update customers set spend = null where id % 10 = 0")
    shop.execute(
        "select mempair.create_model('spend', 'customers', target => 'spend', features => array['age', 'plan'], "
        "on_null => 'impute', epsilon => 1)"
    )
    shop.execute("select mempair.drop_model('churn')")
    shop.work()
    assert replay.compare(shop.export(tmp_path / "e")).exact


def test_after_an_exact_retrain_the_new_epoch_replays_bit_for_bit(shop: Any, tmp_path: Path) -> None:
    shop.delete(5)
    run = CliRunner().invoke(app, ["retrain", "churn", "--dsn", shop.dsn])
    assert run.exit_code == 0, run.output
    result = replay.compare(shop.export(tmp_path / "e"))
    assert (result.epoch, result.deletions, result.exact) == (2, 0, True)


def test_after_deletions_the_distance_stays_below_the_proved_bound(story: Any) -> None:
    result = replay.compare(story)
    assert (result.deletions, result.exact, result.holds) == (3, False, True)
    assert 0 < result.anchor_distance <= result.anchor_bound
    assert result.theta_distance <= result.theta_bound
    assert 0 < result.predictions.mean < 1


def test_since_an_export_made_after_the_last_deletion_it_is_exact_again(shop: Any, tmp_path: Path) -> None:
    shop.delete(9)
    checkpoint = shop.export(tmp_path / "then", rows=False)
    shop.fill(5_000, 5_200)
    shop.work()
    result = replay.compare(shop.export(tmp_path / "now"), since=checkpoint)
    assert (result.exact, result.since, result.deletions) == (True, 2_500, 0)


def test_a_deletion_after_the_checkpoint_counts_even_at_the_same_clock(shop: Any, tmp_path: Path) -> None:
    shop.delete(9)
    checkpoint = shop.export(tmp_path / "then", rows=False)
    shop.delete(10)
    result = replay.compare(shop.export(tmp_path / "now"), since=checkpoint)
    assert (result.deletions, result.exact, result.holds) == (1, False, True)
    assert 0 < result.anchor_distance <= result.anchor_bound


def test_another_epoch_is_no_checkpoint(shop: Any, tmp_path: Path) -> None:
    checkpoint = shop.export(tmp_path / "then", rows=False)
    CliRunner().invoke(app, ["retrain", "churn", "--dsn", shop.dsn])
    with pytest.raises(InvalidParameter, match="epoch 2"):
        replay.compare(shop.export(tmp_path / "now"), since=checkpoint)


def test_a_tampered_weight_is_noticed(shop: Any, tmp_path: Path) -> None:
    shop.execute("update mempair.state set theta[1] = theta[1] + 1e-12")
    result = replay.compare(shop.export(tmp_path / "e"))
    assert (result.exact, result.holds) == (False, False)
    run = CliRunner().invoke(app, ["replay", "--from", str(tmp_path / "e")])
    assert run.exit_code == 5
    assert "does NOT hold" in run.stdout


def test_a_weight_moved_beyond_noise_is_noticed_after_deletions(shop: Any, tmp_path: Path) -> None:
    shop.delete(4)
    shop.execute("update mempair.state set anchor[1] = anchor[1] + 100")
    assert replay.compare(shop.export(tmp_path / "e")).holds is False


def test_changes_that_wait_give_no_verdict(shop: Any, tmp_path: Path) -> None:
    shop.execute("delete from customers where id = 8")
    result = replay.compare(shop.export(tmp_path / "e"))
    assert (result.waiting, result.missing, result.holds) == (1, 1, None)
    run = CliRunner().invoke(app, ["replay", "--from", str(tmp_path / "e")])
    assert run.exit_code == 0
    assert "mempair worker --once" in run.stdout


def test_a_row_deleted_behind_the_triggers_is_reported_as_missing(
    shop: Any, tmp_path: Path, superuser: Callable[[str], str]
) -> None:
    with psycopg.connect(superuser(shop.dsn)) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("delete from customers where id = 8")
    result = replay.compare(shop.export(tmp_path / "e"))
    assert (result.waiting, result.missing, result.holds) == (0, 1, None)


def test_until_stops_at_a_tick(story: Any) -> None:
    pair = replay.ideal(story, until=1_000)
    gaps = sum(int((~rows.there).sum()) for rows in story.batches(until=1_000))
    assert (pair.tally("clock"), pair.tally("rows")) == (1_000, 1_000 - gaps)


def test_the_size_of_batches_does_not_change_a_bit(story: Any) -> None:
    whole = replay.ideal(story)
    pair = replay.ideal(story, until=123)
    for rows in story.batches(after=123, size=77):
        pair.apply(rows.ops, rows.x, rows.y, rows.c)
    assert to_bytes(pair.arrays) == to_bytes(whole.arrays)


def test_what_if_replays_with_other_constants(story: Any) -> None:
    other = replay.what_if(story, {"lambda": "0.3", "epsilon": "2"})
    assert other.epoch is not None
    assert (other.epoch.constants.lam, other.parameters.epsilon) == (0.3, 2.0)
    assert other.capacity() > replay.ideal(story).capacity()
    assert not np.array_equal(other.arrays.theta, replay.ideal(story).arrays.theta)


@pytest.mark.parametrize(
    ("change", "message"), [("lamda=1", "lamda"), ("lambda=x", "Give a number"), ("m=0", "m is 0")]
)
def test_an_impossible_what_if_says_what_to_do(story: Any, change: str, message: str) -> None:
    name, _, value = change.partition("=")
    with pytest.raises(InvalidParameter, match=message):
        replay.what_if(story, {name: value})


def test_the_command_line_prints_data_on_stdout_as_json(shop: Any) -> None:
    run = CliRunner().invoke(app, ["replay", "churn", "--dsn", shop.dsn, "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert found["exact"] is True
    assert found["holds"] is True


def test_the_command_line_shows_both_columns_of_a_what_if(story: Any) -> None:
    run = CliRunner().invoke(
        app, ["replay", "--from", str(story.folder), "--what-if", "lambda=0.2", "--until", "2000", "--json"]
    )
    facts = {row[""]: (row["replayed"], row["what if"]) for row in json.loads(run.stdout)}
    assert facts["lambda"] == (0.03, 0.2)
    assert facts["rows"] == (1_998, 1_998)


def test_export_warns_of_personal_data_on_stderr(shop: Any, tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["export", "--out", str(tmp_path / "e"), "--rows", "--dsn", shop.dsn, "--json"])
    assert json.loads(run.stdout)["rows"] == 2_500
    assert "Personal data" in run.stderr
    assert read(tmp_path / "e").has_rows


def test_since_the_last_deletion_the_live_state_is_the_replay_bit_for_bit(shop: Any, tmp_path: Path) -> None:
    shop.execute("delete from customers where id in (7, 8)")
    shop.fill(4_001, 4_400)  # in the same batch as the deletions
    shop.work()
    shop.fill(4_401, 4_800)  # and in another
    shop.work()
    result = replay.compare(shop.export(tmp_path / "e"))
    assert result.deletions == 2
    assert not result.exact
    assert result.exact_since_deletion is True
    assert result.holds
