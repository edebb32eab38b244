"""Options of a node that are not in the network file."""

from __future__ import annotations

from dataclasses import dataclass

from levelcast.runtime.realtime import Realtime
from levelcast.runtime.sockets import LOOPBACK


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Run-time options of a node."""

    rate: float = 0.0
    """Records/s that a floor publishes; 0 for none."""
    run_ns: int | None = None
    """A floor publishes for this time and exits when all of it is witnessed; other nodes exit after this time."""
    impair: bool = False
    seed: int = 1
    interface: str = LOOPBACK
    """Address of the interface of the core group."""
    realtime: Realtime = "auto"
    """Real-time priority: "auto" uses it if a receiver has the permission, "on" is an error without it."""
    status_port: int | None = None
    """Port of the status page; 0 disables it, None uses the network file."""
