"""Events that a protocol, or its driver, reports to operators, logs and tests.

An event is a value with fields; no program parses its text. `protocol.event_text` formats the message,
`protocol.event_levels` has the level. `KIND` is a short fixed word of each class; `event_name` is the word in logs, in
`--json` lines and in the metric `reports_total`. Every event has the slot it refers to, 0 for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar

from levelcast.wire.messages import FaultReason


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    KIND: ClassVar[str]
    VARYING: ClassVar[frozenset[str]] = frozenset({"slot"})
    """Fields in which two events differ although the second one only repeats the first."""
    slot: int


class RejectReason(StrEnum):
    """Reasons for which a receiver rejects a well-formed message."""

    SCHEDULE = "schedule"
    """A token of a node that does not own the slot, or with a wrong time."""
    CREDIT = "credit"
    """A packet beyond the credit of its source."""
    ORDER = "order"
    """A token with runs that do not continue the order."""
    PARITY = "parity"
    """A parity that does not contain the packet that is missing."""


class RefuseReason(StrEnum):
    """Reasons for which a member refuses a RING."""

    EARLY = "early"
    """Its start time is before the last slot of the previous ring."""
    FAR = "far"
    """Its start time is too far in the future."""
    VOIDS = "voids"
    """It would void a slot that is witnessed here."""


class ClockDoubt(StrEnum):
    """Reasons for which a receiver does not trust its clock (C2, C4)."""

    BOUND = "bound"
    """Its error bound is above `clock_error`."""
    OFFSET = "offset"
    """It is too far from the median member for some time, or at the start."""
    APART = "apart"
    """A majority of the members cannot agree with it."""
    LEAP = "leap"
    """A leap second is due."""


# -- receivers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conflict(Event):
    """Two different tokens of `owner` for one slot."""

    KIND = "conflict"
    owner: int


@dataclass(frozen=True, slots=True)
class Rejected(Event):
    """A token of `owner`, or packet `number` of `source`, was rejected."""

    KIND = "rejected"
    VARYING = frozenset({"slot", "number"})
    reason: RejectReason
    owner: int = 0
    source: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class UnlistedSource(Event):
    """A token of `owner` names packets of a source that this node's network file does not have."""

    KIND = "unlisted-source"
    source: int
    owner: int


@dataclass(frozen=True, slots=True)
class Diverged(Event):
    """Frames of `sender` do not continue this tape; with sender 0 the ring has voided slots released here."""

    KIND = "diverged"
    sender: int = 0


@dataclass(frozen=True, slots=True)
class RingRefused(Event):
    """A RING was refused: its start time is `start_ns`, and `limit_ns` would be allowed."""

    KIND = "refused"
    server: int
    reason: RefuseReason
    start_ns: int
    limit_ns: int


@dataclass(frozen=True, slots=True)
class Witnessed(Event):
    """Every slot up to this one is witnessed."""

    KIND = "witnessed"


@dataclass(frozen=True, slots=True)
class Placed(Event):
    """RMP: the message of this slot is ordered."""

    KIND = "placed"


@dataclass(frozen=True, slots=True)
class CaughtUp(Event):
    """Slots from `first` to this one were received as frames from the tape of `sender`."""

    KIND = "caught-up"
    VARYING = frozenset({"slot", "first"})
    sender: int
    first: int


@dataclass(frozen=True, slots=True)
class Voided(Event):
    """A reformation has voided `count` slots from this one on."""

    KIND = "voided"
    count: int


@dataclass(frozen=True, slots=True)
class PaceDiffers(Event):
    """The ring has another hold time than the network file of this node. The ring decides."""

    KIND = "hold-differs"
    hold_ns: int
    own_hold_ns: int


@dataclass(frozen=True, slots=True)
class PaceChanges(Event):
    """The sequence has a timing record: the hold time changes from `from_ns` on (rule W9)."""

    KIND = "timing-changes"
    version: int
    hold_ns: int
    before_ns: int
    from_ns: int


@dataclass(frozen=True, slots=True)
class HoldChosen(Event):
    """The first member of the ring changes the hold time by what receivers have measured (rule W10)."""

    KIND = "hold-chosen"
    receiver: int
    """The one that was late most often, or needed most."""
    late: int
    slots: int
    need_ns: int
    seconds: int
    hold_ns: int
    before_ns: int


@dataclass(frozen=True, slots=True)
class PromiseMade(Event):
    """A member no longer sends or counts anything below `generation`."""

    KIND = "promised"
    generation: int


@dataclass(frozen=True, slots=True)
class RingEntered(Event):
    """A receiver continues in the ring of `generation`."""

    KIND = "entered"
    generation: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FaultReported(Event):
    """A member reports a fault; `reason` is a code of `FaultReason`, `suspect` a node or 0."""

    KIND = "fault"
    reason: int
    suspect: int


@dataclass(frozen=True, slots=True)
class LeaveAnnounced(Event):
    """A receiver announces that it stops as planned."""

    KIND = "leaves"


@dataclass(frozen=True, slots=True)
class RmpFault(Event):
    """RMP: a message was sent k_r times without effect."""

    KIND = "fault"
    what: str


@dataclass(frozen=True, slots=True)
class GroupEntered(Event):
    """A secondary is in the group of `primary`."""

    KIND = "group"
    number: int
    primary: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Suspected(Event):
    """A secondary gets no answer from `node`."""

    KIND = "suspects"
    node: int


# -- servers and sources --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FaultReceived(Event):
    """A server starts a reformation because of the fault that `reporter` reported about `suspect`."""

    KIND = "fault-heard"
    reason: int
    reporter: int
    suspect: int


@dataclass(frozen=True, slots=True)
class LeaveReceived(Event):
    """A server starts a reformation because `member` stops as planned."""

    KIND = "leave-heard"
    member: int


@dataclass(frozen=True, slots=True)
class RingInvited(Event):
    """A server invites all members into the ring of `generation`."""

    KIND = "invites"
    generation: int


@dataclass(frozen=True, slots=True)
class InvitationEnded(Event):
    """A server ends an invitation: `joined` members are not a majority."""

    KIND = "gives-up"
    joined: int


@dataclass(frozen=True, slots=True)
class RingFormed(Event):
    """A server has formed the ring of `generation`, which starts at `start_slot`."""

    KIND = "forms"
    generation: int
    start_slot: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupFormed(Event):
    """A server has formed the group of `primary`."""

    KIND = "forms-group"
    number: int
    primary: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinesAssigned(Event):
    """A server has assigned each of `lines` to the receiver at the same place in `members`, without a new ring."""

    KIND = "assigns-lines"
    number: int
    members: tuple[int, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Superseded(Event):
    """Another process has sent as this source with a higher incarnation."""

    KIND = "superseded"
    incarnation: int


# -- drivers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeStart(Event):
    """The process of a node runs, in this life of its disk (rule 12)."""

    KIND = "start"
    version: str
    network: str
    role: str
    life: int


@dataclass(frozen=True, slots=True)
class KeysChanged(Event):
    """The node uses a newer statement of keys, which has epochs up to this one (rule K10)."""

    KIND = "keys"
    statement: int
    epoch: int


@dataclass(frozen=True, slots=True)
class KeysRefused(Event):
    """A new statement of keys cannot be used; the node continues with the one before."""

    KIND = "keys-refused"
    text: str


@dataclass(frozen=True, slots=True)
class SetupWarning(Event):
    """The machine is not set up as a node needs it, such as its socket buffers; the node runs."""

    KIND = "setup"
    text: str


@dataclass(frozen=True, slots=True)
class NodeStop(Event):
    """The process of a node stops; `error` is empty for an orderly stop."""

    KIND = "stop"
    reason: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class ClockWrong(Event):
    """The wall clock was set: a receiver stops sending and releasing (rule 13)."""

    KIND = "clock-wrong"


@dataclass(frozen=True, slots=True)
class ClockDoubted(Event):
    """A receiver stops sending and releasing, because it cannot trust its clock (C2, C4)."""

    KIND = "clock-doubted"
    VARYING = frozenset({"slot", "value_ns", "heard"})
    doubt: ClockDoubt
    value_ns: int
    """Its error bound, or how far it is ahead of the median member."""
    limit_ns: int
    heard: int
    """Members with which it has compared its clock."""


@dataclass(frozen=True, slots=True)
class LeapAnnounced(Event):
    """The kernel will insert or delete a second at `at_ns`; the node stops before it unless its clock is smeared."""

    KIND = "leap-second"
    at_ns: int
    smeared: bool


@dataclass(frozen=True, slots=True)
class ClockBack(Event):
    """The wall clock is correct again."""

    KIND = "clock-back"


@dataclass(frozen=True, slots=True)
class RetentionFailed(Event):
    """An old segment could not be removed."""

    KIND = "retention"
    error: str


@dataclass(frozen=True, slots=True)
class PathsNotWritten(Event):
    """Measured delay and loss could not be written."""

    KIND = "paths"
    error: str


@dataclass(frozen=True, slots=True)
class TornTailCut(Event):
    """A write that was interrupted before the start was removed from a file; its bytes are kept."""

    KIND = "torn"
    text: str


@dataclass(frozen=True, slots=True)
class TapeDamaged(Event):
    """A frame of the own tape that another member requested is damaged; the request gets no reply."""

    KIND = "tape-damaged"
    text: str


@dataclass(frozen=True, slots=True)
class NodeDied(Event):
    """A node of `levelcast up` has exited by itself, and is restarted after `wait_s`."""

    KIND = "died"
    why: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class EventRepeated(Event):
    """Further `count` events named `of`, the last one with the text `text`, followed within `seconds`."""

    KIND = "repeated"
    of: str
    level: str
    text: str
    count: int
    seconds: int


@dataclass(frozen=True, slots=True)
class LinesLost(Event):
    """Lines could not be written to `output`: a full disk, or a reader that is too slow."""

    KIND = "lines-lost"
    VARYING = frozenset({"slot", "count"})
    output: str
    count: int


NODE_EVENTS: dict[str, type[Event]] = {
    kind.KIND: kind
    for kind in (
        Conflict, Rejected, Diverged, RingRefused, Witnessed, CaughtUp, Voided, PaceDiffers, PromiseMade, RingEntered,
        FaultReported, LeaveAnnounced, GroupEntered, Suspected, FaultReceived, LeaveReceived, RingInvited,
        InvitationEnded, RingFormed, GroupFormed, LinesAssigned, Superseded, UnlistedSource, ClockWrong, ClockDoubted,
        LeapAnnounced, ClockBack, RetentionFailed, PathsNotWritten, TornTailCut, TapeDamaged, NodeStart, NodeStop,
        KeysChanged, KeysRefused, SetupWarning, LinesLost,
    )
}  # fmt: skip
"""The events that a node may report, by kind."""
_FAULTS = frozenset(
    {FaultReason.TOKEN_MISSING, FaultReason.PACKET_MISSING, FaultReason.REFUSED, FaultReason.CONTRADICTION}
)
_REQUESTS: dict[type[Event], str] = {FaultReported: "request", FaultReceived: "request-heard"}
"""Names of messages to the servers that report no fault: to join a ring, for a changed set."""
_BY_NAME = NODE_EVENTS | {name: kind for kind, name in _REQUESTS.items()}


def is_request(event: Event) -> bool:
    """Return whether a message to the reformation servers reports no fault, as at every start."""
    return isinstance(event, FaultReported | FaultReceived) and event.reason not in _FAULTS


def event_name(event: Event) -> str:
    """Return the word for an event in logs, `--json` lines and metrics: its kind, or that of a request."""
    return _REQUESTS[type(event)] if is_request(event) else event.KIND


def event_fields(event: Event) -> dict[str, Any]:
    """Return the fields of an event without its slot, as they appear in JSON."""
    return {field.name: getattr(event, field.name) for field in fields(event) if field.name != "slot"}


def event_from_json(name: str, slot: int, values: Mapping[str, Any]) -> Event | None:
    """Return the event of a `--json` line; None for an unknown name, or for other fields."""
    known = _BY_NAME.get(name)
    if known is None:
        return None
    found: dict[str, Any] = {}
    for field in fields(known):
        if field.name != "slot":
            if field.name not in values:
                return None
            value = values[field.name]
            found[field.name] = tuple(value) if isinstance(value, list) else value
    return known(slot=slot, **found)
