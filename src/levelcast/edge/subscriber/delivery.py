"""Effects, settings and counts of a subscriber: the values used by `levelcast.edge.subscriber.session_reader`."""

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
    """Records of a session, from `sequence` on: the next ones, except with the grade *latest only*.

    `payload` is for `records.split`, or `np.frombuffer` where `size` is not 0.
    """

    session: bytes
    sequence: int
    records: int
    size: int
    payload: bytes


class Complete(NamedTuple):
    """A watermark was delivered, and no earlier hole is open: the session is complete up to its time (rule 15)."""

    session: bytes
    watermark: Watermark


class Lost(NamedTuple):
    """These messages were given up; delivery continues after them."""

    session: bytes
    sequence: int
    messages: int


class Stuck(NamedTuple):
    """These messages were requested `attempts` times without a reply. Delivery waits for them."""

    session: bytes
    sequence: int
    messages: int
    left: int = 0
    """The first message that a server reports as still available; 0 if none has reported any."""


class Ended(NamedTuple):
    """Everything up to the end of the session was delivered or lost; `sequence` is the last sequence plus one."""

    session: bytes
    sequence: int


class Ask(NamedTuple):
    """Send `datagram` to a retransmit server; `attempt`, from 0, selects one of several servers."""

    session: bytes
    attempt: int
    datagram: bytes


Effect = Deliver | Complete | Lost | Stuck | Ended | Ask


@dataclass(frozen=True, slots=True)
class SubscriberConfig:
    grade: Grade = Grade.GUARANTEED
    reorder_ns: int = 1_000_000
    """Time for which packets may arrive out of order before a missing one counts as lost."""
    retry_ns: int = 20_000_000
    attempts: int = 5
    max_waiting: int = 65_536
    """Maximum packets of one session kept after a hole, and their bytes: about as much as a retransmit server keeps."""
    max_waiting_bytes: int = 64 << 20
    max_sessions: int = 4_096
    """Maximum number of sessions when all are read; further session names are ignored."""


@dataclass(slots=True)
class SubscriberCounts:
    packets: int = 0
    heartbeats: int = 0
    records: int = 0
    """Records delivered."""
    duplicates: int = 0
    """Messages received more than once."""
    gaps: int = 0
    """Number of times that a session changed from complete to incomplete."""
    lost: int = 0
    """Messages given up."""
    late: int = 0
    """Messages received after they were given up."""
    superseded: int = 0
    """Messages dropped, or not requested, because newer prices of their symbols are known."""
    requests: int = 0
    overflow: int = 0
    """Packets dropped because too many were waiting."""
    foreign: int = 0
    """Packets of sessions that are not followed."""
    foreign_messages: int = 0
    """Messages in those packets, according to their headers: they are not decoded (TH: dropped by the session)."""
    unwanted: int = 0
    """Records of followed sessions about other instruments (TH: dropped by the flow)."""
    malformed: Counter[Reason] = field(default_factory=Counter)
