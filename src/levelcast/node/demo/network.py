"""The stage of `levelcast demo`: the five cities as a network file that this machine plays within seconds.

- The world is smaller: every delay and jitter is divided by `SCALE`, the loss is kept, and everything else follows by
  the rules (`levelcast.timing.derive`). With the true delays a release is 6.3 s behind its token, and a site that dies
  is missed only after 2 s: nobody wants to look at that for long.
- Group and ports are drawn, so that several networks on one machine do not disturb each other.
- Floors are those of the five cities, or those that a file of trades names (`levelcast.formats.symbols_of_files`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from levelcast.errors import NetError
from levelcast.network import Network, five_cities, parse_network
from levelcast.network.example import FLOORS, ExampleFloor, FiveCities
from levelcast.protocol.effects import GROUP
from levelcast.runtime.sockets import LOOPBACK, CoreSockets

SCALE = 5
LOSS_RATIO = 0.01
SLOT_MS = 20
PROCESS_MS = 10
"""A dozen processes share this machine, so handling a request takes longer than where each has its own."""
MAX_FLOORS = 40
_PORTS = 64
_PORT_RANGE = (20_000, 32_000)
"""Below those that Linux hands out by itself."""
_ATTEMPTS = 100
_HEARD_WITHIN_S = 2.0

Floors = Mapping[str, Sequence[str]]
"""The symbols of each floor."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A network file on disk, and the directory for its nodes."""

    network: Network
    file: Path
    data: Path


def set_stage(directory: Path, loss_ratio: float = LOSS_RATIO, floors: Floors | None = None) -> Stage:
    """Write the demo's network file into an empty directory. Raises NetError, or NetworkError for the floors."""
    require_empty(directory)
    text = network_text(loss_ratio, floors)
    network = parse_network(text, "the demo's network")
    check_multicast(network)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "network.toml"
    file.write_text(text, encoding="utf-8")
    return Stage(network, file, directory / "data")


def require_empty(directory: Path) -> None:
    """Raises NetError for a directory that has something in it."""
    if directory.exists() and any(directory.iterdir()):
        raise NetError(f"{directory}: is not empty, and the demo begins anew: name a directory that is not there yet")


def network_text(loss_ratio: float = LOSS_RATIO, floors: Floors | None = None) -> str:
    """The five cities, nearer to each other, on a group and ports of their own."""
    chance = SystemRandom()
    port = _free_ports(chance)
    return five_cities(
        FiveCities(
            name=f"five cities, their delays divided by {SCALE}",
            nearer=SCALE,
            loss_ratio=loss_ratio,
            slot=f"{SLOT_MS}ms",
            process=f"{PROCESS_MS}ms",
            floors=FLOORS if floors is None else _floors(floors),
            core_address=f"239.192.{chance.randint(80, 250)}.1",
            core_port=port,
            edge_block=f"239.193.{chance.randint(1, 250)}",
            edge_port=port + 2,
            status_port=port + 6,
        )
    )


def _floors(floors: Floors) -> list[ExampleFloor]:
    """These floors instead of the file's: those that it has stay where they are, the others take turns."""
    if len(floors) > MAX_FLOORS:
        raise NetError(f"the trades are of {len(floors)} floors, and the demo has room for {MAX_FLOORS}")
    known = {floor.name: floor.site for floor in FLOORS}
    sites = list(known.values())
    return [
        ExampleFloor(name, known.get(name, sites[number % len(sites)]), symbols)
        for number, (name, symbols) in enumerate(floors.items(), 1)
    ]


# -- what this machine has to offer -----------------------------------------------------------------------


def _free_ports(chance: SystemRandom) -> int:
    """The first of `_PORTS` neighbouring ports that nobody has."""
    for _ in range(_ATTEMPTS):
        first = chance.randrange(*_PORT_RANGE)
        if all(_is_free(port) for port in range(first, first + _PORTS)):
            return first
    raise NetError(f"there are no {_PORTS} free ports in a row on this machine: end some programs")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return False
    return True


def check_multicast(network: Network) -> None:
    """Raises NetError, with what to do, where a datagram to the core group does not come back over loopback."""
    group = network.core_group()
    try:
        with (
            closing(CoreSockets(group.address, group.port)) as speaker,
            closing(CoreSockets(group.address, group.port)) as listener,
        ):
            deadline = time.monotonic() + _HEARD_WITHIN_S
            while time.monotonic() < deadline:
                speaker.send(GROUP, [b"is there multicast?"])
                if listener.wait(0.1)[0] and listener.drain():
                    return
        why = "what is sent is not heard"
    except (OSError, NetError) as error:
        why = str(error)
    raise NetError(
        f"multicast does not work over the loopback interface here ({why}): `ip link set lo up multicast on` mends it, "
        "and `levelcast demo --simulated` does without"
    )
