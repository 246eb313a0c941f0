"""Live pages: server-sent events say that something changed, and the page asks for itself again.

One thread looks at the database once a second while any page is open, and not at all otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Lock
from typing import Any, Final

import psycopg
from anyio.to_thread import run_sync

from mempair_db import errors
from mempair_db.web.look import Look, looking
from mempair_db.web.quality import Quality
from mempair_db.worker.lag import Ages

EVERY: Final = 1.0  # seconds between two looks
BEAT: Final = 15.0  # seconds after which a silent stream says that it is alive
AWAY: Final = "the database does not answer"


class Hub:
    """Tells every open page when what it shows has changed."""

    def __init__(self, dsn: Callable[[], str], quality: Quality) -> None:
        """Look at this database."""
        self._dsn, self._quality = dsn, quality
        self._ages, self._looking = Ages(), Lock()
        self._changed = asyncio.Condition()
        self._listeners = 0
        self._wake = asyncio.Event()
        self.stamp = ""
        self.notes: dict[str, str] = {}  # what else a page may show, such as the progress of a verification

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            if not self._listeners:
                self._wake.clear()
                await self._wake.wait()
            stamp = await run_sync(self._look)
            if stamp != self.stamp:
                async with self._changed:
                    self.stamp = stamp
                    self._changed.notify_all()
            await asyncio.sleep(EVERY)

    def _look(self) -> str:
        try:
            with looking(self._dsn()) as look:
                part = look.part(lambda: str(look.rows("stamp")[0]["stamp"]))
                measured = self._measure(look)
        except (psycopg.Error, errors.MempairError):
            return AWAY
        return f"{part.value or part.missing} {measured} {sorted(self.notes.items())}"

    def _measure(self, look: Look) -> str:
        models = look.part(lambda: look.rows("models", model=None)).value or []
        self._quality.measure(look, models)
        measured = [(m["model_id"], found.taken) for m in models if (found := self._quality.of(m["model_id"]))]
        return f"{measured} {[int(self.lag(model)) for model in models]}"

    def lag(self, model: dict[str, Any]) -> float:
        """Return for how many seconds the oldest change of a model has waited, as far as this page has seen it."""
        oldest, waited = model["oldest_change"], model["waited"]
        with self._looking:
            age = self._ages.age(model["model_id"], oldest, model["captured"] or oldest or 0)
        return max(age, waited.total_seconds() if waited else 0.0) if oldest is not None else 0.0

    async def events(self) -> AsyncIterator[str]:
        """Yield an event for every change, and a comment in quiet times."""
        self._listeners += 1
        self._wake.set()
        seen = self.stamp
        try:
            yield "retry: 2000\n\nevent: changed\ndata: \n\n"  # something may have changed since the page was made
            while True:
                async with self._changed:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._changed.wait_for(lambda: self.stamp != seen), BEAT)  # noqa: B023
                yield ": alive\n\n" if seen == self.stamp else "event: changed\ndata: \n\n"
                seen = self.stamp
        finally:
            self._listeners -= 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look while the block runs."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
