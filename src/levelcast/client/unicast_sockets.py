"""Open a subscriber's sockets without multicast: each is registered with edges for the packets of one group.

A group with a line has one sender at a time, and another one after a failure: its socket is registered with every
receiver of the region. Other groups have a copy from each receiver: two that reply are enough. A registration is
renewed every 10 s; until an edge has accepted it, it is repeated each second.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from levelcast.client.edge_sockets import GroupSockets, asking_socket
from levelcast.errors import NetError
from levelcast.network import MulticastGroup, Network
from levelcast.network.addresses import ANY_HOST, edge_addresses
from levelcast.runtime.overlay_sockets import resolve
from levelcast.runtime.sockets import LOOPBACK, Address
from levelcast.wire.header import Malformed
from levelcast.wire.registration import (
    ACCEPTED,
    CHALLENGE,
    EXPIRY_NS,
    LEAVE,
    NO_COOKIE,
    REFUSED,
    REGISTER,
    RENEW_NS,
    Registration,
    decode_registration,
    encode_registration,
    is_reply,
)

AGAIN_S = 1.0
EDGES = 2
"""Edges with which a socket is registered, for a group that all receivers send to."""


@dataclass(slots=True)
class _Contact:
    """One socket's registration with one edge."""

    edge: Address
    cookie: bytes = NO_COOKIE
    accepted_s: float | None = None
    """Time of the last acceptance, by the event loop's clock."""


class UnicastSockets(GroupSockets):
    """Like `GroupSockets`, registered with edges instead of joined to groups."""

    def __init__(
        self,
        network: Network,
        groups: Sequence[MulticastGroup],
        interface: str,
        on_readable: Callable[[socket.socket], None],
        *,
        arrivals: bool,
    ) -> None:
        if not network.edge.unicast:
            raise NetError(
                "the network file has no `unicast` in [edge], so edges accept no registrations; add it, such as "
                "unicast = 100, and restart the receivers"
            )
        super().__init__(groups, interface, on_readable, arrivals=arrivals)
        self._edges = {
            group.name: [(resolve(host), port) for host, port in edge_addresses(network, group)] for group in groups
        }
        self._position = {group.name: place for place, group in enumerate(network.edge.groups)}
        local = all(host.startswith("127.") for edges in self._edges.values() for host, _ in edges)
        self._interface = ANY_HOST if interface == LOOPBACK and not local else interface
        self._contacts: dict[socket.socket, list[_Contact]] = {}
        self._groups_of: dict[socket.socket, tuple[MulticastGroup, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.refused = 0
        """Registrations for which an edge had no room."""

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        super().open(loop)
        self._renew()

    def make(self, group: MulticastGroup, place: int) -> socket.socket:
        made = asking_socket(self._interface)
        self._groups_of[made] = group, place
        self._contacts[made] = [_Contact(edge) for edge in self._edges[group.name]]
        self._register(made)
        return made

    def forget(self, each: socket.socket) -> None:
        """Cancel the registrations of a socket; a lost one expires."""
        group, place = self._groups_of.pop(each)
        for contact in self._contacts.pop(each):
            if contact.cookie != NO_COOKIE:
                self._send(each, contact, Registration(LEAVE, self._position[group.name], place, contact.cookie))

    def take_reply(self, each: socket.socket, datagram: bytes, source: Address) -> bool:
        """Handle the reply of an edge to a registration; return whether the datagram is one."""
        contact = next((one for one in self._contacts.get(each, ()) if one.edge == source), None)
        if contact is None or not is_reply(datagram):
            return False
        with suppress(Malformed):
            reply = decode_registration(datagram)
            if reply.what == CHALLENGE:
                known, contact.cookie = contact.cookie, reply.cookie
                if known != reply.cookie:
                    self._register_with(each, contact)
            elif reply.what == ACCEPTED:
                contact.cookie, contact.accepted_s = reply.cookie, self._loop.time()
            elif reply.what == REFUSED:
                self.refused += 1
                contact.accepted_s = None
        return True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for each in list(self._groups_of):
            self.forget(each)
        super().close()

    def _renew(self) -> None:
        """Repeat registrations that are due, once per second."""
        for each in self._contacts:
            self._register(each)
        self._timer = self._loop.call_later(AGAIN_S, self._renew)

    def _register(self, each: socket.socket) -> None:
        group, _ = self._groups_of[each]
        now_s, wanted = self._loop.time(), len(self._contacts[each]) if group.line is not None else EDGES
        accepted = [one for one in self._contacts[each] if _is_accepted(one, now_s)]
        others = [one for one in self._contacts[each] if one not in accepted]
        for contact in accepted[:wanted]:
            assert contact.accepted_s is not None
            if now_s - contact.accepted_s >= RENEW_NS / 1e9:
                self._register_with(each, contact)
        if len(accepted) < wanted:
            for contact in others:
                self._register_with(each, contact)

    def _register_with(self, each: socket.socket, contact: _Contact) -> None:
        group, place = self._groups_of[each]
        self._send(each, contact, Registration(REGISTER, self._position[group.name], place, contact.cookie))

    @staticmethod
    def _send(each: socket.socket, contact: _Contact, registration: Registration) -> None:
        with suppress(OSError):  # a lost registration is repeated
            each.sendto(encode_registration(registration), contact.edge)


def _is_accepted(contact: _Contact, now_s: float) -> bool:
    return contact.accepted_s is not None and now_s - contact.accepted_s < EXPIRY_NS / 1e9
