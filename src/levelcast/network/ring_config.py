"""What the nodes of one stripe's ring know, out of the network file."""

from __future__ import annotations

from levelcast.network.model import Network
from levelcast.ring.config import RingConfig
from levelcast.wire.messages import MemberLife, Membership


def ring_config(network: Network, stripe: int | str = 0) -> RingConfig:
    """The configuration of a stripe. The file's receivers are version 0 of the configured set, in their first lives."""
    found = network.stripe(stripe)
    return RingConfig(
        stripe=found.index,
        timing=network.timing(stripe),
        witnesses=found.rules.witness,
        membership=Membership(0, tuple(MemberLife(receiver.id, 1) for receiver in network.receivers)),
        servers=tuple(server.id for server in network.reformation),
        credit=network.carriage.credit,
        nearness={receiver.id: _nearest(network, receiver.id) for receiver in network.receivers},
    )


def _nearest(network: Network, member: int) -> tuple[int, ...]:
    """The other receivers, from the nearest to the farthest."""
    here = next(receiver.site for receiver in network.receivers if receiver.id == member)
    others = [receiver for receiver in network.receivers if receiver.id != member]
    others.sort(key=lambda receiver: network.delay_ns(here, receiver.site))
    return tuple(receiver.id for receiver in others)
