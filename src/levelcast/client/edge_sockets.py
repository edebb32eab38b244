"""Open a subscriber's sockets: multicast groups of its region, retransmission requests, and the TCP snapshot."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from levelcast import records
from levelcast.client.line_stats import LineStats
from levelcast.edge.subscriber.line_room import LineRoom
from levelcast.errors import NetError
from levelcast.network import MulticastGroup, Network
from levelcast.runtime.sockets import RECEIVE_BUFFER, Address, listener, takes_trains, why_not_bound
from levelcast.units import parse_rate, show_rate
from levelcast.wire.snapshot import HEADER_SIZE, Snapshot, decode_snapshot, snapshot_size

__all__ = ["GroupSockets", "groups_of", "line_room", "read_snapshot"]


def groups_of(network: Network, region: str | None) -> tuple[MulticastGroup, ...]:
    """Return the groups to join; raise NetError, with the known regions, if none match."""
    if not network.edge.groups:
        raise NetError("the network has no edge group to listen to; add an [[edge.group]] to the network file")
    regions = sorted({group.region for group in network.edge.groups if group.region is not None})
    everywhere = any(group.region is None for group in network.edge.groups)
    known = sorted({*regions, *({site.region for site in network.sites if site.region} if everywhere else ())})
    if region is None:
        if len(regions) > 1:
            raise NetError(f"region not specified; choose one of {', '.join(known)}")
        return network.edge.groups
    if region not in known:
        raise NetError(f'region "{region}" has no edge group in the network file; choose one of {", ".join(known)}')
    return network.groups_of_region(region)


def line_room(network: Network, groups: Sequence[MulticastGroup], line: str) -> LineRoom:
    """Return the groups that a line such as "1.5Mbit" carries; raise NetError if it does not carry one group."""
    try:
        rate = parse_rate(line, network.edge.packet_bytes)
    except ValueError as error:
        raise NetError(f'line "{line}" {error}') from None
    needed: dict[str | None, int] = {}
    for group in groups:
        if group.rate_bytes is None:
            raise NetError(f"edge group {group.name} has no rate in the network file; add one to use a line rate")
        needed[group.line] = needed.get(group.line, 0) + group.rate_bytes
    most = max(needed.values())
    if rate < most:
        raise NetError(f"a line of {show_rate(rate)} does not carry one group of {show_rate(most)}; use a faster line")
    return LineRoom(rate, most)


def line_names(groups: Sequence[MulticastGroup]) -> list[str]:
    """Return the names of groups as lines: the line's name if it is unique, else the group's."""
    lines = [group.line for group in groups]
    return [group.line if group.line and lines.count(group.line) == 1 else group.name for group in groups]


def asking_socket(interface: str) -> socket.socket:
    """Return the socket that sends requests and receives replies."""
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        own.bind((interface, 0))
    except OSError as error:
        own.close()
        raise NetError(f"cannot open a socket on {interface}: {why_not_bound(error, '[edge]')}") from error
    return _prepared(own)


def join(group: MulticastGroup, interface: str) -> socket.socket:
    """Return a socket that joins a group, shared with other subscribers on this machine."""
    return _prepared(listener(group.address, group.port, interface, f"edge group {group.name}"))


def _prepared(each: socket.socket) -> socket.socket:
    each.setblocking(False)
    takes_trains(each)
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return each


class GroupSockets:
    """One socket for requests and one for each joined group, read from the caller's event loop.

    A `place` is an index into each range of groups; it is joined in every range that has it.
    """

    def __init__(
        self,
        groups: Sequence[MulticastGroup],
        interface: str,
        on_readable: Callable[[socket.socket], None],
        *,
        arrivals: bool,
    ) -> None:
        self.own: socket.socket | None = None
        """The socket that sends requests and receives replies."""
        self.reading = False
        self.lines = [LineStats(name, arrivals=arrivals) for name in line_names(groups)]
        """Statistics of each range of groups."""
        self.line_of: dict[socket.socket, LineStats] = {}
        self._groups = groups
        self._interface = interface
        self._on_readable = on_readable
        self._joined: dict[int, list[socket.socket]] = {}
        """Sockets by `place`."""

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.own = asking_socket(self._interface)

    def join(self, place: int) -> None:
        joined = self._joined.setdefault(place, [])
        for group, line in zip(self._groups, self.lines, strict=True):
            if place < group.count:
                joined.append(made := self.make(group, place))
                self.line_of[made] = line
                if self.reading:
                    self._loop.add_reader(made.fileno(), self._on_readable, made)

    def make(self, group: MulticastGroup, place: int) -> socket.socket:
        """Return a socket that receives the packets of one group of a range."""
        return join(group.at(place), self._interface)

    def forget(self, each: socket.socket) -> None:
        """Prepare to close the socket of a group."""

    def take_reply(self, each: socket.socket, datagram: bytes, source: Address) -> bool:
        """Return whether a datagram is no packet, but a reply to these sockets."""
        return False

    def leave(self, place: int) -> None:
        for each in self._joined.pop(place, []):
            self.forget(each)
            if self.reading:
                self._loop.remove_reader(each.fileno())
            del self.line_of[each]
            each.close()

    def read(self) -> None:
        """Call `on_readable` with each readable socket, from now on."""
        for each in self._all():
            self._loop.add_reader(each.fileno(), self._on_readable, each)
        self.reading = True

    def pause(self) -> None:
        if self.reading:
            for each in self._all():
                self._loop.remove_reader(each.fileno())
        self.reading = False

    def close(self) -> None:
        self.pause()
        for each in self._all():
            each.close()
        self.own, self._joined = None, {}

    def _all(self) -> list[socket.socket]:
        joined = [each for some in self._joined.values() for each in some]
        return [self.own, *joined] if self.own is not None else joined


async def read_snapshot(server: Address) -> Snapshot:
    """Read an edge's snapshot; raise OSError, EOFError, Malformed or BadRecords."""
    reader, writer = await asyncio.open_connection(*server)
    try:
        head = await reader.readexactly(HEADER_SIZE)
        rest = await reader.readexactly(snapshot_size(head) - len(head))
    finally:
        writer.close()
    snapshot = decode_snapshot(head + rest)
    if snapshot.records:
        records.count_records(snapshot.records)
    return snapshot
