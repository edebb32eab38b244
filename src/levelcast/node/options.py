"""Options of a node that are not in the network file."""

from __future__ import annotations

from dataclasses import dataclass

from levelcast.runtime.realtime import Realtime
from levelcast.runtime.sockets import LOOPBACK


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How a node is to run."""

    rate: float = 0.0
    """Records/s that a floor publishes; 0 for none."""
    run_ns: int | None = None
    """A floor publishes this long, and ends when all of it is witnessed; other nodes end then."""
    impair: bool = False
    seed: int = 1
    interface: str = LOOPBACK
    """The address of the interface on which the core group is."""
    realtime: Realtime = "auto"
    """Real-time priority: "auto" takes it where a receiver may have it, "on" is refused where it may not."""
    status_port: int | None = None
    """The port of the status page; 0: none, None: the network file determines it."""
