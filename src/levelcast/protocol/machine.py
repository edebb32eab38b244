"""The contract between a protocol and its driver, which is a simulator or a socket loop.

A protocol class does no I/O. It is created from its configuration and a `JournalImage`, so a restart is a start. A
driver

1. delivers messages of the kinds in `LISTENS`, in batches, with its own clock as `now`;
2. carries out the effects of a step in order (`levelcast.protocol.effects`);
3. steps again at `wake_ns` at the latest;
4. may prepare the frame `upcoming`, and may stop reading its sockets just before a step that only releases
   (`release_is_next`);
5. may call `learn_delays` and `learn_clock` with what it has measured, at any time;
6. calls `leave` before a planned stop, and continues until `has_left`, or for `LEAVE_LIMIT_NS`;
7. may replace `refuses`, if its tape cannot hold every packet that decodes;
8. may record when slots become ready (`ready_slot`), and deliver messages from before and after one of the
   `open_instants` in separate steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol, get_args

from levelcast.protocol.effects import Effect
from levelcast.protocol.history import Frame, History
from levelcast.wire.chain_messages import ChainEvidence, ChainMessage, ChainRequest, ChainStatement, ChainSuccession
from levelcast.wire.messages import Data, Echo, Message, PathRow, Probe, ReleaseRow
from levelcast.wire.wide_messages import WideMessage

LEAVE_LIMIT_NS = 5_000_000_000
"""A node that gets no answer to its announcement stops after this time all the same."""
EVERY_KIND: frozenset[type] = frozenset(get_args(Message)) - {
    *(Probe, Echo, PathRow, ReleaseRow),
    *get_args(WideMessage),
    *(ChainMessage, ChainRequest, ChainEvidence, ChainStatement, ChainSuccession),
}


class Machine(Protocol):
    """Every member that a driver uses. The defaults are those of a protocol that releases nothing."""

    LISTENS: ClassVar[frozenset[type]] = EVERY_KIND
    """Kinds of messages that a driver delivers."""
    wake_ns: int | None
    """Latest time of the next step; None: only for a message."""
    generation: int = 0
    """Generation of the current ring; 0: none."""
    release_is_next: bool = False
    """A release, and nothing else, is due at `wake_ns`."""

    @property
    def upcoming(self) -> Frame | None:
        """The frame that is certain to be released next."""
        return None

    @property
    def ready_slot(self) -> int:
        """Every slot up to this one is released, or needs nothing but its time to be released."""
        return 0

    @property
    def open_instants(self) -> tuple[int, int] | None:
        """The instant of the first slot that is not ready, and the time between two instants; None without a ring."""
        return None

    def hold_ns(self, timestamp_ns: int) -> int:
        """Return Δ_A: the time from the timestamp of a frame to the instant of its release."""
        return 0

    def wants(self, item: object) -> bool:
        """Return whether an item of a Repair may be of use; others need not be verified."""
        return True

    def refuses(self, data: Data) -> bool:
        """Return whether a packet that the machine has rebuilt must not be ordered; a driver may replace this."""
        return False

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Handle `batch` at local time `now`; return the effects in order, and set `wake_ns`."""

    def learn_delays(self, delays_ns: Mapping[int, int]) -> None:
        """Use measured delays from other nodes in place of the network file's, for what concerns this node alone."""
        return

    def learn_clock(self, error_us: int | None, offset_us: int | None) -> None:
        """Use these values of the own clock in beats (C1): its error bound, and its offset from the median member."""
        return

    def leave(self) -> None:
        """Announce a planned stop from the next step on, if other nodes would miss this one."""
        return

    @property
    def has_left(self) -> bool:
        """Return whether no other node expects messages of this one any more, after `leave`."""
        return True


class Releases(Machine, Protocol):
    """A protocol that releases frames: listener, member, secondary."""

    history: History
    released: int
    """Every slot up to this one is released."""

    @property
    def have(self) -> int:
        """Every slot up to this one is ordered here."""

    @property
    def witnessed(self) -> int:
        """Every slot up to this one is witnessed."""

    @property
    def ring_members(self) -> tuple[int, ...]:
        """The members of the current ring."""

    def ring_hold_ns(self, slot: int | None = None) -> int:
        """Return Δ_A of a slot, or of the current ring, before all timing records."""
        return 0

    def complete_upto_ns(self) -> int:
        """Return the watermark: everything with a timestamp up to this one is released (rule 15)."""
