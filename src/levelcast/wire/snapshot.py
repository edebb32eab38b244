"""The snapshot that a late joiner starts from without a gap: the position of each session, and the last records.

Numbers are little-endian, as in the records. A subscriber reads one over TCP, from the source address of the edge's
packets; the connection carries nothing else.

    offset  type  field
    0       8s    "LVLCSNAP"
    8       u16   version, 1
    10      u16   stripe
    12      u32   total size
    16      u64   the stripe's next global sequence: all records below it are included
    24      u64   watermark: every record with `ts_recv` up to this time is included (rule 15)
    32      u64   timestamp of the last frame, 0 if there is none
    40      u32   number of sessions
    44      u32   bytes of records
    48            each session, in the order of the names: its name 10s, its next sequence u64
                  the records: DBN, back to back
                  u32   CRC-32 (zlib's) of everything before

After the snapshot a subscriber continues each session at its next sequence. `levelcast.edge.server.last_records`
selects the records. One snapshot has one encoding.
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
"""Maximum size in bytes that a subscriber accepts."""

_HEADER = Struct("<8sHHIQQQII")
_POSITION = Struct("<10sQ")
_CRC = Struct("<I")
HEADER_SIZE = _HEADER.size


class Position(NamedTuple):
    """Position of a session."""

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
    """Encode `snapshot`; raises `Malformed` for values that no subscriber would accept. Records are not checked."""
    stripe, next_global, complete_ns, timestamp_ns, sessions, records = snapshot
    size = HEADER_SIZE + len(sessions) * _POSITION.size + len(records) + _CRC.size
    if size > MAX_SNAPSHOT:
        raise Malformed(Reason.WRONG_LENGTH, f"snapshot of {size} bytes")
    _check(next_global, sessions)
    head = _HEADER.pack(
        MAGIC, VERSION, stripe, size, next_global, complete_ns, timestamp_ns, len(sessions), len(records)
    )
    head = b"".join((head, *(_POSITION.pack(*each) for each in sessions)))
    return b"".join((head, records, _CRC.pack(crc32(records, crc32(head)))))


def snapshot_size(head: bytes) -> int:
    """Return the total size, from the first `HEADER_SIZE` bytes; raises `Malformed` if they are not of a snapshot."""
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
    """Decode a snapshot; raises `Malformed`, and nothing else, whatever the bytes are.

    The records fill their part to the last byte; their types are not checked here.
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
