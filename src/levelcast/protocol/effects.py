"""Effects: the actions that a protocol class returns to its driver, in order.

A driver carries out the effects of one step strictly in sequence: the entry of a `Persist` is in the journal before a
later `Send` leaves (rules 2, 8, 10, 12). A process may crash between any two of them.
"""

from __future__ import annotations

from typing import NamedTuple

from levelcast.protocol.events import Event
from levelcast.protocol.history import Frame, SourcePosition
from levelcast.wire.chain_messages import (
    ChainMessage,
    ChainSuccession,
    Citation,
    DeliveredRow,
    EpochRecord,
    EpochVote,
)
from levelcast.wire.messages import Data, Message, Ring, Token
from levelcast.wire.wide_messages import WideId

GROUP = -1
"""The destination of a multicast to the complete core group."""
SERVERS = -2
"""The destination of a message to every reformation server."""


class Promise(NamedTuple):
    """Journal: nothing below `generation` will be sent or counted (rule 12)."""

    generation: int


class Checkpoint(NamedTuple):
    """Journal: everything up to `slot` is on the tape, which has the hash chain `chain` (rule 9)."""

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
    """Write `entry` to the journal before continuing."""

    entry: JournalEntry


class Send(NamedTuple):
    """Send `message` to a node, to `GROUP` or to `SERVERS`."""

    to: int
    message: Message


class Release(NamedTuple):
    """Append `frame` to the tape and send it to the subscribers, now (rules 7, 14)."""

    frame: Frame
    scheduled_ns: int
    """Timestamp + Δ_A, or later if the witness was completed later (rule 7)."""
    late: bool
    """The step was after timestamp + Δ_A. A driver that may run late replaces it (`levelcast.runtime.lateness`)."""
    ready_ns: int = 0
    """Set by the driver: the time at which the last item arrived that the release needs."""
    moved: bool = False
    """Set by the driver: `scheduled_ns` is after timestamp + Δ_A."""
    delayed: bool = False
    """Set by the driver: it has a scheduling delay, so others may follow in one batch."""
    certain: bool = True
    """Others schedule it for the same time. False: claims were lost here, and they may have released it earlier."""
    witness_ns: int = 0
    """The time at which all receivers know that its slot is witnessed (rule 7); 0: before they can."""
    from_tape: bool = False
    """The receiver has fetched it from the tape of another one."""

    def delay_ns(self, released_ns: int) -> int:
        """Return the scheduling delay of a release at this time."""
        return released_ns - max(self.scheduled_ns, self.ready_ns)


class Forget(NamedTuple):
    """Allow the journal to drop tokens up to `slot`, and each source's packets before its position (rule 9)."""

    slot: int
    places: dict[int, SourcePosition]


class ServeTape(NamedTuple):
    """Send the node `to` the frames on the tape after `after_slot`, up to `upto_slot` (rule 9)."""

    to: int
    after_slot: int
    upto_slot: int


class WideDeliver(NamedTuple):
    """Pass an application message of a wide-area group to the program, in causal order (TT §4.1)."""

    id: WideId
    """Of its last packet."""
    payload: bytes


class WideSettle(NamedTuple):
    """Report the reliable receipt of a packet: this process knows that all of its destinations have received it.

    Not `by_all`: its source has failed, and no process that holds it is left, so that some may not have received it.
    """

    id: WideId
    by_all: bool = True


class WideInstall(NamedTuple):
    """Report a new view of a wide-area group. This process is not in it if `members` does not have it."""

    view: int
    members: tuple[int, ...]


class ChainDirect(NamedTuple):
    """Journal of chain multicast: `message` is the direct version of its place (C-3.4), or an own message (C-2)."""

    message: ChainMessage


class ChainSettled(NamedTuple):
    """Journal of chain multicast: these versions of delivered messages of an epoch are settled (C-10).

    `messages` are those of them that are nowhere else in the journal: others may cite them later (history B10).
    """

    epoch: int
    rows: tuple[DeliveredRow, ...]
    messages: tuple[ChainMessage, ...]


class EpochSigned(NamedTuple):
    """Journal of chain multicast: this member has signed `record` as the successor of its epoch, and signs no other."""

    record: EpochRecord
    vote: EpochVote


class EpochBegun(NamedTuple):
    """Journal of chain multicast: the record of this succession, which has the votes of Q members, is in force."""

    succession: ChainSuccession
    last: int
    """Number up to which own messages of the epoch before have packets; 0: none."""


class EpochEnded(NamedTuple):
    """Journal of chain multicast: `epoch` is over here, with `delivered` messages of each of its senders."""

    epoch: int
    delivered: tuple[int, ...]


ChainEntry = ChainDirect | ChainSettled | EpochSigned | EpochBegun | EpochEnded


class Record(NamedTuple):
    """Write `entry` of chain multicast to the journal before continuing."""

    entry: ChainEntry


class ChainDeliver(NamedTuple):
    """Append a message to the log of deliveries, and give its packets to the application (MR: C-deliver)."""

    message: ChainMessage
    row: DeliveredRow
    packets: tuple[bytes, ...]
    caught_up: bool = False
    """Delivered because f + 1 members state that they have delivered it (C-9)."""


class ServeDelivered(NamedTuple):
    """Send the node `to` these messages from journal and log of deliveries (C-9).

    If a version is in neither, another version of the same message is.
    """

    to: int
    epoch: int
    versions: tuple[Citation, ...]


Effect = (
    Persist
    | Send
    | Release
    | Forget
    | ServeTape
    | WideDeliver
    | WideSettle
    | WideInstall
    | Record
    | ChainDeliver
    | ServeDelivered
    | Event
)
"""An event is an effect too: the driver counts it and passes it on."""
