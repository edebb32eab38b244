"""The snapshot by which a late joiner begins without a hole: where each session stands, and what was last.

Numbers are little-endian, as in the records. A customer reads one over TCP, from the address from which the edge's
packets come; the connection brings nothing else.

    offset  type  field
    0       8s    "LVLCSNAP"
    8       u16   version, 1
    10      u16   stripe
    12      u32   size of the whole
    16      u64   the stripe's next global sequence: all records below it are counted in
    24      u64   watermark: every record with `ts_recv` up to this time is counted in (rule 15)
    32      u64   timestamp of the last frame, 0 if there is none
    40      u32   number of sessions
    44      u32   bytes of records
    48            each session, in the order of the names: its name 10s, its next sequence u64
                  the records: DBN, one behind the other
                  u32   CRC-32 (zlib's) of everything before

Who has taken in the snapshot goes on with each session at its next sequence. Which records are in it is for
`levelcast.edge.server.last_records` to say. One snapshot has one encoding.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from levelcast.wire import mold
from levelcast.wire.header import Malformed, Reason, bad_field

MAGIC = b"LVLCSNAP"
VERSION = 1
MAX_SNAPSHOT = 1 << 28
"""Bytes that a customer is ready to take."""

_HEADER = Struct("<8sHHIQQQII")
_POSITION = Struct("<10sQ")
_CRC = Struct("<I")
HEADER_SIZE = _HEADER.size


class Position(NamedTuple):
    """Where a session stands."""

    session: bytes
    next_sequence: int


class Snapshot(NamedTuple):
    stripe: int
    next_global: int
    complete_ns: int
    timestamp_ns: int
    sessions: tuple[Position, ...]
    records: bytes


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes that say `snapshot`; raises `Malformed` for what no customer would accept. Records go unchecked."""
    stripe, next_global, complete_ns, timestamp_ns, sessions, records = snapshot
    size = HEADER_SIZE + len(sessions) * _POSITION.size + len(records) + _CRC.size
    if size > MAX_SNAPSHOT:
        raise Malformed(Reason.WRONG_LENGTH, f"{size} bytes of snapshot")
    _check(next_global, sessions)
    head = _HEADER.pack(
        MAGIC, VERSION, stripe, size, next_global, complete_ns, timestamp_ns, len(sessions), len(records)
    )
    body = b"".join((head, *(_POSITION.pack(*each) for each in sessions), records))
    return body + _CRC.pack(crc32(body))


def snapshot_size(head: bytes) -> int:
    """The size of the whole, from its first `HEADER_SIZE` bytes; raises `Malformed` if they begin no snapshot."""
    if len(head) < HEADER_SIZE:
        raise Malformed(Reason.TOO_SHORT)
    magic, version, _, size, _, _, _, sessions, records = _HEADER.unpack_from(head)
    if magic != MAGIC:
        raise Malformed(Reason.BAD_MAGIC)
    if version != VERSION:
        raise Malformed(Reason.UNKNOWN_VERSION)
    if size > MAX_SNAPSHOT or size != HEADER_SIZE + sessions * _POSITION.size + records + _CRC.size:
        raise Malformed(Reason.WRONG_LENGTH)
    return int(size)


def decode_snapshot(content: bytes) -> Snapshot:
    """What a snapshot says; raises `Malformed`, and nothing else, whatever the bytes are.

    The records fill their place to the last byte; whether they are records of known types is not looked at here.
    """
    if snapshot_size(content) != len(content):
        raise Malformed(Reason.WRONG_LENGTH)
    if _CRC.pack(crc32(memoryview(content)[: -_CRC.size])) != content[-_CRC.size :]:
        raise Malformed(Reason.BROKEN_SEAL)
    _, _, stripe, _, next_global, complete_ns, timestamp_ns, count, _ = _HEADER.unpack_from(content)
    records_at = HEADER_SIZE + count * _POSITION.size
    rows = _POSITION.iter_unpack(content[HEADER_SIZE:records_at])
    sessions = tuple(Position(session, sequence) for session, sequence in rows)
    records = content[records_at : -_CRC.size]
    _check(next_global, sessions)
    mold.check_records(records)
    return Snapshot(stripe, next_global, complete_ns, timestamp_ns, sessions, records)


def _check(next_global: int, sessions: tuple[Position, ...]) -> None:
    if not next_global:
        bad_field("global sequence")
    for session, sequence in sessions:
        mold.encode(mold.Heartbeat(session, sequence))
    if any(before >= after for (before, _), (after, _) in pairwise(sessions)):
        bad_field("order of sessions")
