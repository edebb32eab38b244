"""Catching up from a tape, for members that lag too far for repairs (rule 9).

The answer is one `CatchUp`, which states exactly the order of each slot, and its packets as `CatchUpPackets`. It covers
released slots only, so nothing in it can be voided.

A tape keeps no seals, so the serving member seals both kinds itself. The member that catches up verifies with the hash
chain that

- the stretch continues its own tape: the chain before is the chain of its own last slot;
- slots, timestamps, order, record numbers and every byte of every packet are those to which the chain after commits.

It cannot verify that the sources sent these packets, nor that the chain after is that of the other members: for both it
relies on the serving member, as a primary relies on the helper of its ring. Two tapes that differ are found when their
chains are compared (`levelcast tape verify`, certificates). Such packets are therefore used for the catch-up alone:
they are neither journaled nor held nor sent to others in a Repair, which carries only messages sealed by their authors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from levelcast.protocol.history import SETTLED, Frame, History, Misplaced
from levelcast.protocol.holdings import Holdings
from levelcast.wire.messages import CatchUp, CatchUpPackets, CatchUpSlot, Message, Packet
from levelcast.wire.packets import MAX_REPAIR_BYTES, fit_datagrams, seal
from levelcast.wire.token_codec import CATCH_UP_PACKET_OVERHEAD

MAX_PACKETS_TOGETHER = 16


def from_tape(
    member: int, frames: Sequence[Frame], after_slot: int, upto_slot: int, chain_before: bytes, credit: int
) -> list[Message]:
    """Return the messages that advance a member from `after_slot` towards `upto_slot`.

    `frames` are the tape's frames with slots in that range. The answer stops before any source would have more
    packets in it than its credit, because the receiving member keeps no more; it sends another request from there.
    """
    taken: list[Frame] = []
    per_source: Counter[int] = Counter()
    for frame in frames:
        assert after_slot < frame.slot <= upto_slot
        for run in frame.runs:
            per_source[run.source] += run.last - run.first + 1
        if taken and max(per_source.values()) > credit:
            upto_slot = taken[-1].slot
            break
        taken.append(frame)
    slots = tuple(CatchUpSlot(frame.slot, frame.timestamp_ns, frame.runs) for frame in taken)
    chain_after = taken[-1].chain if taken else chain_before
    packets = (packet for frame in taken for packet in frame.packets)
    room = MAX_REPAIR_BYTES - 8
    groups = fit_datagrams(
        packets, lambda each: CATCH_UP_PACKET_OVERHEAD + len(each.payload), MAX_PACKETS_TOGETHER, room
    )
    return [
        CatchUp(member, after_slot, upto_slot, chain_before, chain_after, slots),
        *(CatchUpPackets(member, after_slot, group) for group in groups),
    ]


class PendingCatchUp:
    """A catch-up that continues a receiver's last slot, until all of its packets are received."""

    def __init__(self, domain: int, accept_ahead: int) -> None:
        self._domain = domain
        self._accept_ahead = accept_ahead
        self._message: CatchUp | None = None
        self._after_slot = 0
        self._packets = Holdings()

    def __bool__(self) -> bool:
        return self._message is not None

    def clear(self) -> None:
        self._message = None
        self._packets = Holdings()

    def take(self, message: CatchUp | CatchUpPackets, history: History, last_slot: int) -> None:
        """Store a message that continues the history and ends no later than `last_slot`, which is due now.

        Packets may arrive before the `CatchUp` that states their order.
        """
        if message.after_slot != history.have:
            return
        if message.after_slot != self._after_slot:
            self.clear()
            self._after_slot = message.after_slot
        if isinstance(message, CatchUp):
            if message.after_slot < message.upto_slot <= last_slot:
                self._message = message
            return
        for packet in message.packets:
            if self._is_near(packet, history):
                self._packets.add(seal(packet, self._domain))

    def _is_near(self, packet: Packet, history: History) -> bool:
        """Return whether a packet is within the credit of its source: the serving member sends no more at a time."""
        place = history.tip.places.get(packet.source)
        if place is not None and (packet.incarnation, packet.number) < place:
            return False
        lowest = place.next if place is not None and place.incarnation == packet.incarnation else 1
        return packet.number < lowest + self._accept_ahead

    def complete(self, history: History, held: Holdings) -> tuple[CatchUp, Holdings] | None:
        """Return the catch-up and its packets once all are held; packets received from the sources count too."""
        message = self._message
        if message is None:
            return None
        if message.after_slot != history.have:
            self.clear()
            return None
        for line in message.slots:
            for run in line.runs:
                shelf = held.packets.get((run.source, run.incarnation))
                for piece in shelf.take(run.first, run.last) if shelf is not None else ():
                    self._packets.add(piece)
            if self._packets.missing(line.runs, history):
                return None
        packets = self._packets
        self.clear()
        return message, packets


def take_over(message: CatchUp, history: History, packets: Holdings) -> bool:
    """Append the slots of a catch-up to the history; return False, and change nothing, if they do not fit it."""
    if message.chain_before != history.tip.chain:
        return False
    before = history.have
    try:
        for line in message.slots:
            history.extend(line.slot, SETTLED, line.timestamp_ns, line.runs, packets.packets)
    except Misplaced:
        history.rollback(before)
        return False
    if history.tip.chain != message.chain_after:
        history.rollback(before)
        return False
    history.tip.slot = message.upto_slot
    return True
