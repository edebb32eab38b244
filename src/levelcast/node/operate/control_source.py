"""The operator's own source: a change of the configured set of primaries, or a plan, into the sequence (rules 12, 15).

It is a process of a few seconds, not a node: it sends its records as `CONTROL_SOURCE` until a token marks them as
witnessed. It keeps no journal. Each run takes an incarnation that no run had before (the time), so it never sends
two packets of one number, and what a run before left behind is skipped once this one is ordered (rule 3). If that
comes first after all, this run's record has not the version that is next and changes nothing; whoever asks finds out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from levelcast.errors import NetError
from levelcast.network import Network
from levelcast.network.stripe_config import ring_config
from levelcast.node.status_client import Answer
from levelcast.protocol.effects import Effect
from levelcast.protocol.journal_image import JournalImage
from levelcast.ring.source import Source
from levelcast.runtime.driver import Driver
from levelcast.runtime.sockets import LOOPBACK, CoreSockets, usable
from levelcast.storage.node_store import NodeStore
from levelcast.wire.membership import encode_membership
from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership


class _Sender:
    """Submits records as the source has room for them."""

    def __init__(self, source: Source, payloads: Sequence[bytes]) -> None:
        self.wake_ns: int | None = None
        self._source = source
        self._left = list(payloads)

    def step(self, now: int) -> list[Effect]:
        some, self._left = self._left[: self._source.room], self._left[self._source.room :]
        return self._source.submit_together([(payload, 1) for payload in some], now) if some else []


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


def send_records(
    network: Network,
    stripe: str,
    payloads: Sequence[bytes],
    incarnation: int,
    timeout_s: float,
    interface: str = LOOPBACK,
    *,
    what: str,
    needs: str = "",
) -> None:
    """Send records, each a packet, until all are witnessed; raises NetError if they are not within `timeout_s`.

    `what` they are and `needs`, what their witness depends on, are for that sentence.
    """
    config, group, now = ring_config(network, stripe), network.core_group(stripe), time.time_ns()
    source = Source(config, CONTROL_SOURCE, incarnation, JournalImage(), now)
    with usable(interface):
        sockets = CoreSockets(group.address, group.port, interface, hears_data=False)
    driver = Driver(CONTROL_SOURCE, config.stripe, source, sockets, NodeStore(), work=_Sender(source, payloads))
    try:
        until = time.monotonic() + timeout_s
        driver.run(lambda: source.witnessed >= len(payloads) or source.superseded or time.monotonic() > until)
    finally:
        driver.close()
    if source.superseded:
        raise NetError("another operator has published a later change meanwhile: look at it, and try again if need be")
    if source.witnessed < len(payloads):
        heard = "" if driver.counters.received else "; nothing was heard in the core group, so look at the interface"
        raise NetError(f"{what} was not witnessed within {timeout_s:g} s{needs}{heard}")


def publish(
    network: Network, stripe: str, membership: Membership, incarnation: int, timeout_s: float, interface: str = LOOPBACK
) -> None:
    """Send a change of the configured set."""
    what = f"version {membership.version} of the configured set"
    needs = ": it needs a ring in which majorities of the old and of the new set take part"
    payloads = [encode_membership(membership)]
    send_records(network, stripe, payloads, incarnation, timeout_s, interface, what=what, needs=needs)
