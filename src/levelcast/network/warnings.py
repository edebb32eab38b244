"""Generate warnings about a network for `levelcast timing`: valid but questionable settings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

from levelcast.network import line_assignment
from levelcast.network.model import Network, known_links
from levelcast.timing.entry import entry_warnings
from levelcast.timing.rules import attempts_for
from levelcast.units import show_ns


def warnings(network: Network, stripe: int | str = 0) -> list[str]:
    """Return warnings about valid but questionable settings."""
    return [
        *_membership_warnings(network),
        *_transport_warnings(network),
        *_secondary_warnings(network, stripe),
        *line_assignment.warnings(network),
        *_timing_warnings(network, stripe),
        *_key_warnings(network),
        *_entry_warnings(network, stripe),
    ]


def included_files(network: Network) -> list[str]:
    """Return a line for each included file with its contribution, and the file that has the worst links."""
    said = []
    for each in network.included:
        brings = [f"{each.pairs} pairs of sites"] if each.pairs else []
        brings += [f"helpers of {each.helpers} sites"] if each.helpers else []
        brings += [f"{', '.join(each.timing)} of [timing]"] if each.timing else []
        about = f" ({each.about})" if each.about else ""
        said.append(f"{each.file}{about} provides {' and '.join(brings) or 'no value that is used'}.")
    if network.included and network.links is not None:
        links = list(known_links(network.links, combinations_with_replacement(sorted(network.core_sites), 2)))
        for what, (between, link) in (
            ("The longest delay", max(links, key=lambda named: named[1].quantile_ns)),
            ("The highest loss", max(links, key=lambda named: named[1].loss_ratio)),
        ):
            said.append(f"{what}, between {between}, is from {link.source or 'the network file itself'}.")
    return said


def _key_warnings(network: Network) -> Iterator[str]:
    if network.keys is not None:
        yield "Nodes do not use the keys of [keys] yet: packets and messages of the core are neither sealed nor signed."


def _entry_warnings(network: Network, stripe: int | str) -> Iterator[str]:
    """Yield warnings about order entry: traders in cities without a gateway, and numbers."""
    if network.stripe(stripe).name not in network.order_stripes:
        return
    yield from entry_warnings(network.entry_timing(stripe), network.entry)
    sites = {gateway.site for gateway in network.gateways}
    if without := sorted({node.site for node in network.releasing} - sites):
        yield (
            f"Sites without a gateway: {', '.join(without)}. A trader there is behind every trader at a gateway by the "
            "delay to the nearest one."
        )


def _membership_warnings(network: Network) -> Iterator[str]:
    receivers = len(network.receivers)
    majority = receivers // 2 + 1
    if receivers < 3:
        yield (
            f"With {receivers} receiver{'s' if receivers > 1 else ''} a majority is {majority}: "
            "the ring stops as soon as one of them fails. Three survive one failure."
        )
    by_site: dict[str, int] = {}
    for receiver in network.receivers:
        by_site[receiver.site] = by_site.get(receiver.site, 0) + 1
    for site, count in by_site.items():
        if count > receivers - majority and len(by_site) > 1:
            yield f'The ring stops if site "{site}" fails: {count} of {receivers} receivers are there.'
    if len(network.reformation) == 1:
        name = network.reformation[0].name
        yield f'There is one reformation server: while "{name}" is down, the ring cannot be reformed.'
    if not network.floors:
        yield "[[floor]] is missing: nothing will be sent."


def _transport_warnings(network: Network) -> Iterator[str]:
    if network.transport != "multicast" or (network.core.ttl or 1) > 1 or len(network.core_sites) < 2:
        return
    yield (
        f"Nodes are at {len(network.core_sites)} sites, and `ttl` of [core] is 1: multicast does not leave a link. "
        "On several machines set `ttl`, or the transport unicast or sites ([core])."
    )


def _secondary_warnings(network: Network, stripe: int | str) -> Iterator[str]:
    """Yield warnings about secondaries: each of n sends once per τ_r, so a turn is τ_r / n (rule 11)."""
    if network.secondaries and len(network.receivers) == 1:
        name = network.receivers[0].name
        yield f'"{name}" is the only primary: while it is down, its secondaries cannot request missing data.'
    timing, rules = network.timing(stripe), network.stripe(stripe).rules
    for receiver in network.receivers:
        count = len(network.secondaries_of(receiver.name))
        turn_ns = timing.request_ns // max(1, count)
        if count and turn_ns < rules.clock_error_ns:
            yield (
                f'"{receiver.name}" has {count} secondaries: each sends once per {show_ns(timing.request_ns)} (τ_r), '
                f"so a turn is {show_ns(turn_ns)}, less than the clock error: their tokens will collide."
            )


def _timing_warnings(network: Network, stripe: int | str) -> Iterator[str]:
    rules = network.stripe(stripe).rules
    path = network.path(stripe)
    timing = network.timing(stripe)
    witnesses, receivers = network.witnesses(stripe), len(network.receivers)
    if witnesses < receivers // 2 + 1:
        yield (
            f"Witness is {witnesses}, less than a majority of {receivers}: a released packet can still be "
            "lost when the ring is reformed, and two receivers can then release different packets."
        )
    needed_late_ns = path.delay_ns + 2 * path.clock_error_ns
    if network.links is not None and timing.late_ns < needed_late_ns:
        yield (
            f"Late (δ_N) is set to {show_ns(timing.late_ns)}, less than the {show_ns(needed_late_ns)} "
            f"that {path.delay_between} need: tokens that are only slow will be requested again."
        )
    if network.links is not None and rules.attempts is not None:
        needed = attempts_for(min(path.loss_ratio, 0.5), receivers)
        if rules.attempts < needed:
            yield (
                f"Attempts (k_r) is set to {rules.attempts}; a loss of {path.loss_ratio:g} needs {needed}, "
                "so random loss alone will reform the ring more than once in 10⁹ packets."
            )
    if timing.stagger_ns:
        yield (
            f"Receivers send requests in {network.shape(stripe).nack_sets} sets in turn: fewer requests if many "
            f"miss the same packet, but recovery is {show_ns(timing.stagger_ns)} longer. The paper advises against it "
            "for a market (MS §5.2)."
        )
    if rules.nack_sets == "tree" and not timing.stagger_ns:
        yield 'Nack_sets is "tree", but no two receivers are in one region: all send requests immediately.'
    if timing.mode == "pipelined" and timing.slot_ns > timing.hold_ns:
        yield (
            f"A slot is {show_ns(timing.slot_ns)}, longer than the hold time: "
            "packets wait longer for their token than for everything else."
        )
