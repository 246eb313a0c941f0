"""Live pages: server-sent events say that something changed, and the page asks for itself again.

One thread looks at the database once a second while any page is open, and not at all otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import psycopg
from anyio.to_thread import run_sync

from mempair_db import errors
from mempair_db.web.look import Look, looking
from mempair_db.web.quality import Quality

EVERY: Final = 1.0  # seconds between two looks
BEAT: Final = 15.0  # seconds after which a silent stream says that it is alive
AWAY: Final = "the database does not answer"


class Hub:
    """Tells every open page when what it shows has changed."""

    def __init__(self, dsn: Callable[[], str], quality: Quality) -> None:
        """Look at this database."""
        self._dsn, self._quality = dsn, quality
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
        return str([(m["model_id"], measured.taken) for m in models if (measured := self._quality.of(m["model_id"]))])

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
