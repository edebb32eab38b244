"""The configured set of primaries as one record of the sequence (rule 12).

The record is a DBN system message, so every reader of the tape reads or skips it. Its text is human-readable; programs
use only its tail:

    msg    levelcast members v4: 1/1 2/1 3/7         version, then member/life in ring order
    tail   version u64, count u16, count x (member u16, life u32), zeros up to a 4-byte word

All little-endian. The text is limited to 302 characters, about fifteen of the longest entries, so a long list
ends in `...` there; the tail always contains all entries, up to `MAX_MEMBERS`.

A set has one encoding: a text that contradicts the tail, an empty set, or a duplicate member make it another system
message. The record does not detect damage (the datagram's seal and the tape's chain do): a changed bit in an entry
that the text omits gives another set. The record has no time and no floor of its own: the frame in which it is
released has both.
"""

from __future__ import annotations

import struct

from levelcast.records.system import MAX_SYSTEM_TAIL, MAX_SYSTEM_TEXT, encode_system, open_system
from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership

_TEXT_START = "levelcast members v"
_HEAD = struct.Struct("<QH")
_MEMBER = struct.Struct("<HI")

MAX_MEMBERS = (MAX_SYSTEM_TAIL - _HEAD.size) // _MEMBER.size


def encode_membership(membership: Membership) -> bytes:
    """Return a payload of one record; raises ValueError for a set that no ring can have."""
    version, members = membership
    if not 1 <= len(members) <= MAX_MEMBERS:
        raise ValueError(f"a membership has 1 to {MAX_MEMBERS} members, not {len(members)}")
    if len({each.member for each in members}) != len(members):
        raise ValueError("a membership contains a member twice")
    try:
        tail = _HEAD.pack(version, len(members)) + b"".join(_MEMBER.pack(*each) for each in members)
    except struct.error:
        raise ValueError(f"a number in {membership} is outside its range") from None
    return encode_system(_text(membership), tail, source=CONTROL_SOURCE)


def decode_membership(payload: bytes) -> Membership | None:
    """Return the set in a payload of one membership record; None for any other bytes."""
    opened = open_system(payload, _TEXT_START.encode(), _HEAD)
    if opened is None:
        return None
    _, tail = opened
    version, count = _HEAD.unpack_from(tail)
    end = _HEAD.size + count * _MEMBER.size
    if end > len(tail):
        return None
    lives = _MEMBER.iter_unpack(tail[_HEAD.size : end])
    membership = Membership(version, tuple(MemberLife(member, life) for member, life in lives))
    try:
        return membership if encode_membership(membership) == payload else None
    except ValueError:
        return None


def _text(membership: Membership) -> bytes:
    entries = [f" {each.member}/{each.life}" for each in membership.members]
    text = f"{_TEXT_START}{membership.version}:"
    if len(text) + sum(map(len, entries)) <= MAX_SYSTEM_TEXT:
        return (text + "".join(entries)).encode()
    for entry in entries:
        if len(text) + len(entry) + len(" ...") > MAX_SYSTEM_TEXT:
            break
        text += entry
    return f"{text} ...".encode()
