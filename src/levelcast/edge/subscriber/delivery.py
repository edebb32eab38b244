"""What a subscriber is told, yields and counts: the values around `levelcast.edge.subscriber.session_reader`."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from levelcast.wire.header import Reason
from levelcast.wire.watermark import Watermark


class Grade(enum.Enum):
    GUARANTEED = "guaranteed"
    BEST_EFFORT = "best effort"
    LATEST_ONLY = "latest only"


class Deliver(NamedTuple):
    """Records of a session, from `sequence` on; those that come next, except where the grade is *latest only*.

    `payload` is for `records.split`, or `np.frombuffer` where `size` is not 0.
    """

    session: bytes
    sequence: int
    records: int
    size: int
    payload: bytes


class Complete(NamedTuple):
    """A watermark was delivered, and no hole before it is open: the session is complete up to its time (rule 15)."""

    session: bytes
    watermark: Watermark


class Lost(NamedTuple):
    """These messages were given up; delivery goes on behind them."""

    session: bytes
    sequence: int
    messages: int


class Stuck(NamedTuple):
    """These messages were asked for in vain `attempts` times. Delivery waits for them."""

    session: bytes
    sequence: int
    messages: int
    left: int = 0
    """The first message that a server says it still has; 0 where none has said anything."""


class Ended(NamedTuple):
    """Everything up to the end of the session was delivered or lost; `sequence` is one past it."""

    session: bytes
    sequence: int


class Ask(NamedTuple):
    """Send `datagram` to a retransmit server; `attempt`, from 0, is for choosing among several."""

    session: bytes
    attempt: int
    datagram: bytes


Effect = Deliver | Complete | Lost | Stuck | Ended | Ask


@dataclass(frozen=True, slots=True)
class SubscriberConfig:
    grade: Grade = Grade.GUARANTEED
    reorder_ns: int = 1_000_000
    """How long packets may overtake each other before that counts as loss."""
    retry_ns: int = 20_000_000
    attempts: int = 5
    max_waiting: int = 65_536
    """Packets of one session kept behind a hole, and their bytes: about as much as a retransmit server keeps."""
    max_waiting_bytes: int = 64 << 20
    max_sessions: int = 4_096
    """Where all sessions are wanted: more names than this are not believed."""


@dataclass(slots=True)
class SubscriberCounts:
    packets: int = 0
    heartbeats: int = 0
    records: int = 0
    """Delivered."""
    duplicates: int = 0
    """Messages that came again."""
    gaps: int = 0
    """Times that a session went from whole to missing something."""
    lost: int = 0
    """Messages given up."""
    late: int = 0
    """Messages that came after they were given up."""
    superseded: int = 0
    """Messages that were dropped, or not asked for, because newer prices of their symbols are known."""
    requests: int = 0
    overflow: int = 0
    """Packets dropped because too many were waiting."""
    foreign: int = 0
    """Packets of sessions that are not wanted."""
    foreign_messages: int = 0
    """Messages in those packets, as their headers say: they are not opened (TH: dropped by the session)."""
    unwanted: int = 0
    """Records of sessions that are wanted, about instruments that are not (TH: dropped by the flow)."""
    malformed: Counter[Reason] = field(default_factory=Counter)
