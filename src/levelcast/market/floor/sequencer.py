"""Sequence the packets of a floor's sources in one process, as the ring does for several (rules 3, 10, 14).

A source numbers its packets from 1, journals each before it submits it, and submits again what no frame names. So a
packet is in exactly one frame, whatever stops in between. The ring gives the same interface: packets in, frames out,
and the next number of each source.
"""

from __future__ import annotations

from typing import Protocol

from levelcast.protocol.history import PACKET_ROW, Frame, MembershipChange, SourcePosition, Tip, chained, runs_of
from levelcast.wire.messages import MemberLife, Membership, Packet, Run


class Sequencer(Protocol):
    """Total order of packets: `submit`, then `release` when they are ordered."""

    def submit(self, packet: Packet) -> None: ...

    def release(self, now: int) -> list[Frame]: ...

    def next_number(self, source: int, incarnation: int = 1) -> int: ...


def local_tip() -> Tip:
    """Return the tip before the first frame of a floor that runs alone: a ring of one member."""
    return Tip(records=[MembershipChange(0, Membership(1, (MemberLife(1, 1),)))])


class LocalSequencer:
    """Order packets as they arrive: the packets of a call of `release` are one frame."""

    def __init__(self, tip: Tip) -> None:
        self.tip = tip
        self._waiting: list[Packet] = []
        self._places = dict(tip.places)
        self.timestamp_ns = 0
        """Timestamp of the last frame; a clock that goes back does not take frames with it."""

    def next_number(self, source: int, incarnation: int = 1) -> int:
        """Return the number of the next packet of a source."""
        place = self._places.get(source)
        return place.next if place is not None and place.incarnation == incarnation else 1

    def submit(self, packet: Packet) -> None:
        """Accept the next packet of a source; ignore one that it has, so that a source may submit again."""
        expected = self.next_number(packet.source, packet.incarnation)
        if packet.number < expected:
            return
        if packet.number > expected:
            raise ValueError(f"packet {packet.number} of source {packet.source} is not the next one, {expected}")
        self._places[packet.source] = SourcePosition(packet.incarnation, packet.number + 1)
        self._waiting.append(packet)

    def release(self, now: int) -> list[Frame]:
        """Return the frame of the waiting packets, if there are any."""
        if not self._waiting:
            return []
        packets, self._waiting = self._waiting, []
        tip = self.tip
        self.timestamp_ns = max(now, self.timestamp_ns + 1)
        frame = chained(
            tip.slot + 1,
            self.timestamp_ns,
            tip.next_sequence,
            sum(packet.records for packet in packets),
            runs_of([Run(packet.source, packet.incarnation, packet.number, packet.number) for packet in packets]),
            b"".join([PACKET_ROW.pack(*packet[:4], len(packet.payload)) for packet in packets]),
            b"".join([packet.payload for packet in packets]),
            tip.chain,
        )
        tip.append(frame)
        return [frame]
