"""Send and receive without multicast, or with multicast only inside a site: the sockets of the overlay.

| socket       | bound to                              | sends      | receives                                     |
|--------------|---------------------------------------|------------|----------------------------------------------|
| own          | the node's first port                 | everything | control messages to this node                |
| packets      | the next port, of receivers only      | nothing    | packets of sources                           |
| forward      | the third port, of receivers only     | nothing    | packets to forward                           |
| site control | the site's group, in a large site     | nothing    | control messages of the site's nodes         |
| site packets | the next port, of receivers only      | nothing    | packets that the site's nodes multicast      |

`levelcast.overlay.fanout` decides where a message goes; this module has the addresses, all from the network file.

- A datagram from an address that the file does not name is dropped and counted, and never answered. No address is
  learned from a datagram: a stranger with a node's id cannot redirect messages to itself.
- Packets and tokens for which this node is a detour are passed on as they arrived (`levelcast.overlay.detours`).
- Packets to forward are sent on when they are decoded, after the injected delay of `--impair`.
- A route or a buffer that is missing loses a datagram, as the network does: the other nodes still get theirs.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate

from levelcast import native
from levelcast.errors import NetError
from levelcast.native.layout import KIND_AT
from levelcast.overlay.detours import Detours, DetourTo, Rows
from levelcast.overlay.duplicates import RecentMessages
from levelcast.overlay.fanout import CONTROL, DATA, FORWARD, OWN_SITE, Fanout, Hop, used_by
from levelcast.protocol.effects import GROUP, SERVERS
from levelcast.runtime.sockets import (
    MAX_DRAIN,
    MAX_DRAIN_BYTES,
    NO_ROOM,
    NODE_TABLE,
    RECEIVE_BUFFER,
    RECEIVERS,
    Address,
    Arrival,
    Buffer,
    SendCounts,
    Sender,
    Via,
    bind,
    enlarge_buffers,
    listener,
    send_multicast,
    stamp_arrivals,
    takes_trains,
    udp,
)
from levelcast.wire.header import sender_of
from levelcast.wire.messages import Data
from levelcast.wire.packets import MAX_TOGETHER
from levelcast.wire.token_codec import KIND_TOKEN

UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


class OverlaySockets:
    """The sockets of one node in a core without multicast between sites."""

    def __init__(
        self,
        own: Address,
        peers: Mapping[int, Address],
        fanout: Fanout,
        recent: RecentMessages,
        *,
        detours: Detours | None = None,
        site_group: Address | None = None,
        interface: str = "",
        hears_data: bool = True,
        receive_buffer: int = RECEIVE_BUFFER,
    ) -> None:
        """`own` is bound; `peers` are the nodes' addresses as seen from here; `site_group` is that of a large site."""
        self.counts = SendCounts()
        self.drain_packets = native.drain_packets
        """Reads and opens packets; nodes with keys replace it."""
        self.warning: str | None = None
        self.fanout = fanout
        self.recent = recent
        self.detours = detours
        self._group = site_group
        self._now = 0
        """Time of the last arrival, by which nodes count as silent."""
        channels = (CONTROL, DATA, FORWARD)
        self._to = {Hop(node, each): (host, port + each) for node, (host, port) in peers.items() for each in channels}
        if site_group is not None:
            self._to |= {Hop(OWN_SITE, each): (site_group[0], site_group[1] + each) for each in (CONTROL, DATA)}
        self._via = {address: Via(address, node) for node, address in peers.items()}
        self._forward_via = {address: Via(address, node, forward=True) for node, address in peers.items()}
        with ExitStack() as opened:
            sockets = []
            for channel in channels if hears_data else (CONTROL,):
                sockets.append(opened.enter_context(udp()))
                bind(sockets[-1], own[0], own[1] + channel, NODE_TABLE)
            mine = len(sockets)
            if site_group is not None:
                send_multicast(sockets[CONTROL], interface or own[0], 1)
                for channel in (CONTROL, DATA) if hears_data else (CONTROL,):
                    group = listener(site_group[0], site_group[1] + channel, interface or own[0])
                    sockets.append(opened.enter_context(group))
            opened.pop_all()
        self._sockets = tuple(sockets)
        filenos = [each.fileno() for each in sockets]
        self.filenos = tuple(filenos)
        self._control = (filenos[0], *filenos[mine : mine + 1])
        self._data = tuple(each for each in filenos[1:] if each not in self._control)
        self._forward = filenos[FORWARD] if hears_data else None
        for each in sockets:
            stamp_arrivals(each)
        self._sender = Sender(sockets[CONTROL], self.counts, all(takes_trains(each) for each in sockets))
        self.address: Address = sockets[CONTROL].getsockname()
        self.warning = enlarge_buffers(sockets, receive_buffer)

    # -- receiving ----------------------------------------------------------------------------------------

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        """Sleep until these sockets or `others` are readable; return whether these are, and which of the others.

        Without `packets`, packets of sources do not end the sleep.
        """
        ours = self.filenos if packets else self._control
        ready = select.select((*ours, *others), (), (), timeout_s)[0]
        elsewhere = [fileno for fileno in ready if fileno in others]
        return len(ready) > len(elsewhere), elsewhere

    def drain(self, domain: int | None = None) -> list[Arrival]:
        """Return received datagrams of known nodes, control first; with a `domain`, packets are returned as `Data`."""
        arrivals: list[Arrival] = []
        for fileno in self._control:
            self._add(arrivals, native.drain(fileno, MAX_DRAIN, *self.address), self._via)
        for fileno in self._data:
            via = self._forward_via if fileno == self._forward else self._via
            if domain is None:
                self._add(arrivals, native.drain(fileno, MAX_DRAIN, *self.address), via)
            else:
                limits = MAX_DRAIN_BYTES, *self.address, domain, MAX_TOGETHER, Data
                self._add(arrivals, self.drain_packets(fileno, *limits), via)
        return arrivals

    def _add(self, arrivals: list[Arrival], found: Iterable[Arrival], known: Mapping[Address, Via]) -> None:
        for content, source, at_ns in found:
            via = known.get(source)
            if via is None:
                self.counts.unknown_address += 1
                continue
            self._now = max(self._now, at_ns)
            self.fanout.hear(via.node, at_ns)
            arrivals.append((content, via, at_ns))

    def is_repeated(self, datagram: bytes, source: Address, at_ns: int) -> bool:
        """Return whether a datagram is a token that arrived lately; pass a new one on over a detour."""
        if len(datagram) <= KIND_AT or datagram[KIND_AT] != KIND_TOKEN:
            return False
        if self.recent.is_repeated(datagram, at_ns):
            return True
        if isinstance(source, Via) and sender_of(datagram) == source.node:
            hops = [Hop(each.to, CONTROL) for each in self._detours(source) if each.tokens]
            self.counts.detours += len(hops)
            self._send_all(hops, [datagram])
        return False

    def take(self, data: Data, source: Address, at_ns: int) -> Sequence[Data]:
        """Return the packets that are new, and forward them if this is the node's duty."""
        self.fanout.hear(data.source, at_ns)
        parts = self.recent.new_parts(data, at_ns)
        if not parts or not isinstance(source, Via):
            return parts
        hops = self.fanout.forwarded(data.source, at_ns) if source.forward else []
        around = {Hop(each.to, DATA) for each in self._detours(source)} - set(hops)
        for part in parts:
            ends = native.ends(part.sealed)
            self.counts.detours += len(around) * (len(ends) // 4)
            for hop in (*hops, *around):
                self._send(hop, part.sealed, ends)
        return parts

    def _detours(self, source: Via) -> tuple[DetourTo, ...]:
        return self.detours.over_here(source.node) if self.detours is not None else ()

    def learn_paths(self, rows: Rows, now: int) -> None:
        """Choose the detours by the rows that all nodes have published."""
        if self.detours is not None:
            self.detours.update(rows, now)

    def learn(self, node: int, address: Address) -> None:
        """Do nothing: the network file has the addresses."""

    # -- sending ------------------------------------------------------------------------------------------

    def send(self, to: int, datagrams: Sequence[bytes]) -> None:
        """Send datagrams in order to a node, to `GROUP`, to `SERVERS` or to `RECEIVERS`."""
        if to == RECEIVERS:
            self._send_all(self.fanout.packets(self._now), datagrams)
        elif to == SERVERS:
            self._send_all(self.fanout.servers(), datagrams)
        elif to == GROUP:
            self._send_to_group(datagrams)
        else:
            self._send_all((Hop(to, CONTROL),), datagrams)

    def _send_to_group(self, datagrams: Sequence[bytes]) -> None:
        """Send each datagram to the roles that it is for, consecutive ones for the same roles together."""
        together: list[bytes] = []
        audience = used_by(datagrams[0][KIND_AT])
        for datagram in datagrams:
            mine = used_by(datagram[KIND_AT])
            if mine != audience:
                self._send_all(self.fanout.control(audience, self._now), together)
                together, audience = [], mine
            together.append(datagram)
        self._send_all(self.fanout.control(audience, self._now), together)

    def _send_all(self, hops: Iterable[Hop], datagrams: Sequence[bytes]) -> None:
        buffer = datagrams[0] if len(datagrams) == 1 else b"".join(datagrams)
        ends = b"".join(end.to_bytes(4, "little") for end in accumulate(map(len, datagrams)))
        for hop in hops:
            self._send(hop, buffer, ends)

    def send_buffer(self, to: int, buffer: Buffer, ends: Buffer) -> None:
        """Like `send`, for datagrams stored back to back in `buffer`, each up to one of `ends` (little-endian u32)."""
        for hop in self.fanout.packets(self._now) if to == RECEIVERS else (Hop(to, CONTROL),):
            self._send(hop, buffer, ends)

    def _send(self, hop: Hop, buffer: Buffer, ends: Buffer) -> None:
        address = self._to.get(hop)
        if address is None:
            self.counts.unknown_peer += len(ends) // 4
            return
        unsent, error = self._sender.send_buffer(address, buffer, ends)
        if error is None or error.errno in NO_ROOM:
            return
        if error.errno not in UNREACHABLE:
            raise NetError(_why_not_sent(address, error)) from error
        self.counts.refused += unsent

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


def resolve(host: str) -> str:
    """Return the IPv4 address of a host; raise NetError if it has none."""
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        why = f'host "{host}" of the network file has no IPv4 address; check the name, or write the address'
        raise NetError(why) from None
    return str(found[0][4][0])


def _why_not_sent(address: Address, error: OSError) -> str:
    where = f"{address[0]} port {address[1]}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"cannot send to {where}: permission denied; check the firewall and the user's permissions"
    if error.errno == errno.EINVAL:
        return f"cannot send to {where} from this node's address; set `host` or `bind` to an address of the network"
    return f"cannot send to {where}: {error.strerror}; check the network file and the firewall"
