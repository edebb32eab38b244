"""Write a commented example of a network file: five cities around the world.

`FiveCities` has the variable values; the demo changes some of them (`levelcast.node.demo.network`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class ExampleFloor(NamedTuple):
    """A floor; its publisher is its position in the list, from 1 on."""

    name: str
    site: str
    symbols: Sequence[str]


FLOORS = (
    ExampleFloor("XNYS", "new-york", ("IBM", "GE", "KO", "XOM", "DIS")),
    ExampleFloor("XLON", "london", ("VOD", "HSBA", "RIO", "AZN")),
    ExampleFloor("XETR", "frankfurt", ("SAP", "SIE", "BMW", "ALV")),
    ExampleFloor("XTKS", "tokyo", ("7203", "6758", "9984")),
    ExampleFloor("XASX", "sydney", ("BHP", "CBA", "CSL")),
)
_SITES = {
    "new-york": ("New York", "americas"),
    "london": ("London", "europe"),
    "frankfurt": ("Frankfurt", "europe"),
    "tokyo": ("Tokyo", "asia-pacific"),
    "sydney": ("Sydney", "asia-pacific"),
}
"""City and region of each site."""
_GROUPS = (
    ("americas", 1, {"region": "americas", "line": "a"}),
    ("americas-b", 4, {"region": "americas", "line": "b"}),
    ("europe", 2, {"region": "europe"}),
    ("asia-pacific", 3, {"region": "asia-pacific"}),
)
"""Name, number and other keys of each edge group."""
_JITTER_MS = 6.0
_LINKS_MS: tuple[tuple[str, str, float, float | None], ...] = (
    ("new-york", "london", 35.6, None),
    ("new-york", "frankfurt", 48.5, None),
    ("new-york", "tokyo", 107.6, None),
    ("new-york", "sydney", 116.4, 10.0),
    ("london", "frankfurt", 7.4, None),
    ("london", "tokyo", 108.5, None),
    ("london", "sydney", 131.3, None),
    ("frankfurt", "tokyo", 131.5, None),
    ("frankfurt", "sydney", 151.6, None),
    ("tokyo", "sydney", 57.7, None),
)
"""Two sites, the delay between them, and the jitter if it is not `_JITTER_MS`."""


_HOLD = """\
hold = {hold:<15}# time from a packet's timestamp to its release
"""
_SCHEDULING = """\
scheduling = {scheduling:<9}# part of the hold time for processes that run late
"""
FIRST_PORT, PORTS_PER_NETWORK, PORT_BLOCKS = 10_000, 100, 220
"""Ports of a file with an identifier: the block of a network begins with the core's."""


@dataclass(frozen=True, slots=True)
class FiveCities:
    """The values of the file."""

    name: str = "five cities"
    network_id: int | None = None
    """Network identifier; None: the file has none."""
    nearer: float = 1.0
    """Divisor of every delay and jitter."""
    loss_ratio: float = 0.01
    slot: str = "50ms"
    process: str = "5ms"
    hold: str | None = "417ms"
    """As `levelcast timing --write` stores it for the other values; None: the file has none."""
    scheduling: str | None = None
    floors: Sequence[ExampleFloor] = FLOORS
    core_address: str = "239.192.74.1"
    core_port: int = 30_001
    edge_block: str = "239.192.75"
    edge_port: int = 31_001
    """The first of four ports."""
    status_port: int = 32_000

    @classmethod
    def identified(cls, network_id: int, **values: Any) -> FiveCities:
        """Return the values with an identifier, and with groups and ports derived from it.

        The groups are in 239.192.0.0/14 (RFC 2365), the core in its lower half. The ports are below those that the
        kernel assigns to programs.
        """
        core, edge, ports = network_id & 0x1FFFF, network_id >> 17 & 0x1FF, network_id >> 26
        first = FIRST_PORT + ports % PORT_BLOCKS * PORTS_PER_NETWORK
        derived: dict[str, Any] = {
            "core_address": f"239.{192 + (core >> 16)}.{core >> 8 & 0xFF}.{core & 0xFF}",
            "core_port": first,
            "edge_block": f"239.{194 + (edge >> 8)}.{edge & 0xFF}",
            "edge_port": first + 20,
            "status_port": first + 30,
        }
        return cls(**(derived | values), network_id=network_id)


def five_cities(values: FiveCities | None = None) -> str:
    """Return the text of a commented `network.toml`: five receivers, two reformation servers, five floors.

    The delays are half of the average round trips of WonderNetwork's pings of 10 November 2018, averaged over
    both directions; the jitter covers the maximum. Those pings do not measure loss: the 1 % is an assumption
    for the public Internet, to be replaced by your measurements.
    """
    values = values or FiveCities()

    def time(ms: float) -> str:
        return f"{ms / values.nearer:g}ms"

    listed = {
        "sites": [toml_table("site", name=site, city=city, region=region) for site, (city, region) in _SITES.items()],
        "pairs": [
            f'    {{ between = ["{one}", "{other}"], delay = "{time(delay)}"'
            + (f', jitter = "{time(jitter)}" }},' if jitter is not None else " },")
            for one, other, delay, jitter in _LINKS_MS
        ],
        "receivers": [
            toml_table("receiver", name=f"{site}-1", id=number, site=site) for number, site in enumerate(_SITES, 101)
        ],
        "servers": [
            toml_table("reformation", name=f"reform-{site}", id=number, site=site)
            for number, site in enumerate(("london", "new-york"), 201)
        ],
        "floors": [
            toml_table("floor", name=name, publisher=number, site=site, symbols=list(symbols))
            for number, (name, site, symbols) in enumerate(values.floors, 1)
        ],
        "groups": [
            toml_table(
                "edge.group", name=name, address=f"{values.edge_block}.{at}", port=values.edge_port + at - 1, **rest
            )
            for name, at, rest in _GROUPS
        ],
    }
    texts = {
        "id": "" if values.network_id is None else f'id = "{values.network_id:016x}"\n',
        "jitter": time(_JITTER_MS),
        "slot": json.dumps(values.slot),
        "process": json.dumps(values.process),
        "hold": "" if values.hold is None else _HOLD.format(hold=json.dumps(values.hold)),
        "scheduling": (
            "" if values.scheduling is None else _SCHEDULING.format(scheduling=json.dumps(values.scheduling))
        ),
    }
    return _TEXT.format_map(asdict(values) | texts | {name: "\n".join(each) for name, each in listed.items()})


def toml_table(head: str, **values: object) -> str:
    """Return the text of one table of an array of tables."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join([f"[[{head}]]", *lines, ""])


_TEXT = """\
# A Levelcast network: one market tape, in one order, released at the same time in five cities.
#
#   levelcast timing                   explains every number derived from this file
#
# Durations are strings with a unit: "300us", "35.6ms", "2s". Names may have letters, digits, "-", "_" and ".".

[network]
name = "{name}"
{id}
# ---------------------------------------------------------------------------------------------------------
# Sites of nodes. The city is used in reports only; the region determines the edge groups of a receiver.

{sites}
# ---------------------------------------------------------------------------------------------------------
# Links between sites. delay is one way; jitter is the additional delay after which a packet counts as late;
# loss is a ratio. [links] has the defaults of all pairs; a default `delay` would also apply to unlisted pairs.
# Within one site the delay is 100us without loss, unless a pair such as ["tokyo", "tokyo"] specifies other
# values.

[links]
jitter = "{jitter}"
loss = {loss_ratio:g}
pairs = [
{pairs}
]

# ---------------------------------------------------------------------------------------------------------
# The ring's timing. Values that are not set here are derived from [links]; to set them, write for example:
#   late      time after its slot at which a token counts as missing     = "160ms"
#   request   time to wait for a reply before the request is repeated    = "330ms"
#   attempts  number of requests before a fault is reported              = 6
# `levelcast timing` shows which hold time these links need, and `levelcast timing --write` stores it here. All nodes
# must have the same: write it once, and copy the file.

[timing]
mode = "pipelined"    # tokens are sent on schedule; "lockstep", as in the paper: one token per recovery time
slot = {slot:<15}# maximum wait of a packet for the token that orders it
{hold}witness = "majority"  # number of receivers that must hold a packet before its release: "majority", "all", 3
clock_error = "1ms"   # maximum offset of any clock from UTC
transmit = "1ms"      # time to put a request and its reply on the wire
process = {process:<12}# time to handle a request and its reply, including the journal's fsync
{scheduling}
# Several rings over the same receivers, each with its own order. A stripe may differ from [timing] in any
# key.
# [stripes.main]
# [stripes.slow]
# slot = "200ms"
# witness = "all"

# ---------------------------------------------------------------------------------------------------------
# The primary receivers, in ring order. Ids are 1 to 65535, unique over all nodes, and must never change:
# journals and datagrams identify nodes by them.

{receivers}
# Secondary receivers are not in the ring: a primary (`home`) serves them and covers them with its tokens. They
# release the same tape at the same time to their own subscribers. `levelcast timing --write` derives the hold time
# with them.
# [[secondary]]
# name = "tokyo-2"
# site = "tokyo"
# home = "tokyo-1"  # default: the nearest

# ---------------------------------------------------------------------------------------------------------
# The reformation servers form a new ring when a receiver fails or returns. The first has priority; the next
# one waits longer.

{servers}
# ---------------------------------------------------------------------------------------------------------
# The trading floors, by market identifier code (ISO 10383). publisher is the publisher_id of their records
# and, unless an id is given, their id on the ring.

{floors}
# ---------------------------------------------------------------------------------------------------------
# Multicast groups: that of the core (each further stripe uses the next ports), and those of the edge, on which
# subscribers receive released records. A receiver sends to the groups of its site's region, and to groups without
# a region. One receiver at a time sends to a group that is a line: two receivers send lines "a" and "b" of a
# region, if necessary the nearest outside it.

[core]
address = "{core_address}"
port = {core_port}
ttl = 32  # hop limit of its packets; without multicast between the sites, set transport (docs/cloud.md)

[edge]
watermark = "100ms"  # interval of watermarks: the time up to which a group is complete

{groups}
# ---------------------------------------------------------------------------------------------------------
# Status of nodes: http://127.0.0.1:{status_port}/status for the first node of this file (receivers, then
# reformation servers, floors, secondaries), the next port for the next one. `levelcast status` queries
# all nodes. Status has no secrets, but access is not protected: keep the address local.

[status]
port = {status_port}
address = "127.0.0.1"

# Storage of nodes. Without limits a receiver keeps its complete tape; with a limit it removes the oldest
# segments while it runs. durable: writes survive a crash of the process ("process"), or also a power loss ("power").
# [tape]
# keep_bytes = "10GB"
# keep_age = "7d"
# durable = "process"

# Logs of nodes: DATA/NAME.log, and DATA/NAME.jsonl for programs. At this size a log is renamed; keep: renamed logs.
# [log]
# bytes = "10MB"
# keep = 5
# json = true
"""
