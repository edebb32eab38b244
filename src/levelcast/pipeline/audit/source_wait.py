"""Measure how long sources wait for their acknowledgement, and compute the expected wait.

A tape contains the time of a packet's last record (`ts_event`, by the floor's clock) and the time at which the ring
acknowledged it (the frame's timestamp). Expected wait (rule 2): a packet leaves at a time that is independent of the
ring. The site with the first slot after the packet's arrival there acknowledges it. `chance_of` computes the wait
from the links of the network file, for every phase of the ring's round at which a packet may leave. The network file
does not explain a wait beyond that.

A tape does not contain the owner of a slot, and it changes with every generation. So the excess over the expected
wait is summed for every slot at which the round may begin. In each window, the start that fits the packets of all
sources best counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.network import Network
from levelcast.pipeline.audit.stats import Counts, Floats, add_fields, histogram, no_bins
from levelcast.records import WORD_BYTES, last_record
from levelcast.records.codes import UNDEF_TIMESTAMP
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import Index, Ints, Rows, read_index
from levelcast.wire.messages import CONTROL_SOURCE

PHASES_PER_SLOT = 200
_LONGEST_CYCLES = 4
_EVENT_AT = 8
"""Offset of `ts_event` in every record."""


class Windows(NamedTuple):
    """Equal parts of time: `parts` of `width_ns`, starting at `start_ns`."""

    start_ns: int
    width_ns: int
    parts: int

    def of(self, timestamps: Ints) -> Ints:
        return np.clip((timestamps - self.start_ns) // self.width_ns, 0, self.parts - 1)


class Chance(NamedTuple):
    """Expected wait of a floor's packets, by the phase of the ring's round at which they leave."""

    slot_ns: int
    wait_ns: Floats
    """`PHASES_PER_SLOT` values for each slot of the round."""

    @property
    def mean_ns(self) -> float:
        return float(self.wait_ns.mean())

    @property
    def round(self) -> int:
        """Number of slots in the round."""
        return len(self.wait_ns) // PHASES_PER_SLOT

    def beyond(self, slots: Ints, waits: Ints, first: int) -> Floats:
        """Return the wait of packets of these slots beyond the expected wait, if the round begins at slot `first`."""
        left_at = slots - waits / self.slot_ns - first
        phase = (np.mod(left_at, self.round) * PHASES_PER_SLOT).astype(np.int64)
        more: Floats = waits - self.wait_ns[np.minimum(phase, len(self.wait_ns) - 1)]
        return more


@dataclass(slots=True)
class Waits:
    """Packets of one source and the sum of their waits by window, and a histogram of all waits."""

    counts: Counts
    sums: Floats
    bins: Counts = field(default_factory=no_bins)
    beyond: Floats | None = None
    """Sums of the excess over the expected wait, for every start of the round (row) and window."""
    squares: Floats | None = None

    def add(self, other: Waits) -> None:
        add_fields(self, other, ("counts", "sums", "bins", "beyond", "squares"))


def waits_of(segment: SegmentFile, *, windows: Windows, chances: Mapping[int, Chance]) -> dict[int, Waits]:
    """Return the waits of every source in one segment, with the excess for sources in the network file."""
    index = read_index(segment.index_path)
    if not len(index.lines):
        return {}
    content = np.frombuffer(segment.data_path.read_bytes(), np.uint8)
    packets, frames = index.packets()
    event, known = _last_events(index, packets, frames, content)
    timestamp = index.lines["timestamp"].astype(np.int64)[frames]
    slots = index.lines["slot"].astype(np.int64)[frames]
    window = windows.of(timestamp)
    wait = timestamp - event
    found: dict[int, Waits] = {}
    for source in np.unique(packets["source"][known]).tolist():
        if source != CONTROL_SOURCE:
            mine = known & (packets["source"] == source)
            counts = np.bincount(window[mine], minlength=windows.parts).astype(np.int64)
            sums = np.bincount(window[mine], wait[mine].astype(np.float64), windows.parts).astype(np.float64)
            found[source] = Waits(counts, sums, histogram(wait[mine]))
            if source in chances:
                _beyond(found[source], chances[source], slots[mine], wait[mine], window[mine], windows.parts)
    return found


def _beyond(found: Waits, chance: Chance, slots: Ints, waits: Ints, window: Ints, parts: int) -> None:
    found.beyond, found.squares = np.zeros((chance.round, parts)), np.zeros((chance.round, parts))
    for first in range(chance.round):
        more = chance.beyond(slots, waits, first)
        found.beyond[first] = np.bincount(window, more, parts)
        found.squares[first] = np.bincount(window, more**2, parts)


def beyond_chance(waits: Sequence[Waits]) -> list[Floats]:
    """Return the sums of each source by window, with the start of the round that fits all sources best."""
    squares = sum(each.squares for each in waits if each.squares is not None)
    best = np.argmin(squares, axis=0)
    return [each.beyond[best, np.arange(len(best))] for each in waits if each.beyond is not None]


def _last_events(
    index: Index, packets: Rows, frames: Ints, content: npt.NDArray[np.uint8]
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return `ts_event` of the last record of each packet, and a mask of the packets that have one."""
    sizes = packets["bytes"].astype(np.int64)
    counts = np.maximum(packets["records"].astype(np.int64), 1)
    ends = np.cumsum(sizes) - sizes  # from the first packet; frames are contiguous
    begin = ends + int(index.lines["at"][0])
    each = sizes // counts
    last = begin + sizes - each
    there = (sizes > 0) & (begin + sizes <= len(content))
    last = np.where(there, last, 0)
    plain = there & (sizes % counts == 0) & (content[last].astype(np.int64) * WORD_BYTES == each)
    for i in np.flatnonzero(there & ~plain).tolist():  # several record types: step through the records
        last[i] = begin[i] + last_record(content[begin[i] : begin[i] + sizes[i]].data)
    at = np.minimum(last + _EVENT_AT, max(0, len(content) - 8))
    event = np.ascontiguousarray(content[at[:, None] + np.arange(8)]).view("<u8").reshape(-1)
    return event.astype(np.int64), there & (event != UNDEF_TIMESTAMP) & (event > 0)


def chance_of(network: Network, stripe: int, site: str) -> Chance:
    """Compute the expected wait from the links of the file; the round begins with its first receiver's slot."""
    slot_ns = network.timing(stripe).slot_ns
    links = [network.link(site, receiver.site) for receiver in network.receivers]
    cycle = len(links)
    phases = (np.arange(cycle * PHASES_PER_SLOT) + 0.5) / PHASES_PER_SLOT * slot_ns
    left = np.ones(len(phases))
    total = np.zeros(len(phases))
    slot = 1
    while slot <= cycle * (_LONGEST_CYCLES + 1) or (left.max() > 1e-6 and slot < 1000 * cycle):
        link = links[slot % cycle]
        after = slot * slot_ns - phases
        held = (after - link.delay_ns) / link.jitter_ns if link.jitter_ns else (after >= link.delay_ns).astype(float)
        taken = left * np.clip(held, 0.0, 1.0) * (1.0 - link.loss_ratio) * (after >= 0)
        total += taken * after
        left = left - taken
        slot += 1
    return Chance(slot_ns, total / (1.0 - left))
