"""A floor at work over real sockets: synthetic trades at a set rate become packets of its source."""

from __future__ import annotations

import numpy as np

from levelcast.market.synthetic import MOST_RECORDS, Trades
from levelcast.network import Floor, SymbolDirectory
from levelcast.protocol.effects import Effect
from levelcast.records import RecordArray, trades
from levelcast.ring.source import Source

TICK_NS = 5_000_000
"""How often a floor looks whether it has to trade."""
MOST_ARREARS_NS = 1_000_000_000
"""A floor that had no credit for longer does not make up for it all."""


DEFINITIONS_PER_PACKET = 2
"""As many as fit an Ethernet frame."""


def definition_packets(directory: SymbolDirectory, floor: Floor, now: int) -> list[tuple[bytes, int]]:
    """The payloads, with their counts, that define a floor's symbols before its first trade."""
    batch = directory.definitions(floor, now)
    parts = [batch[i : i + DEFINITIONS_PER_PACKET] for i in range(0, len(batch), DEFINITIONS_PER_PACKET)]
    return [(part.tobytes(), len(part)) for part in parts]


class SyntheticFloor:
    """Trades `rate` records a second until `until_ns`; without credit (rule 10) it stops trading and waits.

    With a directory its symbols are defined before its first trade.
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
        self.published = 0
        """Trades that were submitted since the start."""
        self.wake_ns: int | None = now
        # A packet has up to MOST_RECORDS trades, so these ids are free, whatever the process before this one has sent.
        first = (source.witnessed + source.unwitnessed) * MOST_RECORDS
        self._trades = Trades(floor, seed + first, first, directory)
        self._definitions = definition_packets(directory, floor, now) if directory is not None else []
        self._gap_ns = 1e9 / rate
        self._due_ns = float(now)
        self._waiting: RecordArray = trades(0)

    @property
    def waiting(self) -> int:
        """Trades that are held back for want of credit."""
        return len(self._waiting)

    def is_closed(self, now: int) -> bool:
        return self.until_ns is not None and now >= self.until_ns

    def step(self, now: int) -> list[Effect]:
        """Trade what is due and submit it, as far as there is credit."""
        effects = self._submit(now)
        self._due_ns = max(self._due_ns, now - MOST_ARREARS_NS)
        if not self.waiting:
            bursts = []
            while self._due_ns <= now and not self.is_closed(now):
                bursts.append(self._trades.burst(now))
                self._due_ns += len(bursts[-1]) * self._gap_ns
            if bursts:  # together, so that their packets are full
                self._waiting = np.concatenate(bursts)
                effects += self._submit(now)
        closed = self.is_closed(now) and not self.waiting
        self.wake_ns = None if closed else max(now + TICK_NS, int(0 if self.waiting else self._due_ns))
        return effects

    def _submit(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._definitions and len(self._waiting) and self.source.room:
            payload, records = self._definitions.pop(0)
            effects += self.source.submit(payload, records, now)
        while len(self._waiting) and not self._definitions and self.source.room:
            batch, self._waiting = self._waiting[:MOST_RECORDS], self._waiting[MOST_RECORDS:]
            self.published += len(batch)
            effects += self.source.submit(batch.tobytes(), len(batch), now)
        return effects
