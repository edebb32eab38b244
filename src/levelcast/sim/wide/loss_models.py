"""Loss of copies over time: outages, bursts, and the paths that TT measured (TT §3, Figure 1 and Table 1).

The printed losses of Table 1 fit independent losses of copies, except at `tu`: there .04 % of the messages are lost
whatever the number of copies, which an outage explains. Figure 1 is printed without its values; the text states that
`ucla` receives about 30 % within 120 to 150 ms, that the mean of `des` is 240 ms, and that loss and variance grow with
the distance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

MS = 1_000_000


class BurstLoss:
    """Alternating good and bad spells of exponential duration; every copy in a bad spell is lost (Gilbert)."""

    def __init__(self, loss: float, mean_burst_ns: float, rng: Random) -> None:
        self._rng = rng
        self._mean_ns = (mean_burst_ns * (1 - loss) / loss, mean_burst_ns)
        self._bad = rng.random() < loss
        self._until_ns: float | None = None

    def __call__(self, at_ns: int) -> bool:
        """Return whether a copy is lost that is sent at this time, which is not before that of the last call."""
        if self._until_ns is None:
            self._until_ns = at_ns + self._spell_ns()
        while self._until_ns <= at_ns:
            self._bad = not self._bad
            self._until_ns += self._spell_ns()
        return self._bad

    def _spell_ns(self) -> float:
        return self._rng.expovariate(1 / self._mean_ns[self._bad])


@dataclass(frozen=True, slots=True)
class MeasuredPath:
    """A path from `ktsun0` of TT §3."""

    least_ms: float
    """Delay without a queue."""
    queue_ms: float
    """Mean of the additional delay, which is the sum of two exponential ones."""
    loss: float
    outage: float = 0.0
    """Fraction of messages that are sent while no copy arrives."""

    def delays_ms(self, copies: int, rng: Random) -> list[float]:
        """Return the delays of the copies of one message that arrive."""
        if rng.random() < self.outage:
            return []
        arriving = sum(rng.random() >= self.loss for _ in range(copies))
        return [self.least_ms + rng.gammavariate(2, self.queue_ms / 2) for _ in range(arriving)]


MEASURED_PATHS = {
    "tu": MeasuredPath(50, 10, 0.0088, 0.0004),
    "ucla": MeasuredPath(115, 62, 0.101),
    "des": MeasuredPath(150, 90, 0.119),
}
"""By destination."""


def received_share(path: MeasuredPath, copies: int, messages: int, rng: Random) -> float:
    """Return the fraction of messages of which at least one copy arrives (Table 1)."""
    return sum(bool(path.delays_ms(copies, rng)) for _ in range(messages)) / messages


def lost_share(is_lost: Callable[[int], bool], copies: int, spacing_ns: int, messages: int, every_ns: int) -> float:
    """Return the fraction of messages all copies of which are lost, at a spacing of the copies."""
    lost = 0
    for number in range(messages):
        fates = [is_lost(number * every_ns + copy * spacing_ns) for copy in range(copies)]
        lost += all(fates)
    return lost / messages
