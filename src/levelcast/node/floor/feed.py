"""The floor's public data over MoldUDP64: all orders without names, and the trades.

Each is a session of its own, sent to one multicast group; requests for missing messages are answered at the sending
socket's address. The packets are a function of the tape: a restarted floor continues the numbers, and can answer
requests for what it sent before.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from levelcast.edge.server.packetizer import GatherConfig, Outgoing, Packetizer, SessionMap
from levelcast.edge.server.retransmit_store import Retransmitter
from levelcast.market.floor.public_records import PublicRecords
from levelcast.records import count_records, stamp
from levelcast.runtime.sockets import Address, send_multicast, udp
from levelcast.wire.mold import session_name

ORDERS_SESSION, TRADES_SESSION = session_name("ORDERS"), session_name("TRADES")
MAX_REQUESTS = 32
"""Answered in one step of the loop."""


class FloorFeed:
    def __init__(self, group: Address, interface: str, now: int) -> None:
        self.group = group
        self._socket = udp()
        send_multicast(self._socket, interface, ttl=1)
        self._socket.bind((interface, 0))
        self._socket.setblocking(False)
        self.fileno = self._socket.fileno()
        config = GatherConfig(watermark_ns=0)
        self._packetizers = [
            Packetizer(SessionMap({}, session), 0, config=config, now=now)
            for session in (ORDERS_SESSION, TRADES_SESSION)
        ]
        self._next = [1, 1]
        self.store = Retransmitter()
        self.packets = self.unsent = 0

    def release(self, timestamp_ns: int, public: PublicRecords, now: int, *, send: bool = True) -> None:
        """Send the records of a frame; without `send`, only number and store them."""
        for at, payload in enumerate(public):
            if not payload:
                continue
            first = self._next[at]
            self._next[at] += count_records(payload)
            stamped = stamp(payload, first, timestamp_ns)
            sent = self._packetizers[at].release(timestamp_ns, first, stamped, now)
            self.store.keep(sent)
            for out in sent if send else ():
                self._send(out)

    def _send(self, out: Outgoing) -> None:
        for datagram in out.datagrams:
            try:
                self._socket.sendto(datagram, self.group)
                self.packets += 1
            except OSError:
                self.unsent += 1

    def heartbeats(self, now: int) -> None:
        for packetizer in self._packetizers:
            if packetizer.next_ns is not None and packetizer.next_ns <= now:
                for out in packetizer.heartbeats(now):
                    self._send(out)

    @property
    def wake_ns(self) -> int:
        return min(packetizer.next_ns or 0 for packetizer in self._packetizers)

    def answer(self) -> None:
        """Answer requests of subscribers."""
        for _ in range(MAX_REQUESTS):
            try:
                request, address = self._socket.recvfrom(2_048)
            except OSError:
                return
            answer = self.store.answer(request)
            for datagram in answer.datagrams if answer is not None else ():
                with suppress(OSError):
                    self._socket.sendto(datagram, address)

    def close(self) -> None:
        self._socket.close()


def multicast_group(text: str) -> Address:
    """Return the address of "239.1.2.3:5000"; ValueError if it is not a multicast group with a port."""
    host, _, port = text.rpartition(":")
    packed = socket.inet_aton(host)
    if not 224 <= packed[0] <= 239 or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text} is not a multicast group with a port, such as 239.192.7.1:9879")
    return host, int(port)
