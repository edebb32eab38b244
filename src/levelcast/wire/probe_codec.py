"""The two messages that measure the network, as bytes; part of the table in `levelcast.wire.codec`.

    kind      sender  generation  body
    15 Probe  prober  0           number u64, sent u64
    16 Echo   whoever 0           to u16, number u64, sent u64, heard u64

The header, the seal and the rule that a message has one encoding are those of every core datagram.
"""

from __future__ import annotations

from struct import Struct

from levelcast.wire.header import HEADER_SIZE, seal_datagram
from levelcast.wire.messages import Echo, Probe
from levelcast.wire.parts import check_no_generation

KIND_PROBE, KIND_ECHO = 15, 16

_PROBE = Struct("<QQ")
_ECHO = Struct("<HQQQ")


def encode_probe(message: Probe, stripe: int) -> bytes:
    return seal_datagram(KIND_PROBE, stripe, message.sender, 0, _PROBE.pack(message.number, message.sent_ns))


def decode_probe(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Probe, int]:
    check_no_generation(generation)
    number, sent_ns = _PROBE.unpack_from(datagram, HEADER_SIZE)
    return Probe(sender, number, sent_ns), HEADER_SIZE + _PROBE.size


def encode_echo(message: Echo, stripe: int) -> bytes:
    body = _ECHO.pack(message.to, message.number, message.sent_ns, message.heard_ns)
    return seal_datagram(KIND_ECHO, stripe, message.sender, 0, body)


def decode_echo(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Echo, int]:
    check_no_generation(generation)
    to, number, sent_ns, heard_ns = _ECHO.unpack_from(datagram, HEADER_SIZE)
    return Echo(sender, to, number, sent_ns, heard_ns), HEADER_SIZE + _ECHO.size
