"""Derive the configuration of one stripe's ring from the network file."""

from __future__ import annotations

from levelcast.network.line_assignment import region_lines
from levelcast.network.model import AnySource, Network, ReceiverNode, SecondaryNode
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.lines import RegionLines
from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership


def ring_config(network: Network, stripe: int | str = 0) -> StripeConfig:
    """Return the configuration of a stripe. The file's receivers, in their first lives, are version 0 of the set."""
    found = network.stripe(stripe)
    timing = network.timing(stripe)
    ids = {receiver.name: receiver.id for receiver in network.receivers}
    copies = dict(found.rules.copies)
    return StripeConfig(
        stripe=found.index,
        timing=timing,
        witnesses=found.rules.witness,
        membership=Membership(0, tuple(MemberLife(receiver.id, 1) for receiver in network.receivers)),
        servers=tuple(server.id for server in network.reformation),
        credit=network.carriage.window(timing, network.witnesses(stripe)),
        nearness={receiver.id: _nearest(network, receiver) for receiver in network.receivers},
        delays=_delays(network),
        clock_error_ns=found.rules.clock_error_ns,
        asymmetry_ns=found.rules.asymmetry_ns,
        smeared=found.rules.leap == "smear",
        reorder_ns=_largest_jitter_ns(network),
        lines=_lines(network),
        homes={each.id: ids[each.home] for each in network.secondaries},
        nack=network.nack(stripe),
        multicast=network.transport == "multicast",
        network=network.id,
        redundancy=found.rules.redundancy,
        copies={node.id: copies[node.name] for node in network.releasing if node.name in copies},
        sources=frozenset({CONTROL_SOURCE, *(each.id for each in network.sources if each.stripe == found.name)}),
    )


def _delays(network: Network) -> dict[tuple[int, int], int]:
    """Return the delay from each receiver and floor to each receiver, from the file's links; {} without links."""
    if network.links is None:
        return {}
    return {
        (sender.id, receiver.id): network.link(sender.site, receiver.site).quantile_ns
        for sender in _senders(network)
        for receiver in network.releasing
        if sender.id != receiver.id
    }


def _largest_jitter_ns(network: Network) -> int:
    senders, receivers = ({node.site for node in nodes} for nodes in (_senders(network), network.releasing))
    return max((network.link(a, b).jitter_ns for a in senders for b in receivers), default=0) if network.links else 0


def _senders(network: Network) -> tuple[ReceiverNode | SecondaryNode | AnySource, ...]:
    return (*network.releasing, *network.sources)


def _lines(network: Network) -> tuple[RegionLines[int], ...]:
    ids = {receiver.name: receiver.id for receiver in network.releasing}
    return tuple(RegionLines(lines, tuple(ids[name] for name in order)) for lines, order in region_lines(network))


def _nearest(network: Network, here: ReceiverNode) -> tuple[int, ...]:
    """Return the other receivers in the order of requests: by the file's helpers, then by delay."""
    nearness = network.nearness(here.site)
    others = [receiver for receiver in network.receivers if receiver.id != here.id]
    return tuple(receiver.id for receiver in sorted(others, key=lambda receiver: nearness(receiver.site)))
