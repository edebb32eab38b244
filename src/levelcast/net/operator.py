"""The operator's own source: publishes a change of the configured set of primaries into the sequence (rule 12).

It is a process of a few seconds, not a node: it sends one membership record as `CONTROL_SOURCE` until a token marks it
as witnessed. It keeps no journal. Each run takes an incarnation that no run had before (the time), so it never sends
two packets of one number, and what a run before left behind is skipped once this one is ordered (rule 3). If that
comes first after all, this run's record has not the version that is next and changes nothing; whoever asks finds out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from levelcast.net.ask import Answer
from levelcast.net.driver import Driver
from levelcast.net.node import usable
from levelcast.net.sockets import LOOPBACK, CoreSockets, NetError
from levelcast.network import Network
from levelcast.network.ring_config import ring_config
from levelcast.ring.effects import Effect, JournalEntry, Release, ServeTape
from levelcast.ring.journal import Journal
from levelcast.ring.order import Frame
from levelcast.ring.source import Source
from levelcast.wire.membership import encode_membership
from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership, Message


class NoKeeper:
    """The disk of a process that has nothing to remember."""

    def persist(self, entry: JournalEntry, datagram: bytes | None = None) -> None:
        pass

    def commit(self) -> None:
        pass

    def content(self, frame: Frame) -> bytearray:
        raise AssertionError("only a receiver releases")

    def release(self, release: Release, content: bytearray, generation: int, released_ns: int) -> None:
        raise AssertionError("only a receiver releases")

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        pass

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]:
        raise AssertionError("only a receiver has a tape")

    def close(self) -> None:
        pass


class _Once:
    """Submits the one record in the first turn."""

    def __init__(self, source: Source, membership: Membership) -> None:
        self.wake_ns: int | None = None
        self._source = source
        self._membership: Membership | None = membership

    def step(self, now: int) -> list[Effect]:
        membership, self._membership = self._membership, None
        return [] if membership is None else self._source.submit(encode_membership(membership), 1, now)


def newest_membership(answers: Iterable[Answer]) -> tuple[Membership, bool]:
    """The newest configured set that a running receiver knows, and whether one knows it to be witnessed."""
    told: list[dict[str, Any]] = [answer.status["membership"] for answer in answers if "membership" in answer.status]
    if not told:
        raise NetError("no receiver of the network answers, so its configured set is not known: start them first")
    newest = max(told, key=lambda each: (each["version"], each["stands"]))
    members = tuple(MemberLife(each["id"], each["life"]) for each in newest["members"])
    return Membership(newest["version"], members), bool(newest["stands"])


def membership_to_change(answers: Iterable[Answer]) -> Membership:
    """The set that the next record replaces: it must be witnessed, for the set changes by one record at a time."""
    membership, stands = newest_membership(answers)
    if not stands:
        raise NetError(
            f"version {membership.version} of the configured set is not witnessed yet, and only then may the next one "
            "follow (rule 12): wait for it, or for the ring to run again"
        )
    return membership


def replaced(membership: Membership, member: int, life: int) -> Membership | None:
    """The next version, in which the member has its new life; None if it has it already."""
    known = {each.member: each.life for each in membership.members}
    if member not in known:
        raise NetError(f"node {member} is not in version {membership.version} of the configured set")
    if known[member] == life:
        return None
    if known[member] > life:
        raise NetError(f"node {member} has life {known[member]} in the configured set: {life} is an older one")
    members = tuple(MemberLife(each.member, life) if each.member == member else each for each in membership.members)
    return Membership(membership.version + 1, members)


def next_incarnation(answers: Iterable[Answer], now: int) -> int:
    """Higher than every one before: the time, unless a clock has run backwards."""
    places = [answer.status.get("sources", {}).get(str(CONTROL_SOURCE), {}) for answer in answers]
    return max([now, *(int(place.get("incarnation", 0)) + 1 for place in places)])


def publish(
    network: Network,
    stripe: str,
    membership: Membership,
    incarnation: int,
    timeout_s: float,
    interface: str = LOOPBACK,
) -> None:
    """Send the record until it is witnessed; raises NetError if it is not within `timeout_s`."""
    config, group, now = ring_config(network, stripe), network.core_group(stripe), time.time_ns()
    source = Source(config, CONTROL_SOURCE, incarnation, Journal(), now)
    with usable(interface):
        sockets = CoreSockets(group.address, group.port, interface, hears_data=False)
    driver = Driver(CONTROL_SOURCE, config.stripe, source, sockets, NoKeeper(), work=_Once(source, membership))
    try:
        until = time.monotonic() + timeout_s
        driver.run(lambda: source.witnessed > 0 or source.superseded or time.monotonic() > until)
    finally:
        driver.close()
    if source.superseded:
        raise NetError("another operator has published a later change meanwhile: look at it, and try again if need be")
    if not source.witnessed:
        heard = "" if driver.counters.received else "; nothing was heard in the core group, so look at the interface"
        raise NetError(
            f"version {membership.version} of the configured set was not witnessed within {timeout_s:g} s: it needs a "
            f"ring in which majorities of the old and of the new set take part{heard}"
        )
