"""Encode a channel plan as records in the sequence, so that the tape alone defines each record's session (rule 15).

Every record here is a DBN system message of the operator's source, so readers of the tape and feed handlers read or
skip it. Its text is human-readable; programs use only its tail:

    ts_event   of a mark, the time up to which the session is complete; else undefined
    msg        levelcast plan 3: part 2 of 9
    tail       kind u8, reserved u8, stripe u16, number u32, part u16, parts u16, next_sequence u64, digest 8s,
               size u16, reserved u16, size bytes of content, zeros up to a 4-byte word

| kind  | in                 | meaning |
|-------|--------------------|------|
| PART  | tape, plan session | part number `part` (from 0) of the `parts` of a plan |
| SWAP  | tape               | the plan with this digest becomes active after this frame |
| READY | every session      | the edge has the plan: a subscriber can read its plan session before it becomes active |
| LAST  | every session      | the last record of a session: the plan's sessions follow, each from its sequence 1 |

A plan's parts, concatenated, are its content, and the BLAKE2b hash of 8 bytes of the content is the digest. The content
is the zlib-compressed form of

    u32 instruments n, u16 sessions m, u16 default session, u32 CRC-32 of the symbols (`symbols_crc`)
    m x (group u16, expected bytes/s u32, 0 for unknown)
    n x u32: each instrument id less the one before; n x u16: the session of each

Numbers are little-endian. A session's name is `NUMBER/STRIPE/SESSION` in base 36, the plan session's `NUMBER/STRIPE/*`.
No two plans have a session's name in common, so records of different plans cannot be confused.
"""

from __future__ import annotations

import enum
import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from levelcast.records import record_places
from levelcast.records.codes import UNDEF_TIMESTAMP
from levelcast.records.system import MAX_SYSTEM_TAIL, encode_system, open_system
from levelcast.wire.header import Malformed, Reason, bad_field
from levelcast.wire.messages import CONTROL_SOURCE
from levelcast.wire.mold import Buffer, session_name

PLAN_TEXT = b"levelcast plan "
MAX_INSTRUMENTS = 1 << 20
MAX_SESSIONS = 2**15 - 1
MAX_GROUP = 2**16 - 1
DIGEST_SIZE = 8

_TAIL = struct.Struct("<BBHIHHQ8sHH")
PART_BYTES = MAX_SYSTEM_TAIL - _TAIL.size
"""Maximum size of the content of a record."""
MAX_PARTS = 2**16 - 1

_COUNTS = struct.Struct("<IHHI")
_SESSION = np.dtype([("group", "<u2"), ("rate", "<u4")])
_MAX_BODY = _COUNTS.size + MAX_SESSIONS * _SESSION.itemsize + MAX_INSTRUMENTS * 6

_NAME = re.compile(rb"([1-9a-z][0-9a-z]*)/(0|[1-9a-z][0-9a-z]*)/(\*|0|[1-9a-z][0-9a-z]*) *")


class Kind(enum.IntEnum):
    PART = 1
    SWAP = 2
    READY = 3
    LAST = 4


_TEXTS = {
    Kind.PART: "part {part} of {parts}",
    Kind.SWAP: "takes effect",
    Kind.READY: "is ready",
    Kind.LAST: "follows here",
}


class PlanRecord(NamedTuple):
    kind: Kind
    number: int
    parts: int
    digest: bytes
    part: int = 0
    stripe: int = 0
    complete_ns: int = UNDEF_TIMESTAMP
    next_sequence: int = 0
    content: bytes = b""


def encode_record(record: PlanRecord) -> bytes:
    """Return the record as bytes; raises ValueError for values that no record can have."""
    kind, number, parts, digest, part, stripe, complete_ns, next_sequence, content = record
    if (
        len(content) > PART_BYTES
        or len(digest) != DIGEST_SIZE
        or not 0 <= part < parts
        or (kind != Kind.PART and content)
    ):
        raise ValueError(f"{record} is not a valid record of a plan")
    text = PLAN_TEXT + f"{number}: ".encode() + _TEXTS[kind].format(part=part + 1, parts=parts).encode()
    try:
        tail = _TAIL.pack(kind, 0, stripe, number, part, parts, next_sequence, digest, len(content), 0) + content
        return encode_system(text, tail, source=CONTROL_SOURCE, ts_event=complete_ns)
    except struct.error:
        raise ValueError(f"a number in {record} is outside its range") from None


def decode_record(record: bytes) -> PlanRecord | None:
    """Return the decoded record; None for any other bytes."""
    opened = open_system(record, PLAN_TEXT, _TAIL)
    if opened is None:
        return None
    complete_ns, tail = opened
    kind, _, stripe, number, part, parts, next_sequence, digest, size, _ = _TAIL.unpack_from(tail)
    content = tail[_TAIL.size : _TAIL.size + size]
    try:
        found = PlanRecord(Kind(kind), number, parts, digest, part, stripe, complete_ns, next_sequence, content)
        return found if encode_record(found) == record else None
    except ValueError:
        return None


def plan_records(content: Buffer) -> list[PlanRecord]:
    """Return the operator's records about plans among the records of a frame."""
    whole = content if isinstance(content, bytes | bytearray) else bytes(content)
    if whole.find(PLAN_TEXT) < 0:
        return []
    offsets, sizes = record_places(whole)
    places = zip(offsets.tolist(), sizes.tolist(), strict=True)
    found = (decode_record(bytes(whole[offset : offset + size])) for offset, size in places)
    return [each for each in found if each is not None]


# -- the plan ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ChannelPlan:
    """The session of each instrument, and the group of each session."""

    number: int
    content: bytes
    """As it is sent; the arrays below are decoded from it."""
    instruments: npt.NDArray[np.uint32]
    """In order."""
    sessions: npt.NDArray[np.uint16]
    """The session of each instrument."""
    groups: npt.NDArray[np.uint16]
    """The group of each session."""
    rates: npt.NDArray[np.uint32]
    """Expected bytes/s of each session, 0 for unknown."""
    default: int
    """The session of an instrument that the plan does not contain: one that was listed later."""
    symbols: int
    """CRC-32 of the symbols of the instruments: identifies the directory of the plan."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChannelPlan) and (self.number, self.content) == (other.number, other.content)

    def __hash__(self) -> int:
        return hash((self.number, self.content))

    @property
    def digest(self) -> bytes:
        return digest_of(self.content)

    @property
    def used(self) -> list[int]:
        """The sessions that have an instrument, or may get one, in order."""
        return [int(each) for each in np.unique(np.append(self.sessions, np.uint16(self.default)))]

    def sessions_of(self, wanted: Iterable[int]) -> list[int]:
        """Return the sessions of these instruments, in order; the default session for those not in the plan."""
        ids = np.array(sorted(wanted), np.uint32)
        if not len(self.instruments):
            return [self.default] if len(ids) else []
        places = np.searchsorted(self.instruments, ids).clip(max=len(self.instruments) - 1)
        found = np.where(self.instruments[places] == ids, self.sessions[places], np.uint16(self.default))
        return [int(each) for each in np.unique(found)]


def build_channel_plan(
    number: int,
    session_of: Iterable[tuple[int, int]],
    groups: Iterable[int],
    *,
    rates: Iterable[int] = (),
    default: int = 0,
    symbols: int = 0,
) -> ChannelPlan:
    """Return a plan from (instrument, session) pairs and the group of each session; ValueError for bad values."""
    pairs = sorted(session_of)
    ids = np.array([pair[0] for pair in pairs], np.int64)
    chosen = np.array([pair[1] for pair in pairs], np.int64)
    table = np.zeros(len(group_list := list(groups)), _SESSION)
    if len(ids) and (ids[0] < 1 or ids[-1] >= 2**32 or (np.diff(ids) == 0).any()):
        raise ValueError("an instrument has an id of 1 to 2^32 - 1, and is in one session")
    if not 1 <= len(table) <= MAX_SESSIONS or len(ids) > MAX_INSTRUMENTS:
        raise ValueError(f"a plan has 1 to {MAX_SESSIONS:,} sessions and up to {MAX_INSTRUMENTS:,} instruments")
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(table):
        raise ValueError("an instrument is in a session that the plan does not have")
    if not 0 <= default < len(table) or not all(0 <= each <= MAX_GROUP for each in group_list):
        raise ValueError("the default session, or a group, is outside its range")
    table["group"] = group_list
    if rate_list := list(rates):
        table["rate"] = rate_list
    head = _COUNTS.pack(len(ids), len(table), default, symbols)
    steps = np.diff(ids, prepend=0).astype("<u4")
    body = b"".join((head, table.tobytes(), steps.tobytes(), chosen.astype("<u2").tobytes()))
    content = zlib.compress(body, 9)
    if len(content) > MAX_PARTS * PART_BYTES:
        raise ValueError("the plan is too large")
    return decode_plan(number, content)


def decode_plan(number: int, content: bytes) -> ChannelPlan:
    """Decode a plan's content; raises `Malformed`, and nothing else, whatever the bytes are."""
    body = inflate(content, _MAX_BODY)
    if len(body) < _COUNTS.size:
        raise Malformed(Reason.WRONG_LENGTH)
    n, m, default, symbols = _COUNTS.unpack_from(body)
    steps_at = _COUNTS.size + m * _SESSION.itemsize
    if len(body) != steps_at + n * 6:
        raise Malformed(Reason.WRONG_LENGTH)
    table = np.frombuffer(body, _SESSION, m, _COUNTS.size)
    ids = np.frombuffer(body, "<u4", n, steps_at).astype(np.int64).cumsum()
    sessions = np.frombuffer(body, "<u2", n, steps_at + n * 4)
    if not 1 <= m <= MAX_SESSIONS or default >= m:
        bad_field("number of sessions")
    if n and (ids[0] < 1 or ids[-1] >= 2**32 or (np.diff(ids) <= 0).any() or int(sessions.max()) >= m):
        bad_field("instruments")
    if not 1 <= number < 2**32:
        bad_field("number of the plan")
    return ChannelPlan(
        number, content, ids.astype(np.uint32), sessions, table["group"].copy(), table["rate"].copy(), default, symbols
    )


def inflate(content: bytes, most: int) -> bytes:
    """Decompress zlib's format to at most `most` bytes; raises `Malformed` for anything else."""
    opener = zlib.decompressobj()
    try:
        body = opener.decompress(content, most)
    except zlib.error:
        raise Malformed(Reason.BROKEN_SEAL) from None
    if not opener.eof or opener.unused_data:
        raise Malformed(Reason.WRONG_LENGTH)
    return body


def digest_of(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_SIZE).digest()


def part_records(plan: ChannelPlan, stripe: int) -> list[bytes]:
    """Return the plan as records, in the order in which they are sent."""
    content, digest = plan.content, plan.digest
    parts = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
    return [
        encode_record(PlanRecord(Kind.PART, plan.number, len(parts), digest, index, stripe, content=part))
        for index, part in enumerate(parts)
    ]


def swap_record(plan: ChannelPlan, stripe: int) -> bytes:
    """Return the record that activates the plan."""
    return encode_record(
        PlanRecord(Kind.SWAP, plan.number, -(-len(plan.content) // PART_BYTES), plan.digest, 0, stripe)
    )


def symbols_crc(symbols: Iterable[tuple[int, str]]) -> int:
    """Return one number for (id, symbol) pairs in the order of the ids."""
    return zlib.crc32("".join(f"{number}={symbol}\n" for number, symbol in symbols).encode())


# -- names ------------------------------------------------------------------------------------------------


class SessionId(NamedTuple):
    """Parsed name of a planned session; `session` is None for the session that contains the plan itself."""

    number: int
    stripe: int
    session: int | None


def session_of(number: int, stripe: int, session: int) -> bytes:
    """Return the name of a planned session; raises ValueError if it is too long.

    >>> session_of(3, 0, 37)
    b'3/0/11    '
    """
    return session_name(f"{_base36(number)}/{_base36(stripe)}/{_base36(session)}")


def plan_session(number: int, stripe: int) -> bytes:
    """Return the name of the session that contains the plan's parts."""
    return session_name(f"{_base36(number)}/{_base36(stripe)}/*")


def parse_session(name: bytes) -> SessionId | None:
    """Parse a session's name; None for a name that does not belong to a plan."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    number, stripe, session = found.groups()
    return SessionId(int(number, 36), int(stripe, 36), None if session == b"*" else int(session, 36))


def is_plan_session(name: bytes) -> bool:
    """Return whether a session contains the parts of a plan."""
    place = parse_session(name)
    return place is not None and place.session is None


def _base36(number: int) -> str:
    return np.base_repr(number, 36).lower()
