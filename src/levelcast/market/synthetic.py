"""Plausible trades for a floor that has no real ones to send.

- A floor trades its symbols in bursts: bursts come as a Poisson process, a burst is one large order that
  takes several resting ones, so its trades have one side, and the price gives way tick by tick.
- A price walks on its tick grid; sizes are round lots, mostly small.

Each floor draws from its own generator, seeded by the run's seed and the floor's name, so that nothing that happens
on the network changes a trade.
"""

from __future__ import annotations

from random import Random

import numpy as np

from levelcast.network import Floor, SymbolDirectory
from levelcast.network.symbols import symbols_of
from levelcast.records import RecordArray, price_from_decimal, trades

MOST_RECORDS = 20
"""20 trades of 64 bytes and the headers fit an Ethernet frame."""
BURST_GAP_NS = 40_000_000
"""Between two bursts of a floor, on average."""
TRADES_PER_BURST = 6
MOST_PER_BURST = 60
LOT = 100


class Symbol:
    """One instrument and its price, a whole number of ticks."""

    def __init__(self, name: str, instrument_id: int, rng: Random) -> None:
        self.name = name
        self.instrument_id = instrument_id
        if name.isdigit():  # Tokyo names companies by number, and prices them in whole yen
            start, tick = rng.uniform(800, 9000), "1"
        else:
            start = 8.0 * 50.0 ** rng.random()
            tick = "0.01" if start < 100 else "0.05"
        self.tick = price_from_decimal(tick)
        self.ticks = int(start / float(tick))
        self._least = self.ticks // 2

    @property
    def price(self) -> int:
        return self.ticks * self.tick

    def move(self, direction: int) -> None:
        self.ticks = max(self._least, self.ticks + direction)


class Trades:
    """The trades of one floor, burst by burst; `made` of them were made before, by the same floor."""

    def __init__(self, floor: Floor, seed: int, made: int = 0, directory: SymbolDirectory | None = None) -> None:
        self.floor = floor
        self._rng = Random(f"levelcast trades {seed} {floor.name}")
        ids = directory.ids_of(floor) if directory is not None else _ids_of_its_own(floor)
        self.symbols = [Symbol(name, instrument_id, self._rng) for name, instrument_id in ids.items()]
        # The n-th symbol trades 1/n as often as the first, as volumes on real floors roughly do.
        self._weights = [1.0 / (i + 1) for i in range(len(ids))]
        self._last_ns = 0
        self.made = made
        """How many trades there have been so far; trade ids count from 1."""

    def gap_ns(self) -> int:
        """The time to the next burst."""
        return 1 + int(self._rng.expovariate(1.0) * BURST_GAP_NS)

    def burst(self, now_ns: int) -> RecordArray:
        """The trades of one burst, the last of them at `now_ns`."""
        rng = self._rng
        count = min(1 + int(rng.expovariate(1.0) * TRADES_PER_BURST), MOST_PER_BURST)
        symbol = rng.choices(self.symbols, self._weights)[0]
        buys = rng.random() < 0.5
        batch = trades(count)
        batch["publisher_id"] = self.floor.publisher
        batch["instrument_id"] = symbol.instrument_id
        batch["side"] = b"B" if buys else b"A"
        batch["trade_id"] = batch["venue_sequence"] = np.arange(self.made + 1, self.made + 1 + count)
        at_ns = max(self._last_ns + 1, now_ns - 20_000 * count)
        for i in range(count):
            if rng.random() < 0.3:
                symbol.move(1 if buys else -1)
            at_ns = min(now_ns, at_ns + rng.randint(1_000, 20_000))
            batch["ts_event"][i] = at_ns
            batch["price"][i] = symbol.price
            batch["size"][i] = LOT * (1 + int(rng.expovariate(0.6)))
        self._last_ns = at_ns
        self.made += count
        return batch


def _ids_of_its_own(floor: Floor) -> dict[str, int]:
    """Ids for where there is no network, and so no directory: no other floor has them."""
    return {symbol: 1000 * floor.publisher + i for i, symbol in enumerate(symbols_of(floor), 1)}
