"""The four messages of secondary groups as bytes (rule 11, MS §4.1); part of the table in `levelcast.wire.codec`.

    kind            sender     generation           body
    11 GroupToken   secondary  core ring entered    group u64, turn u64, have u64
    12 GroupPlea    secondary  0                    invitation u64, group u64, primary u16, suspect u16
    13 GroupInvite  server     the invitation       nothing
    14 Group        server     the group's number   primary u16, [member u16]

The header, the seal and the rule that a message has one encoding are those of every core datagram.
"""

from __future__ import annotations

import struct
from struct import Struct

from levelcast.wire.header import HEADER_SIZE, bad_field, seal_datagram
from levelcast.wire.messages import Group, GroupInvite, GroupRequest, GroupToken
from levelcast.wire.parts import COUNT, check_no_generation, unpack_count

__all__ = [
    "KIND_GROUP",
    "KIND_GROUP_INVITE",
    "KIND_GROUP_PLEA",
    "KIND_GROUP_TOKEN",
    "MAX_GROUP",
    "decode_group",
    "decode_invite",
    "decode_plea",
    "decode_token",
    "encode_group",
    "encode_invite",
    "encode_plea",
    "encode_token",
]

KIND_GROUP_TOKEN, KIND_GROUP_PLEA, KIND_GROUP_INVITE, KIND_GROUP = 11, 12, 13, 14
MAX_GROUP = 256
"""Secondaries of one primary: MS §4.1 thinks of "a few 10's"."""

_TOKEN = Struct("<QQQ")
_PLEA = Struct("<QQHH")
_GROUP = Struct("<H")
_MEMBER = Struct("<H")


def encode_token(message: GroupToken, stripe: int) -> bytes:
    body = _TOKEN.pack(message.group, message.turn, message.have)
    return seal_datagram(KIND_GROUP_TOKEN, stripe, message.sender, message.generation, body)


def decode_token(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[GroupToken, int]:
    group, turn, have = _TOKEN.unpack_from(datagram, HEADER_SIZE)
    return GroupToken(sender, generation, group, turn, have), HEADER_SIZE + _TOKEN.size


def encode_plea(message: GroupRequest, stripe: int) -> bytes:
    body = _PLEA.pack(message.invitation, message.group, message.primary, message.suspect)
    return seal_datagram(KIND_GROUP_PLEA, stripe, message.secondary, 0, body)


def decode_plea(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[GroupRequest, int]:
    check_no_generation(generation)
    invitation, group, primary, suspect = _PLEA.unpack_from(datagram, HEADER_SIZE)
    return GroupRequest(sender, invitation, group, primary, suspect), HEADER_SIZE + _PLEA.size


def encode_invite(message: GroupInvite, stripe: int) -> bytes:
    return seal_datagram(KIND_GROUP_INVITE, stripe, message.server, message.number, b"")


def decode_invite(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[GroupInvite, int]:
    return GroupInvite(generation, sender), HEADER_SIZE


def _check_group(members: tuple[int, ...]) -> None:
    if len(members) > MAX_GROUP:
        bad_field(f"{len(members)} members, {MAX_GROUP} at most")
    if len(set(members)) != len(members):  # two turns in one round
        bad_field("a member twice")


def encode_group(message: Group, stripe: int) -> bytes:
    _check_group(message.members)
    body = _GROUP.pack(message.primary) + COUNT.pack(len(message.members))
    body += struct.pack(f"<{len(message.members)}H", *message.members)
    return seal_datagram(KIND_GROUP, stripe, message.server, message.number, body)


def decode_group(datagram: bytes, stripe: int, sender: int, generation: int) -> tuple[Group, int]:
    (primary,) = _GROUP.unpack_from(datagram, HEADER_SIZE)
    at = HEADER_SIZE + _GROUP.size
    count = unpack_count(datagram, at, MAX_GROUP)
    members: tuple[int, ...] = struct.unpack_from(f"<{count}H", datagram, at + COUNT.size)
    _check_group(members)
    return Group(generation, sender, primary, members), at + COUNT.size + count * _MEMBER.size
