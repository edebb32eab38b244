"""Location of the receivers of a bulk simulation, and when messages between them arrive.

Times are in ms. Unless stated otherwise they are schedule times; true time is that minus a node's clock error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from levelcast.network.regions.delays import Delays
from levelcast.timing.rules import GUARD_NS, Timing

Floats = npt.NDArray[np.float32]
Times = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

NS_PER_MS = 1e6
GUARD_MS = GUARD_NS / NS_PER_MS


@dataclass(frozen=True, slots=True)
class Core:
    """Location of all receivers, layer by layer.

    Receivers 0 to m − 1 are the primaries in ring order, with `home` = own index. The others' is in the layer above.
    """

    delays: Delays
    city: Indexes
    home: Indexes
    sources: Indexes
    """City of each source."""
    timing: Timing
    witnesses: int
    clock_ms: Times
    """Clock error of each receiver; positive if its clock is ahead."""
    clock_error_ms: float
    """Maximum of these errors, as the ring is configured."""
    branch_loss: float = 0.0
    """Probability that a multicast is lost for all receivers of a city (MS §3.9), added to the loss of each copy."""

    @property
    def receivers(self) -> int:
        return len(self.city)

    @property
    def primaries(self) -> int:
        return int((self.home == np.arange(len(self.home))).sum())

    @property
    def layer_starts(self) -> list[int]:
        """First receiver of each layer, and the number of receivers."""
        starts, numbers = [0, self.primaries], np.arange(self.receivers)
        while starts[-1] < self.receivers:
            below = (self.home >= starts[-2]) & (self.home < starts[-1]) & (numbers >= starts[-1])
            starts.append(starts[-1] + int(below.sum()))
        return starts


class SitePaths:
    """Messages between cities, and between receivers."""

    def __init__(self, core: Core, rng: np.random.Generator) -> None:
        self.core = core
        self.rng = rng
        delays = core.delays
        self.delay, self.jitter, self.loss, self.quantile = (
            matrix.astype(np.float32) for matrix in (delays.delay_ms, delays.jitter_ms, delays.loss, delays.quantile_ms)
        )
        senders = np.unique(np.concatenate([core.city, core.sources]))
        self.reorder_ms = float(self.jitter[np.ix_(senders, np.unique(core.city))].max()) + GUARD_MS
        """Time within which packets of one sender may overtake each other."""
        self._links: list[list[list[float]]] = np.stack([self.delay, self.jitter, self.loss], axis=-1).tolist()
        self._rows: dict[int, tuple[Floats, Floats, Floats]] = {}
        """Delay, jitter and loss from a city to every receiver."""

    def missing_after_ms(self, city: int) -> Floats:
        """Return the time after which a message from a city counts as missing at each receiver (rule 5)."""
        usual = self.quantile[city][self.core.city] + np.float32(2 * self.core.clock_error_ms + GUARD_MS)
        missing: Floats = np.minimum(usual, np.float32(self.core.timing.late_ns / NS_PER_MS))
        return missing

    def round_trip_ms(self, a: Indexes, b: Indexes) -> Floats:
        """Return the round trips between receivers that all but late packets keep."""
        here, there = self.core.city[a], self.core.city[b]
        both: Floats = self.quantile[here, there] + self.quantile[there, here]
        return both

    def multicast(self, city: int, at_ms: float) -> Times:
        """Return when a multicast reaches each receiver; inf if it is lost."""
        if city not in self._rows:
            to = self.core.city
            self._rows[city] = self.delay[city][to], self.jitter[city][to], self.loss[city][to]
        arrives = self._arrives(*self._rows[city], at_ms)
        if self.core.branch_loss:
            gone = self.rng.random(len(self.delay)) < self.core.branch_loss
            gone[city] = False
            arrives[gone[self.core.city]] = np.inf
        return arrives

    def unicast(self, sender: Indexes, to: Indexes, at_ms: float | Times) -> Times:
        """Return when messages between cities arrive; inf for those that are lost."""
        return self._arrives(self.delay[sender, to], self.jitter[sender, to], self.loss[sender, to], at_ms)

    def message(self, sender: int, to: int, at_ms: float) -> float:
        """Return when one message between cities arrives; inf if it is lost."""
        delay_ms, jitter_ms, loss = self._links[sender][to]
        if self.rng.random() < loss:
            return np.inf
        return at_ms + delay_ms + jitter_ms * self.rng.random()

    def _arrives(self, delay: Floats, jitter: Floats, loss: Floats, at_ms: float | Times) -> Times:
        """Return when messages over these links arrive; inf for lost ones. One draw decides both loss and jitter."""
        chance = self.rng.random(len(loss), np.float32)
        kept = (chance - loss) / np.maximum(1.0 - loss, 1e-6)
        arrives: Times = at_ms + delay + (jitter * kept).astype(np.float64)
        arrives[chance < loss] = np.inf
        return arrives
