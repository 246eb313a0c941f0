"""The exact pair's one promise, over any history: the state is the one of the rows that are left, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mempair_db.pair import exact, sums
from mempair_db.pair.exact_model import ExactPair
from mempair_db.pair.kept import Kept
from mempair_db.pair.sums import Sums

from .exact_histories import (
    CALIBRATION,
    Mutation,
    Player,
    assert_nothing_but,
    by_definition,
    columns,
    few_reference_rows,
    kinds,
    options,
    parts,
    refer,
    scripts,
    table,
)

__all__ = ["few_reference_rows"]

pytestmark = pytest.mark.usefixtures("few_reference_rows")
patched_once = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
LOSSES = st.sampled_from(("logistic", "squared", "huber"))


@patched_once
@given(scripts, kinds, st.integers(0, 2**16), LOSSES, st.sampled_from((0, 2)), st.booleans())
def test_after_any_history_the_state_is_the_one_of_the_rows_left(
    script: list[tuple[str, int]], kind: str, seed: int, loss: str, curves: int, has_rows: bool
) -> None:
    kept = options(kind)
    player = Player(seed, curves=curves, times=[0], has_rows=has_rows, **{"loss": loss} | kept)
    player.play(script, table(kind, sum(size for _, size in script), seed))
    assert_nothing_but(player.pair, player.there)


@settings(patched_once, max_examples=60)
@given(scripts, scripts, kinds, st.integers(0, 2**16))
def test_two_histories_that_end_with_the_same_rows_end_with_the_same_bytes(
    script: list[tuple[str, int]], other: list[tuple[str, int]], kind: str, seed: int
) -> None:
    # Given rows that stay, and two histories of rows that all go again
    stay, passing = table(kind, 40, seed), table(kind, 40, seed + 1)
    states = []
    for order, way in enumerate((script, other)):
        player = Player(seed + order, curves=1, **options(kind))
        player.play([("insert_together", 40)], stay if order else stay[::-1])
        player.play(way, passing)
        # When each ends with the rows that stay, in an order of its own, and chooses its reference from them
        player.pair.unlearn_many(*player.columns())
        player.there = []
        player.play([("insert", 13), ("insert_together", 27)], stay if order else stay[::-1])
        player.refresh([])
        assert_nothing_but(player.pair, stay)
        states.append(player.pair.state())
    # Then nothing tells them apart
    assert states[0] == states[1]


@given(kinds, st.integers(0, 2**16), st.lists(st.integers(0, 60), max_size=5), st.integers(0, 60))
def test_parts_merge_in_any_order(kind: str, seed: int, cuts: list[int], gone: int) -> None:
    rows = table(kind, 60, seed)
    reference = refer(ExactPair(**options(kind)), rows[:30])
    some = parts(reference, rows, cuts) + parts(reference, rows[:gone], cuts[:2], sign=-1.0)
    np.random.default_rng(seed).shuffle(some)
    total = sums.nothing(reference)
    for part in some:
        total += Sums.from_bytes(part.to_bytes(), *reference.shape)
    assert total.to_bytes() == by_definition(reference, rows[gone:])


@given(kinds, st.integers(0, 2**16))
def test_the_order_of_the_reference_rows_changes_no_bit_of_the_constants(kind: str, seed: int) -> None:
    rows = table(kind, 60, seed)
    mixed = [rows[i] for i in np.random.default_rng(seed).permutation(60)]
    pair = ExactPair(curves=2, class_weight="balanced", **options(kind))
    assert refer(pair, rows).to_bytes() == refer(pair, mixed).to_bytes()


# ---- Each of these breaks the promise, and the check above must say so. ----


def a_term_is_forgotten_in_the_subtraction(patch: pytest.MonkeyPatch) -> None:
    add = exact._add

    def forgetful(reference: Any, X: Any, y: Any, s: Any, *flags: Any) -> Sums:
        whole = add(reference, X, y, s, *flags)
        return Sums(whole.counts, add(reference, X, y, np.maximum(s, 0.0), *flags).g, whole.H)

    patch.setattr(exact, "_add", forgetful)


def a_deletion_is_applied_twice(patch: pytest.MonkeyPatch) -> None:
    sums = exact.sums
    patch.setattr(
        exact, "sums", lambda r, x, y, c, s, w: sums(r, x, y, c, s if s is None else np.where(s < 0, 2.0 * s, s), w)
    )


def a_deletion_is_dropped(patch: pytest.MonkeyPatch) -> None:
    sums = exact.sums
    patch.setattr(exact, "sums", lambda r, x, y, c, s, w: sums(r, x, y, c, s if s is None else np.maximum(s, 0.0), w))


def an_update_subtracts_the_new_values(patch: pytest.MonkeyPatch) -> None:
    def update(self: Player, rows: list[Any]) -> None:
        old = self.some(len(rows))
        for _, row in zip(old, rows, strict=False):
            self.pair.learn_one(*row)
            self.pair.unlearn_one(*row)
            self.there.append(row)
        self.there += old[len(rows) :]

    patch.setattr(Player, "update", update)


def constants_are_kept_although_they_changed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExactPair, "_same_constants", lambda self: True)


def an_unlearned_row_stays_a_reference_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Kept, "take", lambda self, row: None)


def sums_are_floats(patch: pytest.MonkeyPatch) -> None:
    terms = exact._terms

    def smooth(reference: Any, z: Any, y: Any) -> tuple[Any, Any]:
        p = 1.0 / (1.0 + np.exp(-z / 2.0**10))
        return exact.P_UNIT * (p - y), terms(reference, z, y)[1]

    patch.setattr(exact, "_terms", smooth)


def a_batch_that_waits_is_lost(patch: pytest.MonkeyPatch) -> None:
    flush = ExactPair.flush

    def short(self: ExactPair) -> None:
        self._waiting = self._waiting[1:]
        flush(self)

    patch.setattr(ExactPair, "flush", short)


MUTATIONS: tuple[Mutation, ...] = (
    a_term_is_forgotten_in_the_subtraction,
    a_deletion_is_applied_twice,
    a_deletion_is_dropped,
    an_update_subtracts_the_new_values,
    constants_are_kept_although_they_changed,
    an_unlearned_row_stays_a_reference_row,
    sums_are_floats,
    a_batch_that_waits_is_lost,
)
EVERYTHING = [
    ("insert", 20),
    ("insert_together", 60),
    ("delete", 10),
    ("update", 9),
    ("delete_together", 30),
    ("ask", 1),
]


def play_everything() -> None:
    for seed in range(4):
        player = Player(seed, has_rows=seed % 2 == 0).play(EVERYTHING, table("numbers", 130, seed))
        assert_nothing_but(player.pair, player.there)


def test_the_history_that_catches_the_mutants_is_clean_without_them() -> None:
    play_everything()


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_pair_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        play_everything()


def test_a_truncated_table_is_as_if_nothing_had_come() -> None:
    player = Player(0).play([("insert_together", 60)], table("texts", 60, 0))
    player.pair.unlearn_many(*player.columns())
    assert player.pair.state() == Player(0).pair.state()


def test_as_few_rows_as_before_the_calibration_are_waiting_again() -> None:
    rows = table("numbers", 25, 0)
    player = Player(0).play([("insert", 25)], rows)
    player.pair.unlearn_many(*columns(rows[5:]))
    few = Player(0).play([("insert", 5)], rows[:5])
    assert len(rows[:5]) < CALIBRATION
    assert player.pair.state() | {"rows_then": 0} == few.pair.state() | {"rows_then": 0}
