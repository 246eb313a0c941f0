"""What a batch comes to: events are netted per row, and what would be unlearned is held against what was learned.

Every event has a fingerprint of its payload (`fingerprint`). For each key, add the inserted payloads and subtract the
deleted ones from what is learned:

    learned {a},  delete a, insert b                          → unlearn a, learn b            an UPDATE
    learned {a},  delete a, insert b, delete b, insert c      → unlearn a, learn c            two of them
    learned {},   insert a, delete a        (in any order)    → nothing                       never learned
    learned {},   delete a, insert b                          → learn b                       a was refused or unseen
    learned {a},  delete b                                    → a mismatch: b was never learned

Of a row that was only named when it came (`named`) the batch has what there is of it, and that is what is learned of it
then; what was learned before must be among the deleted payloads.

The order inside a batch does not matter: a trigger of the user that sorts before ours may bring a row's deletion before
its insertion. A deletion that matches nothing waits in the queue until all that is visible has been read, because the
other half of its transaction may lie beyond the end of the batch; `changes.FAR` says how far the worker looks. A
mismatch is never applied: the worker asks for an exact retrain, which serves the deletion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mempair_db.worker.changes import DELETE, Changes
from mempair_db.worker.named import FOUND, TWICE

Prints = npt.NDArray[np.int64]
Learned = Mapping[
    str, Sequence[int | None]
]  # the fingerprints learned under a key; None: learned before there were any


@dataclass
class Plan:
    """What a batch comes to. Numbers are positions in its `Changes`."""

    learn: list[int] = field(default_factory=list)
    unlearn: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)  # of those to unlearn, the rows that are not there any more
    moved: set[int] = field(default_factory=set)  # of those to unlearn, the rows that come again in a later batch
    cancelled: list[tuple[int, str]] = field(default_factory=list)  # deletions that need nothing, and why
    rejected: list[tuple[int, str]] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)  # deletions of what was never learned: it may have been refused
    waiting: list[int] = field(default_factory=list)  # deletions whose other half may come later
    mismatch: str | None = None

    @property
    def events(self) -> list[int]:
        """What is to be applied, in the order of capture."""
        return self.learn if not self.unlearn else sorted([*self.learn, *self.unlearn])


def plan(changes: Changes, prints: Prints, learned: Learned, reasons: Sequence[str]) -> Plan:
    """Net the events of a batch. `reasons` says why a row cannot be learned; an empty text if it can."""
    result = Plan()
    usual = not learned and not (changes.op == DELETE).any() and not any(reasons)
    if usual and (changes.distinct or len(set(changes.keys)) == len(changes)):
        result.learn = list(range(len(changes)))  # the usual batch: new rows only
        return result
    is_delete, marks, named = (changes.op == DELETE).tolist(), prints.tolist(), changes.named
    if all(is_delete) and len(set(changes.keys)) == len(changes):
        usual = all(learned.get(key) == (mark,) for key, mark in zip(changes.keys, marks, strict=True))
        if usual:  # the usual mass deletion
            result.unlearn = list(range(len(changes)))
            result.gone = set(result.unlearn)
            return result
    together: dict[str, list[int]] = {}
    for i, key in enumerate(changes.keys):
        together.setdefault(key, []).append(i)
    for key, events in together.items():
        known = learned.get(key, ())
        if len(events) == 1 and is_delete[events[0]] and list(known) == [marks[events[0]]]:
            result.unlearn.append(events[0])  # the usual deletion
            result.gone.add(events[0])
        elif len(events) == 1 and not is_delete[events[0]] and not known and not reasons[events[0]]:
            result.learn.append(events[0])  # the usual insertion
        elif named is not None and named[events].any():
            _make_equal(result, changes.complete, is_delete, marks, reasons, known, events, named)
        else:
            _net(result, changes.complete, is_delete, marks, reasons, known, events)
    return result


def _net(
    result: Plan,
    complete: bool,
    is_delete: list[bool],
    marks: list[int],
    reasons: Sequence[str],
    learned: Sequence[int | None],
    events: list[int],
) -> None:
    """Net the events of one key into the plan."""
    deletions = [i for i in events if is_delete[i]]
    insertions = [i for i in events if not is_delete[i]]
    had = Counter(learned)
    if had.pop(None, 0):  # learned without a fingerprint: it is what the first deletion says
        had[marks[deletions[0]] if deletions else None] += 1
    has = had + Counter(marks[i] for i in insertions)
    has.subtract(marks[i] for i in deletions)
    unmatched = [i for i in deletions if has[marks[i]] < 0]
    if sum(had.values()) > 1:
        result.mismatch = "a row was learned twice: a deletion of it escaped capture"
    elif unmatched and learned:
        result.mismatch = "a deletion brought other values than were learned"
    elif unmatched and not complete:
        result.waiting += events
        return
    result.unseen += unmatched
    has = +has  # what was deleted and never learned needs nothing; a new version of such a row is learned
    if result.mismatch is not None:
        return
    if sum(has.values()) > 1:
        _repeated(result, had, has, insertions)
    else:
        _settle(result, had, has, deletions, insertions, marks, reasons)
        if unmatched and not has:
            result.cancelled[-1] = (deletions[-1], "never learned")


def _make_equal(
    result: Plan,
    complete: bool,
    is_delete: list[bool],
    marks: list[int],
    reasons: Sequence[str],
    learned: Sequence[int | None],
    events: list[int],
    named: npt.NDArray[np.int8],
) -> None:
    """Make what is learned of a row that was only named equal to what there is of it."""
    deletions = [i for i in events if is_delete[i]]
    new = next((i for i in reversed(events) if named[i] == FOUND), None)
    if len(learned) > 1:
        result.mismatch = "a row was learned twice: a deletion of it escaped capture"
    elif (named[events] == TWICE).any():
        result.mismatch = "several rows have one key: no unique index guards it any more"
    elif learned and not deletions and not complete:  # its deletion must be in the rest of the queue
        result.waiting += events
    elif learned and new is not None and (learned[0] == marks[new] or (learned[0] is None and not deletions)):
        return  # it is learned as it is
    elif learned:
        old = next((i for i in deletions if learned[0] in (None, marks[i])), None)
        if old is None and complete:
            result.mismatch = "a row is not there as it was learned, though its deletion was never captured"
        elif old is None:
            result.waiting += events
        else:
            result.unlearn.append(old)
            result.gone |= {old} if new is None else set()
    else:
        result.unseen += deletions
        result.cancelled += [(deletions[-1], "cancelled")] if deletions and new is None else []
    if result.mismatch is None and new is not None and new not in result.waiting:
        if reasons[new]:
            result.rejected.append((new, reasons[new]))
        else:
            result.learn.append(new)


def _settle(
    result: Plan,
    had: Counter[int | None],
    has: Counter[int | None],
    deletions: list[int],
    insertions: list[int],
    marks: list[int],
    reasons: Sequence[str],
) -> None:
    """All is matched and at most one version is left: unlearn what was learned and is not it, learn it if it is new."""
    for mark in had - has:
        result.unlearn.append(next(i for i in deletions if marks[i] == mark))
    new = next((i for i in insertions if has[marks[i]] > had[marks[i]]), None)
    if new is not None and reasons[new]:
        result.rejected.append((new, reasons[new]))
    elif new is not None:
        result.learn.append(new)
    if sum(has.values()) == 0 and had:
        result.gone.add(result.unlearn[-1])
    elif sum(has.values()) == 0 and deletions:
        result.cancelled.append((deletions[-1], "cancelled"))


def _repeated(result: Plan, had: Counter[int | None], has: Counter[int | None], insertions: list[int]) -> None:
    """More than one version of a row is left: the same one again is dropped, another one is a mismatch."""
    if len(+has) > 1:
        result.mismatch = "a row came again with other values, though its deletion was never captured"
        return
    again = insertions if had else insertions[1:]
    if not had:
        result.learn.append(insertions[0])
    result.rejected += [(i, "already learned") for i in again]
