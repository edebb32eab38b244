"""The states of a primary receiver, as tables (rules 12 and 13).

What is journaled (`promised`, `entered`), whether a later ring is known, and whether the clock can be trusted give
the state; the state gives the duties. Nothing else in the receiver decides whether it may speak.

| message               | in any state but SILENT                                                       |
|-----------------------|-------------------------------------------------------------------------------|
| INVITE(h)             | h above the promise: promise h, JOIN. At it: JOIN again, unless entered. Below: PROMISED |
| RING(h)               | h at the promise and I am in it, with my life: enter. Else, not below it: a ring without me |
| token                 | valid by the lineage: keep. Of the promise: keep for later. Above it: a ring without me |
| data, repair, request | keep, keep, serve                                                             |

In SILENT the same, but invitations are not answered.

Deviation from DESIGN rules 12 and 13, which silence a member from its promise until it enters the new ring: here it
goes on *learning* (counting claims, releasing), and stops only *speaking* (tokens). A claim is a token that a member
sent before its own promise, so whoever forms the next ring hears of that member's `have` in its JOIN, and a slot that
a majority has claimed survives whether or not the one who counts has promised. With the stricter rule every slot that
was due between the first INVITE and the new ring was released on time in one city and seconds later in another, as
the invitation travelled.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from levelcast.wire.messages import FaultReason

State = Literal["NEW", "PROMISED", "ACTIVE", "OUTSIDE", "SILENT"]


class Duties(NamedTuple):
    """What a receiver does in a state."""

    sends: bool
    """Sends tokens on schedule, and with them its claims; reports what it cannot get."""
    learns: bool
    """Asks for what it misses, counts what others claim, releases what is witnessed."""
    answers: bool
    """Answers invitations."""
    pleads: int | None
    """The reason for which it goes to the reformation servers when its time comes."""


DUTIES: dict[State, Duties] = {
    # entered nothing, promised nothing
    "NEW": Duties(False, False, True, FaultReason.OUTSIDE),
    # promised > entered: it must not help the old ring any more, but may learn what that ring has witnessed
    "PROMISED": Duties(False, True, True, FaultReason.STUCK),
    # promised = entered: in the ring
    "ACTIVE": Duties(True, True, True, FaultReason.MEMBERSHIP),
    # the same, but there is a later ring without it: what its own ring witnesses is still true
    "OUTSIDE": Duties(True, True, True, FaultReason.OUTSIDE),
    # the clock cannot be trusted: a token would be at a wrong time, and so would a release; or the tape holds what
    # the ring has voided, which only a witness below a majority allows
    "SILENT": Duties(False, False, False, None),
}


def state_of(promised: int, entered: int, outside: bool, trusted: bool) -> State:
    """The state that follows from what is journaled and known."""
    if not trusted:
        return "SILENT"
    if promised > entered:
        return "PROMISED"
    if entered == 0:
        return "NEW"
    return "OUTSIDE" if outside else "ACTIVE"
