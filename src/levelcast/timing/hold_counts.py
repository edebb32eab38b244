"""Count the slots of many blocks by the hold time that they need."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from levelcast.timing.hold_draws import Floats, Ints
from levelcast.timing.hold_model import BlockTimes
from levelcast.timing.hold_rules import HoldInput

BINS_MS = 8_192
"""Longest time that is told apart, in ms."""
CAUSE_MS = 8
"""Width of the bins in which causes are counted."""


@dataclass
class HoldCounts:
    """Counts over blocks, per receiver, in bins of 1 ms: the number of slots that need more than so many ms."""

    group: HoldInput
    slots: int = 0
    seconds: float = 0.0
    requests: int = 0
    unneeded: int = 0
    held: Ints = field(init=False)
    witnessed: Ints = field(init=False)
    needed: Ints = field(init=False)
    """The later of the two."""
    runs: Ints = field(init=False)
    """At each hold time, the runs of late slots: slots that one event makes late are one run."""
    causes: Ints = field(init=False)
    """Repairs by receiver, owner, kind and time in bins of `CAUSE_MS`."""

    def __post_init__(self) -> None:
        n = self.group.receivers
        self.held, self.witnessed, self.needed, self.runs = (np.zeros((n, BINS_MS), dtype=np.int64) for _ in range(4))
        self.causes = np.zeros((n, self.group.members, 2, BINS_MS // CAUSE_MS), dtype=np.int64)

    def add(self, times: BlockTimes) -> None:
        """Add one block."""
        n = self.group.receivers
        held, witnessed = (times.after_slot(each) for each in (times.held_ms, times.witnessed_ms))
        needed = np.maximum(held, witnessed)
        for counts, values in ((self.held, held), (self.witnessed, witnessed), (self.needed, needed)):
            counts += _histogram(_bins(values), n)
        bins = _bins(needed)
        rises = bins[1:] > bins[:-1]
        columns = np.nonzero(rises)[1]
        opened = np.bincount(columns * BINS_MS + bins[:-1][rises], minlength=n * BINS_MS)
        closed = np.bincount(columns * BINS_MS + bins[1:][rises], minlength=n * BINS_MS)
        self.runs += np.cumsum((opened - closed).reshape(n, BINS_MS), axis=1)
        member, owner, kind, after = times.causes
        bins = _bins(after) // CAUSE_MS
        cell = ((member * self.group.members + owner) * 2 + kind) * self.causes.shape[-1] + bins
        self.causes += np.bincount(cell, minlength=self.causes.size).reshape(self.causes.shape)
        self.slots += len(needed)
        self.seconds += len(times.held_ms) * self.group.slot_ms / 1e3
        self.requests += times.requests
        self.unneeded += times.unneeded

    def merge(self, other: HoldCounts) -> None:
        """Add the counts of another run."""
        for name in ("slots", "seconds", "requests", "unneeded"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("held", "witnessed", "needed", "runs", "causes"):
            getattr(self, name).__iadd__(getattr(other, name))

    def late(self, hold_ms: int) -> Ints:
        """Return the slots that each receiver releases late with a hold time of whole ms."""
        found: Ints = self.needed[:, hold_ms + 1 :].sum(axis=1)
        return found

    def quantile_ms(self, counts: Ints, share: float) -> int:
        """Return the least whole ms that all but `share` of the slots in `counts` keep."""
        above = counts.sum() - np.cumsum(counts)
        return int(np.argmax(above <= share * counts.sum()))


def _bins(values_ms: Floats) -> Ints:
    """Return the whole ms that a time needs."""
    return np.clip(np.ceil(values_ms), 0, BINS_MS - 1).astype(np.int64)


def _histogram(bins: Ints, receivers: int) -> Ints:
    cells = bins + np.arange(receivers) * BINS_MS
    return np.bincount(cells.ravel(), minlength=receivers * BINS_MS).reshape(receivers, BINS_MS)
