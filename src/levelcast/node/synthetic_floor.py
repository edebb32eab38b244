"""Run a synthetic floor: generate trades at a set rate and submit them as packets of its source."""

from __future__ import annotations

from threading import Condition

import numpy as np

from levelcast.client.packet_queue import PacketQueue
from levelcast.market.synthetic import MOST_RECORDS, Trades
from levelcast.network import Floor, SymbolDirectory
from levelcast.protocol.effects import Effect
from levelcast.records import TRADE, instruments
from levelcast.ring.source import Source

TICK_NS = 5_000_000
"""Interval at which a floor checks whether trades are due."""
MOST_ARREARS_NS = 1_000_000_000
"""A floor without credit for longer catches up only on this much."""


class SyntheticFloor:
    """Trade `rate` records/s until `until_ns`; without credit (rule 10), stop trading and wait.

    With a directory, its symbols are defined before its first trade.
    """

    def __init__(
        self,
        floor: Floor,
        source: Source,
        rate: float,
        now: int,
        until_ns: int | None,
        seed: int,
        directory: SymbolDirectory | None = None,
    ) -> None:
        self.source = source
        self.until_ns = until_ns
        self.wake_ns: int | None = now
        # A packet has up to MOST_RECORDS trades, so these ids are unused, whatever an earlier process sent.
        first = (source.witnessed + source.unwitnessed) * MOST_RECORDS
        self._trades = Trades(floor, seed + first, first, directory)
        definitions = directory.definitions(floor, now) if directory is not None else instruments(0)
        packet_bytes = source.overhead + MOST_RECORDS * TRADE.itemsize
        self._queue = PacketQueue(source, definitions, None, Condition(), packet_bytes)
        self._gap_ns = 1e9 / rate
        self._due_ns = float(now)

    @property
    def published(self) -> int:
        """Trades submitted since the start."""
        return self._queue.total

    @property
    def waiting(self) -> int:
        """Trades that wait for credit."""
        return self._queue.waiting

    def is_closed(self, now: int) -> bool:
        return self.until_ns is not None and now >= self.until_ns

    def step(self, now: int) -> list[Effect]:
        """Generate the trades that are due and submit them, as credit allows."""
        effects = self._queue.step(now)
        self._due_ns = max(self._due_ns, now - MOST_ARREARS_NS)
        if not self.waiting:
            bursts = []
            while self._due_ns <= now and not self.is_closed(now):
                bursts.append(self._trades.burst(now))
                self._due_ns += len(bursts[-1]) * self._gap_ns
            if bursts:  # together, so that their packets are full
                batch = np.concatenate(bursts)
                self._queue.put(batch)
                effects += self._queue.step(now)
        closed = self.is_closed(now) and not self.waiting
        self.wake_ns = None if closed else max(now + TICK_NS, int(0 if self.waiting else self._due_ns))
        return effects
