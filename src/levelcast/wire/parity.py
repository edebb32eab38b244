"""Parities of a train of packets: made by their source, and used to rebuild a packet (rule W11, TT §4.3).

The packets of a train are divided by turns, so that a gap of neighbours hits several parities: with g parities, number
j covers packets j, j + g, j + 2g, … A parity has the packets' datagrams with header and seal. So a rebuilt packet has
the seal of its author, and is checked like one from the network.
"""

from __future__ import annotations

from struct import Struct

from levelcast import native
from levelcast.native.layout import LENGTH_AT
from levelcast.wire.header import HEADER_SIZE, MAX_DATAGRAM, Malformed, Reason, bad_field, seal_datagram
from levelcast.wire.messages import Data, Parity
from levelcast.wire.packets import DATA_OVERHEAD, singles
from levelcast.wire.parts import Codec, check_no_generation
from levelcast.wire.seal import CRC32

KIND_PARITY = 36
MAX_PARITY_PACKETS = 64
MAX_STEP = 1_024
_BODY = Struct("<QQHH")
PARITY_OVERHEAD = HEADER_SIZE + _BODY.size + CRC32.size
"""Size of a parity without its content."""
MAX_CONTENT = MAX_DATAGRAM - PARITY_OVERHEAD
_LENGTH = Struct("<I")


def check_parity(parity: Parity) -> None:
    """Check the fields of a parity; raises `Malformed` for values that are not allowed."""
    _, _, first, packets, step, content = parity
    if not (1 <= packets <= MAX_PARITY_PACKETS and 1 <= step <= MAX_STEP):
        bad_field("packets of a parity")
    if packets == 1 and step != 1:
        bad_field("step of a parity of one packet")
    if not 1 <= first <= 2**64 - packets * step:
        bad_field("numbers of a parity")
    if not DATA_OVERHEAD <= len(content) <= MAX_CONTENT:
        bad_field("content of a parity")


def parities_of(train: Data, groups: int) -> list[Parity]:
    """Return at most `groups` parities that cover all packets of a train; [] if these are too many packets for them."""
    packets = singles(train)
    groups = min(groups, len(packets), MAX_STEP)
    if not groups or -(-len(packets) // groups) > MAX_PARITY_PACKETS:
        return []
    made = []
    for place in range(groups):
        sealed = [packet.sealed for packet in packets[place::groups]]
        step = groups if len(sealed) > 1 else 1
        content = native.xor_padded(sealed)
        made.append(Parity(train.source, train.incarnation, train.first + place, len(sealed), step, content))
    return made


def sent_bytes(parity: Parity) -> int:
    """Return the size of its datagram."""
    return PARITY_OVERHEAD + len(parity.content)


def rebuilt_datagram(parity: Parity, others: list[bytes]) -> bytes | None:
    """Return the datagram of the packet that is not in `others`, its seal unchecked; None if it cannot be one."""
    found = native.xor_padded([parity.content, *others])
    (length,) = _LENGTH.unpack_from(found, LENGTH_AT)
    if not DATA_OVERHEAD <= length <= len(found) or any(found[length:]):
        return None
    return found[:length]


def _encode(message: Parity, domain: int) -> bytes:
    check_parity(message)
    source, incarnation, first, packets, step, content = message
    return seal_datagram(KIND_PARITY, domain, source, 0, _BODY.pack(incarnation, first, packets, step) + content)


def _decode(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[Parity, int]:
    check_no_generation(generation)
    incarnation, first, packets, step = _BODY.unpack_from(datagram, HEADER_SIZE)
    content = datagram[HEADER_SIZE + _BODY.size :]
    if len(content) < DATA_OVERHEAD:
        raise Malformed(Reason.TRUNCATED_BODY)
    parity = Parity(sender, incarnation, first, packets, step, content)
    check_parity(parity)
    return parity, len(datagram)


CODECS: dict[type, Codec] = {Parity: Codec(KIND_PARITY, _encode, _decode)}
