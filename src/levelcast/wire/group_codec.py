"""The four messages of secondary groups as bytes (rule 11, MS §4.1); part of the table in `levelcast.wire.codec`.

    kind             sender     generation           body
    11 GroupToken    secondary  core ring entered    group u64, turn u64, have u64
    12 GroupRequest  secondary  0                    invitation u64, group u64, primary u16, suspect u16
    13 GroupInvite   server     the invitation       nothing
    14 Group         server     the group's number   primary u16, [member u16]

The header, the seal and the rule that a message has one encoding are those of every core datagram.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from levelcast.wire.header import HEADER_SIZE, bad_field, seal_datagram
from levelcast.wire.messages import Group, GroupInvite, GroupRequest, GroupToken
from levelcast.wire.parts import Codec, PackedNumbers, fixed

KIND_GROUP = 14
MAX_GROUP = 256
"""Maximum number of secondaries of one primary: MS §4.1 expects "a few 10's"."""

_GROUP = Struct("<H")
_MEMBERS = PackedNumbers("H", MAX_GROUP, "members")


def _check_members(members: tuple[int, ...]) -> None:
    if len(set(members)) != len(members):  # two turns in one round
        bad_field("a member twice")


def encode_group(message: Group, domain: int) -> bytes:
    _check_members(message.members)
    body = _GROUP.pack(message.primary) + _MEMBERS.pack(message.members)
    return seal_datagram(KIND_GROUP, domain, message.server, message.number, body)


def decode_group(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[Group, int]:
    (primary,) = _GROUP.unpack_from(datagram, HEADER_SIZE)
    members, end = _MEMBERS.unpack(datagram, HEADER_SIZE + _GROUP.size)
    _check_members(members)
    return Group(generation, sender, primary, members), end


CODECS: dict[type[Any], Codec] = {
    GroupToken: fixed(11, GroupToken, "QQQ", "sender", "generation"),
    GroupRequest: fixed(12, GroupRequest, "QQHH", "secondary"),
    GroupInvite: fixed(13, GroupInvite, "", "server", "number"),
    Group: Codec(KIND_GROUP, encode_group, decode_group),
}
