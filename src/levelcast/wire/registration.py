"""The registration of a subscriber without multicast with an edge, for the packets of one group.

A subscriber sends it from the socket that is to receive the packets, to the edge's address for requests. The first one
has no cookie. The edge answers with a challenge, which has the cookie: only a program that receives at the address can
return it. From then on the edge sends the group's packets to it, until `EXPIRY_NS` after the last registration. A reply
is shorter than what it answers. All numbers are big-endian:

    offset  type  field
    0       4s    "LCRG"
    4       u8    1, the version
    5       u8    what: 1 register, 2 leave; of a reply: 3 challenge, 4 accepted, 5 refused: the edge has no room
    6       u16   the group's position in the network file, from 0
    8       u16   place in the group's range, from 0
    10      8s    cookie; zero in the first registration
    18      8x    reserved, 0
    26      22x   reserved, 0; not in a reply

Its size, of 48 bytes, differs from those of a request and of a report. A reply of 26 bytes has zeros where a packet of
MoldUDP64 has its number of messages, and is longer than a heartbeat, so that it is none.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from levelcast.wire.header import Malformed, Reason, bad_field

RENEW_NS = 10_000_000_000
EXPIRY_NS = 25_000_000_000
"""A registration survives one lost renewal."""
REGISTER, LEAVE, CHALLENGE, ACCEPTED, REFUSED = range(1, 6)
COOKIE_BYTES = 8
NO_COOKIE = bytes(COOKIE_BYTES)
_MAGIC = b"LCRG"
_VERSION = 1
_LAYOUT = struct.Struct(">4sBBHH8s8x")
REPLY_BYTES = _LAYOUT.size
REGISTRATION_BYTES = 48


class Registration(NamedTuple):
    """A registration, or a reply to one."""

    what: int
    group: int
    place: int
    cookie: bytes = NO_COOKIE


def encode_registration(registration: Registration) -> bytes:
    """Return the bytes of a registration, or of a shorter reply."""
    what, group, place, cookie = registration
    packed = _LAYOUT.pack(_MAGIC, _VERSION, what, group, place, cookie)
    return packed if what >= CHALLENGE else packed.ljust(REGISTRATION_BYTES, b"\0")


def is_reply(datagram: bytes) -> bool:
    """Return whether a datagram from an edge is the reply to a registration, not a packet."""
    return len(datagram) == REPLY_BYTES and datagram.startswith(_MAGIC)


def decode_registration(datagram: bytes) -> Registration:
    """Decode a registration or a reply; raises `Malformed`, and nothing else, whatever the bytes are."""
    if len(datagram) not in (REGISTRATION_BYTES, REPLY_BYTES):
        raise Malformed(Reason.WRONG_LENGTH)
    magic, version, what, group, place, cookie = _LAYOUT.unpack_from(datagram)
    if magic != _MAGIC:
        raise Malformed(Reason.BAD_MAGIC)
    if version != _VERSION:
        raise Malformed(Reason.UNKNOWN_VERSION, f"{version}")
    known = (CHALLENGE, ACCEPTED, REFUSED) if len(datagram) == REPLY_BYTES else (REGISTER, LEAVE)
    if what not in known or any(datagram[10 + COOKIE_BYTES :]):
        bad_field("registration")
    return Registration(what, group, place, cookie)
