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
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from levelcast.wire.messages import FaultReason

State = Literal["NEW", "PROMISED", "ACTIVE", "OUTSIDE", "SILENT"]


class Duties(NamedTuple):
    """What a receiver does in a state."""

    takes_part: bool
    """Sends tokens on schedule, counts witnesses, releases, asks for what it misses."""
    answers_invitations: bool
    pleads: int | None
    """The reason for which it goes to the reformation servers when its time comes."""


DUTIES: dict[State, Duties] = {
    # entered nothing, promised nothing
    "NEW": Duties(False, True, FaultReason.OUTSIDE),
    # promised > entered: sends and counts nothing until the RING comes (rules 12, 13)
    "PROMISED": Duties(False, True, FaultReason.STUCK),
    # promised = entered: in the ring
    "ACTIVE": Duties(True, True, FaultReason.MEMBERSHIP),
    # the same, but there is a later ring without it: what its own ring witnesses is still true
    "OUTSIDE": Duties(True, True, FaultReason.OUTSIDE),
    # the clock cannot be trusted: a token would be at a wrong time, and so would a release (rule 13)
    "SILENT": Duties(False, False, None),
}


def state_of(promised: int, entered: int, outside: bool, clock_trusted: bool) -> State:
    """The state that follows from what is journaled and known."""
    if not clock_trusted:
        return "SILENT"
    if promised > entered:
        return "PROMISED"
    if entered == 0:
        return "NEW"
    return "OUTSIDE" if outside else "ACTIVE"
