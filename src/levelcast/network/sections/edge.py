"""[edge]: the multicast groups for subscribers, and the parameters of their feed (rule 15)."""

from __future__ import annotations

from ipaddress import IPv4Address

from levelcast.network.fields import Fields, did_you_mean, known, show
from levelcast.network.keys import NONE, FileKey, FileTable
from levelcast.network.line_assignment import share_of_line
from levelcast.network.model import LONGEST_TOGETHER_NS, PORTS_PER_STRIPE, Edge, MulticastGroup
from levelcast.network.sections.draft import ID_LIMIT, LEAST_PACKET, MOST_PACKET, Draft
from levelcast.units import PACKET_HEADERS, show_ns, show_rate
from levelcast.wire.parts import MAX_LINES

_MOST_GROUPS = 65_536
_LAST_GROUP = int(IPv4Address("239.255.255.255"))
_LEAST_STORE = 1_000_000


_DEFAULTS = Edge()
_ALL_SEND = "every receiver of the region sends to it"
TABLES = (
    FileTable(
        "[edge]",
        (
            FileKey("packet", "maximum datagram size for subscribers, in bytes", f"{_DEFAULTS.packet_bytes}"),
            FileKey("trains", "send consecutive datagrams together", f"{_DEFAULTS.trains}".lower()),
            FileKey(
                "store", "memory of each receiver for retransmission, per session", f"{_DEFAULTS.store_bytes >> 20}MiB"
            ),
            FileKey("watermark", "interval of the watermarks in each session", show_ns(_DEFAULTS.watermark_ns)),
            FileKey(
                "together",
                "subscribers deliver each record this long after its release time, all at the same time "
                "([edge.md](edge.md#release-at-the-subscriber)); at most 10 s",
                "as it arrives",
            ),
            FileKey("ttl", "hop limit of edge packets", f"{_DEFAULTS.ttl}"),
            FileKey(
                "unicast",
                "maximum number of registrations of subscribers without multicast, per receiver and stripe; a "
                "subscriber has one per group that it receives ([cloud.md](cloud.md#subscribers-without-multicast))",
                "none",
                "integer from 1 to 10000",
            ),
            FileKey(
                "unicast_rate",
                "maximum rate of the copies for them, per receiver and stripe",
                f"{show_rate(_DEFAULTS.unicast_rate_bytes)}",
            ),
            FileKey(
                "group", "multicast groups for subscribers, with the keys of `[[edge.group]]`", NONE, "array of tables"
            ),
        ),
    ),
    FileTable(
        "[[edge.group]]",
        (
            FileKey("name", "its name"),
            FileKey("address", "its multicast address"),
            FileKey("port", "its port"),
            FileKey(
                "region", "the receivers of this region send to it; the region must have a receiver", "all receivers"
            ),
            FileKey(
                "line",
                "one receiver at a time sends to it; each line of a region has another sender: "
                '`"a"`, `"b"` ([edge.md](edge.md#two-lines))',
                _ALL_SEND,
            ),
            FileKey("ttl", "hop limit of its packets", "`ttl` of `[edge]`"),
            FileKey(
                "count",
                "number of groups in this block, from `address`: group g of a plan uses address + g "
                "([edge-plans.md](edge-plans.md#address-blocks))",
                f"{MulticastGroup.__dataclass_fields__['count'].default}",
            ),
            FileKey(
                "rate",
                "capacity of the line to each group, for all stripes and retransmissions "
                "([edge-plans.md](edge-plans.md#line-rates)); a plan must fit",
                "unlimited",
            ),
        ),
        "a multicast group for subscribers",
    ),
)


def read(root: Fields, draft: Draft) -> None:
    fields = root.table("edge")
    packet = fields.whole("packet", LEAST_PACKET, MOST_PACKET)
    values = known(
        groups=_read_groups(fields, draft, packet or _DEFAULTS.packet_bytes),
        watermark_ns=fields.duration("watermark"),
        together_ns=fields.duration("together"),
        ttl=fields.whole("ttl", 1, 255),
        unicast=fields.whole("unicast", 1, 10_000),
        unicast_rate_bytes=fields.bit_rate("unicast_rate"),
        packet_bytes=packet,
        trains=fields.flag("trains"),
        store_bytes=fields.size("store"),
    )
    edge = Edge(**values)
    if edge.store_bytes < _LEAST_STORE:
        fields.problem("store", f"has {edge.store_bytes:,} bytes for retransmission; the minimum is 1MB")
    if edge.together_ns is not None and edge.together_ns > LONGEST_TOGETHER_NS:
        fields.problem("together", f"has together = {show_ns(edge.together_ns)}; the maximum is 10 s")
    draft.add(edge=edge)


def _read_groups(edge: Fields, draft: Draft, packet: int) -> tuple[MulticastGroup, ...]:
    core, regions = draft.network.core, _receiver_regions(draft)
    taken = {
        (core.address, core.port + index): "the core" for index in range(PORTS_PER_STRIPE * len(draft.network.stripes))
    }
    names: set[str] = set()
    groups: list[MulticastGroup] = []
    for fields in edge.tables("group"):
        group = _read_group(fields, regions)
        if group is not None:
            if group.rate_bytes is not None and regions is not None:
                _check_rate(fields, group.rate_bytes, share_of_line(draft.network, group), packet)
            for address in (group.at(place).address for place in range(group.count)):
                if (address, group.port) in taken:
                    fields.problem("port", f"has the address and port of {taken[address, group.port]}")
                    break
                taken[address, group.port] = fields.label
            if group.name in names:
                fields.problem("name", "has the name of another group")
            names.add(group.name)
            lines = {(each.region, each.line): each.name for each in reversed(groups)}
            if group.line and (twin := lines.get((group.region, group.line))):
                fields.problem("line", f'is line "{group.line}" of its region, and so is edge group "{twin}"')
            groups.append(group)
            if group.line and sum(each.line is not None for each in groups) > MAX_LINES:
                fields.problem("line", f"is line {MAX_LINES + 1} of the file; the maximum is {MAX_LINES}")
    return tuple(groups)


def _check_rate(fields: Fields, rate: int, share: int, packet: int) -> None:
    """Report a line on which a receiver may send less than one packet per second."""
    if share < packet + PACKET_HEADERS:
        of_each = " for each receiver" if share < rate else ""
        remedy = "set line, so that one receiver sends, or raise the rate" if of_each else "raise it"
        fields.problem(
            "rate",
            f"has a rate of {show_rate(share)}{of_each}, below one packet of {packet:,} bytes per second "
            f"({show_rate(packet + PACKET_HEADERS)}); {remedy}, or lower packet in [edge]",
        )


def _read_group(fields: Fields, regions: set[str] | None) -> MulticastGroup | None:
    name = fields.own_name("edge group")
    address = fields.multicast("address", missing="has no address")
    port = fields.whole("port", 1, ID_LIMIT, missing="has no port")
    region = fields.text("region") or None
    if region is not None and regions is not None and region not in regions:
        hint = did_you_mean(region, regions)
        fields.problem("region", f"is for region {show(region)}, which has no receiver{hint}")
    line = fields.name("line") if "line" in fields else None
    ttl = fields.whole("ttl", 1, 255)
    block, rate_bytes = fields.whole("count", 1, _MOST_GROUPS) or 1, fields.bit_rate("rate")
    if address is not None and int(IPv4Address(address)) + block - 1 > _LAST_GROUP:
        fields.problem("count", f"has {block} groups from {address} on, beyond the last address 239.255.255.255")
        block = 1
    if name is None or address is None or port is None:
        return None
    return MulticastGroup(name, address, port, region, line, ttl, block, rate_bytes)


def _receiver_regions(draft: Draft) -> set[str] | None:
    """Return the regions of receivers; None if the site of a receiver is unknown."""
    region_of = {site.name: site.region for site in draft.network.sites}
    sites = {receiver.site for receiver in draft.network.releasing}
    return {region_of[site] for site in sites} if sites <= region_of.keys() else None
