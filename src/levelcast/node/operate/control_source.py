"""Publish operator changes as a source: a new configured set of primaries, or a plan (rules 12, 15).

It runs for a few seconds and is not a node: it sends its records as `CONTROL_SOURCE` until a token marks them as
witnessed. It keeps no journal. Each run uses a new incarnation (the time), so it never sends two packets with one
number, and unordered packets of an earlier run are skipped once this one is ordered (rule 3). If the earlier packets
are ordered first, this run's record does not have the next version and changes nothing; the status shows this.
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
from levelcast.runtime.core_sockets import open_core
from levelcast.runtime.driver import Driver
from levelcast.runtime.key_reload import OPERATOR, load_keys, secure
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.node_store import NodeStore
from levelcast.wire.membership import encode_membership
from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership


class _Sender:
    """Submit records as the source's credit allows."""

    def __init__(self, source: Source, payloads: Sequence[bytes]) -> None:
        self.wake_ns: int | None = None
        self._source = source
        self._left = list(payloads)

    def step(self, now: int) -> list[Effect]:
        some, self._left = self._left[: self._source.room], self._left[self._source.room :]
        return self._source.submit_together([(payload, 1) for payload in some], now) if some else []


def newest_membership(answers: Iterable[Answer]) -> tuple[Membership, bool]:
    """Return the newest configured set known to a running receiver, and whether one reports it as witnessed."""
    told: list[dict[str, Any]] = [answer.status["membership"] for answer in answers if "membership" in answer.status]
    if not told:
        raise NetError("no receiver of the network replies, so its configured set is unknown; start them first")
    newest = max(told, key=lambda each: (each["version"], each["stands"]))
    members = tuple(MemberLife(each["id"], each["life"]) for each in newest["members"])
    return Membership(newest["version"], members), bool(newest["stands"])


def membership_to_change(answers: Iterable[Answer]) -> Membership:
    """Return the set that the next record replaces. It must be witnessed: the set changes by one record at a time."""
    membership, stands = newest_membership(answers)
    if not stands:
        raise NetError(
            f"version {membership.version} of the configured set is not witnessed yet, as the next version requires "
            "(rule 12); wait for it, or for the ring to run again"
        )
    return membership


def replaced(membership: Membership, member: int, life: int) -> Membership | None:
    """Return the next version, in which the member has its new life; None if it already has it."""
    known = {each.member: each.life for each in membership.members}
    if member not in known:
        raise NetError(f"node {member} is not in version {membership.version} of the configured set")
    if known[member] == life:
        return None
    if known[member] > life:
        raise NetError(f"node {member} has life {known[member]} in the configured set; life {life} is older")
    members = tuple(MemberLife(each.member, life) if each.member == member else each for each in membership.members)
    return Membership(membership.version + 1, members)


def next_incarnation(answers: Iterable[Answer], now: int) -> int:
    """Return an incarnation above all earlier ones: the time, unless a clock has run backwards."""
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
    """Send records, each in a packet, until all are witnessed; raise NetError if they are not within `timeout_s`.

    The error message names the records as `what` and their requirements as `needs`.
    """
    config, now = ring_config(network, stripe), time.time_ns()
    keys = load_keys(network, OPERATOR, CONTROL_SOURCE, OPERATOR, now)
    security = None if keys is None else secure(keys, config.domain, now)
    sealer = security.sealer if security is not None else None
    source = Source(config, CONTROL_SOURCE, incarnation, JournalImage(), now, sealer)
    sockets = open_core(network, stripe, CONTROL_SOURCE, interface, hears_data=False)
    work = _Sender(source, payloads)
    driver = Driver(CONTROL_SOURCE, config.domain, source, sockets, NodeStore(), work=work, security=security)
    try:
        until = time.monotonic() + timeout_s
        driver.run(lambda: source.witnessed >= len(payloads) or source.superseded or time.monotonic() > until)
    finally:
        driver.close()
    if source.superseded:
        raise NetError("another operator has published a later change; check it, and retry if necessary")
    if source.witnessed < len(payloads):
        heard = "" if driver.counters.received else "; nothing was received in the core group, so check the interface"
        raise NetError(f"{what} was not witnessed within {timeout_s:g} s{needs}{heard}")


def publish(
    network: Network, stripe: str, membership: Membership, incarnation: int, timeout_s: float, interface: str = LOOPBACK
) -> None:
    """Send a change of the configured set."""
    what = f"version {membership.version} of the configured set"
    needs = "; it needs a ring with majorities of the old and of the new set"
    payloads = [encode_membership(membership)]
    send_records(network, stripe, payloads, incarnation, timeout_s, interface, what=what, needs=needs)
