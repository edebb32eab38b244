"""The configured set of primaries as one record of the sequence (rule 12).

The record is a DBN system message, so every reader of the tape reads or skips it. Its text is for people; its
tail is what counts:

    msg    levelcast members v4: 1/1 2/1 3/7         version, then member/life in ring order
    tail   version u64, count u16, count x (member u16, life u32), zeros up to a 4-byte word

All little-endian. The text has room for 302 characters, some fifteen of the longest entries, so a long list
ends in `...` there; the tail always has all of it, up to `MAX_MEMBERS`.

There is one encoding of a set: a text that contradicts the tail, an empty set, a member named twice are not a
membership record. Damage is not for this record to find (the datagram's seal and the tape's chain do): a changed bit
in an entry that the text had no room for gives another set. The record has no time and no floor of its own:
the frame in which it is released has both.

The layout of the system message is `levelcast.records.SYSTEM`, written out here because neither of the two
lowest layers imports the other; a test holds them together.
"""

from __future__ import annotations

import struct

from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership

_WORD_BYTES = 4
_MAX_RECORD_BYTES = 255 * _WORD_BYTES  # byte 0 is the length in words
_RTYPE_SYSTEM = 0x17
_NO_INSTRUMENT = 0
_NO_TIME = 2**64 - 1
_NO_CODE = 0xFF

_SYSTEM = struct.Struct("<BBHIQ303sB")  # length, rtype, publisher_id, instrument_id, ts_event, msg, code
_TEXT_OFFSET = 16
_TEXT_MAX = 302  # the last of the 303 is the NUL
_TEXT_START = "levelcast members v"

_TAIL_HEAD = struct.Struct("<QH")
_MEMBER = struct.Struct("<HI")
_MEMBERS_OFFSET = _SYSTEM.size + _TAIL_HEAD.size

MAX_MEMBERS = (_MAX_RECORD_BYTES - _MEMBERS_OFFSET) // _MEMBER.size


def encode_membership(membership: Membership) -> bytes:
    """A payload of one record; a ValueError for a set that no ring can have."""
    version, members = membership
    if not 1 <= len(members) <= MAX_MEMBERS:
        raise ValueError(f"a membership has 1 to {MAX_MEMBERS} members, not {len(members)}")
    if len({each.member for each in members}) != len(members):
        raise ValueError("a membership names a member twice")
    try:
        tail = _TAIL_HEAD.pack(version, len(members)) + b"".join(_MEMBER.pack(*each) for each in members)
    except struct.error:
        raise ValueError(f"a number in {membership} is outside its range") from None
    tail += bytes(-len(tail) % _WORD_BYTES)
    length_words = (_SYSTEM.size + len(tail)) // _WORD_BYTES
    record = _SYSTEM.pack(
        length_words, _RTYPE_SYSTEM, CONTROL_SOURCE, _NO_INSTRUMENT, _NO_TIME, _text(membership), _NO_CODE
    )
    return record + tail


def decode_membership(payload: bytes) -> Membership | None:
    """The set in a payload of one membership record; None for any other bytes."""
    if len(payload) < _MEMBERS_OFFSET or payload[1] != _RTYPE_SYSTEM:
        return None
    if not payload.startswith(_TEXT_START.encode(), _TEXT_OFFSET):
        return None
    version, count = _TAIL_HEAD.unpack_from(payload, _SYSTEM.size)
    end = _MEMBERS_OFFSET + count * _MEMBER.size
    if end > len(payload):
        return None
    lives = _MEMBER.iter_unpack(payload[_MEMBERS_OFFSET:end])
    membership = Membership(version, tuple(MemberLife(member, life) for member, life in lives))
    try:
        return membership if encode_membership(membership) == payload else None
    except ValueError:
        return None


def _text(membership: Membership) -> bytes:
    entries = [f" {each.member}/{each.life}" for each in membership.members]
    text = f"{_TEXT_START}{membership.version}:"
    if len(text) + sum(map(len, entries)) <= _TEXT_MAX:
        return (text + "".join(entries)).encode()
    for entry in entries:
        if len(text) + len(entry) + len(" ...") > _TEXT_MAX:
            break
        text += entry
    return f"{text} ...".encode()
