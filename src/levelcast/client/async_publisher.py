"""Publish from an event loop, with `async with levelcast.Publisher(...)`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from levelcast.client.floor_input import FloorCounts, FloorInput
from levelcast.records import RecordArray


class AsyncPublisher(FloorCounts):
    """A `Publisher` for an event loop: `publish` and `flush` are awaited, and may be cancelled."""

    def __init__(self, floor: FloorInput) -> None:
        self._input = floor

    async def publish(self, records: RecordArray) -> int:
        """Queue all records. If it is cancelled, the records queued so far are published."""
        records = self._input.checked(records)
        taken = 0

        def advance() -> bool:
            nonlocal taken
            taken = self._input.put(records, taken)
            return taken == len(records)

        await self._until(advance)
        return taken

    async def flush(self) -> None:
        """Wait until all accepted records are witnessed."""

        def settled() -> bool:
            self._input.check()
            return self._input.settled

        await self._until(settled)

    async def _until(self, condition: Callable[[], bool]) -> None:
        if condition():
            return
        running, turned = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            if not running.is_closed():
                running.call_soon_threadsafe(turned.set)

        watchers = self._input.loop.watchers
        watchers.append(notify)
        try:
            while not condition():
                await turned.wait()
                turned.clear()
        finally:
            watchers.remove(notify)
