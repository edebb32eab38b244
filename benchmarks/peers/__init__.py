"""What Levelcast's throughput is compared with, measured on the same machine in the same run.

    relay      a bare relay of the same processes in C: the limit
    corosync   Corosync's process groups: total order as it is used today
    zeromq     ZeroMQ's publish and subscribe: fan-out without order

`python -m benchmarks.peers [relay|corosync|zeromq ...] [--seconds S] [--json]` prints the figures. From a benchmark,
call `run` of a peer's module for one case, in turn with the other side, or `run_all`. Where a peer cannot be measured
`Missing` says why in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from benchmarks.peers import corosync, relay, zeromq
from benchmarks.peers.machine import Failed, Missing, PeerResult, load_beside, records_in

__all__ = ["PEERS", "Failed", "Missing", "PeerResult", "load_beside", "records_in"]

PEERS: dict[str, Callable[[float], Iterable[PeerResult]]] = {
    "relay": relay.run_all,
    "corosync": corosync.run_all,
    "zeromq": zeromq.run_all,
}
"""All cases of a peer, each for so many seconds."""
