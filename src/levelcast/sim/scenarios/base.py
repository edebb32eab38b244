"""Build the nodes of a simulated ring, for every scenario, the steady load and the rehearsal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from random import Random
from typing import ClassVar

from levelcast.network import Floor, Link, Network, ReceiverNode, ReformationNode
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.machine import EVERY_KIND, Machine
from levelcast.ring.member import Member
from levelcast.ring.reformation_server import ReformationServer
from levelcast.ring.secondary import Secondary
from levelcast.ring.source import Source
from levelcast.sim.check.ring import Checker
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.network import LinkNetwork
from levelcast.sim.engine.world import SimNode, World


class SimulatedRing:
    """One ring in a world: its nodes, their machines, and the checker of its invariants."""

    SERVER: ClassVar[type[ReformationServer]] = ReformationServer
    NODE: ClassVar[type[SimNode]] = SimNode
    CLOCK_PARTS: ClassVar[int] = 1
    """Divisor: clock errors are at most the error that the checker allows, divided by this."""

    def __init__(self, world: World, clock_error_ns: int) -> None:
        self.world = world
        self.config: StripeConfig = world.config
        self.rng = world.rng
        self.clock_error_ns = clock_error_ns
        self.checker = Checker(world, clock_error_ns)
        world.servers = world.config.servers
        world.watchers.append(self.checker)

    def _add(
        self,
        node: int,
        name: str,
        start: Callable[[SimNode], Machine],
        listens: frozenset[type] = EVERY_KIND,
        node_type: type[SimNode] | None = None,
    ) -> SimNode:
        added = (node_type or self.NODE)(self.world, node, name, start, Disk(self.config, 1), listens)
        added.set_clock(self.rng.randint(-self.clock_error_ns, self.clock_error_ns) // self.CLOCK_PARTS)
        self.world.nodes[node] = added
        return added

    def _start_receiver(self, node: SimNode) -> Machine:
        return Member(self.config, node.id, node.disk.journal, node.disk.tape.tip, node.local_ns, node.security)

    def _start_secondary(self, node: SimNode) -> Machine:
        return Secondary(self.config, node.id, node.disk.journal, node.disk.tape.tip, node.local_ns, node.security)

    def _start_server(self, node: SimNode) -> Machine:
        return self.SERVER(self.config, node.id, node.disk.journal, node.local_ns, node.security)

    def _start_source(self, node: SimNode) -> Machine:
        """Start a source. After the loss of its disk it has a new incarnation, as a member has a new life."""
        sealer = node.security.sealer if node.security is not None else None
        return Source(self.config, node.id, node.disk.journal.life, node.disk.journal, node.local_ns, sealer)


def link_network(network: Network, floors: Iterable[Floor], rng: Random) -> LinkNetwork:
    """Return the links of a network file between its receivers, reformation servers and these floors."""
    nodes: list[ReceiverNode | ReformationNode | Floor] = [*network.receivers, *network.reformation, *floors]
    site_of = {node.id: node.site for node in nodes}
    made = LinkNetwork(rng, {})
    for (a, site_a), (b, site_b) in product(site_of.items(), repeat=2):
        try:
            made.links[a, b] = network.link(site_a, site_b)
        except KeyError:  # two floors need no link between them
            made.cut.add((a, b))
            made.links[a, b] = Link(0)
    return made
