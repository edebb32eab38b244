"""The network file to start from: five cities around the world, every line of it explained.

`FiveCities` has the values that differ between copies of it; the demo changes some (`levelcast.node.demo.network`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple


class ExampleFloor(NamedTuple):
    """A floor; its publisher is its place in the list, from 1 on."""

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
"""Name and number of each edge group, and what else is said of it."""
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
"""Two sites, the delay between them, and the jitter where it is not `_JITTER_MS`."""


@dataclass(frozen=True, slots=True)
class FiveCities:
    """The values of the file."""

    name: str = "five cities"
    nearer: float = 1.0
    """By what every delay and jitter is divided."""
    loss_ratio: float = 0.01
    slot: str = "50ms"
    process: str = "5ms"
    floors: Sequence[ExampleFloor] = FLOORS
    core_address: str = "239.192.74.1"
    core_port: int = 30_001
    edge_block: str = "239.192.75"
    edge_port: int = 31_001
    """The first of four."""
    status_port: int = 32_000


def five_cities(values: FiveCities | None = None) -> str:
    """The text of a commented `network.toml`: five receivers, two reformation servers, five floors.

    The delays are half of the average round trips of WonderNetwork's pings of 10 November 2018, averaged over
    both directions; the jitter covers the longest that was seen. Those pings say nothing of loss: the 1 % is
    an assumption for the public Internet, to be replaced by what you measure.
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
    texts = {"jitter": time(_JITTER_MS), "slot": json.dumps(values.slot), "process": json.dumps(values.process)}
    return _TEXT.format_map(asdict(values) | texts | {name: "\n".join(each) for name, each in listed.items()})


def toml_table(head: str, **values: object) -> str:
    """The text of one table of an array of tables."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join([f"[[{head}]]", *lines, ""])


_TEXT = """\
# A Levelcast network: one market tape, in one order, released at one instant in five cities.
#
#   levelcast timing network.toml      explains every number that follows from this file
#
# Durations are texts with a unit: "300us", "35.6ms", "2s". Names may have letters, digits, "-", "_" and ".".

[network]
name = "{name}"

# ---------------------------------------------------------------------------------------------------------
# Where nodes can stand. The city is for people and for reports; by its region a receiver knows its edge groups.

{sites}
# ---------------------------------------------------------------------------------------------------------
# What packets between the sites meet. delay is one way; jitter is how much longer a packet may take before it
# counts as late; loss is a ratio. A pair takes what it does not say from the lines above it; a `delay` there
# would serve for pairs that are not listed. Within one site a hop takes 100us and loses nothing, unless
# a pair such as ["tokyo", "tokyo"] says more.

[links]
jitter = "{jitter}"
loss = {loss_ratio:g}
pairs = [
{pairs}
]

# ---------------------------------------------------------------------------------------------------------
# The ring's timing. Everything that is not given here is derived from [links]; to give it, write for example:
#   late      how long after its slot a token counts as missing          = "160ms"
#   request   how long to wait for an answer before asking again         = "330ms"
#   attempts  how often to ask before reporting a fault                  = 6
#   hold      from a packet's timestamp to its release, everywhere       = "7s"
# A number that you give is checked against the others: a hold that is too short is refused.
# Loss costs most: at 0.1 % four attempts do, and the hold time is nearly a third shorter.

[timing]
mode = "pipelined"    # tokens leave on time; "lockstep" is the paper's: one token per recovery time
slot = {slot:<15}# a packet waits at most this long for the token that gives it its place
witness = "majority"  # how many receivers must hold a packet before it is released: "majority", "all", 3
clock_error = "1ms"   # how far any clock may be from UTC
transmit = "1ms"      # to put a request and its answer on the wire
process = {process:<12}# to handle a request and its answer, the journal's fsync included

# Several rings over the same receivers, each with its own order. A stripe may differ from [timing] in any
# key.
# [stripes.main]
# [stripes.slow]
# slot = "200ms"
# witness = "all"

# ---------------------------------------------------------------------------------------------------------
# The primary receivers, in ring order. Ids are 1 to 65535, one namespace for all nodes, and stay with a node
# for life: journals and datagrams name nodes by them.

{receivers}
# Secondary receivers stand in no ring: a primary, their home, serves them and covers them with its tokens. They have
# the same tape at the same instant, for customers of their own. The first one adds a term to the hold time.
# [[secondary]]
# name = "tokyo-2"
# site = "tokyo"
# home = "tokyo-1"  # without it the nearest

# ---------------------------------------------------------------------------------------------------------
# They form a new ring when a receiver fails or returns. The first is asked first; the next one waits longer.

{servers}
# ---------------------------------------------------------------------------------------------------------
# The trading floors, by market identifier code (ISO 10383). publisher is the publisher_id of their records
# and, unless an id is given, their id on the ring.

{floors}
# ---------------------------------------------------------------------------------------------------------
# Multicast groups: the core's own (each stripe after the first takes the next port), and the edge's, by which
# customers receive what was released. A receiver sends to the groups of its site's region, and to those of none; to
# a group that is a line, one receiver at a time: line "a" and "b" of a region come from two, the nearest if need be.

[core]
address = "{core_address}"
port = {core_port}

[edge]
watermark = "100ms"  # how often each group says up to when it is complete

{groups}
# ---------------------------------------------------------------------------------------------------------
# Where each node tells what it does: http://127.0.0.1:{status_port}/status for the first node of this file (receivers,
# then reformation servers, floors, secondaries), the next port for the next one. `levelcast status network.toml` asks
# them all. It says nothing secret, and it is not protected: keep the address a local one.

[status]
port = {status_port}
address = "127.0.0.1"

# What nodes keep on disk. Without limits a receiver keeps its whole tape; with one it removes the oldest
# segments while it runs. durable is what a write survives: "process" its death, "power" the machine's too.
# [tape]
# keep_bytes = "10GB"
# keep_age = "7d"
# durable = "process"
"""
