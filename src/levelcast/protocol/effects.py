"""What a protocol class asks its driver to do, in order.

A driver carries out the effects of one step strictly one after the other: what a `Persist` names is in the
journal before a `Send` behind it leaves (rules 2, 8, 10, 12). A process may die between any two of them.
"""

from __future__ import annotations

from typing import NamedTuple

from levelcast.protocol.events import Event
from levelcast.protocol.history import Frame, SourcePosition
from levelcast.wire.messages import Data, Message, Ring, Token

GROUP = -1
"""The destination of a multicast to the whole core group."""
SERVERS = -2
"""The destination of a message to every reformation server."""


class Promise(NamedTuple):
    """Journal: nothing below `generation` will be sent or counted (rule 12)."""

    generation: int


class Checkpoint(NamedTuple):
    """Journal: everything up to `slot` is on the tape, whose hash chain stands at `chain` (rule 9)."""

    slot: int
    chain: bytes


class ServerCounter(NamedTuple):
    """Journal of a reformation server: generations up to this one are used up (rule 12)."""

    generation: int


class SourceMark(NamedTuple):
    """Journal of a source: packets up to `number` are witnessed and may be dropped (rule 10)."""

    incarnation: int
    number: int


JournalEntry = Token | Data | Ring | Promise | Checkpoint | ServerCounter | SourceMark


class Persist(NamedTuple):
    """Write `entry` to the journal before going on."""

    entry: JournalEntry


class Send(NamedTuple):
    """Send `message` to a node, to `GROUP` or to `SERVERS`."""

    to: int
    message: Message


class Release(NamedTuple):
    """Append `frame` to the tape and send it to the customers, now (rules 7, 14)."""

    frame: Frame
    scheduled_ns: int
    late: bool


class Forget(NamedTuple):
    """The journal may drop tokens up to `slot`, and each source's packets before its place (rule 9)."""

    slot: int
    places: dict[int, SourcePosition]


class ServeTape(NamedTuple):
    """Send the node `to` what the tape holds after `after_slot`, up to `upto_slot` (rule 9)."""

    to: int
    after_slot: int
    upto_slot: int


Effect = Persist | Send | Release | Forget | ServeTape | Event
"""An event is an effect too: the driver counts it and passes it on."""
