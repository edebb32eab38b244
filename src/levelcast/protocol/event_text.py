"""Format each event as a message for logs, commands and pages. No program parses it.

With `names`, the names of nodes replace their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from levelcast.protocol.events import (
    CaughtUp,
    ClockBack,
    ClockDoubt,
    ClockDoubted,
    ClockWrong,
    Conflict,
    Diverged,
    Event,
    EventRepeated,
    FaultReceived,
    FaultReported,
    GroupEntered,
    GroupFormed,
    HoldChosen,
    InvitationEnded,
    KeysChanged,
    KeysRefused,
    LeapAnnounced,
    LeaveAnnounced,
    LeaveReceived,
    LinesAssigned,
    LinesLost,
    NodeDied,
    NodeStart,
    NodeStop,
    PaceChanges,
    PaceDiffers,
    PathsNotWritten,
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
    SetupWarning,
    Superseded,
    Suspected,
    TapeDamaged,
    TornTailCut,
    UnlistedSource,
    Voided,
    event_fields,
    is_request,
)
from levelcast.units import show_ns
from levelcast.wire.messages import FaultReason

Names = Mapping[int, str]
"""Names of nodes by their ids."""
NODE_FIELDS = frozenset(
    {"owner", "source", "sender", "server", "suspect", "reporter", "node", "primary", "member", "receiver"}
)
"""Fields of events that have the id of a node; `members` has several."""
Cause = FaultReported | FaultReceived | LeaveAnnounced | LeaveReceived
"""Events that may cause a reformation."""

_REFUSED = {
    RefuseReason.EARLY: "its start time is before the last slot of the previous ring",
    RefuseReason.FAR: "its start time is too far in the future",
    RefuseReason.VOIDS: "it would void a slot that is witnessed here",
}


_DOUBTS = {
    ClockDoubt.BOUND: "the error of this clock may be {value}, more than clock_error = {limit}; check its time source",
    ClockDoubt.OFFSET: "this clock is {value} {side} the median of {heard} members, more than {limit}; set it right",
    ClockDoubt.APART: "no majority of the members can agree with this clock, {value} {side} the median of {heard}; "
    "set it right",
    ClockDoubt.LEAP: "a leap second is due; restart the node after it, or use smeared clocks everywhere and "
    'leap = "smear" in [timing]',
}
"""Messages about a clock that is not trusted; what the operator has to do is after the semicolon."""


class _ReasonText(NamedTuple):
    """A predicate of the node that sends a `Fault`, in the present and in the past."""

    present: str
    past: str


_REASONS: dict[int, _ReasonText] = {
    FaultReason.TOKEN_MISSING: _ReasonText(
        "reports a missing token of {suspect}",
        "reported a missing token of {suspect}",
    ),
    FaultReason.PACKET_MISSING: _ReasonText(
        "reports missing packets of the token of {suspect}",
        "reported missing packets of the token of {suspect}",
    ),
    FaultReason.OUTSIDE: _ReasonText(
        "asks to join the ring",
        "asked to join the ring",
    ),
    FaultReason.STUCK: _ReasonText(
        "asks again for the ring that it promised to join",
        "asked again for the ring that it promised to join",
    ),
    FaultReason.MEMBERSHIP: _ReasonText(
        "asks for a ring with the changed members",
        "asked for a ring with the changed members",
    ),
    FaultReason.REFUSED: _ReasonText(
        "reports that it refused a ring of {suspect}",
        "reported that it refused a ring of {suspect}",
    ),
    FaultReason.CONTRADICTION: _ReasonText(
        "reports a token of {suspect} that contradicts the order",
        "reported a token of {suspect} that contradicts the order",
    ),
    FaultReason.LEAVING: _ReasonText(
        "leaves the ring as planned",
        "left the ring as planned",
    ),
}
_VOUCHES = _ReasonText("supports the request of {suspect} to join", "supported the request of {suspect} to join")


def _reason_text(reason: int, suspect: int) -> _ReasonText:
    if reason == FaultReason.MEMBERSHIP and suspect:
        return _VOUCHES
    named = FaultReason.NAMES.get(reason, f"reason {reason}")
    return _REASONS.get(reason) or _ReasonText(f"asks for a ring: {named}", f"asked for a ring: {named}")


def name_of_node(node: int, names: Names) -> str:
    """Return a node's name, or its id if the name is unknown."""
    return names.get(node, str(node))


def generation_name(generation: int, names: Names | None = None) -> str:
    """Return a generation in readable form: its count, and the server that made it."""
    count, server = generation >> 32, (generation >> 16) & 0xFFFF
    return f"{count}@{name_of_node(server, names or {})}" if count else str(generation)


_SENTENCES: dict[type[Event], str] = {
    Conflict: "two different tokens of {owner} for one slot",
    CaughtUp: "by frames from {sender}",
    Voided: "{count} slots from {slot}",
    PromiseMade: "generation {name}",
    RingEntered: "generation {name}, members {listed}",
    LeaveAnnounced: "the ring, for a planned stop",
    LeaveReceived: "{member} stops as planned",
    RmpFault: "{what}",
    GroupEntered: "primary {primary}, members {listed}",
    Suspected: "{node}",
    UnlistedSource: "source {source}, named by {owner}, is not in this node's network file; add its [[floor]]",
    RingInvited: "generation {number}",
    InvitationEnded: "{joined} joined, no majority",
    RingFormed: "generation {number} at slot {start_slot}: {listed}",
    Superseded: "incarnation {incarnation} is higher",
    ClockWrong: "the wall clock was set; a receiver is muted until it is correct again or the node is restarted",
    ClockBack: "the wall clock is correct again",
    RetentionFailed: "an old segment could not be removed: {error}",
    PathsNotWritten: "measured delay and loss could not be written: {error}",
    NodeDied: "{why}; it is restarted in {wait_s:g} s",
    TornTailCut: "{text}",
    TapeDamaged: "{text}",
    NodeStart: "version {version}, network {network}, {role}, life {life}",
    LinesLost: "{count} lines for {output} could not be written",
    KeysChanged: "uses statement {statement} of keys, with epochs up to {epoch}",
    KeysRefused: "{text}",
    SetupWarning: "{text}",
}
"""Format strings: fields, the generation's `name` and `number`, and the `listed` members."""


def sentence(event: Event, names: Names | None = None) -> str:
    """Return the message of an event, without the slot; "" where the kind is sufficient."""
    values = _named(event, names or {})
    match event:
        case Rejected(reason=RejectReason.CREDIT):
            return "packet {number} of source {source} is beyond its credit".format_map(values)
        case Rejected(reason=RejectReason.ORDER):
            return "the token of {owner} does not continue the order".format_map(values)
        case Rejected(reason=RejectReason.PARITY):
            return "a parity of source {source} does not contain packet {number}".format_map(values)
        case Rejected():
            return "the token of {owner} does not fit the schedule".format_map(values)
        case Diverged(sender=0):
            return "the ring has voided slots that this receiver released"
        case Diverged():
            return "frames of {sender} do not continue this tape".format_map(values)
        case RingRefused(reason=reason):
            return f"the ring of {values['server']}: {_REFUSED[RefuseReason(reason)]}"
        case FaultReported(reason=reason, suspect=suspect):
            return _reason_text(reason, suspect).present.format_map(values)
        case FaultReceived(reason=reason, suspect=suspect):
            return f"{{reporter}} {_reason_text(reason, suspect).past}".format_map(values)
        case GroupFormed(number=number):
            return f"group {number >> 32}, primary {values['primary']}, members {values['listed'] or 'none'}"
        case PaceChanges(version=version, hold_ns=hold_ns, before_ns=before_ns, from_ns=from_ns):
            change = f"hold time {show_ns(before_ns)} -> {show_ns(hold_ns)}"
            return f"timing record {version}: {change} from {time_of_day(from_ns)} UTC on"
        case HoldChosen(late=late, slots=slots, need_ns=need_ns, seconds=seconds, hold_ns=hold_ns, before_ns=before_ns):
            change = f"hold time {show_ns(before_ns)} -> {show_ns(hold_ns)}"
            if late:
                return f"{values['receiver']} had {late:,} of {slots:,} slots late in {seconds} s: {change}"
            return f"no receiver needed more than {show_ns(need_ns)} in {seconds} s: {change}"
        case PaceDiffers(hold_ns=hold_ns, own_hold_ns=own_ns):
            ring, own = show_ns(hold_ns), show_ns(own_ns)
            return f"the ring releases after {ring}, this node's network file says {own}; the ring decides"
        case ClockDoubted(doubt=doubt, value_ns=value_ns):
            side = "ahead of" if value_ns > 0 else "behind"
            shown = {"value": show_ns(abs(value_ns)), "limit": show_ns(event.limit_ns), "side": side}
            return f"a receiver is muted: {_DOUBTS[ClockDoubt(doubt)].format_map(values | shown)}"
        case LeapAnnounced(smeared=smeared):
            does = 'leap = "smear": this node runs on' if smeared else "this node stops 10 s before it"
            return f"a leap second is announced for the end of this UTC day; {does}"
        case LinesAssigned(number=number, members=members, lines=lines):
            held = (f"{line} {name_of_node(each, names or {})}" for line, each in zip(lines, members, strict=True))
            return f"assignment {number >> 32}: {', '.join(held)}"
        case NodeStop(reason=reason, error=error):
            return f"{reason}: {error}" if error else reason
        case EventRepeated(count=count, seconds=seconds, text=text):
            return f"{'once' if count == 1 else f'{count} times'} in {seconds} s: {text}"
    return _SENTENCES.get(type(event), "").format_map(values)


def headline(event: Event, names: Names | None = None) -> str:
    """Return the message of an event as the predicate of its node: the line of a log after the node's name."""
    said, at = sentence(event, names), f" slot {event.slot}" if event.slot else ""
    match event:
        case FaultReported():
            return said if is_request(event) else f"{said} at{at} to the reformation servers"
        case FaultReceived() | LeaveReceived():
            return f"starts a reformation: {said}"
        case LeaveAnnounced():
            return f"{event.KIND} {said}"
        case EventRepeated():
            return f"repeated {said}"
    return f"{event.KIND}{at}{': ' if said else ''}{said}"


def cause_of(event: Cause, here: str, names: Names | None = None) -> str:
    """Return the cause of a reformation as a sentence: who reported what about whom. `here` reported a fault itself."""
    if isinstance(event, LeaveAnnounced):
        return f"{here} stops as planned"
    if not isinstance(event, FaultReported):
        return sentence(event, names)
    past = _reason_text(event.reason, event.suspect).past
    return f"{here} {past.format_map(_named(event, names or {}))}"


def names_in(event: Event, names: Names) -> dict[str, str | list[str]]:
    """Return the names of the nodes in an event by field, for JSON; an unknown node has its id."""
    values = event_fields(event)
    found: dict[str, str | list[str]] = {
        key: name_of_node(value, names) for key, value in values.items() if key in NODE_FIELDS and value
    }
    if "members" in values:
        found["members"] = [name_of_node(member, names) for member in values["members"]]
    return found


def _named(event: Event, names: Names) -> dict[str, Any]:
    """Return the fields of an event with names instead of ids, and the additional values of `_SENTENCES`."""
    values = event_fields(event)
    generation = values.get("generation", 0)
    return values | {
        **names_in(event, names),
        "slot": event.slot,
        "name": generation_name(generation, names),
        "number": generation >> 32 if generation else values.get("number", 0),
        "listed": ", ".join(name_of_node(member, names) for member in values.get("members", ())),
    }


def time_of_day(ns: int) -> str:
    """Return the time of a timestamp, without its day.

    >>> time_of_day(1_700_000_000_123_456_789)
    '22:13:20.123'
    """
    seconds = ns // 10**9
    return f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ns // 10**6 % 1000:03}"
