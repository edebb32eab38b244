"""Write the network file of `levelcast demo`: the five cities, with delays short enough for a run of seconds.

- Every delay and jitter is divided by `SCALE`. The loss is unchanged; all other times are derived
  (`levelcast.timing.derive`). With the true delays the failure of a site is detected after 2 s: too slow for a demo.
- Group and ports are random, so that several networks on one machine do not interfere with each other.
- Floors are those of the five cities, or those in a file of trades (`levelcast.formats.symbols_of_files`).
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
"""A dozen processes run on this machine, so handling a request needs more time than on separate machines."""
SCHEDULING_MS = 100
"""They also wait for a processor."""
HOLD_MS = 196
"""Stored, as `levelcast timing --write` does; with another loss or other floors it is derived when the demo starts."""
MAX_FLOORS = 40
_PORTS = 64
_PORT_RANGE = (20_000, 32_000)
"""Below the ephemeral ports of Linux."""
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
    """Write the demo's network file into an empty directory. Raise NetError, or NetworkError for invalid floors."""
    require_empty(directory)
    text = network_text(loss_ratio, floors)
    network = parse_network(text, "the demo's network")
    check_multicast(network)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "network.toml"
    file.write_text(text, encoding="utf-8")
    return Stage(network, file, directory / "data")


def require_empty(directory: Path) -> None:
    """Raise NetError for a directory that is not empty."""
    if directory.exists() and any(directory.iterdir()):
        raise NetError(f"{directory}: directory is not empty; specify a new directory for the demo")


def network_text(loss_ratio: float = LOSS_RATIO, floors: Floors | None = None) -> str:
    """Return the network file of the five cities, with shorter delays and with its own group and ports."""
    chance = SystemRandom()
    port = _free_ports(chance)
    return five_cities(
        FiveCities.identified(
            chance.getrandbits(64),
            name=f"five cities, their delays divided by {SCALE}",
            nearer=SCALE,
            loss_ratio=loss_ratio,
            slot=f"{SLOT_MS}ms",
            process=f"{PROCESS_MS}ms",
            scheduling=f"{SCHEDULING_MS}ms",
            hold=f"{HOLD_MS}ms" if loss_ratio == LOSS_RATIO and floors is None else None,
            floors=FLOORS if floors is None else _floors(floors),
            core_port=port,
            edge_port=port + 2,
            status_port=port + 6,
        )
    )


def _floors(floors: Floors) -> list[ExampleFloor]:
    """Return these floors in the example's form: known floors keep their sites, others are assigned in turn."""
    if len(floors) > MAX_FLOORS:
        raise NetError(f"the trades are of {len(floors)} floors; the demo supports at most {MAX_FLOORS}")
    known = {floor.name: floor.site for floor in FLOORS}
    sites = list(known.values())
    return [
        ExampleFloor(name, known.get(name, sites[number % len(sites)]), symbols)
        for number, (name, symbols) in enumerate(floors.items(), 1)
    ]


# -- ports and multicast of this machine ------------------------------------------------------------------


def _free_ports(chance: SystemRandom) -> int:
    """Return the first of `_PORTS` consecutive free ports."""
    for _ in range(_ATTEMPTS):
        first = chance.randrange(*_PORT_RANGE)
        if all(_is_free(port) for port in range(first, first + _PORTS)):
            return first
    raise NetError(f"{_PORTS} consecutive free ports not found on this machine; stop some programs")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return False
    return True


def check_multicast(network: Network) -> None:
    """Raise NetError with a remedy if a datagram to the core group is not received over loopback."""
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
        why = "datagrams sent are not received"
    except (OSError, NetError) as error:
        why = getattr(error, "strerror", None) or str(error)
    raise NetError(
        f"multicast is not available on the loopback interface ({why}); run `ip link set lo up multicast on`, "
        "or use `levelcast demo --simulated`"
    )
