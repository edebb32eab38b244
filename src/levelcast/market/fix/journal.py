"""Journal entries of a session, and the state obtained by applying them (rule G2).

An entry is durable before the effects that follow it. So a session that is built from the image of its journal
continues where it stopped:

- `Received` is on disk before the message is delivered and before anything acknowledges it. The numbers of a message
  and of its effects survive together or not at all; the peer sends again what did not.
- `Sent` is on disk before the message is sent. It has what a resend needs, and `cause`: the application's own number of
  the event that the message reports. After a restart the application continues after the highest cause.
- `Numbered` holds the number of a message that is not resent but replaced by a gap fill.

The driver chooses the format on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

HeadFields = tuple[tuple[int, bytes], ...]


class Reset(NamedTuple):
    """Both numbers start at 1 again; what was sent before is forgotten."""

    since_ns: int
    """Start of the period to which the numbers belong, or the time of a reset during one."""


class Received(NamedTuple):
    """An application message of the peer, as it was received. Its successor is expected next."""

    seq: int
    message: bytes


class Expecting(NamedTuple):
    """The number expected next, after messages without an effect on the application."""

    seq: int


class Sent(NamedTuple):
    """A message that is resent on request."""

    seq: int
    type: bytes
    body: bytes
    sent_ns: int
    cause: int = 0
    head: HeadFields = ()
    """Optional head fields."""


class Numbered(NamedTuple):
    """The number of a session message sent."""

    seq: int


Entry = Reset | Received | Expecting | Sent | Numbered


class SessionImage:
    """State of a session by its journal."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.since_ns = 0
        self.next_in = 1
        self.next_out = 1
        self.cause = 0
        """The highest cause of a message sent; a reset of the numbers keeps it."""
        self.sent: dict[int, Sent] = {}
        """By number, ascending. A driver that keeps fewer messages in memory replaces it by a mapping of its own."""
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        """Apply the next entry of the journal."""
        if isinstance(entry, Sent):
            self.sent[entry.seq] = entry
            self.next_out = max(self.next_out, entry.seq + 1)
            self.cause = max(self.cause, entry.cause)
        elif isinstance(entry, Received):
            self.next_in = entry.seq + 1
        elif isinstance(entry, Expecting):
            self.next_in = entry.seq
        elif isinstance(entry, Numbered):
            self.next_out = max(self.next_out, entry.seq + 1)
        else:
            self.since_ns, self.next_in, self.next_out = entry.since_ns, 1, 1
            self.sent.clear()
