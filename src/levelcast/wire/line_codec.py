"""The two messages about lines as bytes (MS §4.3); part of the table in `levelcast.wire.codec`.

    kind            sender    generation   body
    18 LineHolders  server    of the ring  number u64, [node u16, text]
    19 LineRequest  any node  of the ring  number u64

The header, the seal and the rule that a message has one encoding are those of every core datagram.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from levelcast.wire.header import HEADER_SIZE, seal_datagram
from levelcast.wire.messages import LineHolders, LineRequest
from levelcast.wire.parts import Codec, fixed, pack_holders, unpack_holders

KIND_LINE_HOLDERS = 18

_NUMBER = Struct("<Q")


def encode_line_holders(message: LineHolders, domain: int) -> bytes:
    body = _NUMBER.pack(message.number) + pack_holders(message.holders)
    return seal_datagram(KIND_LINE_HOLDERS, domain, message.server, message.generation, body)


def decode_line_holders(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[LineHolders, int]:
    (number,) = _NUMBER.unpack_from(datagram, HEADER_SIZE)
    holders, end = unpack_holders(datagram, HEADER_SIZE + _NUMBER.size)
    return LineHolders(generation, sender, number, holders), end


CODECS: dict[type[Any], Codec] = {
    LineHolders: Codec(KIND_LINE_HOLDERS, encode_line_holders, decode_line_holders),
    LineRequest: fixed(19, LineRequest, "Q", "sender", "generation"),
}
