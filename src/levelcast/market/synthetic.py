"""Generate plausible trades for a floor without real ones.

- A floor trades its symbols in bursts, which are a Poisson process. A burst is one large order that fills several
  resting ones, so its trades have one side, and the price moves tick by tick.
- A price is a random walk on its tick grid; sizes are round lots, mostly small.

Each floor has its own random generator, seeded by the run's seed and the floor's name, so that events on the network
do not change a trade.
"""

from __future__ import annotations

from random import Random

import numpy as np

from levelcast.network import Floor, SymbolDirectory
from levelcast.network.symbols import symbols_of
from levelcast.records import RecordArray, price_from_decimal, trades

MOST_RECORDS = 20
"""Maximum trades per packet: 20 trades of 64 bytes and the headers fit an Ethernet frame."""
BURST_GAP_NS = 40_000_000
"""Mean time between two bursts of a floor."""
TRADES_PER_BURST = 6
MOST_PER_BURST = 60
LOT = 100


class Symbol:
    """One instrument and its price, an integer number of ticks."""

    def __init__(self, name: str, instrument_id: int, rng: Random) -> None:
        self.name = name
        self.instrument_id = instrument_id
        if name.isdigit():  # in Tokyo, symbols are numbers and prices are integers in yen
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
    """The trades of one floor, in bursts; `made` is the number of trades that the floor has generated before."""

    def __init__(self, floor: Floor, seed: int, made: int = 0, directory: SymbolDirectory | None = None) -> None:
        self.floor = floor
        self._rng = Random(f"levelcast trades {seed} {floor.name}")
        ids = directory.ids_of(floor) if directory is not None else _ids_of_its_own(floor)
        self.symbols = [Symbol(name, instrument_id, self._rng) for name, instrument_id in ids.items()]
        # The n-th symbol trades 1/n as often as the first, approximately as volumes on real floors.
        self._weights = [1.0 / (i + 1) for i in range(len(ids))]
        self._last_ns = 0
        self.made = made
        """Number of trades so far; trade ids count from 1."""

    def gap_ns(self) -> int:
        """Return the time to the next burst."""
        return 1 + int(self._rng.expovariate(1.0) * BURST_GAP_NS)

    def burst(self, now_ns: int) -> RecordArray:
        """Return the trades of one burst, the last of them at `now_ns`."""
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
    """Return ids without a network and directory; no other floor has them."""
    return {symbol: 1000 * floor.publisher + i for i, symbol in enumerate(symbols_of(floor), 1)}
