"""Write the network file of a region plan: sites, links, receivers, two edge groups per region (MS §4.1, §4.3).

Every group has its own address and port, so that overlapping groups never use the same one. If the routers between
locations are measured, its TTL is its scope: it reaches the subscribers of the region from both sites (MS §4.3).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from levelcast.network.example import toml_table
from levelcast.network.line_assignment import MOST_TTL
from levelcast.network.regions.delays import Delays
from levelcast.network.regions.plan import Indexes, Regions
from levelcast.wire.membership import MAX_MEMBERS

FIRST_GROUP_PORT = 31_001
FIRST_SERVER = 60_001
MOST_RECEIVERS = MAX_MEMBERS
"""All receivers of a ring must fit into one membership record, or no disk can be replaced; more are secondaries."""


def region_file(
    delays: Delays, plan: Regions, receivers: Indexes, *, slot_ms: float = 50.0, network_id: int | None = None
) -> str:
    """Return the text of a network file: region i has `receivers[i]` receivers, for lines a and b in turn."""
    sites = [(number, site) for number, pair in enumerate(plan.sites.tolist()) for site in pair]
    names = site_names([delays.names[site] for _, site in sites])
    name_of = {site: name for (_, site), name in zip(sites, names, strict=True)}
    region_of = [name_of[pair[0]] for pair in plan.sites.tolist()]
    lines = ["# Regions planned by `levelcast regions` from delay and loss. Each has two sites: line a and line b.", ""]
    if network_id is not None:
        lines += ["[network]", f'id = "{network_id:016x}"', ""]
    for number, site in sites:
        city = delays.names[site].replace("\\", "").replace('"', "")
        lines.append(toml_table("site", name=name_of[site], city=city, region=region_of[number]))
    lines += ["[links]", "pairs = [", *_links(delays, name_of), "]", ""]
    lines += ["[timing]", f'slot = "{slot_ms:g}ms"', ""]
    number_of = dict.fromkeys(name_of.values(), 0)
    for region, count in enumerate(receivers.tolist()):
        for turn in range(count):
            site_name = name_of[int(plan.sites[region, turn % 2])]
            number_of[site_name] += 1
            node = sum(number_of.values())
            lines.append(toml_table("receiver", name=f"{site_name}-{number_of[site_name]}", id=node, site=site_name))
    for rank, site_name in enumerate(names[:2] if len(region_of) == 1 else region_of[:2]):
        lines.append(toml_table("reformation", name=f"reform-{site_name}", id=FIRST_SERVER + rank, site=site_name))
    for place, (name, line) in enumerate((name, line) for name in region_of for line in "ab"):
        address = f"239.192.{75 + place // 250}.{place % 250 + 1}"
        port = FIRST_GROUP_PORT + place
        scope = {} if (ttl := _scope_ttl(delays, plan, place // 2)) is None else {"ttl": ttl}
        lines.append(
            toml_table("edge.group", name=f"{name}-{line}", address=address, port=port, region=name, line=line, **scope)
        )
    return "\n".join(lines).rstrip() + "\n"


def _scope_ttl(delays: Delays, plan: Regions, region: int) -> int | None:
    """Return the TTL that reaches the subscribers of a region from both of its sites; None if it is not measured."""
    if delays.hops is None:
        return None
    hops = delays.hops[np.ix_(plan.sites[region], plan.customer[plan.region == region])]
    return None if np.isnan(hops).any() else min(int(hops.max(initial=0.0)) + 1, MOST_TTL)


def site_names(cities: Sequence[str]) -> list[str]:
    """Return a valid name in a network file for each city: lower case, dashes for the rest, a number for duplicates.

    >>> site_names(["New York", "São Paulo", "new york"])
    ['new-york', 'sao-paulo', 'new-york-2']
    """
    names: list[str] = []
    for city in cities:
        plain = unicodedata.normalize("NFKD", city).encode("ascii", "ignore").decode().lower()
        name = base = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40] or "site"
        number = 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names.append(name)
    return names


def _links(delays: Delays, name_of: dict[int, str]) -> Iterator[str]:
    """Yield the links, equal in both directions: the maximum of delay, of jitter and of loss."""
    sites = list(name_of)
    for place, a in enumerate(sites):
        for b in sites[place + 1 :]:
            delay = max(delays.delay_ms[a, b], delays.delay_ms[b, a])
            jitter = max(delays.jitter_ms[a, b], delays.jitter_ms[b, a])
            loss = max(delays.loss[a, b], delays.loss[b, a])
            hops = np.nan if delays.hops is None else max(delays.hops[a, b], delays.hops[b, a])
            yield (
                f'    {{ between = ["{name_of[a]}", "{name_of[b]}"], delay = "{delay:.3f}ms", '
                f'jitter = "{jitter:.3f}ms", loss = {loss:g}'
                f"{'' if np.isnan(hops) else f', hops = {hops:g}'} }},"
            )
