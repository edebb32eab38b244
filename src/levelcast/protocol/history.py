"""Compute the order from tokens (rule 3), and the frames of the tape (rule 14).

- Tokens are in slot order. The runs of a token are in the order of hash(chain hash of the previous frame, source), so
  that neither a source nor the slot owner chooses a position; incarnations of one source in rising order; packets of a
  run in number order.
- A packet that two tokens name belongs to the lower slot.
- A run of an incarnation lower than one already ordered for that source is skipped.
- A slot with new packets makes one frame. Sequence numbers count records; frames are chained by BLAKE3 over
  everything that is in them, so equal chains mean equal tapes: the chain before, slot, timestamp, first sequence and
  number of packets, a row for each packet (source, incarnation, number, records, bytes), and all payloads.

Everything here is a pure function of the tokens and packets, so every receiver that holds them computes the same
bytes. Slots that are ordered but not released can be undone (`rollback`), because a reformation may void them.

Deviation from MS §5: the paper numbers the messages of a token in the order in which its site lists them; hashing
removes that choice (DESIGN rule 3).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

from blake3 import blake3

from levelcast import native
from levelcast.errors import LevelcastError
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.pace import with_change
from levelcast.wire.membership import decode_membership
from levelcast.wire.messages import CONTROL_SOURCE, Data, Membership, PaceChange, Packet, Run
from levelcast.wire.pace_change import decode_pace_change

GENESIS = bytes(32)
"""The chain hash before the first frame."""

SETTLED = 0
"""The generation of a slot from another member's tape: it is released, so no lineage can void it."""

_FRAME_HEAD = struct.Struct("<QQQI")
PACKET_ROW = struct.Struct("<HQQII")
"""Source, incarnation, number, records and bytes of a packet in a frame."""
_SOURCE = struct.Struct("<H")


class Frame(NamedTuple):
    """The part of the tape that one slot adds, the same at every receiver."""

    slot: int
    timestamp_ns: int
    first_sequence: int
    records: int
    runs: tuple[Run, ...]
    """The packets, in order."""
    table: bytes
    """A `PACKET_ROW` for each."""
    content: bytes
    """Their payloads, back to back."""
    chain_before: bytes
    chain: bytes

    @property
    def packets(self) -> tuple[Packet, ...]:
        """The packets of the frame, one by one."""
        packets: list[Packet] = []
        at = 0
        for source, incarnation, number, records, size in PACKET_ROW.iter_unpack(self.table):
            packets.append(Packet(source, incarnation, number, records, self.content[at : at + size]))
            at += size
        return tuple(packets)


class Misplaced(LevelcastError):
    """A run that does not continue the order of its source: the sender of its token had another order."""


class SourcePosition(NamedTuple):
    """Position of a source in the order: everything below `next` in `incarnation`, nothing lower counts."""

    incarnation: int
    next: int


class MembershipChange(NamedTuple):
    """A change of the configured set, and the slot that ordered it."""

    slot: int
    membership: Membership


@dataclass(slots=True)
class Tip:
    """The state of the order after one slot: everything needed to order the next one."""

    slot: int = 0
    chain: bytes = GENESIS
    next_sequence: int = 1
    places: dict[int, SourcePosition] = field(default_factory=dict)
    records: list[MembershipChange] = field(default_factory=list)
    paces: list[PaceChange] = field(default_factory=list)
    """The last changes of the hold time, oldest first (rule W9)."""

    def copy(self) -> Tip:
        return Tip(self.slot, self.chain, self.next_sequence, dict(self.places), list(self.records), list(self.paces))

    def append(self, frame: Frame) -> None:
        """Advance past a frame, as when a tape is read from its beginning."""
        assert frame.slot > self.slot
        assert frame.chain_before == self.chain
        assert frame.first_sequence == self.next_sequence
        for run in frame.runs:
            self.places[run.source] = SourcePosition(run.incarnation, run.last + 1)
        self.slot = frame.slot
        self.chain = frame.chain
        self.next_sequence += frame.records
        self.note_changes(frame)

    def note_changes(self, frame: Frame) -> None:
        """Apply the changes of the configured set and of the hold time in a frame (rules 12, W9)."""
        if any(run.source == CONTROL_SOURCE for run in frame.runs):
            for packet in frame.packets:
                if packet.source == CONTROL_SOURCE:
                    self._note_membership(frame.slot, packet)
                    change = decode_pace_change(packet.payload)
                    if change is not None:
                        self.paces = with_change(self.paces, change, frame.timestamp_ns)

    def _note_membership(self, slot: int, packet: Packet) -> None:
        # Only the successor of the current version counts: the set changes by one record at a time.
        membership = decode_membership(packet.payload)
        if membership is not None and membership.version == self.records[-1].membership.version + 1:
            self.records = [*self.records[-1:], MembershipChange(slot, membership)]


class Ordered(NamedTuple):
    """An ordered slot, with the values needed to undo it."""

    slot: int
    generation: int
    timestamp_ns: int
    frame: Frame | None
    before: tuple[tuple[int, SourcePosition | None], ...]
    records_before: list[MembershipChange]
    paces_before: list[PaceChange]


class Shelved(Protocol):
    """The held packets of one incarnation of a source (`levelcast.protocol.holdings.PacketRanges`)."""

    def take(self, first: int, last: int) -> Iterable[Data]: ...


Assemble = Callable[[Sequence[Data]], tuple[bytes, bytes, int]]
"""Returns rows, clear payloads and the number of records of packets (`levelcast.protocol.seals`)."""
Held = Mapping[tuple[int, int], Shelved]
"""Packets that a receiver holds, by (source, incarnation)."""


class History:
    """The order of slots up to `have`; those up to `base` can no longer be undone."""

    def __init__(self, base: Tip, assemble: Assemble = native.assemble) -> None:
        assert base.records, "a history begins with a configured set"
        self._assemble = assemble
        self.base = base
        self.tip = base.copy()
        self._slots: dict[int, Ordered] = {}

    @property
    def have(self) -> int:
        return self.tip.slot

    def at(self, slot: int) -> Ordered:
        return self._slots[slot]

    def get(self, slot: int) -> Ordered | None:
        """Return a slot above the base; None for an empty one from a tape."""
        return self._slots.get(slot)

    def fresh(self, runs: Iterable[Run]) -> list[Run]:
        """Return the part of `runs` to order next: without known packets and lower incarnations (rule 3)."""
        places = self.tip.places
        found = (_fresh(run, places.get(run.source)) for run in runs)
        return [run for run in found if run is not None]

    def sorted_runs(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs of a token in the order that no node can choose (rule 3)."""
        listed = list(runs)
        if len(listed) > 1:
            chain = self.tip.chain
            listed.sort(key=lambda run: (sha256(chain + _SOURCE.pack(run.source)).digest(), run.incarnation, run.first))
        return listed

    def extend(self, slot: int, generation: int, timestamp_ns: int, runs: Iterable[Run], held: Held) -> Ordered:
        """Order the next slot. The caller has checked that every fresh packet is held.

        Raises `Misplaced`, and changes nothing, if a run does not continue the order of its source.
        """
        tip = self.tip
        assert slot == tip.slot + 1 or generation == SETTLED
        before: list[tuple[int, SourcePosition | None]] = []
        records_before, paces_before = tip.records, tip.paces
        pieces: list[Data] = []
        places: dict[int, SourcePosition] = {}
        for run in runs:
            place = places.get(run.source) or tip.places.get(run.source)
            fresh = _fresh(run, place)
            if fresh is None:
                continue
            expected = place.next if place is not None and place.incarnation == fresh.incarnation else 1
            if fresh.first != expected:
                raise Misplaced(f"slot {slot} contains {fresh}, but packet {expected} is next")
            pieces.extend(held[fresh.source, fresh.incarnation].take(fresh.first, fresh.last))
            before.append((fresh.source, place))
            places[fresh.source] = SourcePosition(fresh.incarnation, fresh.last + 1)
        tip.places.update(places)
        frame = None
        if pieces:
            frame = make_frame(slot, timestamp_ns, tip.next_sequence, pieces, tip.chain, self._assemble)
            tip.chain = frame.chain
            tip.next_sequence += frame.records
            tip.note_changes(frame)
        tip.slot = slot
        ordered = Ordered(slot, generation, timestamp_ns, frame, tuple(before), records_before, paces_before)
        self._slots[slot] = ordered
        return ordered

    def rollback(self, slot: int) -> None:
        """Undo every slot above `slot` (a reformation has voided them)."""
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
            tip.records, tip.paces = ordered.records_before, ordered.paces_before
            if ordered.frame is not None:
                tip.chain = ordered.frame.chain_before
                tip.next_sequence = ordered.frame.first_sequence
            tip.slot -= 1

    def settle(self, slot: int) -> None:
        """Remove slots up to `slot`, which are released everywhere that matters, from memory."""
        assert slot <= self.tip.slot
        base = self.base
        for number in range(base.slot + 1, slot + 1):
            ordered = self._slots.pop(number, None)
            if ordered is not None and ordered.frame is not None:
                base.append(ordered.frame)
        base.slot = slot


def _fresh(run: Run, place: SourcePosition | None) -> Run | None:
    """Return the part of a run that continues the order after `place`, or None."""
    if place is None:
        return run
    if run.incarnation != place.incarnation:
        return None if skips_lower_incarnation(run, place) else run
    if run.last < place.next:
        return None
    return run if run.first >= place.next else run._replace(first=place.next)


def skips_lower_incarnation(run: Run, place: SourcePosition) -> bool:
    """Return whether to skip a run: its incarnation is lower than one already ordered for its source (rule 3)."""
    return run.incarnation < place.incarnation


def make_frame(
    slot: int,
    timestamp_ns: int,
    first_sequence: int,
    pieces: Sequence[Data],
    chain_before: bytes,
    assemble: Assemble = native.assemble,
) -> Frame:
    """Chain a slot's packets to the previous frame; the chain covers their clear text, whatever seals them (K7)."""
    table, content, records = assemble(pieces)
    return chained(slot, timestamp_ns, first_sequence, records, runs_of(pieces), table, content, chain_before)


def chained(
    slot: int,
    timestamp_ns: int,
    first_sequence: int,
    records: int,
    runs: tuple[Run, ...],
    table: bytes,
    content: bytes,
    chain_before: bytes,
) -> Frame:
    """Return the frame of these packets, with its hash."""
    digest = blake3(chain_before)
    digest.update(_FRAME_HEAD.pack(slot, timestamp_ns, first_sequence, len(table) // PACKET_ROW.size))
    digest.update(table)
    digest.update(content)
    return Frame(slot, timestamp_ns, first_sequence, records, runs, table, content, chain_before, digest.digest())


def runs_of(pieces: Iterable[Data | Run]) -> tuple[Run, ...]:
    """Return packets as runs, in the given order."""
    runs: list[Run] = []
    for source, incarnation, first, last, *_ in pieces:
        if runs and runs[-1][:2] == (source, incarnation) and runs[-1].last + 1 == first:
            runs[-1] = runs[-1]._replace(last=last)
        else:
            runs.append(Run(source, incarnation, first, last))
    return tuple(runs)


def first_tip(config: StripeConfig) -> Tip:
    """Return the order before the first slot: only the configured set."""
    return Tip(records=[MembershipChange(0, config.membership)])
