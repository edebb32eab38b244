"""The UDP sockets of a node.

| socket  | bound to                             | sends      | receives                                          |
|---------|--------------------------------------|------------|---------------------------------------------------|
| own     | a port of its own                    | everything | what others say to this node                      |
| control | the core group's port                | nothing    | tokens, requests, reformation: what all must hear |
| data    | the port after it, of receivers only | nothing    | packets of sources                                |

- Control goes first (rule 17): it has queues of its own, and they are read first. A floor never hears the packets that
  it sends itself, nor a reformation server any.
- A node's address is where its datagrams come from: there is nothing to configure, and a restarted node is found
  again as soon as it speaks. What is meant for one that has not spoken yet is dropped and counted; the protocol asks
  again.
- The reformation servers listen to the group, so what is for all of them goes there.
- A send that the kernel has no room for is a lost datagram, like one that the network loses.
- Neighbouring datagrams of one size to one address leave as a train (UDP_SEGMENT): one system call, one way through
  the kernel, and still datagrams of that size on the wire. A receiver that asks for it (UDP_GRO) gets the train whole.
  Where the kernel has neither, each goes alone.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate

from levelcast import native
from levelcast.errors import NetError
from levelcast.protocol.effects import GROUP, SERVERS
from levelcast.wire.messages import Data
from levelcast.wire.packets import MAX_TOGETHER

LOOPBACK = "127.0.0.1"
RECEIVERS = -3
"""The destination of packets: of the group, those who listen to them."""
RECEIVE_BUFFER = 4 << 20
"""What a receiver that is stopped for a moment finds again: 4 MiB, the most that Linux gives to everybody."""
MAX_DRAIN = 128
MAX_DRAIN_BYTES = RECEIVE_BUFFER
NO_ROOM = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM, errno.ECONNREFUSED})
"""Errors of a send that lost its datagrams and says nothing about the next one."""
_UDP_GRO = 104
_END = struct.Struct("<I")

Address = tuple[str, int]
Buffer = bytes | bytearray | memoryview


Arrival = tuple[bytes | Data, Address]
"""A datagram, or packets that came together, and where from."""


@dataclass(slots=True)
class SendCounts:
    """What became of the datagrams that were to be sent."""

    sent: int = 0
    unknown_peer: int = 0
    """For a node that has not spoken yet."""
    refused: int = 0
    """The kernel had no room."""
    trains: int = 0
    """Sends of more than one datagram at once."""


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
    ) -> None:
        self.group: Address = (group, port)
        self.data: Address = (group, port + 1)
        self._places = {GROUP: self.group, SERVERS: self.group, RECEIVERS: self.data}
        self.counts = SendCounts()
        self.peers: dict[int, Address] = {}
        self.warning: str | None = None
        """What is not as it should be, in one sentence."""
        self._sockets: tuple[socket.socket, ...] = ()
        own = _udp()
        with ExitStack() as opened:
            opened.callback(own.close)
            _bind(own, interface, 0)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            listeners = []
            for address in (self.group, self.data) if hears_data else (self.group,):
                listeners.append(listener(*address, interface))
                opened.callback(listeners[-1].close)
            opened.pop_all()
        self._sockets = (own, *listeners)
        self._filenos = tuple(each.fileno() for each in self._sockets)
        self._control = self._filenos[:2]
        self._data = self._filenos[2] if hears_data else None
        self._sender = Sender(own, self.counts, all(takes_trains(each) for each in self._sockets))
        self.address: Address = own.getsockname()
        smallest = min(_ask_for_buffer(each, receive_buffer) for each in self._sockets)
        if smallest < receive_buffer:
            self.warning = (
                f"a receive buffer has {smallest >> 10} KiB instead of {receive_buffer >> 10}, so bursts will be lost "
                f"and repaired: sysctl -w net.core.rmem_max={receive_buffer}"
            )

    # -- receiving ----------------------------------------------------------------------------------------

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        """Sleep until something has come, here or to `others`: whether here, and to which of the others.

        Without `packets` those of sources do not end the sleep.
        """
        ours = self._filenos if packets else self._control
        ready = select.select((*ours, *others), (), (), timeout_s)[0]
        if not others:
            return bool(ready), []
        elsewhere = [fileno for fileno in ready if fileno not in ours]
        return len(ready) > len(elsewhere), elsewhere

    def drain(self, stripe: int | None = None) -> list[Arrival]:
        """What has come, so much from each socket at most, without this node's own copies.

        With a `stripe` its sound packets come as `Data`, those that follow one another as one.
        """
        arrivals: list[Arrival] = []
        for fileno in self._control:
            arrivals += native.drain(fileno, MAX_DRAIN, *self.address)
        if self._data is not None:
            if stripe is None:
                arrivals += native.drain(self._data, MAX_DRAIN, *self.address)
            else:
                arrivals += native.drain_packets(self._data, MAX_DRAIN_BYTES, *self.address, stripe, MAX_TOGETHER, Data)
        return arrivals

    def learn(self, node: int, address: Address) -> None:
        """`node` has spoken from `address`."""
        self.peers[node] = address

    # -- sending ------------------------------------------------------------------------------------------

    def send(self, to: int, datagrams: Sequence[bytes]) -> None:
        """Send datagrams in order to a node, to `GROUP`, to `SERVERS` or to `RECEIVERS`."""
        if len(datagrams) == 1:
            self.send_buffer(to, datagrams[0], _END.pack(len(datagrams[0])))
        else:
            self.send_buffer(to, b"".join(datagrams), b"".join(map(_END.pack, accumulate(map(len, datagrams)))))

    def send_buffer(self, to: int, buffer: Buffer, ends: Buffer) -> None:
        """`send` for datagrams that stand back to back in `buffer`, each up to one of `ends` (little-endian u32)."""
        address = self._places.get(to) or self.peers.get(to)
        if address is None:
            self.counts.unknown_peer += len(ends) // _END.size
            return
        _, error = self._sender.send_buffer(address, buffer, ends)
        if error is not None and error.errno not in NO_ROOM:
            raise NetError(_why_not_sent(address, error)) from error

    @property
    def trains(self) -> bool:
        """Whether neighbouring datagrams leave together."""
        return self._sender.trains

    @trains.setter
    def trains(self, wanted: bool) -> None:
        self._sender.trains = wanted

    def close(self) -> None:
        for each in self._sockets:
            each.close()


class Sender:
    """Sends datagrams from a socket, neighbours of one size as trains if it may, and counts them."""

    def __init__(self, sender: socket.socket, counts: SendCounts, trains: bool) -> None:
        self.trains = trains
        self._socket = sender
        self._counts = counts

    def send_buffer(self, address: Address, buffer: Buffer, ends: Buffer) -> tuple[int, OSError | None]:
        """Send datagrams that stand back to back in `buffer`, each up to one of `ends` (little-endian u32), in order.

        How many the kernel did not take, and its last error: where it had no room (`NO_ROOM`) those are counted as
        refused and the others were sent all the same; any other error was the end of it.
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


def _udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def listener(group: str, port: int, interface: str, whose: str = "[core]") -> socket.socket:
    """A socket that hears a group, as others on this machine do beside it; `whose` port it is, for an error."""
    listening = _udp()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listening, group, port, whose)
        try:
            membership = socket.inet_aton(group) + socket.inet_aton(interface)
            listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.EADDRNOTAVAIL, errno.ENETUNREACH):
                raise
            raise NetError(
                f"no interface here has the address {interface}, or it takes no multicast, so the group {group} cannot "
                f"be joined: ip route add 224.0.0.0/4 dev INTERFACE gives it a route"
            ) from error
    except BaseException:
        listening.close()
        raise
    return listening


def _bind(each: socket.socket, host: str, port: int, whose: str = "[core]") -> None:
    try:
        each.bind((host, port))
    except OSError as error:
        raise NetError(f"cannot listen on {host} port {port}: {why_not_bound(error, whose)}") from error


def why_not_bound(error: OSError, whose: str) -> str:
    """What the kernel has against a port of `whose` section of the network file, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return f"another program has the port to itself: end it, or give {whose} another port in the network file"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user may not: give {whose} a port from 1024 on in the network file"
    return error.strerror or str(error)


def _ask_for_buffer(each: socket.socket, wanted: int) -> int:
    """Ask for a receive buffer, and say what it is: Linux doubles what it is asked for, for its own bookkeeping."""
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
    return each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def takes_trains(each: socket.socket) -> bool:
    """Let trains arrive whole; False where the kernel has none."""
    try:
        each.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    except OSError:
        return False
    return True


def _why_not_sent(address: Address, error: OSError) -> str:
    where = f"{address[0]} port {address[1]}"
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return f"there is no route to {where}: ip route add 224.0.0.0/4 dev INTERFACE gives multicast one"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"cannot send to {where}: a firewall or this user's rights forbid it"
    return f"cannot send to {where}: {error.strerror}"


@contextmanager
def usable(interface: str) -> Iterator[None]:
    """What the kernel has against an interface, as one sentence."""
    try:
        yield
    except OSError as error:
        raise NetError(
            f"the interface with the address {interface} cannot be used for multicast ({error.strerror}): look whether "
            "it is up (ip link), and whether it has a route (ip route add 224.0.0.0/4 dev INTERFACE)"
        ) from error
