"""A change of the hold time, the beat interval and the cut-offs as one record of the sequence (rule W9).

The record is a DBN system message, so every reader of the tape reads or skips it. Its text is human-readable; programs
use only its tail:

    ts_event   the timestamp of the first slot to which it applies
    msg        levelcast timing v4: hold 0.4170 s, before 0.6000 s, beats 0.0250 s
    tail       version u64, hold u32, hold before u32, beat interval u32, count u16, count x (member u16, cut-off u16),
               zeros up to a 4-byte word

All little-endian; durations are in units of `UNIT_NS`. A change has one encoding: a text that contradicts the tail, or
a duplicate member make it another system message.
"""

from __future__ import annotations

import struct

from levelcast.records import record_places
from levelcast.records.system import encode_system, open_system
from levelcast.wire.membership import MAX_MEMBERS
from levelcast.wire.messages import CONTROL_SOURCE, UNIT_NS, Cutoff, Pace, PaceChange

PACE_TEXT = b"levelcast timing v"
LEAST_BEAT_NS = 1_000_000
_HEAD = struct.Struct("<QIIIH")
_CUTOFF = struct.Struct("<HH")


def encode_pace_change(change: PaceChange) -> bytes:
    """Return a payload of one record; raises ValueError for times that no ring can have, or not in `UNIT_NS`."""
    version, from_ns, before_ns, (hold_ns, beat_ns, cutoffs) = change
    if len({each.member for each in cutoffs}) != len(cutoffs) or not 1 <= len(cutoffs) <= MAX_MEMBERS:
        raise ValueError(f"a timing record has the cut-offs of 1 to {MAX_MEMBERS} members, each once")
    if beat_ns < LEAST_BEAT_NS or hold_ns <= 0 or before_ns <= 0:
        raise ValueError(f"hold times are above 0, beat intervals at least {LEAST_BEAT_NS / 1e6:g} ms")
    times = (hold_ns, before_ns, beat_ns, *(each.ns for each in cutoffs))
    if any(ns % UNIT_NS for ns in times):
        raise ValueError(f"times of a timing record are multiples of {UNIT_NS / 1e6:g} ms")
    hold, before, beat, *limits = (ns // UNIT_NS for ns in times)
    try:
        tail = _HEAD.pack(version, hold, before, beat, len(cutoffs))
        tail += b"".join(_CUTOFF.pack(each.member, limit) for each, limit in zip(cutoffs, limits, strict=True))
        return encode_system(_text(version, hold, before, beat), tail, source=CONTROL_SOURCE, ts_event=from_ns)
    except struct.error:
        raise ValueError(f"a number in {change} is outside its range") from None


def decode_pace_change(payload: bytes) -> PaceChange | None:
    """Return the change in a payload of one timing record; None for any other bytes."""
    opened = open_system(payload, PACE_TEXT, _HEAD)
    if opened is None:
        return None
    from_ns, tail = opened
    version, hold, before, beat, count = _HEAD.unpack_from(tail)
    end = _HEAD.size + count * _CUTOFF.size
    if end > len(tail):
        return None
    cutoffs = tuple(Cutoff(member, limit * UNIT_NS) for member, limit in _CUTOFF.iter_unpack(tail[_HEAD.size : end]))
    change = PaceChange(version, from_ns, before * UNIT_NS, Pace(hold * UNIT_NS, beat * UNIT_NS, cutoffs))
    try:
        return change if encode_pace_change(change) == payload else None
    except ValueError:
        return None


def pace_changes(content: bytes | bytearray | memoryview) -> list[PaceChange]:
    """Return the changes among the records of a frame, or of a session."""
    whole = content if isinstance(content, bytes | bytearray) else bytes(content)
    if whole.find(PACE_TEXT) < 0:
        return []
    offsets, sizes = record_places(whole)
    places = zip(offsets.tolist(), sizes.tolist(), strict=True)
    found = (decode_pace_change(bytes(whole[offset : offset + size])) for offset, size in places)
    return [each for each in found if each is not None]


def _text(version: int, hold: int, before: int, beat: int) -> bytes:
    held, held_before, beats = (f"{units * UNIT_NS / 1e9:.4f} s" for units in (hold, before, beat))
    return PACE_TEXT + f"{version}: hold {held}, before {held_before}, beats {beats}".encode()
