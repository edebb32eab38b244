"""Send and receive the messages of a wide-area group: one UDP socket of a process, and the addresses of the others.

- A datagram from an address that the network file does not name, or that names another sender than the process of that
  address, is dropped and counted. It is never answered, and no address is learned.
- A route or a buffer that is missing loses a datagram, as the network does: the protocol repairs.
"""

from __future__ import annotations

import errno
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from struct import Struct

from levelcast import native
from levelcast.errors import NetError
from levelcast.overlay.wide.measure import kind_of
from levelcast.protocol.effects import Send
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.sockets import (
    MAX_DRAIN,
    NO_ROOM,
    NODE_TABLE,
    RECEIVE_BUFFER,
    Address,
    Arrival,
    SendCounts,
    Sender,
    Via,
    bind,
    enlarge_buffers,
    stamp_arrivals,
    takes_trains,
    udp,
)
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import Malformed, sender_of, wrong_domain
from levelcast.wire.messages import Message

_END = Struct("<I")
UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


class GroupSocket:
    """The socket of one process of a group."""

    def __init__(
        self, own: Address, peers: Mapping[int, Address], domain: int, impairment: Impairment | None = None
    ) -> None:
        """`own` is bound; `peers` are the addresses of the other processes as seen from here."""
        self.counts = SendCounts()
        self.sent: Counter[str] = Counter()
        """Datagrams by kind, as measurements count them."""
        self.malformed: Counter[str] = Counter()
        """Datagrams that were dropped, by reason."""
        self.heard: set[int] = set()
        """Processes of which a datagram was received."""
        self._domain, self._impairment = domain, impairment
        self._peers = dict(peers)
        self._via = {address: Via(address, process) for process, address in peers.items()}
        self._socket = udp()
        try:
            bind(self._socket, *own, NODE_TABLE)
        except BaseException:
            self._socket.close()
            raise
        stamp_arrivals(self._socket)
        self._sender = Sender(self._socket, self.counts, takes_trains(self._socket))
        self.address: Address = self._socket.getsockname()
        self.warning = enlarge_buffers([self._socket], RECEIVE_BUFFER)

    @property
    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def next_ns(self) -> int | None:
        """Return the time at which a delayed datagram is due."""
        return self._impairment.next_ns if self._impairment is not None else None

    def receive(self, now: int) -> list[Message]:
        """Return the messages that have arrived."""
        drained: Iterable[Arrival] = native.drain(self.fileno, MAX_DRAIN, *self.address)
        arrivals = [each for each in drained if self._is_known(each)]
        if self._impairment is not None:
            self._impairment.hold(arrivals)
            arrivals = self._impairment.due(now)
        messages = []
        for datagram, _, _ in arrivals:
            assert isinstance(datagram, bytes)  # `native.drain` does not join packets
            try:
                domain, message = decode(datagram)
            except Malformed as malformed:
                self.malformed[malformed.reason.value] += 1
                continue
            if (reason := wrong_domain(domain, self._domain)) is not None:
                self.malformed[reason.value] += 1
            else:
                messages.append(message)
        return messages

    def _is_known(self, arrival: Arrival) -> bool:
        """Return whether a datagram is from the process that it names; set the address of that process."""
        datagram, source, _ = arrival
        via = self._via.get(source)
        if via is None or not isinstance(datagram, bytes) or sender_of(datagram) != via.node:
            self.counts.unknown_address += 1
            return False
        self.heard.add(via.node)
        return True

    def send(self, effects: Iterable[Send]) -> None:
        """Send messages, those to one process together and in order."""
        outbox: defaultdict[int, list[bytes]] = defaultdict(list)
        last: Message | None = None
        datagram = b""
        for effect in effects:
            if effect.message is not last:
                last, datagram = effect.message, encode(effect.message, self._domain)
            outbox[effect.to].append(datagram)
            self.sent[kind_of(effect.message)] += 1
        for to, datagrams in outbox.items():
            self._send(to, datagrams)

    def _send(self, to: int, datagrams: list[bytes]) -> None:
        address = self._peers.get(to)
        if address is None:
            self.counts.unknown_peer += len(datagrams)
            return
        ends, end = bytearray(), 0
        for datagram in datagrams:
            end += len(datagram)
            ends += _END.pack(end)
        unsent, error = self._sender.send_buffer(address, b"".join(datagrams), ends)
        if error is None or error.errno in NO_ROOM:
            return
        if error.errno not in UNREACHABLE:
            where = f"{address[0]} port {address[1]}"
            raise NetError(f"cannot send to {where}: {error.strerror}; check the network file and the firewall")
        self.counts.refused += unsent

    def close(self) -> None:
        self._socket.close()
