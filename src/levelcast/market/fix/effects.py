"""Effects of a session: what its driver does, in order, with each of them.

| effect | the driver |
|---|---|
| `PersistEntry(entry)` | writes the entry to the session's journal; it is durable before a later effect is performed |
| `SendBytes(data)` | sends the bytes on the session's connection |
| `DeliverMessage(message)` | gives the message to the application: each exactly once, in the order of MsgSeqNum |
| `Close(reason)` | sends what is left, then closes the connection |
| an `Event` | counts it and passes it on |

The driver performs all effects of one call before it calls the session again, so an application that answers a message
does so after the effects of the call that delivered it. The process may stop between any two effects. `journal` has the
entries and the state that they amount to.
"""

from __future__ import annotations

from typing import NamedTuple

from levelcast.market.fix.journal import Entry
from levelcast.market.fix.reader import Message


class PersistEntry(NamedTuple):
    entry: Entry


class SendBytes(NamedTuple):
    data: bytes


class DeliverMessage(NamedTuple):
    message: Message


class Close(NamedTuple):
    reason: str


class LoggedOn(NamedTuple):
    """The session is established: numbers are exchanged, application messages may follow."""


class LoggedOut(NamedTuple):
    """The session is over: after this event the peer may connect again."""

    reason: str


class Ignored(NamedTuple):
    """Bytes or a message without an effect, for example a garbled message or a duplicate."""

    reason: str


class Refused(NamedTuple):
    """A message of the peer was rejected."""

    reason: str


class PeerReject(NamedTuple):
    """The peer rejected a message of this session."""

    message: Message


class GapFound(NamedTuple):
    """Messages from `first` on are missing; a ResendRequest is sent."""

    first: int
    received: int


Event = LoggedOn | LoggedOut | Ignored | Refused | PeerReject | GapFound
Effect = PersistEntry | SendBytes | DeliverMessage | Close | Event
Effects = list[Effect]
