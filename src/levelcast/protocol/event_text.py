"""The sentence for each event, for logs, commands and pages. Nothing reads it back."""

from __future__ import annotations

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
    Voided,
)
from levelcast.wire.messages import FaultReason

_REFUSED = {
    RefuseReason.EARLY: "its start time lies before the last slot of the ring before it",
    RefuseReason.FAR: "its start time is too far in the future",
    RefuseReason.VOIDS: "it would void a slot that is witnessed here",
}


def generation_name(generation: int) -> str:
    """A generation as people read it: its count, and the server that made it."""
    count, server = generation >> 32, (generation >> 16) & 0xFFFF
    return f"{count}@{server}" if count else str(generation)


def _listed(members: tuple[int, ...]) -> str:
    return ", ".join(map(str, members))


def sentence(event: Event) -> str:
    """What happened, without the slot; "" where the kind says it all."""
    match event:
        case Conflict(owner=owner):
            return f"two tokens of site {owner} for one slot"
        case Rejected(reason=RejectReason.CREDIT, source=source, number=number):
            return f"packet {number} of source {source} is beyond its credit"
        case Rejected(reason=RejectReason.ORDER, owner=owner):
            return f"the token of {owner} does not continue the order"
        case Rejected():
            return "token does not fit the schedule"
        case Diverged(sender=0):
            return "the ring has voided what this receiver released"
        case Diverged(sender=sender):
            return f"frames of {sender} do not fit the tape here"
        case RingRefused(reason=reason):
            return _REFUSED[RefuseReason(reason)]
        case CaughtUp(sender=sender):
            return f"by frames from {sender}"
        case Voided(slot=slot, count=count):
            return f"{count} slots from {slot}"
        case PromiseMade(generation=generation):
            return f"generation {generation_name(generation)}"
        case RingEntered(generation=generation, members=members):
            return f"generation {generation_name(generation)}, members {_listed(members)}"
        case FaultReported(reason=code, suspect=suspect):
            return f"{FaultReason.NAMES.get(code, '?')}, suspect {suspect}"
        case RmpFault(what=what):
            return what
        case GroupEntered(primary=primary, members=members):
            return f"of {primary}: {_listed(members)}"
        case Suspected(node=node):
            return str(node)
        case FaultReceived(reason=code, reporter=reporter):
            return f"{FaultReason.NAMES.get(code, '?')} from {reporter}"
        case RingInvited(generation=generation):
            return f"generation {generation >> 32}"
        case InvitationEnded(joined=joined):
            return f"{joined} joined, no majority"
        case RingFormed(generation=generation, start_slot=start_slot, members=members):
            return f"generation {generation >> 32} at slot {start_slot}: {_listed(members)}"
        case GroupFormed(number=number, primary=primary, members=members):
            return f"{number >> 32} of {primary}: {_listed(members) or 'nobody'}"
        case Superseded(incarnation=incarnation):
            return f"incarnation {incarnation} is newer"
        case ClockWrong():
            return "the wall clock was set: a receiver is silent until it is back, or the node is started again"
        case ClockBack():
            return "the wall clock is back where it was"
        case RetentionFailed(error=error):
            return f"an old segment could not be removed: {error}"
    return ""
