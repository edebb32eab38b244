"""Format events of a cluster as one-line messages with node names, without repeats."""

from __future__ import annotations

from typing import NamedTuple

from levelcast.network import Network
from levelcast.node.cluster import NodeKilled, NodeStarted
from levelcast.node.demo.run import BackOnTime, FloorsClosed, FloorsOpened
from levelcast.protocol.event_text import sentence
from levelcast.protocol.events import (
    CaughtUp,
    ClockDoubted,
    ClockWrong,
    Conflict,
    Diverged,
    Event,
    FaultReported,
    InvitationEnded,
    LeapAnnounced,
    PathsNotWritten,
    RetentionFailed,
    RingFormed,
    RingInvited,
    RingRefused,
    Superseded,
    TapeDamaged,
    Voided,
)
from levelcast.wire.messages import FaultReason

_RED, _YELLOW, _GREEN, _CYAN = "bold red", "yellow", "green", "bold cyan"


class Sentence(NamedTuple):
    """One message and its style."""

    at_s: float
    text: str
    style: str = ""


class EventText:
    """Convert cluster events to messages; an event of every node, or a repeated one, gives one message."""

    def __init__(self, network: Network) -> None:
        self.sentences: list[Sentence] = []
        self._names = {
            node.id: node.name for group in (network.receivers, network.reformation, network.floors) for node in group
        }
        self._receivers = {receiver.id for receiver in network.receivers}
        self._said: set[object] = set()
        self._ring = 0
        self._returning: set[str] = set()

    def add(self, at_s: float, name: str, event: Event) -> Sentence | None:
        """Add the message for an event of a node and return it; None for an event without one."""
        told = self._tell(name, event)
        if told is None:
            return None
        self.sentences.append(Sentence(at_s, *told))
        return self.sentences[-1]

    def _once(self, text: str, style: str, *what: object) -> tuple[str, str] | None:
        """Return a message and its style, or None if there was one of this kind since the last ring was formed."""
        key = (self._ring, *what)
        if key in self._said:
            return None
        self._said.add(key)
        return text, style

    def _tell(self, name: str, event: Event) -> tuple[str, str] | None:
        match event:
            case (
                Conflict()
                | Diverged()
                | RingRefused()
                | Superseded()
                | ClockDoubted()
                | ClockWrong()
                | LeapAnnounced()
                | PathsNotWritten()
                | RetentionFailed()
                | TapeDamaged()
            ):
                return self._once(f"{name}: {event.KIND}, {sentence(event, self._names)}", _RED, name, event)
            case NodeKilled():
                return f"{name} is killed (kill -9)", _RED
            case NodeStarted():
                self._returning.add(name)
                return f"{name} is started again on its directory", _CYAN
            case FaultReported():
                return self._fault(name, event)
            case RingInvited(generation=generation):
                return self._once(f"{name} invites all receivers to ring {generation >> 32}", "", "invites")
            case InvitationEnded():
                return self._once(f"{name} gives up for now: {sentence(event, self._names)}", _YELLOW, "gives up", name)
            case RingFormed():
                return self._formed(event)
            case Voided(count=count):
                void = "slot of the old ring is void; its" if count == 1 else "slots of the old ring are void; their"
                return self._once(f"{count} {void} trades follow in later slots", "", "voided")
            case CaughtUp(sender=sender) if name in self._returning:
                catches_up = f"{name} catches up with frames from {self._names.get(sender, '?')}'s tape"
                return self._once(catches_up, _CYAN, "caught up", name)
            case BackOnTime():
                self._returning.discard(name)
                return f"{name} is back: it releases on time again, with the others", _CYAN
            case FloorsOpened(floors=floors):
                return f"{floors} floors open", "bold"
            case FloorsClosed(trades=trades):
                return f"the floors close after {trades:,} trades; held trades are released", "bold"
        return None

    def _fault(self, name: str, event: FaultReported) -> tuple[str, str] | None:
        if name in self._returning:
            told = f"{name} is no longer in the ring; requesting to rejoin"
            return self._once(told, "", "join", name)
        if event.reason == FaultReason.OUTSIDE:
            if self._ring:
                return self._once(f"{name} is outside the ring; requesting to join", "", "join", name)
            return self._once("no ring yet; the receivers request one", "", "no ring")
        if event.reason in (FaultReason.MEMBERSHIP, FaultReason.STUCK):  # confirms or repeats a report
            return None
        reason, suspect = FaultReason.NAMES[event.reason], self._names.get(event.suspect)
        why = f"{reason}, it suspects {suspect}" if suspect else reason
        return self._once(f"{name} requests a new ring: {why}", _YELLOW, "fault", reason)

    def _formed(self, event: RingFormed) -> tuple[str, str]:
        self._ring += 1
        without = [self._names[member] for member in sorted(self._receivers - set(event.members))]
        rest = f", without {', '.join(without)}" if without else ""
        count, start = len(event.members), event.start_slot
        return f"ring {event.generation >> 32} is formed: {count} members{rest}, from slot {start} on", _GREEN
