"""From tokens to the one order (rule 3), and the frames of the tape (rule 14).

- Tokens come in slot order. The runs of a token come in the order of hash(chain hash of the frame before, source),
  so that neither a source nor the site chooses a place; incarnations of one source in rising order; packets of a
  run in number order.
- A packet that two tokens name belongs to the lower slot.
- A run of an incarnation lower than one already ordered for that source is skipped.
- A slot with new packets makes one frame. Sequence numbers count records; frames are chained by SHA-256 over
  everything that is in them, so equal chains mean equal tapes.

Everything here is a pure function of the tokens and packets, so every receiver that holds them gets the same
bytes. Slots that are ordered but not released can be taken back (`rollback`), because a reformation may void them.

Deviation from MS §5: the paper numbers the messages of a token in the order in which its site lists them; hashing
takes that choice from the site (DESIGN rule 3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from levelcast.wire.membership import decode_membership
from levelcast.wire.messages import CONTROL_SOURCE, Data, Membership, Run

GENESIS = bytes(32)
"""The chain hash before the first frame."""

SETTLED = 0
"""The generation of a slot that came from another member's tape: it is released, so no lineage can void it."""

_FRAME_HEAD = struct.Struct("<QQQI")
_PACKET_HEAD = struct.Struct("<HQQII")
_SOURCE = struct.Struct("<H")


class Frame(NamedTuple):
    """What one slot adds to the tape, the same at every receiver."""

    slot: int
    timestamp_ns: int
    first_sequence: int
    packets: tuple[Data, ...]
    chain_before: bytes
    chain: bytes


class Place(NamedTuple):
    """How far a source's packets are ordered: everything below `next` in `incarnation`, nothing lower counts."""

    incarnation: int
    next: int


class Record(NamedTuple):
    """A change of the configured set, and the slot that ordered it."""

    slot: int
    membership: Membership


@dataclass(slots=True)
class Tip:
    """The state of the order after one slot: all that is needed to order the next one."""

    slot: int = 0
    chain: bytes = GENESIS
    next_sequence: int = 1
    places: dict[int, Place] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def copy(self) -> Tip:
        return Tip(self.slot, self.chain, self.next_sequence, dict(self.places), list(self.records))

    def append(self, frame: Frame) -> None:
        """Move past a frame, as a tape does that is read from its beginning."""
        assert frame.slot > self.slot
        assert frame.chain_before == self.chain
        assert frame.first_sequence == self.next_sequence
        for packet in frame.packets:
            self.places[packet.source] = Place(packet.incarnation, packet.number + 1)
            if packet.source == CONTROL_SOURCE:
                self._note_membership(frame.slot, packet)
        self.slot = frame.slot
        self.chain = frame.chain
        self.next_sequence += sum(packet.records for packet in frame.packets)

    def _note_membership(self, slot: int, packet: Data) -> None:
        # Only the successor of the current version counts: the set changes by one record at a time (rule 12).
        membership = decode_membership(packet.payload)
        if membership is not None and membership.version == self.records[-1].membership.version + 1:
            self.records = [*self.records[-1:], Record(slot, membership)]


class Ordered(NamedTuple):
    """A slot in its place, with what it takes to undo it."""

    slot: int
    generation: int
    timestamp_ns: int
    frame: Frame | None
    before: tuple[tuple[int, Place | None], ...]
    records_before: list[Record]


Held = Mapping[tuple[int, int], Mapping[int, Data]]
"""Packets that a receiver holds: (source, incarnation) -> number -> packet."""


class History:
    """The order of slots up to `have`, of which those up to `base` can no longer be taken back."""

    def __init__(self, base: Tip) -> None:
        assert base.records, "a history begins with a configured set"
        self.base = base
        self.tip = base.copy()
        self._slots: dict[int, Ordered] = {}

    @property
    def have(self) -> int:
        return self.tip.slot

    def at(self, slot: int) -> Ordered:
        return self._slots[slot]

    def get(self, slot: int) -> Ordered | None:
        """A slot above the base; None for an empty one that came from a tape."""
        return self._slots.get(slot)

    def fresh(self, runs: Iterable[Run]) -> list[Run]:
        """What the next slot would order of `runs`: skipped incarnations and known packets left out (rule 3)."""
        places = self.tip.places
        fresh = []
        for run in runs:
            place = places.get(run.source)
            if place is None:
                fresh.append(run)
            elif run.incarnation != place.incarnation:
                if not skips_lower_incarnation(run, place):
                    fresh.append(run)
            elif run.last >= place.next:
                fresh.append(run if run.first >= place.next else run._replace(first=place.next))
        return fresh

    def sorted_runs(self, runs: Iterable[Run]) -> list[Run]:
        """The runs of a token in the order that nobody chooses (rule 3)."""
        listed = list(runs)
        if len(listed) > 1:
            chain = self.tip.chain
            listed.sort(key=lambda run: (sha256(chain + _SOURCE.pack(run.source)).digest(), run.incarnation, run.first))
        return listed

    def extend(self, slot: int, generation: int, timestamp_ns: int, runs: Iterable[Run], held: Held) -> Ordered:
        """Order the next slot. The caller has made sure that every fresh packet is held."""
        tip = self.tip
        assert slot == tip.slot + 1 or generation == SETTLED
        before: list[tuple[int, Place | None]] = []
        records_before = tip.records
        packets: list[Data] = []
        for run in runs:
            for fresh in self.fresh((run,)):
                place = tip.places.get(fresh.source)
                expected = place.next if place is not None and place.incarnation == fresh.incarnation else 1
                assert fresh.first == expected, f"slot {slot} names {fresh} but {expected} is next"
                by_number = held[fresh.source, fresh.incarnation]
                packets.extend(by_number[number] for number in range(fresh.first, fresh.last + 1))
                before.append((fresh.source, place))
                tip.places[fresh.source] = Place(fresh.incarnation, fresh.last + 1)
        frame = None
        if packets:
            frame = make_frame(slot, timestamp_ns, tip.next_sequence, tuple(packets), tip.chain)
            tip.chain = frame.chain
            tip.next_sequence += sum(packet.records for packet in packets)
            for packet in packets:
                if packet.source == CONTROL_SOURCE:
                    tip._note_membership(slot, packet)
        tip.slot = slot
        ordered = Ordered(slot, generation, timestamp_ns, frame, tuple(before), records_before)
        self._slots[slot] = ordered
        return ordered

    def rollback(self, slot: int) -> None:
        """Take back every slot above `slot` (a reformation has voided them)."""
        assert slot >= self.base.slot
        tip = self.tip
        while tip.slot > slot:
            ordered = self._slots.pop(tip.slot, None)
            if ordered is None:
                tip.slot -= 1
                continue
            for source, place in reversed(ordered.before):
                if place is None:
                    del tip.places[source]
                else:
                    tip.places[source] = place
            tip.records = ordered.records_before
            if ordered.frame is not None:
                tip.chain = ordered.frame.chain_before
                tip.next_sequence = ordered.frame.first_sequence
            tip.slot -= 1

    def settle(self, slot: int) -> None:
        """Slots up to `slot` are released everywhere that matters: they leave memory."""
        assert slot <= self.tip.slot
        base = self.base
        for number in range(base.slot + 1, slot + 1):
            ordered = self._slots.pop(number, None)
            if ordered is not None and ordered.frame is not None:
                base.append(ordered.frame)
        base.slot = slot


def skips_lower_incarnation(run: Run, place: Place) -> bool:
    """A run of an incarnation lower than one already ordered for that source is skipped (rule 3)."""
    return run.incarnation < place.incarnation


def make_frame(
    slot: int, timestamp_ns: int, first_sequence: int, packets: tuple[Data, ...], chain_before: bytes
) -> Frame:
    """Chain a slot's packets to the frame before."""
    digest = sha256(chain_before)
    digest.update(_FRAME_HEAD.pack(slot, timestamp_ns, first_sequence, len(packets)))
    for packet in packets:
        digest.update(
            _PACKET_HEAD.pack(packet.source, packet.incarnation, packet.number, packet.records, len(packet.payload))
        )
        digest.update(packet.payload)
    return Frame(slot, timestamp_ns, first_sequence, packets, chain_before, digest.digest())
