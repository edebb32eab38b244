"""Scenarios `ring-overlay` and `receivers-overlay`: the same histories without multicast between sites (TT, O1 to O4).

The nodes are at one to three sites. The seed draws the transport: unicast to every node, or multicast within the sites
of three receivers and more. Everything else, with every fault and every check, is that of `ring` and `receivers`;
crashes and cuts strike coordinators and forwarders too.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import ClassVar

from levelcast.overlay.fanout import Kind, OverlayNode
from levelcast.protocol.config import StripeConfig
from levelcast.sim.engine.overlay_world import (
    OverlaySends,
    OverlaySideWorld,
    OverlaySimNode,
    OverlayWorld,
    fanout_maker,
)
from levelcast.sim.engine.world import SideWorld, SimNode, World
from levelcast.sim.scenarios.receivers import ReceiversHistory, SecondStripe
from levelcast.sim.scenarios.ring import RingHistory
from levelcast.timing.nack_sets import NackSets
from levelcast.wire.messages import CONTROL_SOURCE

SITES = ("a", "b", "c")
LARGE_SITE = 3


class OverlayRingHistory(RingHistory):
    """History of one seed of the scenario `ring`, without multicast."""

    WORLD: ClassVar[type[World]] = OverlayWorld
    NODE: ClassVar[type[SimNode]] = OverlaySimNode

    def _make_config(self, rng: Random, nack: NackSets | None) -> StripeConfig:
        return replace(super()._make_config(rng, nack), multicast=False)

    def _build_nodes(self) -> None:
        super()._build_nodes()
        world = self.world
        assert isinstance(world, OverlaySends)
        drawn = Random(f"overlay {self.seed}")
        sites = SITES[: drawn.choice((1, 2, 2, 3, 3))]
        nodes = [self._overlay_node(node, drawn.choice(sites)) for node in world.nodes]
        receivers = [each.site for each in nodes if each.receives]
        multicast = drawn.random() < 0.5
        large = {site for site in sites if multicast and receivers.count(site) >= LARGE_SITE}
        world.make_fanout = fanout_maker(nodes, frozenset(large), _apart, 3 * self.config.timing.resend_ns)

    def _overlay_node(self, node: int, site: str) -> OverlayNode:
        if node == CONTROL_SOURCE:
            return OverlayNode(node, "", "guest")
        kind: Kind = "receiver"
        if node in self._homes:
            kind = "secondary"
        elif node in self._server_ids:
            kind = "server"
        elif node in self._source_ids:
            kind = "floor"
        return OverlayNode(node, site, kind)


class OverlayReceiversHistory(OverlayRingHistory, ReceiversHistory):
    """History of one seed of the scenario `receivers`, without multicast."""

    SIDE_WORLD: ClassVar[type[SideWorld]] = OverlaySideWorld

    def _second_stripe(self, seed: int) -> ReceiversHistory:
        return OverlaySecondStripe(seed, main=self)


class OverlaySecondStripe(OverlayReceiversHistory, SecondStripe):
    """Second ring of the same history."""


def _apart(one: str, other: str) -> float:
    return abs(ord(one or "z") - ord(other or "z"))
