"""The seals that a protocol class uses: objects that it gets, so that it never has a key.

A class seals its authored messages once, opens packets where it orders or rebuilds them, and passes everything else on
as it came. Without keys these are the functions with a CRC-32 (`CrcSeals`); with keys, `levelcast.keys.core_security`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from levelcast import native
from levelcast.wire.codec import decode, seal_message
from levelcast.wire.header import Malformed
from levelcast.wire.messages import Data, Group, LineHolders, Packet, Ring, Token
from levelcast.wire.packets import seal

Authored = TypeVar("Authored", bound=Token | Ring | Group | LineHolders)


class NodeSeals(Protocol):
    """Seals of a node in one stripe."""

    def author(self, message: Authored, now: int) -> Authored:
        """Return an own message with its datagram: called once, before any other use."""

    def assemble(self, values: Sequence[Data]) -> tuple[bytes, bytes, int]:
        """Return rows, clear payloads and the number of records of held packets, as `levelcast.native.assemble`."""

    def open_packet(self, datagram: bytes) -> Data | None:
        """Return a packet as if it had arrived from the network; None if no receiver may accept it."""

    def seal_packet(self, packet: Packet) -> Data:
        """Return a packet of the operator's source, which a receiver sends for an automatic change (rule W10)."""


class CrcSeals:
    """The seals of a node in a network without keys."""

    def __init__(self, domain: int) -> None:
        self._domain = domain

    def author(self, message: Authored, now: int) -> Authored:
        return seal_message(message, self._domain)

    def assemble(self, values: Sequence[Data]) -> tuple[bytes, bytes, int]:
        return native.assemble(values)

    def open_packet(self, datagram: bytes) -> Data | None:
        data = native.open_data(datagram, self._domain, Data)
        if data is not None:
            return data
        try:
            found, message = decode(datagram)
        except Malformed:
            return None
        return message if found == self._domain and isinstance(message, Data) else None

    def seal_packet(self, packet: Packet) -> Data:
        return seal(packet, self._domain)
