"""Open the UDP sockets of a node, and send and receive datagrams.

| socket  | bound to                             | sends      | receives                                          |
|---------|--------------------------------------|------------|---------------------------------------------------|
| own     | a port of its own                    | everything | datagrams to this node                            |
| control | the core group's port                | nothing    | tokens, requests, reformation: messages to all    |
| data    | the next port, of receivers only     | nothing    | packets of sources                                |

- Control has priority (rule 17): it has separate queues, which are read first. A floor never receives its own packets,
  and a reformation server receives none.
- A node's address is the source address of its datagrams. So nothing needs to be configured, and a restarted node is
  found again by its first datagram. Datagrams to a node without a known address are dropped and counted; the protocol
  sends requests again.
- The reformation servers listen to the group, so messages to all of them are sent there.
- A datagram that the kernel has no buffer for is lost, like one that the network loses.
- Every arrival has the time at which the kernel received it (SO_TIMESTAMPNS), by the wall clock. So a process that runs
  late still knows when its datagrams arrived (`levelcast.runtime.lateness`).
- Consecutive datagrams of one size to one address are sent as a train (UDP_SEGMENT): one system call, one pass through
  the kernel, and still datagrams of that size on the wire. A receiver that enables UDP_GRO gets the complete train.
  If the kernel supports neither, each datagram is sent separately.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate

from levelcast import native
from levelcast.errors import NetError
from levelcast.protocol.effects import GROUP, SERVERS
from levelcast.wire.messages import Data
from levelcast.wire.packets import MAX_TOGETHER

LOOPBACK = "127.0.0.1"
RECEIVERS = -3
"""Destination of packets: the nodes of the group that listen to them."""
RECEIVE_BUFFER = 4 << 20
"""Buffer for a receiver that is briefly stopped: 4 MiB, the maximum that Linux gives to unprivileged processes."""
MAX_DRAIN = 128
MAX_DRAIN_BYTES = RECEIVE_BUFFER
NO_ROOM = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM, errno.ECONNREFUSED})
"""Errors of a send that lost its datagrams but do not affect the next one."""
NODE_TABLE = "the node"
"""The table of a node in the network file, as the owner of a port in errors."""
_UDP_GRO = 104
_SO_TIMESTAMPNS = 35
_END = struct.Struct("<I")

Address = tuple[str, int]
Buffer = bytes | bytearray | memoryview


class Via(tuple[str, int]):
    """The address of a node that the network file names, with what an arrival from it means."""

    node: int
    forward: bool
    """Packets that arrived there are to be forwarded (`levelcast.overlay.fanout`)."""

    def __new__(cls, address: Address, node: int, *, forward: bool = False) -> Via:
        via = super().__new__(cls, address)
        via.node, via.forward = node, forward
        return via


Arrival = tuple[bytes | Data, Address, int]
"""A datagram, or packets that arrived together, the source address and the receive time (of the last packet)."""


@dataclass(slots=True)
class SendCounts:
    """Counts of datagrams sent and not sent."""

    sent: int = 0
    unknown_peer: int = 0
    """Datagrams for a node without a known address."""
    refused: int = 0
    """Datagrams that the kernel had no buffer for."""
    trains: int = 0
    """Sends of more than one datagram in one call."""
    unknown_address: int = 0
    """Received datagrams from an address that the network file does not name, which are dropped."""
    detours: int = 0
    """Additional copies that were sent because this node is the detour of a pair."""


class CoreSockets:
    """The sockets of one node in the core group of its stripe."""

    def __init__(
        self,
        group: str,
        port: int,
        interface: str = LOOPBACK,
        *,
        hears_data: bool = True,
        receive_buffer: int = RECEIVE_BUFFER,
        ttl: int = 1,
    ) -> None:
        self.group: Address = (group, port)
        self.data: Address = (group, port + 1)
        self._places = {GROUP: self.group, SERVERS: self.group, RECEIVERS: self.data}
        self.counts = SendCounts()
        self.drain_packets = native.drain_packets
        """Reads and opens packets; nodes with keys replace it."""
        self.peers: dict[int, Address] = {}
        self.warning: str | None = None
        """A problem of the configuration, as one line."""
        self._sockets: tuple[socket.socket, ...] = ()
        own = udp()
        with ExitStack() as opened:
            opened.callback(own.close)
            bind(own, interface, 0)
            send_multicast(own, interface, ttl)
            listeners = []
            for address in (self.group, self.data) if hears_data else (self.group,):
                listeners.append(listener(*address, interface))
                opened.callback(listeners[-1].close)
            opened.pop_all()
        self._sockets = (own, *listeners)
        self._filenos = tuple(each.fileno() for each in self._sockets)
        self._control = self._filenos[:2]
        self._data = self._filenos[2] if hears_data else None
        for each in self._sockets:
            stamp_arrivals(each)
        self._sender = Sender(own, self.counts, all(takes_trains(each) for each in self._sockets))
        self.address: Address = own.getsockname()
        self.warning = enlarge_buffers(self._sockets, receive_buffer)

    # -- receiving ----------------------------------------------------------------------------------------

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        """Sleep until these sockets or `others` are readable; return whether these are, and which of the others.

        Without `packets`, packets of sources do not end the sleep.
        """
        ours = self._filenos if packets else self._control
        ready = select.select((*ours, *others), (), (), timeout_s)[0]
        if not others:
            return bool(ready), []
        elsewhere = [fileno for fileno in ready if fileno not in ours]
        return len(ready) > len(elsewhere), elsewhere

    def drain(self, domain: int | None = None) -> list[Arrival]:
        """Return received datagrams, a bounded number from each socket, without copies of this node's own.

        With a `domain`, its valid packets are returned as `Data`; consecutive packets form one `Data`.
        """
        arrivals: list[Arrival] = []
        for fileno in self._control:
            arrivals += native.drain(fileno, MAX_DRAIN, *self.address)
        if self._data is not None:
            if domain is None:
                arrivals += native.drain(self._data, MAX_DRAIN, *self.address)
            else:
                arrivals += self.drain_packets(self._data, MAX_DRAIN_BYTES, *self.address, domain, MAX_TOGETHER, Data)
        return arrivals

    def learn(self, node: int, address: Address) -> None:
        """Record the `address` of a `node`."""
        self.peers[node] = address

    # -- sending ------------------------------------------------------------------------------------------

    def send(self, to: int, datagrams: Sequence[bytes]) -> None:
        """Send datagrams in order to a node, to `GROUP`, to `SERVERS` or to `RECEIVERS`."""
        if len(datagrams) == 1:
            self.send_buffer(to, datagrams[0], _END.pack(len(datagrams[0])))
        else:
            self.send_buffer(to, b"".join(datagrams), b"".join(map(_END.pack, accumulate(map(len, datagrams)))))

    def send_buffer(self, to: int, buffer: Buffer, ends: Buffer) -> None:
        """Like `send`, for datagrams stored back to back in `buffer`, each up to one of `ends` (little-endian u32)."""
        address = self._places.get(to) or self.peers.get(to)
        if address is None:
            self.counts.unknown_peer += len(ends) // _END.size
            return
        _, error = self._sender.send_buffer(address, buffer, ends)
        if error is not None and error.errno not in NO_ROOM:
            raise NetError(_why_not_sent(address, error)) from error

    @property
    def trains(self) -> bool:
        """True if consecutive datagrams are sent as trains."""
        return self._sender.trains

    @trains.setter
    def trains(self, wanted: bool) -> None:
        self._sender.trains = wanted

    def close(self) -> None:
        for each in self._sockets:
            each.close()


class Sender:
    """Send datagrams from a socket, consecutive ones of one size as trains if enabled, and count them."""

    def __init__(self, sender: socket.socket, counts: SendCounts, trains: bool) -> None:
        self.trains = trains
        self._socket = sender
        self._counts = counts

    def send_buffer(self, address: Address, buffer: Buffer, ends: Buffer) -> tuple[int, OSError | None]:
        """Send datagrams stored back to back in `buffer`, each up to one of `ends` (little-endian u32), in order.

        Return the number of unsent datagrams and the last error. Datagrams without buffer space (`NO_ROOM`) count as
        refused, and the others were still sent; any other error stopped the sending.
        """
        counts = self._counts
        sent, refused, error, trains, self.trains = native.send_many(
            self._socket.fileno(), *address, buffer, ends, self.trains
        )
        counts.sent += sent
        counts.refused += refused
        counts.trains += trains
        if not error:
            return 0, None
        return len(ends) // _END.size - sent, OSError(error, os.strerror(error))


def udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def listener(group: str, port: int, interface: str, whose: str = "[core]") -> socket.socket:
    """Return a socket that joins a group, shared with others on this machine; `whose` names the port in errors."""
    listening = udp()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bind(listening, group, port, whose)
        try:
            membership = socket.inet_aton(group) + socket.inet_aton(interface)
            listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.EADDRNOTAVAIL, errno.ENETUNREACH):
                raise
            raise NetError(
                f"cannot join group {group}: address {interface} not found on this machine, or its interface has no "
                f"multicast; add a route: ip route add 224.0.0.0/4 dev INTERFACE"
            ) from error
    except BaseException:
        listening.close()
        raise
    return listening


def bind(each: socket.socket, host: str, port: int, whose: str = "[core]") -> None:
    try:
        each.bind((host, port))
    except OSError as error:
        where = f"{host} port {port}" if port else host
        raise NetError(f"cannot listen on {where}: {why_not_bound(error, whose)}") from error


def why_not_bound(error: OSError, whose: str) -> str:
    """Return an error message, with a remedy, for a port of `whose` section of the network file."""
    if error.errno == errno.EADDRINUSE:
        return f"port already in use; stop the other program, or change the port of {whose} in the network file"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"permission denied; set the port of {whose} to 1024 or above in the network file"
    if error.errno == errno.EADDRNOTAVAIL:
        if whose == NODE_TABLE:
            return "address not found on this machine; set `bind` of the node to one of `ip -4 address`"
        return "address not found on this machine; pass --interface with one of `ip -4 address`"
    return error.strerror or str(error)


def send_multicast(each: socket.socket, interface: str, ttl: int) -> None:
    """Send multicasts of a socket over an interface, also to this machine, across at most `ttl` links."""
    each.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
    each.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    each.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)


def enlarge_buffers(sockets: Iterable[socket.socket], wanted: int) -> str | None:
    """Request receive buffers; return a warning if one is smaller than wanted."""
    smallest = min(_ask_for_buffer(each, wanted) for each in sockets)
    if smallest >= wanted:
        return None
    return (
        f"a receive buffer has {smallest >> 10} KiB instead of {wanted >> 10} KiB, so bursts will be "
        f"lost and repaired; run: sysctl -w net.core.rmem_max={wanted}"
    )


def _ask_for_buffer(each: socket.socket, wanted: int) -> int:
    """Request a receive buffer and return its size: Linux doubles the requested size for its own bookkeeping."""
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
    return each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def stamp_arrivals(each: socket.socket) -> None:
    """Enable the kernel's receive times; without them, an arrival has the time at which it is read."""
    with suppress(OSError):
        each.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def takes_trains(each: socket.socket) -> bool:
    """Enable the reception of complete trains; False if the kernel does not support them."""
    try:
        each.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    except OSError:
        return False
    return True


def _why_not_sent(address: Address, error: OSError) -> str:
    where = f"{address[0]} port {address[1]}"
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return f"no route to {where}; add a multicast route: ip route add 224.0.0.0/4 dev INTERFACE"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"cannot send to {where}: permission denied; check the firewall and the user's permissions"
    return f"cannot send to {where}: {error.strerror}"


@contextmanager
def usable(interface: str) -> Iterator[None]:
    """Convert an OSError of an interface to a NetError with a one-line message."""
    try:
        yield
    except OSError as error:
        raise NetError(
            f"interface {interface}: cannot be used for multicast ({error.strerror}); check that it is up (ip link) "
            "and has a route (ip route add 224.0.0.0/4 dev INTERFACE)"
        ) from error
