"""Status of each protocol class of the ring as a frozen value, with ids instead of names.

`status(now)` of a class returns it. It is read a few times per second; a step computes nothing for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from levelcast.protocol.history import SourcePosition
from levelcast.wire.messages import Group, Membership, PaceChange


class RingTimes(NamedTuple):
    """The schedule of a ring (rule 1): times and owners of its slots."""

    start_slot: int
    start_ns: int
    slot_ns: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListenerStatus:
    """The part of its status that every receiver has."""

    life: int
    generation: int
    ring: RingTimes | None
    """None before the first ring."""
    slot: int
    """The slot that is due now by the schedule; 0 before the first ring."""
    have: int
    witnessed: int
    released: int
    complete_upto_ns: int
    open_repairs: int
    membership: Membership
    """The last version of the configured set that is ordered here."""
    membership_stands: bool
    """That version is witnessed."""
    sources: dict[int, SourcePosition]
    hold_ns: int
    """Δ_A now."""
    beat_ns: int
    timing_record: PaceChange | None
    """The last one that is ordered here (rule W9)."""
    unlisted: tuple[int, ...]
    """Sources that were ordered since the start and are not in the network file."""


class SecondaryClaim(NamedTuple):
    """A secondary as its primary knows it."""

    have: int | None
    """None: it has sent no group token yet."""
    counts: bool
    """The primary's tokens claim no more than this secondary has (rule 11)."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """Status of a primary."""

    listener: ListenerStatus
    state: str
    group_number: int
    """Number of the group that it covers; 0: none."""
    secondaries: dict[int, SecondaryClaim]


@dataclass(frozen=True, slots=True)
class SecondaryStatus:
    """Status of a secondary in the table of `ring.secondary`; 0 means no node."""

    listener: ListenerStatus
    standing: str
    home: int
    primary: int
    suspect: int
    group: Group | None


@dataclass(frozen=True, slots=True)
class GroupServerStatus:
    """Groups of secondaries as a server knows them."""

    phase: str
    groups_formed: int
    groups: dict[int, tuple[int, ...]]
    """The members of each primary's last group."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """Status of a reformation server."""

    life: int
    phase: str
    rings_formed: int
    groups: GroupServerStatus | None = None
    """None in a stripe without secondaries."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Status of a source."""

    incarnation: int
    credit: int
    witnessed: int
    unwitnessed: int
    superseded: bool
