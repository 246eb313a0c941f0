"""The exchange: every shard's sums to the coordinator, and from there to the other shards, which publish what follows.

    ask       every shard where it stands; its sums come along if they changed
    store     at the coordinator
    deliver   to every shard what it has not taken in yet; it publishes in the same transaction
    tell      a shard that its deletions are everywhere, once every other shard has taken in its sums of that moment

Each step can be done twice, or be the last one before a kill. A shard that cannot be reached keeps its last sums in
everybody's model, and nobody's deletion is called done everywhere until it has taken that in too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import psycopg

from mempair_db.database.faults import point
from mempair_db.errors import MempairError
from mempair_db.fleet import constants, refresh, shard
from mempair_db.fleet.compute import Computing, opened, share
from mempair_db.fleet.config import Fleet, Place
from mempair_db.fleet.constants import Where
from mempair_db.fleet.coordinator import Coordinator, Declared, coordinator
from mempair_db.fleet.shard import Part, Report
from mempair_db.pair import exact, rules

log = logging.getLogger("mempair.fleet")

EVERY: Final = 1.0  # seconds between two exchanges
TROUBLE: Final = (psycopg.Error, MempairError)
Result = TypeVar("Result")


@dataclass
class Exchanged:
    """What one exchange of one model did."""

    model: str
    bytes: int = 0  # of sums that were sent to the coordinator or from it
    delivered: int = 0  # shards that published anew
    everywhere: list[str] = field(default_factory=list)  # shards whose deletions so far are out of every model
    down: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Exchange:
    """Connections to all shards that stay open between two exchanges."""

    def __init__(self, fleet: Fleet, known: Coordinator, computing: Computing) -> None:
        """Begin without any connection."""
        self.fleet, self.known, self.computing = fleet, known, computing
        self._open: dict[str, tuple[ExitStack, psycopg.Connection[Any]]] = {}

    def close(self) -> None:
        """Close all connections."""
        for name in list(self._open):
            self._drop(name)

    def _drop(self, name: str) -> None:
        stack, _ = self._open.pop(name)
        try:
            stack.close()
        except psycopg.Error:
            log.debug("the connection to %s was gone already", name)

    def _connection(self, place: Place) -> psycopg.Connection[Any]:
        found = self._open.get(place.name)
        if found is not None and (found[1].closed or found[1].broken):
            self._drop(place.name)
            found = None
        if found is None:
            stack = ExitStack()
            found = self._open[place.name] = stack, stack.enter_context(opened(place))
        return found[1]

    def each(
        self, places: Sequence[Place], work: Callable[[Place, psycopg.Connection[Any]], Result]
    ) -> dict[str, Result | Exception]:
        """Do something on several shards at once; a shard's trouble is its result."""

        def one(place: Place) -> Result | Exception:
            try:
                return work(place, self._connection(place))
            except TROUBLE as error:
                if place.name in self._open:
                    self._drop(place.name)
                return error

        with ThreadPoolExecutor(min(32, max(1, len(places)))) as threads:
            return dict(zip([place.name for place in places], threads.map(one, places), strict=True))

    def once(self, name: str) -> Exchanged:
        """Exchange the sums of one model, and look after its constants."""
        done = Exchanged(name)
        self.known.do("fleet_enlist", name=name, shards=self.fleet.names)
        self.known.do("fleet_dismiss", name=name, shards=self.fleet.names)
        model = self.known.model(name)
        reports = self._ask(model, done)
        self._mend(model, reports, done)
        if done.notes:  # shards have other constants than they said
            model = self.known.model(name)
            reports = self._ask(model, done)
        after = self._deliver(model, reports, done)
        self._tell(model, reports, after, done)
        return done

    def _ask(self, model: Declared, done: Exchanged) -> dict[str, Report]:
        before = self.known.shards(model.name)
        digests = {name: known.digest for name, known in before.items() if known.part(model.generation)}
        answers = self.each(self.fleet.shards, lambda place, to: shard.report(to, model.name, digests.get(place.name)))
        point("asked")
        reports = {}
        for name, answer in answers.items():
            if isinstance(answer, Exception):
                done.down[name] = _said(answer)
                self.known.do("fleet_down", name=model.name, shard=name, trouble=_said(answer))
                continue
            reports[name] = answer
            done.bytes += len(answer.sums or b"")
            self.known.saw(model.name, answer)
            point("stored")
        return reports

    def _deliver(self, model: Declared, reports: dict[str, Report], done: Exchanged) -> dict[str, bool]:
        """Deliver what is missing; return which shards now have everything the coordinator has."""
        parts = [known.part(model.generation) for known in self.known.shards(model.name).values()]
        known = [part for part in parts if part is not None]

        def deliver(place: Place, to: psycopg.Connection[Any]) -> tuple[bool, list[Part]]:
            report = reports[place.name]
            missing = [part for part in known if part.shard != place.name and not report.has(part)]
            left = set(report.parts) - set(self.fleet.names)
            if _behind(report, model) or model.constants is None:
                return not _behind(report, model), []
            if not missing and not left:
                return True, []
            return shard.deliver(to, report.id, model.generation, missing, self.fleet.names), missing

        there = [place for place in self.fleet.shards if place.name in reports]
        fine = {}
        for name, answer in self.each(there, deliver).items():
            if isinstance(answer, Exception):
                done.down[name] = _said(answer)
                self.known.do("fleet_down", name=model.name, shard=name, trouble=_said(answer))
                continue
            fine[name], sent = answer
            done.bytes += sum(len(part.sums) for part in sent)
            done.delivered += bool(sent)
        return fine

    def _tell(self, model: Declared, reports: dict[str, Report], fine: dict[str, bool], done: Exchanged) -> None:
        """Tell every shard whose sums all others have taken in, if the constants do not come from a row that went."""
        checked = all(report.references_left == report.references_checked for report in reports.values())
        if not checked or len(reports) < len(self.fleet.shards) or model.generation == 0:
            return
        behind = [name for name in self.fleet.names if not fine.get(name, False)]
        told = {
            name: report.ledger_seq
            for name, report in reports.items()
            if report.generation == model.generation and not set(behind) - {name}
        }

        def tell(place: Place, to: psycopg.Connection[Any]) -> None:
            shard.everywhere(to, reports[place.name].id, told[place.name])

        places = [place for place in self.fleet.shards if place.name in told]
        for name, answer in self.each(places, tell).items():
            if not isinstance(answer, Exception):
                point("told")
                self.known.do("fleet_told", name=model.name, shard=name, seq=told[name])
                done.everywhere.append(name)

    def _mend(self, model: Declared, reports: dict[str, Report], done: Exchanged) -> None:
        """Bring up shards with older constants; check the constants, or choose new ones, where that is due."""
        complete = len(reports) == len(self.fleet.shards)
        behind = [place for place in self.fleet.shards if place.name in reports and _behind(reports[place.name], model)]
        if model.constants is None and not behind:
            if complete:
                self._first(model, done)
            return
        for place in behind:
            refresh.bring_up(self.computing, model, place)
            done.notes.append(f"{place.name} has constants {model.generation} now")
        if model.constants is None:
            return
        why = model.refresh_requested
        if why is None and complete and not behind:
            why = self._outgrown(model, reports)
        if why is None and complete and any(_unchecked(report) for report in reports.values()):
            if self.check(model):
                done.notes.append("reference rows went; the constants are the same without them")
            else:
                why = "a reference row went, and the constants with it"
        if why is not None and complete:
            self.known.do("fleet_request", name=model.name, why=why)
            refresh.refresh_fleet(self.computing, self.known, model.name, why)
            done.notes.append(f"refreshed: {why}")

    def _first(self, model: Declared, done: Exchanged) -> None:
        try:
            refresh.refresh_fleet(self.computing, self.known, model.name, "enough rows for the first constants")
            done.notes.append("the first constants are chosen")
        except constants.TooFew:
            return

    def _outgrown(self, model: Declared, reports: dict[str, Report]) -> str | None:
        total, constants_now = self.known.total(model), model.reference
        if total is None or constants_now is None:
            return None
        w = exact.solve(constants_now, total, float(model.declared["ridge"]))
        left, others = (
            sum(getattr(report, name) or 0 for report in reports.values())
            for name in ("references_left", "others_refreshed")
        )
        then, rows = model.rows_refreshed or 0, model.reference_rows or 0
        return rules.outgrown(constants_now, total, w, rows_then=then, left=left, rows=rows, others_then=others)

    def check(self, model: Declared) -> bool:
        """Choose the constants again from the reference rows that are left; the same: note that on every shard."""
        with self.known.alone(model.name), ExitStack() as stack:
            places, first = [], None
            for place in self.fleet.shards:
                connection = stack.enter_context(shard.looked_at(place))
                found = shard.find(connection, model.name)
                first = first or found
                places.append(Where(place, share(connection), found.id))
            assert first is not None  # noqa: S101  (a fleet has a shard)
            labels = model.reference.labels if model.reference else ()
            chosen = constants.choose(self.computing, places, first.terms, len(first.numbers), None, labels)
        same = model.reference is not None and chosen.reference.to_bytes() == model.reference.to_bytes()
        point("checked")
        if same:
            for where in places:
                shard.checked(
                    self._connection(where.shard),
                    where.model_id,
                    model.generation,
                    chosen.references[where.shard.name],
                )
        return same


def _behind(report: Report, model: Declared) -> bool:
    return report.generation != model.generation or report.begun != (model.constants is not None)


def _unchecked(report: Report) -> bool:
    return report.references_left != report.references_checked


def _said(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300] or type(error).__name__


@contextmanager
def exchanging(fleet: Fleet, client: Any = None) -> Iterator[Exchange]:
    """Connect to the coordinator, and be ready to exchange."""
    with coordinator(fleet) as known, Computing(fleet, client) as computing:
        exchange = Exchange(fleet, known, computing)
        try:
            yield exchange
        finally:
            exchange.close()


def run(
    fleet: Fleet,
    every: float,
    stop: threading.Event,
    hear: Callable[[Exchanged], None],
    client: Any = None,
) -> None:
    """Exchange all models until told to stop; trouble of one model, or with the coordinator, is tried again."""
    while not stop.is_set():
        try:
            with exchanging(fleet, client) as exchange:
                while not stop.is_set():
                    for model in exchange.known.models():
                        try:
                            hear(exchange.once(model.name))
                        except TROUBLE as error:
                            if exchange.known.connection.broken:
                                raise
                            log.warning("%s: %s", model.name, _said(error))
                    stop.wait(every)
        except psycopg.OperationalError as error:
            log.warning("coordinator: %s; trying again", _said(error))
            stop.wait(max(every, EVERY))
