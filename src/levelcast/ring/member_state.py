"""States of a primary receiver, as tables (rules 12 and 13).

The state follows from the journaled values (`promised`, `entered`), from knowledge of a later ring, and from trust in
the clock. The duties follow from the state. Nothing else in the receiver decides whether it may send.

| message               | in every state except `SILENT`                                                |
|-----------------------|-------------------------------------------------------------------------------|
| INVITE(h)             | h above the promise: promise h, JOIN. Equal: JOIN again, unless entered. Below: PROMISED |
| RING(h)               | h is the promise, and I am in it with my life: enter. Else, not below: a ring without me |
| token                 | valid in the lineage: keep. Of the promise: keep for later. Above it: a ring without me |
| data, repair, request | keep, keep, serve                                                             |

`SILENT` is the same, but does not answer invitations.

Deviation from DESIGN rules 12 and 13, under which a member stops from its promise until it enters the new ring: here it
continues to *learn* (count claims, release), and stops only to *send* (tokens). A claim is a token that a member sent
before its own promise. So the server that forms the next ring receives that member's `have` in its JOIN. A slot that a
majority has claimed survives, whether or not the counting member has promised. With the stricter rule, a slot that was
due between the first INVITE and the new ring was released on time in one city and seconds later in another, depending
on when the invitation arrived.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from levelcast.wire.messages import FaultReason

State = Literal["NEW", "PROMISED", "ACTIVE", "OUTSIDE", "SILENT"]


class Duties(NamedTuple):
    """Actions of a receiver in a state."""

    sends: bool
    """Sends tokens on schedule, and with them its claims; reports missing tokens and packets."""
    learns: bool
    """Requests missing items, counts the claims of others, releases witnessed slots."""
    answers: bool
    """Answers invitations."""
    pleads: int | None
    """Reason code of its periodic reports to the reformation servers; None: no reports."""


DUTIES: dict[State, Duties] = {
    # entered nothing, promised nothing
    "NEW": Duties(False, False, True, FaultReason.OUTSIDE),
    # promised > entered: it must no longer help the old ring, but may learn which slots that ring has witnessed
    "PROMISED": Duties(False, True, True, FaultReason.STUCK),
    # promised = entered: in the ring
    "ACTIVE": Duties(True, True, True, FaultReason.MEMBERSHIP),
    # the same, but a later ring without it exists: slots that its own ring witnesses stay witnessed
    "OUTSIDE": Duties(True, True, True, FaultReason.OUTSIDE),
    # the clock is not trusted: a token or a release would have a wrong time; or the tape holds slots that the ring has
    # voided, which only a witness below a majority allows
    "SILENT": Duties(False, False, False, None),
}


def state_of(promised: int, entered: int, outside: bool, trusted: bool) -> State:
    """Return the state that follows from the journaled and known values."""
    if not trusted:
        return "SILENT"
    if promised > entered:
        return "PROMISED"
    if entered == 0:
        return "NEW"
    return "OUTSIDE" if outside else "ACTIVE"
