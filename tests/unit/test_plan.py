"""What a batch comes to does not depend on the order of its events, and nothing is unlearned that was not learned."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempair_db.worker.changes import DELETE, INSERT, Changes
from mempair_db.worker.plan import Plan, plan

Event = tuple[int, str, int]  # operation, key, fingerprint


def batch(events: list[Event], *, complete: bool = True) -> tuple[Changes, Any]:
    n = len(events)
    changes = Changes(
        seq=np.arange(n),
        op=np.array([op for op, _, _ in events], np.int16),
        keys=[key for _, key, _ in events],
        x=np.zeros((n, 1)),
        c=(),
        y=np.ones(n),
        captured_at=[None] * n,
        complete=complete,
    )
    return changes, np.array([mark for _, _, mark in events], np.int64)


def reduced(
    events: list[Event],
    learned: dict[str, list[int | None]],
    bad: frozenset[int] | set[int] = frozenset(),
    *,
    complete: bool = True,
) -> Plan:
    changes, prints = batch(events, complete=complete)
    return plan(changes, prints, learned, ["bad" if mark in bad else "" for _, _, mark in events])


def marks(events: list[Event], which: Any) -> set[tuple[str, int]]:
    return {(events[i][1], events[i][2]) for i in which}


a, b, c = 1, 2, 3
CASES: dict[str, tuple[list[Event], dict[str, list[int | None]], set[int], set[int]]] = {
    "an insertion": ([(INSERT, "k", a)], {}, {a}, set()),
    "a deletion": ([(DELETE, "k", a)], {"k": [a]}, set(), {a}),
    "an update": ([(DELETE, "k", a), (INSERT, "k", b)], {"k": [a]}, {b}, {a}),
    "two updates": (
        [(DELETE, "k", a), (INSERT, "k", b), (DELETE, "k", b), (INSERT, "k", c)],
        {"k": [a]},
        {c},
        {a},
    ),
    "there and back": (
        [(DELETE, "k", a), (INSERT, "k", b), (DELETE, "k", b), (INSERT, "k", a)],
        {"k": [a]},
        set(),
        set(),
    ),
    "never learned": ([(INSERT, "k", a), (DELETE, "k", a)], {}, set(), set()),
    "an update of a row that was never learned": ([(DELETE, "k", a), (INSERT, "k", b)], {}, {b}, set()),
    "a deletion of a row that was never learned": ([(DELETE, "k", a)], {}, set(), set()),
    "replaced": ([(DELETE, "k", a), (INSERT, "k", b), (DELETE, "k", b)], {"k": [a]}, set(), {a}),
    "learned before there were fingerprints": ([(DELETE, "k", a)], {"k": [None]}, set(), {a}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_row_comes_to_the_same_in_every_order(case: str) -> None:
    events, learned, learn, unlearn = CASES[case]
    for order in itertools.permutations(events):
        result = reduced(list(order), learned)
        assert result.mismatch is None
        assert {mark for _, mark in marks(list(order), result.learn)} == learn
        assert {mark for _, mark in marks(list(order), result.unlearn)} == unlearn
        assert len(result.gone) == (1 if unlearn and not learn else 0)


@pytest.mark.parametrize(
    ("events", "learned"),
    [
        ([(DELETE, "k", b)], {"k": [a]}),  # other values than were learned
        ([(DELETE, "k", a)], {"k": [a, b]}),  # learned twice
        ([(INSERT, "k", b)], {"k": [a]}),  # came again with other values
        ([(DELETE, "k", b), (INSERT, "k", c)], {"k": [a]}),
    ],
)
def test_what_does_not_match_is_never_applied(events: list[Event], learned: dict[str, list[int | None]]) -> None:
    result = reduced(events, learned)
    assert result.mismatch is not None
    assert not result.learn
    assert not result.unlearn


def test_a_deletion_that_matches_nothing_waits_until_everything_was_read() -> None:
    assert reduced([(DELETE, "k", a)], {}, complete=False).waiting == [0]
    assert reduced([(DELETE, "k", a)], {}).cancelled == [(0, "never learned")]


def test_a_row_that_cannot_be_learned_is_rejected_and_its_deletion_needs_nothing() -> None:
    assert reduced([(INSERT, "k", a)], {}, {a}).rejected == [(0, "bad")]
    both = reduced([(INSERT, "k", a), (DELETE, "k", a)], {}, {a})
    assert (both.rejected, both.cancelled) == ([], [(1, "cancelled")])
    update = reduced([(DELETE, "k", a), (INSERT, "k", b)], {"k": [a]}, {b})
    assert (update.unlearn, update.rejected, update.gone) == ([0], [(1, "bad")], set())


def test_the_same_row_again_is_dropped() -> None:
    assert reduced([(INSERT, "k", a)], {"k": [a]}).rejected == [(0, "already learned")]
    twice = reduced([(INSERT, "k", a), (INSERT, "k", a)], {})
    assert (twice.learn, twice.rejected) == ([0], [(1, "already learned")])


@given(st.data())
def test_any_history_in_any_order_ends_with_the_rows_that_are_there(data: st.DataObject) -> None:
    table: dict[str, int] = data.draw(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3)))
    unseen = data.draw(st.sets(st.sampled_from("abcd")))  # rows that were there before the model, or were refused
    learned: dict[str, list[int | None]] = {key: [mark] for key, mark in table.items() if key not in unseen}
    untouched = {key: mark for key, mark in table.items() if key in unseen}
    events: list[Event] = []
    for _ in range(data.draw(st.integers(0, 12))):
        key = data.draw(st.sampled_from("abcd"))
        new = data.draw(st.none() | st.integers(1, 3))
        if key in table:
            events.append((DELETE, key, table.pop(key)))
        if new is not None:
            table[key] = new
            events.append((INSERT, key, new))
    shuffled = data.draw(st.permutations(events))
    result = reduced(list(shuffled), learned)
    touched = {key for _, key, _ in events}
    expected = {key: mark for key, mark in table.items() if key in touched or key not in untouched}
    back = {
        key for key, mark in untouched.items() if table.get(key) == mark
    }  # nothing in the events says it was changed
    assert result.mismatch is None
    known = Counter({(key, mark): 1 for key, (mark,) in learned.items()})
    known.subtract(marks(list(shuffled), result.unlearn))
    known.update(marks(list(shuffled), result.learn))
    assert {pair for pair in +known if pair[0] not in back} == {
        pair for pair in expected.items() if pair[0] not in back
    }
    assert min(known.values(), default=0) >= 0
