"""What the nodes of one stripe's ring know, out of the network file."""

from __future__ import annotations

from levelcast.network.model import Network, Witness
from levelcast.protocol.config import StripeConfig
from levelcast.wire.messages import MemberLife, Membership


def ring_config(network: Network, stripe: int | str = 0) -> StripeConfig:
    """The configuration of a stripe. The file's receivers are version 0 of the configured set, in their first lives."""
    found = network.stripe(stripe)
    timing = network.timing(stripe)
    return StripeConfig(
        stripe=found.index,
        timing=timing,
        witnesses=found.rules.witness,
        membership=Membership(0, tuple(MemberLife(receiver.id, 1) for receiver in network.receivers)),
        servers=tuple(server.id for server in network.reformation),
        credit=network.carriage.window(timing, _needed(found.rules.witness, len(network.receivers))),
        nearness={receiver.id: _nearest(network, receiver.id) for receiver in network.receivers},
        homes=_homes(network),
        nack=network.nack(stripe),
    )


def _homes(network: Network) -> dict[int, int]:
    """Per secondary, the primary that it belongs to (rule 11)."""
    ids = {receiver.name: receiver.id for receiver in network.receivers}
    return {each.id: ids[each.home] for each in network.secondaries}


def _needed(witness: Witness, members: int) -> int:
    """How many witnesses a slot needs."""
    if witness == "majority":
        return members // 2 + 1
    return members if witness == "all" else min(witness, members)


def _nearest(network: Network, member: int) -> tuple[int, ...]:
    """The other receivers, from the one to ask first to the last: by the file's helpers, then by delay."""
    here = next(receiver.site for receiver in network.receivers if receiver.id == member)
    others = [receiver for receiver in network.receivers if receiver.id != member]
    nearness = network.nearness(here)
    others.sort(key=lambda receiver: nearness(receiver.site))
    return tuple(receiver.id for receiver in others)
