"""The two UDP sockets of a node.

| socket | bound to              | sends            | receives                       |
|--------|-----------------------|------------------|--------------------------------|
| group  | the core group's port | nothing          | what anybody says to the group |
| own    | a port of its own     | everything       | what others say to this node   |

- A node's address is where its datagrams come from: there is nothing to configure, and a restarted node is found
  again as soon as it speaks. What is meant for one that has not spoken yet is dropped and counted; the protocol asks
  again.
- The reformation servers listen to the group, so what is for all of them goes there.
- A send that the kernel has no room for is a lost datagram, like one that the network loses.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from levelcast import kernel
from levelcast.ring.effects import GROUP, SERVERS

LOOPBACK = "127.0.0.1"
RECEIVE_BUFFER = 4 << 20
"""What a receiver that is stopped for a moment finds again: 4 MiB, the most that Linux gives to everybody."""
MAX_DRAIN = 256
_LARGEST = 65_535
_OWN = 0

Address = tuple[str, int]


class NetError(Exception):
    """What keeps a node off the network, in one sentence for a person."""


Arrival = tuple[bytes, Address]
"""A datagram and where it came from."""


@dataclass(slots=True)
class SendCounts:
    """What became of the datagrams that were to be sent."""

    sent: int = 0
    unknown_peer: int = 0
    """For a node that has not spoken yet."""
    refused: int = 0
    """The kernel had no room."""


class CoreSockets:
    """The sockets of one node in the core group of its stripe."""

    def __init__(self, group: str, port: int, interface: str = LOOPBACK, receive_buffer: int = RECEIVE_BUFFER) -> None:
        self.group: Address = (group, port)
        self.counts = SendCounts()
        self.peers: dict[int, Address] = {}
        self.warning: str | None = None
        """What is not as it should be, in one sentence."""
        self._sockets: tuple[socket.socket, ...] = ()
        own = _udp()
        try:
            _bind(own, interface, 0)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            listener = _listener(group, port, interface)
        except BaseException:
            own.close()
            raise
        self._sockets = (own, listener)
        self._filenos = (own.fileno(), listener.fileno())
        self.address: Address = own.getsockname()
        smallest = min(_ask_for_buffer(each, receive_buffer) for each in self._sockets)
        if smallest < receive_buffer:
            self.warning = (
                f"a receive buffer has {smallest >> 10} KiB instead of {receive_buffer >> 10}, so bursts will be lost "
                f"and repaired: sysctl -w net.core.rmem_max={receive_buffer}"
            )

    # -- receiving ----------------------------------------------------------------------------------------

    def wait(self, timeout_s: float, others: Sequence[int] = ()) -> tuple[bool, list[int]]:
        """Sleep until something has come, here or to `others`: whether here, and to which of the others."""
        ready = select.select((*self._filenos, *others), (), (), timeout_s)[0]
        if not others:
            return bool(ready), []
        elsewhere = [fileno for fileno in ready if fileno not in self._filenos]
        return len(ready) > len(elsewhere), elsewhere

    def drain(self) -> list[Arrival]:
        """What has come, at most `MAX_DRAIN` from each socket, without this node's own copies."""
        arrivals: list[Arrival] = []
        for fileno in self._filenos:
            arrivals += kernel.drain(fileno, MAX_DRAIN, *self.address)
        return arrivals

    def learn(self, node: int, address: Address) -> None:
        """`node` has spoken from `address`."""
        self.peers[node] = address

    # -- sending ------------------------------------------------------------------------------------------

    def send(self, to: int, datagram: bytes) -> None:
        """Send to a node, to `GROUP` or to `SERVERS`."""
        address = self.group if to in (GROUP, SERVERS) else self.peers.get(to)
        if address is None:
            self.counts.unknown_peer += 1
            return
        try:
            self._sockets[_OWN].sendto(datagram, address)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ECONNREFUSED):
                raise NetError(_why_not_sent(address, error)) from error
            self.counts.refused += 1
        else:
            self.counts.sent += 1

    def close(self) -> None:
        for each in self._sockets:
            each.close()


def _udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _listener(group: str, port: int, interface: str) -> socket.socket:
    """A socket that hears the group, as other nodes on this machine do beside it."""
    listener = _udp()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, group, port)
        try:
            membership = socket.inet_aton(group) + socket.inet_aton(interface)
            listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.EADDRNOTAVAIL, errno.ENETUNREACH):
                raise
            raise NetError(
                f"no interface here has the address {interface}, or it takes no multicast, so the group {group} cannot "
                f"be joined: ip route add 224.0.0.0/4 dev INTERFACE gives it a route"
            ) from error
    except BaseException:
        listener.close()
        raise
    return listener


def _bind(each: socket.socket, host: str, port: int) -> None:
    try:
        each.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = "another program has the port to itself: end it, or give [core] another port in the network file"
        elif error.errno in (errno.EACCES, errno.EPERM):
            why = "this user may not: give [core] a port from 1024 on in the network file"
        else:
            why = error.strerror or str(error)
        raise NetError(f"cannot listen on {host} port {port}: {why}") from error


def _ask_for_buffer(each: socket.socket, wanted: int) -> int:
    """Ask for a receive buffer, and say what it is: Linux doubles what it is asked for, for its own bookkeeping."""
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
    return each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def _why_not_sent(address: Address, error: OSError) -> str:
    where = f"{address[0]} port {address[1]}"
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return f"there is no route to {where}: ip route add 224.0.0.0/4 dev INTERFACE gives multicast one"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"cannot send to {where}: a firewall or this user's rights forbid it"
    return f"cannot send to {where}: {error.strerror}"
