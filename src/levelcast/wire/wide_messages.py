"""Messages of a wide-area group (TT §4, §5), as values.

A message of the group is identified by its source, the life of the source and a number. A *life* is the view in which a
process became a member, so that a process that returns is another one. A *view* is one version of the membership.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class WideId(NamedTuple):
    """Identity of a message of a group."""

    source: int
    life: int
    number: int


class Scope(IntEnum):
    """Processes of which a statement says that they have received a message."""

    NONE = 0
    OWN = 1
    """The process that states it."""
    GROUP = 2
    """All destinations in its subgroup."""
    ALL = 3
    """All destinations."""


class WideStatement(NamedTuple):
    """A receipt confirmation, or a question about one (TT §4.1)."""

    id: WideId
    scope: int
    asks: bool = False
    """The receiver is to answer with its own statement."""
    wants: bool = False
    """The receiver is to send the message: the process must forward it and does not have it any more."""


class WidePredecessor(NamedTuple):
    """A direct predecessor in causal order, with the processes that have it or must deliver it before.

    `members` is empty if they are the source and the destinations of the message that names it.
    """

    id: WideId
    view: int
    members: tuple[int, ...]


class WideData(NamedTuple):
    """One packet of an application message, to `members` (V_m)."""

    view: int
    source: int
    life: int
    number: int
    part: int
    parts: int
    settled: int
    """Messages of the source up to this number are received by all of their destinations."""
    closed: int
    """Like `settled`, and all messages before them in causal order are, too."""
    members: tuple[int, ...]
    predecessors: tuple[WidePredecessor, ...]
    statements: tuple[WideStatement, ...]
    payload: bytes
    sealed: bytes = b""

    @property
    def id(self) -> WideId:
        return WideId(self.source, self.life, self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WideData) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


class WideRelay(NamedTuple):
    """A message that is sent on, or again: a repair, a forwarded copy, a coordinator's copy."""

    sender: int
    view: int
    asks: bool
    """It is a repair: the receiver is to state its receipt, even if it has done so."""
    item: WideData


class WideConfirm(NamedTuple):
    """Statements of a process; without any it is a sign of life."""

    sender: int
    view: int
    settled: int
    closed: int
    statements: tuple[WideStatement, ...]


class WideRequest(NamedTuple):
    """A process requests to become a member, or not to be one any more."""

    sender: int
    view: int
    incarnation: int
    leaves: bool


class WideMember(NamedTuple):
    """A member of a view: its life, and the incarnation of its process that requested it."""

    process: int
    life: int
    incarnation: int
    number: int
    """Number of its last message in the views before."""


class WideContent(NamedTuple):
    """Content of a view: its members, and the messages of former members that are still to be received."""

    members: tuple[WideMember, ...]
    orphans: tuple[WideId, ...]


class WidePrepare(NamedTuple):
    """A proposer requests the promises of the members of `view`, to replace it (rounds as in Paxos).

    `without` are the members that the next view will not have; the others must all report.
    """

    sender: int
    view: int
    round: int
    without: tuple[int, ...]


class WidePromise(NamedTuple):
    """The answer to a Prepare: the content that was accepted before, and the held messages of removed processes."""

    sender: int
    view: int
    round: int
    proposer: int
    accepted_round: int
    """0: none."""
    accepted_by: int
    accepted: WideContent
    number: int
    """Number of the last message of the sender, which sends no more before the next view."""
    held: tuple[WideId, ...]


class WideAccept(NamedTuple):
    """A proposer requests the acceptance of a content."""

    sender: int
    view: int
    round: int
    content: WideContent


class WideAccepted(NamedTuple):
    """The answer to an Accept."""

    sender: int
    view: int
    round: int
    proposer: int


class WideView(NamedTuple):
    """A view, which any process that knows it may send."""

    sender: int
    view: int
    content: WideContent


WideMessage = (
    WideData | WideRelay | WideConfirm | WideRequest | WidePrepare | WidePromise | WideAccept | WideAccepted | WideView
)
