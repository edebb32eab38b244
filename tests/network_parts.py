"""A network of three rooms, and addresses and ports that no other test has."""

from __future__ import annotations

import socket
from random import SystemRandom

SITES = """
[[site]]
name = "a"
region = "west"
[[site]]
name = "b"
region = "west"
[[site]]
name = "c"
region = "east"
"""
NODES = """
[[receiver]]
name = "a-1"
id = 101
site = "a"
[[receiver]]
name = "b-1"
id = 102
site = "b"
[[receiver]]
name = "c-1"
id = 103
site = "c"

[[reformation]]
name = "reform-a"
id = 201
site = "a"
[[reformation]]
name = "reform-b"
id = 202
site = "b"
"""
TWO_FLOORS = """
[[floor]]
name = "XNYS"
publisher = 1
site = "a"
[[floor]]
name = "XLON"
publisher = 2
site = "b"
"""
WIRES = """
[links]
delay = "500us"
jitter = "500us"
loss = 0.01

[timing]
slot = "10ms"
hold = "200ms"
process = "10ms"
clock_error = "1ms"
"""

PATIENT_WIRES = """
[links]
delay = "200us"

[timing]
slot = "20ms"
late = "50ms"
attempts = 6
process = "10ms"
"""
"""Timing with time for processes that wait for a processor."""

_CHANCE = SystemRandom()


def three_rooms(more: str, name: str = "three rooms", wires: str = WIRES) -> str:
    """A network file with three primaries and two reformation servers, in a group and on a port of its own."""
    core = f'[core]\naddress = "{free_group()}"\nport = {free_port()}\n'
    return f'[network]\nname = "{name}"\n{SITES}{wires}{NODES}{more}\n{core}'


def free_group() -> str:
    return f"239.192.{_CHANCE.randint(1, 254)}.{_CHANCE.randint(1, 254)}"


def free_port() -> int:
    """A port for datagrams, with a few more above it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        return min(int(probe.getsockname()[1]), 60_000)


def free_ports(number: int = 32) -> int:
    """The first of so many ports that nobody listens on."""
    while True:
        first = _CHANCE.randrange(20_000, 30_000)
        try:
            for port in range(first, first + number):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
