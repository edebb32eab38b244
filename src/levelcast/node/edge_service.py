"""Drive the edge of a receiver over sockets (`levelcast.edge.server.machine`).

| socket | bound to                   | sends                                | receives                    |
|--------|----------------------------|--------------------------------------|-----------------------------|
| UDP    | a port of its own          | packets to the groups, replies       | requests for retransmission |
| TCP    | the same number, for TCP   | a snapshot to each client            | nothing                     |

- The retransmit server of a packet, and of a snapshot, is the packet's source address. So nothing needs to be
  configured, and a restarted edge is found again by its first packet.
- Nothing blocks: a packet that the kernel has no buffer for is lost, and is requested.
- A group that is a line has one sender at a time (`levelcast.network.line_assignment`). A reformation server assigns
  it, and the receiver's protocol knows the lines of each moment. A line newly assigned to it gets a heartbeat first, so
  that subscribers know the address for requests.
- The packets of a slot are sent with one system call per group and 64 kB. Nothing here runs per packet.
"""

from __future__ import annotations

import errno
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, cast

from levelcast.edge.server.feed import Feed
from levelcast.edge.server.machine import EdgeConfig, EdgeEffect, EdgeServer, Multicast, Reply
from levelcast.edge.server.packetizer import GatherConfig, SessionMap
from levelcast.edge.server.plan_switch import PlanLimits
from levelcast.edge.server.registrations import Registrations
from levelcast.edge.server.retransmit_store import RetransmitConfig
from levelcast.errors import NetError
from levelcast.network import MulticastGroup, Network, Stripe
from levelcast.network.addresses import EDGE_CHANNEL, CoreAddress
from levelcast.network.line_assignment import LineAssignment, scope_ttl
from levelcast.network.sessions import stripe_session
from levelcast.node.edge_state_files import EdgeFiles
from levelcast.node.line_budget_file import line_budgets
from levelcast.node.snapshot_server import SnapshotServer
from levelcast.protocol.effects import Release
from levelcast.runtime.overlay_sockets import resolve
from levelcast.runtime.sockets import LOOPBACK, Address, SendCounts, Sender, why_not_bound
from levelcast.wire.registration import REGISTRATION_BYTES

SEND_BUFFER = 4 << 20
REQUEST_BUFFER = 4 << 20
"""Some thousand requests: a flood from one subscriber should not displace those of others."""
_REQUEST_BYTES = 64
_PORT_ATTEMPTS = 32


def everything_in_one(stripe: Stripe) -> SessionMap:
    """Return the plan before the first one on the tape: one session has everything that a stripe releases."""
    return SessionMap({}, stripe_session(stripe))


@lru_cache(maxsize=4_096)
def _address(first: str, port: int, number: int) -> Address:
    """Return the address of one group of a range."""
    return str(IPv4Address(first) + number), port


def _open_sockets(interface: str, ttl: int, port: int = 0) -> tuple[socket.socket, socket.socket]:
    """Open a UDP and a TCP socket with the same port number; with 0, any that is free."""
    for _ in range(1 if port else _PORT_ATTEMPTS):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            udp.bind((interface, port))
            tcp.bind(udp.getsockname())
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, REQUEST_BUFFER)
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            udp.setblocking(False)
            tcp.setblocking(False)
        except OSError as error:
            udp.close()
            tcp.close()
            if error.errno == errno.EADDRINUSE:
                continue
            why = why_not_bound(error, "[edge]")
            raise NetError(f"the edge cannot open a socket on {interface}: {why}") from error
        return udp, tcp
    if port:
        why = "set `port` of the node in the network file, or stop the other program"
        raise NetError(f"the edge cannot use port {port} on {interface}: already in use; {why}")
    raise NetError(f"the edge found no port on {interface} that is free for both UDP and TCP; stop some programs")


@dataclass(slots=True)
class EdgeCounts:
    """Counts since the start."""

    packets: int = 0
    """Sent to groups; a packet sent to two groups counts twice."""
    bytes: int = 0
    """Bytes passed to the kernel."""
    unsent: Counter[str] = field(default_factory=Counter)
    """Packets that the kernel did not accept, by reason."""
    states_unsaved: int = 0


class EdgeService:
    """The edge of one receiver, as a `Service` of the driver."""

    def __init__(
        self,
        network: Network,
        receiver: str,
        stripe: str,
        directory: Path,
        interface: str,
        complete_upto_ns: Callable[[], int],
        now: int,
        ring_ns: Callable[[], int | None] = lambda: None,
        held: Callable[[int], tuple[str, ...]] = lambda _: (),
        config: EdgeConfig | None = None,
        ring_hold_ns: Callable[[int | None], int] = lambda _: 0,
        address: CoreAddress | None = None,
    ) -> None:
        """Open the edge of a receiver with the tape in `directory`. The tape must have been repaired before.

        `ring_ns` returns the time at which the ring is due next: deferrable work is not done then. `held` returns the
        lines that are assigned to the receiver at a time. `ring_hold_ns` returns the hold time of a slot before all
        timing records, or 0. `address` is that of the node; subscribers without multicast register at its edge port.
        """
        self.counts = EdgeCounts()
        self._lines = LineAssignment(network, receiver)
        self._held = held
        self._assigned: tuple[str, ...] = ()
        """The lines of the last step."""
        self._complete_upto_ns = complete_upto_ns
        self._ring_ns = ring_ns
        self._ring_hold_ns = ring_hold_ns
        self._now = now
        self._files = EdgeFiles(directory)
        edge = network.edge
        first = Feed(
            everything_in_one(network.stripe(stripe)),
            network.stripe(stripe).index,
            GatherConfig(packet_bytes=edge.packet_bytes, watermark_ns=edge.watermark_ns),
            RetransmitConfig(edge.store_bytes, edge.packet_bytes),
            limits=PlanLimits.of_network(network),
            first_hold_ns=ring_hold_ns(None),
        )
        budgets = line_budgets(network, receiver, stripe, directory)
        self.server = EdgeServer(self._files.restore(first, network.tape.segment_records), now, config, budgets)
        self._ttls = {group.name: scope_ttl(network, receiver, group) for group in edge.groups}
        self._socket_ttl = edge.ttl
        self.registrations: Registrations | None = None
        port = 0
        if edge.unicast and address is not None:
            self.registrations = Registrations(secrets.token_bytes(16), edge.unicast, edge.unicast_rate_bytes)
            port = address.port + EDGE_CHANNEL
            interface = resolve(address.bind) if interface == LOOPBACK else interface
        self._places = {group.name: place for place, group in enumerate(edge.groups)}
        self._udp, tcp = _open_sockets(interface, edge.ttl, port)
        self._sender = Sender(self._udp, SendCounts(), edge.trains)
        self._snapshots = SnapshotServer(tcp, self.server.snapshot)
        self.address: Address = self._udp.getsockname()
        try:
            self._assign(self._lines.groups(()), must=True)
        except BaseException:
            self.close()
            raise

    # -- as a service of the driver -----------------------------------------------------------------------

    @property
    def filenos(self) -> Sequence[int]:
        """Descriptors of requests and of clients that read a snapshot."""
        return (self._udp.fileno(), *self._snapshots.filenos)

    @property
    def wake_ns(self) -> int | None:
        """Time at which the edge or a client that reads a snapshot is due."""
        edge_ns, snapshots_ns = self.server.wake_ns, self._snapshots.wake_ns
        if edge_ns is None or snapshots_ns is None:
            return snapshots_ns if edge_ns is None else edge_ns
        return min(edge_ns, snapshots_ns)

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        """Send a frame's packets."""
        self._now = now
        self._perform(self.server.released(release, content, now, self._ring_hold_ns(release.frame.slot)))

    def step(self, ready: Collection[int], now: int) -> None:
        """Do the work that is due: lines, packets, replies, snapshots; then deferrable work."""
        self._now = now
        if (held := self._held(now)) != self._assigned:
            self._assigned = held
            self._assign(self._lines.groups(held))
        requests = self._requests() if self._udp.fileno() in ready else ()
        if effects := self.server.step(requests, self._complete_upto_ns(), now):
            self._perform(effects)
        self._snapshots.step(ready, self._ring_ns(), now)
        if effects := self.server.work(self._ring_ns(), now):
            self._perform(effects)

    def end_sessions(self) -> None:
        """End every session at the end of the day."""
        self.server.end_sessions()

    def close(self) -> None:
        """Send pending packets, save the state, and close the sockets."""
        self._perform(self.server.close(self._now))
        self._snapshots.close()
        self._udp.close()

    def status(self) -> dict[str, Any]:
        """Return the edge's part of `--json` and of the metrics."""
        counts = self.counts
        return {
            "address": f"{self.address[0]}:{self.address[1]}",
            **self.server.status(),
            "packets": counts.packets,
            "bytes": counts.bytes,
            "unsent": dict(counts.unsent),
            "snapshots": self._snapshots.served,
            "clients_dropped": self._snapshots.dropped,
            "together": self.server.reports.status(self._now),
            "states_unsaved": counts.states_unsaved,
            "unicast": None if self.registrations is None else self.registrations.status(self._now),
            "narrow": {
                _address(group.address, group.port, number)[0]: {
                    "line": group.name,
                    "rate": line.rate,
                    "behind_s": line.behind_ns / 1e9,
                    "dropped": line.dropped,
                }
                for (group, number), line in self.server.lines.items()
            },
        }

    # -- effects ------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[EdgeEffect]) -> None:
        """Perform effects in order. A packet that the kernel does not accept is lost, and subscribers request it."""
        counts = self.counts
        for effect in effects:
            if isinstance(effect, Multicast):
                lost = self._multicast(effect)
                counts.packets += len(effect.ends) // 4 - lost
                counts.bytes += len(effect.buffer)
            elif isinstance(effect, Reply):
                self._send(cast("Address", effect.to), effect.buffer, effect.ends)
            elif not self._files.save_state(effect.content, keep_previous=effect.keep_previous):
                counts.states_unsaved += 1

    def _multicast(self, effect: Multicast) -> int:
        """Send packets to a group; return how many were lost."""
        group = effect.group
        ttl = self._ttls[group.name]
        if ttl != self._socket_ttl:  # the group's scope limits the TTL (MS §4.3)
            self._udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            self._socket_ttl = ttl
        if self.registrations is not None:
            packets, size = len(effect.ends) // 4, len(effect.buffer)
            place = self._places[group.name]
            for each in self.registrations.addresses(place, effect.number, packets, size, self._now):
                self._send(cast("Address", each), effect.buffer, effect.ends)
        return self._send(_address(group.address, group.port, effect.number), effect.buffer, effect.ends)

    def _send(self, to: Address, buffer: bytes, ends: bytes) -> int:
        lost, error = self._sender.send_buffer(to, buffer, ends)
        if error is not None:
            self.counts.unsent[error.strerror or str(error)] += lost
        return lost

    def _assign(self, groups: Sequence[MulticastGroup], *, must: bool = False) -> None:
        """Send to these groups from now on; if they `must` be reachable, raise an error for one that is not."""
        for effect in self.server.assign(groups, self._now):
            assert isinstance(effect, Multicast)
            if self._multicast(effect) and must:
                address, port = effect.group.at(effect.number).address, effect.group.port
                (why,) = self.counts.unsent
                raise NetError(
                    f"the edge cannot send to {address} port {port} ({why}); "
                    "add a multicast route: ip route add 224.0.0.0/4 dev INTERFACE"
                )

    def _requests(self) -> Iterator[tuple[Hashable, bytes]]:
        """Read all pending requests."""
        while True:
            try:
                request, source = self._udp.recvfrom(_REQUEST_BYTES)
            except BlockingIOError:
                return
            except OSError as error:  # an ICMP error about a reply
                self.counts.unsent[error.strerror or str(error)] += 1
                continue
            if self.registrations is not None and len(request) == REGISTRATION_BYTES:
                reply = self.registrations.hear(request, source, self._now)
                if reply is not None:
                    self._send(source, reply, len(reply).to_bytes(4, "little"))
                continue
            yield source, request
