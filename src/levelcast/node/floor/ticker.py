"""Trades of a floor to the ticker of its network (T4): each exactly once, in the floor's order.

The publisher's journal counts the records that it has published over all starts. The trades are a function of the tape,
so a restarted floor skips that many.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np

from levelcast.client.publisher import Publisher
from levelcast.network import Network
from levelcast.records import RTYPE_TRADE, TRADE, RecordArray, split

CHECK_NS = 10_000_000
"""Interval of attempts while the ring gives no credit."""


class Ticker:
    def __init__(self, network: Network, floor: str, directory: Path, interface: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._publisher = Publisher(network, floor, data=directory, interface=interface)
        self.publisher_id = self._publisher.floor.publisher
        ids = self._publisher.directory.ids_of(self._publisher.floor)
        self.symbols: dict[str, int] = {str(symbol): int(number) for symbol, number in ids.items()}
        self._skip = self._publisher.published
        self._waiting: deque[RecordArray] = deque()

    def release(self, payload: bytes) -> None:
        """Queue the trades of a frame's public records."""
        if not payload:
            return
        for batch in split(payload):
            if batch.kind.rtype == RTYPE_TRADE:
                records = batch.records.astype(TRADE, copy=True)
                skipped = min(self._skip, len(records))
                self._skip -= skipped
                if skipped < len(records):
                    self._waiting.append(records[skipped:])
        self.push()

    def push(self) -> None:
        """Publish what the queue has room for."""
        while self._waiting and (room := self._publisher.room):
            records = self._waiting.popleft()
            if len(records) > room:
                self._waiting.appendleft(records[room:])
                records = records[:room]
            self._publisher.publish(np.ascontiguousarray(records), block=False)

    def wake_ns(self, now: int) -> int | None:
        return now + CHECK_NS if self._waiting else None

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting))

    @property
    def witnessed(self) -> int:
        return self._publisher.witnessed

    def close(self) -> None:
        self._publisher.close()
