"""Format each event as a message for logs, commands and pages. No program parses it."""

from __future__ import annotations

from dataclasses import asdict

from levelcast.protocol.events import (
    CaughtUp,
    ClockBack,
    ClockWrong,
    Conflict,
    Diverged,
    Event,
    FaultReceived,
    FaultReported,
    GroupEntered,
    GroupFormed,
    InvitationEnded,
    LeaveAnnounced,
    LeaveReceived,
    NodeDied,
    PromiseMade,
    RefuseReason,
    Rejected,
    RejectReason,
    RetentionFailed,
    RingEntered,
    RingFormed,
    RingInvited,
    RingRefused,
    RmpFault,
    Superseded,
    Suspected,
    TapeDamaged,
    TornTailCut,
    UnlistedSource,
    Voided,
)
from levelcast.wire.messages import FaultReason

_REFUSED = {
    RefuseReason.EARLY: "its start time is before the last slot of the previous ring",
    RefuseReason.FAR: "its start time is too far in the future",
    RefuseReason.VOIDS: "it would void a slot that is witnessed here",
}


def generation_name(generation: int) -> str:
    """Return a generation in readable form: its count, and the server that made it."""
    count, server = generation >> 32, (generation >> 16) & 0xFFFF
    return f"{count}@{server}" if count else str(generation)


_SENTENCES: dict[type[Event], str] = {
    Conflict: "two different tokens of {owner} for one slot",
    CaughtUp: "by frames from {sender}",
    Voided: "{count} slots from {slot}",
    PromiseMade: "generation {name}",
    RingEntered: "generation {name}, members {listed}",
    LeaveAnnounced: "the ring, for a planned stop",
    LeaveReceived: "{member} stops as planned",
    RmpFault: "{what}",
    GroupEntered: "of {primary}: {listed}",
    Suspected: "{node}",
    UnlistedSource: "source {source}, named by {owner}, is not in this node's network file; add its [[floor]]",
    RingInvited: "generation {number}",
    InvitationEnded: "{joined} joined, no majority",
    RingFormed: "generation {number} at slot {start_slot}: {listed}",
    Superseded: "incarnation {incarnation} is higher",
    ClockWrong: "the wall clock was set; a receiver is muted until it is correct again or the node is restarted",
    ClockBack: "the wall clock is correct again",
    RetentionFailed: "an old segment could not be removed: {error}",
    NodeDied: "{why}; it is restarted in {wait_s:g} s",
    TornTailCut: "{text}",
    TapeDamaged: "{text}",
}
"""Format strings: fields, the generation's `name` and `number`, and the `listed` members."""


def sentence(event: Event) -> str:
    """Return the message of an event, without the slot; "" where the kind is sufficient."""
    match event:
        case Rejected(reason=RejectReason.CREDIT, source=source, number=number):
            return f"packet {number} of source {source} is beyond its credit"
        case Rejected(reason=RejectReason.ORDER, owner=owner):
            return f"the token of {owner} does not continue the order"
        case Rejected():
            return "the token does not fit the schedule"
        case Diverged(sender=0):
            return "the ring has voided slots that this receiver released"
        case Diverged(sender=sender):
            return f"frames of {sender} do not continue this tape"
        case RingRefused(reason=reason):
            return _REFUSED[RefuseReason(reason)]
        case FaultReported(reason=code, suspect=suspect):
            return f"{FaultReason.NAMES.get(code, '?')}, suspect {suspect}"
        case FaultReceived(reason=code, reporter=reporter):
            return f"{FaultReason.NAMES.get(code, '?')} from {reporter}"
        case GroupFormed(number=number, primary=primary, members=members):
            return f"{number >> 32} of {primary}: {', '.join(map(str, members)) or 'none'}"
    values = asdict(event)
    generation = values.get("generation", 0)
    values |= {"name": generation_name(generation), "number": generation >> 32}
    return _SENTENCES.get(type(event), "").format(**values, listed=", ".join(map(str, values.get("members", ()))))
