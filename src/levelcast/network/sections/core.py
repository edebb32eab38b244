"""[core]: the multicast group of the rings, and the parameters of its packets."""

from __future__ import annotations

from dataclasses import replace

from levelcast.network.fields import Fields, known
from levelcast.network.keys import NONE, FileKey, FileTable
from levelcast.network.model import DEFAULT_CREDIT, MOST_CREDIT, PORTS_PER_STRIPE, Carriage
from levelcast.network.sections.draft import DEFAULT_CORE, ID_LIMIT, LEAST_PACKET, MOST_PACKET, Draft

OVERLAY_PACKET = 1_200
"""Default maximum datagram without multicast: it fits the path between any two sites, also inside a VPN."""
TABLES = (
    FileTable(
        "[core]",
        (
            FileKey(
                "transport",
                '`"multicast"`, `"unicast"` (to every node), or `"sites"` (multicast within a site, unicast between '
                "sites; see [cloud.md](cloud.md))",
                '`"multicast"`',
            ),
            FileKey("address", "core multicast group", DEFAULT_CORE.address),
            FileKey(
                "port",
                "control uses this port, packets use the next; each further stripe uses the next two",
                f"{DEFAULT_CORE.port}",
                "port",
            ),
            FileKey("ttl", "hop limit of multicast packets: 1 for one link", "1"),
            FileKey(
                "operator",
                "address from which commands change a running network, with another transport than multicast",
                "127.0.0.1, if no node has a `host`",
            ),
            FileKey(
                "detours",
                "without multicast: send packets over a node, too, where that is 10 % and 10 ms shorter; where a path "
                "is cut, that is always done",
                "false",
            ),
            FileKey(
                "packet",
                "maximum datagram size for records of a floor, in bytes",
                f"{Carriage().packet_bytes}; {OVERLAY_PACKET:,} with another transport than multicast",
            ),
            FileKey(
                "trains", "send consecutive datagrams together (segmentation offload)", f"{Carriage().trains}".lower()
            ),
            FileKey(
                "rate",
                "maximum rate of one floor per second. W is this rate times the time that a packet is unwitnessed, "
                f"(w + 2)·τ + 2·δ_N, from {DEFAULT_CREDIT} to {MOST_CREDIT:,} packets",
                NONE,
            ),
            FileKey(
                "credit",
                "W, maximum number of unwitnessed packets of a floor, instead of `rate`",
                f"from `rate`; {DEFAULT_CREDIT} without it",
            ),
        ),
    ),
)


def read(root: Fields, draft: Draft) -> None:
    fields = root.table("core")
    last_port = ID_LIMIT + 1 - PORTS_PER_STRIPE * len(draft.network.stripes)
    place = known(
        address=fields.multicast("address"), port=fields.whole("port", 1, last_port), ttl=fields.whole("ttl", 1, 255)
    )
    transport = fields.choice("transport", "multicast", "unicast", "sites") or "multicast"
    packet_bytes = fields.whole("packet", LEAST_PACKET, MOST_PACKET)
    carriage = known(
        packet_bytes=OVERLAY_PACKET if packet_bytes is None and transport != "multicast" else packet_bytes,
        trains=fields.flag("trains"),
        credit=fields.whole("credit", 1, MOST_CREDIT),
        rate_bytes=fields.size("rate"),
    )
    draft.add(core=replace(draft.network.core, **place), carriage=Carriage(**carriage))
    draft.add(transport=transport, operator=fields.host("operator"), **known(detours=fields.flag("detours")))
