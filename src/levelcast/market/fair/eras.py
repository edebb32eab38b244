"""The rules of order entry over time, and the borders of buckets (E5, E7, E8).

A record with rules counts if it follows the record before it, as a timing record does (W9, `levelcast.protocol.pace`):

- its version is the next one; the first has version 1;
- the rules before it apply already when it is ordered, so that there is one change under way at most;
- it is released, at timestamp + Δ_A of its frame, before `from_ns`: all gateways know it by then.

The time in which rules apply is an *era*. Before the first record there are no gateways. An era consists of epochs. In
each, borders of buckets are at start + phase + i·q, where phase = hash(chain hash of the last frame before the epoch,
start) mod q. The phase is unknown to traders until the epoch is over: the frame is released Δ_A ≥ 2 epochs later.

Deviation from E5: a bucket at the end of an epoch continues until the first border of the next epoch, so that an epoch
adds no border. An era begins with a border, and q is at most an epoch, as in E5. The start of the epoch is hashed too:
otherwise epochs without a frame between them would have the same phase.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

import blake3
import numpy as np
import numpy.typing as npt

from levelcast.wire.entry_change import EntryRules

NEVER = 2**63 - 1
"""The end of a bucket that is not known yet, and of the last era."""
Stamps = npt.NDArray[np.int64]
_TIME = Struct("<q")


class ChainLog:
    """Chain hashes of the last frames, by timestamp."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.chains: list[bytes] = []

    def append(self, timestamp_ns: int, chain: bytes) -> None:
        self.times.append(timestamp_ns)
        self.chains.append(chain)

    def before(self, time_ns: int) -> bytes | None:
        """Return the chain hash of the last frame before this time; b"" before the first, None if not known yet."""
        if not self.times or self.times[-1] < time_ns:
            return None
        place = bisect_left(self.times, time_ns)
        return self.chains[place - 1] if place else b""

    def forget(self, time_ns: int) -> None:
        """Keep the frames from this time on, and one before."""
        place = bisect_left(self.times, time_ns) - 1
        if place > 64:
            del self.times[:place], self.chains[:place]


class EntryEra(NamedTuple):
    """The time in which one version of the rules applies."""

    rules: EntryRules
    until_ns: int = NEVER

    @property
    def from_ns(self) -> int:
        return self.rules.from_ns

    @property
    def quantum_ns(self) -> int:
        """q, at most an epoch: each epoch has a border."""
        return min(self.rules.quantum_ns, self.rules.epoch_ns)

    def ends(self, stamps: Stamps, log: ChainLog) -> Stamps:
        """Return the end of the bucket of each stamp of this era, `NEVER` where it is not known yet."""
        rules = self.rules
        if self.quantum_ns == 0:
            return stamps + 1
        found = np.full(len(stamps), NEVER, np.int64)
        epochs = (stamps - self.from_ns) // rules.epoch_ns
        numbers = (int(epochs[0]),) if len(epochs) and (epochs == epochs[0]).all() else np.unique(epochs).tolist()
        for epoch in numbers:
            here = slice(None) if len(numbers) == 1 else epochs == epoch
            found[here] = self._ends_in(stamps[here], int(epoch), log)
        return found

    def _ends_in(self, stamps: Stamps, epoch: int, log: ChainLog) -> Stamps:
        quantum_ns = self.quantum_ns
        first = self._first_border(epoch, log)
        if first is None:
            return np.full(len(stamps), NEVER, np.int64)
        end_ns = self.from_ns + (epoch + 1) * self.rules.epoch_ns
        steps = (stamps - first) // quantum_ns + 1
        ends = first + np.maximum(steps, 0) * quantum_ns
        over = ends >= end_ns
        if over.any():
            ends[over] = self._border_from(epoch + 1, log)
        result: Stamps = np.minimum(ends, self.until_ns)
        return result

    def _first_border(self, epoch: int, log: ChainLog) -> int | None:
        """Return start + phase of an epoch, which may be after its end; None if it is not known yet."""
        start_ns = self.from_ns + epoch * self.rules.epoch_ns
        chain = log.before(start_ns)
        if chain is None:
            return None
        return start_ns + phase(chain, start_ns, self.quantum_ns)

    def _border_from(self, epoch: int, log: ChainLog) -> int:
        """Return the first border in this epoch or a later one; `NEVER` if it is not known yet."""
        while True:
            start_ns = self.from_ns + epoch * self.rules.epoch_ns
            if start_ns >= self.until_ns:
                return self.until_ns
            border = self._first_border(epoch, log)
            if border is None:
                return NEVER
            if border < start_ns + self.rules.epoch_ns:
                return border
            epoch += 1

    def border_before(self, time_ns: int, log: ChainLog) -> int:
        """Return the last border at or before a time of this era that is not after the last frame."""
        rules = self.rules
        if self.quantum_ns == 0:
            return time_ns
        epoch = (time_ns - self.from_ns) // rules.epoch_ns
        while epoch >= 0:
            first = self._first_border(epoch, log)
            last_ns = min(time_ns, self.from_ns + (epoch + 1) * rules.epoch_ns - 1)
            if first is not None and first <= last_ns:
                return first + (last_ns - first) // self.quantum_ns * self.quantum_ns
            epoch -= 1
        return self.from_ns


def phase(chain: bytes, start_ns: int, quantum_ns: int) -> int:
    """Return where the buckets of an epoch begin, from 0 to q."""
    return int.from_bytes(blake3.blake3(chain + _TIME.pack(start_ns)).digest(length=16), "little") % quantum_ns


def rules_follow(eras: list[EntryEra], rules: EntryRules, timestamp_ns: int) -> bool:
    """Return whether rules in a frame with this timestamp count after these eras."""
    if not is_known_in_time(rules, timestamp_ns):
        return False
    last = eras[-1].rules if eras else None
    if last is None:
        return rules.version == 1
    return rules.version == last.version + 1 and last.from_ns <= timestamp_ns


def is_known_in_time(rules: EntryRules, timestamp_ns: int) -> bool:
    """Return whether all receivers have released these rules before they apply."""
    return rules.from_ns > timestamp_ns + rules.hold_ns


def with_rules(eras: list[EntryEra], rules: EntryRules, timestamp_ns: int) -> list[EntryEra]:
    """Return the eras after a frame with this timestamp."""
    if not rules_follow(eras, rules, timestamp_ns):
        return eras
    ended = [*eras[:-1], eras[-1]._replace(until_ns=rules.from_ns)] if eras else []
    return [*ended, EntryEra(rules)]
