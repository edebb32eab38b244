"""A network in one room: three receivers, two reformation servers and floors, for benchmarks of the edge."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import SystemRandom

RECEIVERS = ("receiver-1", "receiver-2", "receiver-3")
_SUBNETS = range(1, 255)
_STATUS_PORTS = range(20_000, 30_000)
_DATA_PORTS = range(20_000, 32_000)
"""Below those that Linux hands out by itself."""

_HEAD = """\
[network]
name = "three receivers in one room"

[[site]]
name = "room"

[links]
delay = "100us"

[timing]
slot = "10ms"
late = "5ms"
attempts = 3
process = "5ms"
clock_error = "500us"

[core]
address = "{subnet}.1"
port = {port}
rate = "10MB"

[edge]
watermark = "{watermark}"

[[edge.group]]
name = "edge"
{line}address = "{subnet}.16"
port = {port}
count = {groups}

[status]
port = {status}
"""


def write_network(
    directory: Path, symbols: Mapping[str, Sequence[str]], groups: int, watermark: str, *, one_sends: bool
) -> Path:
    """The network file, on addresses of its own, with the symbols of each floor.

    With `one_sends` the groups are a line, to which one receiver sends at a time; otherwise all of them do.
    """
    chance = SystemRandom()
    nodes = [("receiver", f'name = "{name}"\nid = {8001 + i}') for i, name in enumerate(RECEIVERS)]
    nodes += [("reformation", f'name = "reform-{i}"\nid = {8100 + i}') for i in (1, 2)]
    for publisher, (floor, its) in enumerate(symbols.items(), 1):
        listed = json.dumps(list(its))
        nodes.append(("floor", f'name = "{floor}"\npublisher = {publisher}\nsymbols = {listed}'))
    head = _HEAD.format(
        subnet=f"239.192.{chance.choice(_SUBNETS)}",
        port=free_ports(),
        status=chance.choice(_STATUS_PORTS),
        groups=groups,
        watermark=watermark,
        line='line = "a"\n' if one_sends else "",
    )
    path = directory / "network.toml"
    parts = [f'[[{role}]]\n{who}\nsite = "room"\n' for role, who in nodes]
    path.write_text("\n".join([head, *parts]), encoding="utf-8")
    return path


def free_ports(number: int = 8) -> int:
    """The first of so many neighbouring UDP ports that nobody has: two benchmarks at a time do not hear each other."""
    chance = SystemRandom()
    while True:
        first = chance.choice(_DATA_PORTS)
        if all(_is_free(port) for port in range(first, first + number)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
