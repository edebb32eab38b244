"""Inputs of the hold time (`levelcast.timing.hold`) from a network file: delay, jitter and loss of every pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from levelcast.network.packet_routes import packet_routes
from levelcast.timing.copies import NOTHING, Copies
from levelcast.timing.hold_bound import BoundInput, bound_hold_ns
from levelcast.timing.hold_draws import Floats
from levelcast.timing.hold_rules import HoldInput
from levelcast.timing.packet_tree import RELAY_NS, PacketTree
from levelcast.timing.rules import LOSS_LIMIT
from levelcast.units import show_ns

if TYPE_CHECKING:
    from levelcast.network.model import AnySource, Network, ReceiverNode, SecondaryNode

MS = 1e6
BILLION = 10**9
SHORTEST_SLOT_NS = 200_000
"""With shorter slots a simulation would have to follow too many."""
Sites = tuple[str, ...]
Key = Literal["delay_ns", "jitter_ns", "loss_ratio"]


def follows_from_pairs(network: Network, stripe: int | str = 0) -> bool:
    """Return whether the hold time follows from the delays of pairs; otherwise it is that of rule 6."""
    return rule_6_because(network, stripe) is None


def rule_6_because(network: Network, stripe: int | str = 0) -> str | None:
    """Return why the hold time is that of rule 6: in lockstep, and with NACK sets."""
    rules = network.stripe(stripe).rules
    if rules.mode == "lockstep":
        return "in lockstep"
    return "with NACK sets" if rules.nack_sets != 1 else None


def underivable(network: Network, stripe: int | str = 0) -> str | None:
    """Return why no hold time can be derived from the links of a stripe whose hold time follows from pairs, if so."""
    receivers = _sites(network.releasing)
    if network.links is None:
        return "the file has no [links]"
    slot_ns = network.stripe(stripe).rules.slot_ns or 0
    if slot_ns < SHORTEST_SLOT_NS:
        return f"a slot of {show_ns(slot_ns)} is below {show_ns(SHORTEST_SLOT_NS)}"
    if len(network.receivers) < 2:
        return "there is only one receiver"
    for sender in (*receivers, *_sources(network, stripe)):
        for receiver in receivers:
            link = network.links.between(sender, receiver)
            if link is None:
                return f"there is no link between {sender} and {receiver}"
            if link.loss_ratio > LOSS_LIMIT:
                return f"the loss between {sender} and {receiver} is {link.loss_ratio:g}, above {LOSS_LIMIT:g}"
    return None


def hold_input(network: Network, stripe: int | str = 0, **values: Any) -> HoldInput:
    """Return the group of a stripe for `derive_hold`; `values` replace or add fields."""
    rules, receivers = network.stripe(stripe).rules, _sites(network.releasing)
    sources = _sources(network, stripe)
    routes = packet_routes(network, stripe)

    def matrix(senders: Sites, key: Key, unit: float = MS) -> Floats:
        if routes and senders is sources:
            return np.array(_over_routes(network, routes, key), dtype=np.float64) / unit
        return np.array(_matrix(network, senders, key, receivers=senders is receivers), dtype=np.float64) / unit

    group = HoldInput(
        delay_ms=matrix(receivers, "delay_ns"),
        jitter_ms=matrix(receivers, "jitter_ns"),
        loss=matrix(receivers, "loss_ratio", 1.0),
        source_delay_ms=matrix(sources, "delay_ns"),
        source_jitter_ms=matrix(sources, "jitter_ns"),
        source_loss=matrix(sources, "loss_ratio", 1.0),
        slot_ms=(rules.slot_ns or 0) / MS,
        witnesses=network.witnesses(stripe),
        process_ms=rules.process_ns / MS,
        transmit_ms=rules.transmit_ns / MS,
        clock_error_ms=rules.clock_error_ns / MS,
        scheduling_ms=rules.scheduling_ns / MS,
        late_target=rules.late_target,
        names=tuple(receiver.name for receiver in network.releasing),
        homes=_homes(network),
        copies=_copies(network, rules.copies),
    )
    return replace(group, **values)


def bound_input(network: Network, stripe: int | str = 0, **values: Any) -> BoundInput:
    """Return the same in integers."""
    rules, receivers = network.stripe(stripe).rules, _sites(network.releasing)
    sources = _sources(network, stripe)
    routes = packet_routes(network, stripe)

    def matrix(senders: Sites, key: Key, unit: int = 1) -> tuple[tuple[int, ...], ...]:
        over = routes and senders is sources
        rows = (
            _over_routes(network, routes, key)
            if over
            else _matrix(network, senders, key, receivers=senders is receivers)
        )
        return tuple(tuple(round(value * unit) for value in row) for row in rows)

    group = BoundInput(
        delay_ns=matrix(receivers, "delay_ns"),
        jitter_ns=matrix(receivers, "jitter_ns"),
        loss_ppb=matrix(receivers, "loss_ratio", BILLION),
        source_delay_ns=matrix(sources, "delay_ns"),
        source_jitter_ns=matrix(sources, "jitter_ns"),
        source_loss_ppb=matrix(sources, "loss_ratio", BILLION),
        slot_ns=rules.slot_ns or 1,
        witnesses=network.witnesses(stripe),
        process_ns=rules.process_ns,
        transmit_ns=rules.transmit_ns,
        clock_error_ns=rules.clock_error_ns,
        scheduling_ns=rules.scheduling_ns,
        target_ppb=max(1, round(rules.late_target * BILLION)),
        homes=_homes(network),
    )
    return replace(group, **values)


def hold_bound_ns(network: Network, stripe: int | str, rule_6_ns: int) -> int:
    """Return the hold time of a file that has none: a bound that every machine computes alike."""
    return _bound_ns(bound_input(network, stripe), rule_6_ns)


@lru_cache(maxsize=64)
def _bound_ns(group: BoundInput, rule_6_ns: int) -> int:
    return bound_hold_ns(group, rule_6_ns)


def _sites(nodes: Iterable[ReceiverNode | SecondaryNode | AnySource]) -> Sites:
    return tuple(node.site for node in nodes)


def _sources(network: Network, stripe: int | str) -> Sites:
    """Return the sites of the floors and gateways of a stripe; as long as there are none, those of the receivers."""
    name = network.stripe(stripe).name
    return _sites(each for each in network.sources if each.stripe == name) or _sites(network.receivers)


def _copies(network: Network, given: tuple[tuple[str, Copies], ...]) -> tuple[Copies, ...]:
    by_name = dict(given)
    return tuple(by_name.get(node.name, NOTHING) for node in network.releasing) if given else ()


def _over_routes(network: Network, routes: Mapping[int, PacketTree], key: Key) -> list[list[float]]:
    """Return a property of the ways of packets over trees, row by floor. Losses on a way add up."""
    sites = {each.id: each.site for each in (*network.releasing, *network.floors)}
    rows = []
    for tree in routes.values():
        row: list[float] = []
        for receiver in network.releasing:
            hops = [network.link(sites[one], sites[other]) for one, other in tree.path(receiver.id)]
            values = [getattr(hop, key) for hop in hops]
            relays = RELAY_NS * (len(hops) - 1) if key == "delay_ns" else 0
            row.append(1 - prod(1 - value for value in values) if key == "loss_ratio" else sum(values) + relays)
        rows.append(row)
    return rows


def _homes(network: Network) -> tuple[int, ...]:
    """Return the place of the home of each secondary among all receivers."""
    places = {node.name: place for place, node in enumerate(network.releasing)}
    return tuple(places[secondary.home] for secondary in network.secondaries)


def _matrix(network: Network, senders: Sites, key: Key, *, receivers: bool) -> list[list[float]]:
    """Return a property of the links, row by sender; 0 from a receiver to itself."""
    return [
        [
            0 if receivers and row == column else getattr(network.link(sender, receiver), key)
            for column, receiver in enumerate(_sites(network.releasing))
        ]
        for row, sender in enumerate(senders)
    ]
