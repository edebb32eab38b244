"""The engine of a floor: a function of the released frames of the tape (M1, M9, M13, M14).

A frame has a sequence, a timestamp and a payload of records. Definitions, statuses and order commands are applied in
their order; other records are ignored. A status record whose `ts_event` is later than the frame is an entry of the
session calendar: it is applied by the first frame with that time. So is the expiration of a definition. Every frame's
events are appended to a hash chain.

A tape begins in version 1 of the rules, and a record of the treasury changes the version. A frame in a version that
this release does not compute raises `UnknownRules`.

The bytes of a snapshot end in their BLAKE3 hash. A snapshot and the later frames give the same state, byte for byte,
as all frames from the first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

import blake3
import numpy as np

from levelcast.errors import UserError
from levelcast.native.book import BookKernel
from levelcast.native.book_codes import (
    EVENT,
    NO_SIZE,
    OLDEST_RULES,
    RULES_VERSION,
    UNDEFINED,
    BookPhase,
    BookReason,
    InstrumentSetting,
)
from levelcast.records import (
    INSTRUMENT,
    ORDER,
    RTYPE_INSTRUMENT,
    RTYPE_ORDER,
    RTYPE_STATUS,
    STATUS,
    UNDEF_TIMESTAMP,
    RecordArray,
    split,
)

BOOK_EVENT: np.dtype[np.void] = np.dtype(
    [
        ("kind", "u1"), ("reason", "u1"), ("flags", "u1"), ("side", "S1"), ("instrument_id", "<u4"),
        ("command", "<u8"), ("account", "<u8"), ("client_order_id", "<u8"), ("order_id", "<u8"),
        ("trade_id", "<u8"), ("price", "<i8"), ("size", "<u4"), ("left", "<u4"),
    ]
)  # fmt: skip
"""Events of the engine: `EventKind`, `BookReason`, flags (1 kept its place, 2 in an auction), and the order."""
assert BOOK_EVENT.itemsize == EVENT.size

MAGIC = b"LVSN"
SNAPSHOT_VERSION = 1
HASH_BYTES = 32
_HEAD = Struct("<4sIQQ32sQQQ")
_ENTRY = Struct("<QQII")
_SMALL = 2**31 - 1


class SnapshotError(UserError):
    """Bytes are not a snapshot that this release can load."""


class UnknownRules(UserError):
    """A tape is in a version of the rules that this release does not compute. The engine cannot be used any more."""

    def __init__(self, version: int) -> None:
        known = f"{OLDEST_RULES} to {RULES_VERSION}" if OLDEST_RULES < RULES_VERSION else f"{RULES_VERSION}"
        release = "a later release" if version > RULES_VERSION else "an earlier release"
        super().__init__(
            f"the tape is in version {version} of the rules; this release computes version {known}: use {release}"
        )


class BookFrame(NamedTuple):
    """A released frame, as far as the engine reads it."""

    sequence: int
    """Sequence of its last record."""
    timestamp_ns: int
    payload: bytes | memoryview


class MatchingEngine:
    """The state of a floor after a frame."""

    def __init__(self, *, accounts: bool = True, treasury: int = 0) -> None:
        self.kernel = BookKernel(accounts=accounts, treasury=treasury)
        self.sequence = self.timestamp_ns = 0
        self.chain = bytes(HASH_BYTES)
        """Hash of all events: BLAKE3 of the hash before and the events of the frame."""
        self._calendar: list[tuple[int, int, int, int]] = []
        """(time, number, instrument, action), a heap."""
        self._entries = 0

    def frame(self, frame: BookFrame) -> RecordArray:
        """Apply a frame; return its events."""
        if frame.sequence < self.sequence or frame.timestamp_ns < self.timestamp_ns:
            raise ValueError(f"frame {frame.sequence} is not after frame {self.sequence}")
        self.sequence, self.timestamp_ns = frame.sequence, frame.timestamp_ns
        out = [self.kernel.advance(frame.timestamp_ns)]
        while self._calendar and self._calendar[0][0] <= frame.timestamp_ns:
            _, _, instrument, action = heapq.heappop(self._calendar)
            out.append(self.kernel.status(instrument, action))
        for batch in split(frame.payload):
            out += self._apply(batch.kind.rtype, batch.records)
        out.append(self.kernel.finish())
        octets = b"".join(filter(None, out))
        hasher = blake3.blake3(self.chain)
        hasher.update(octets)
        self.chain = hasher.digest()
        events: RecordArray = np.frombuffer(octets, BOOK_EVENT)
        for version in events["price"][events["reason"] == BookReason.RULES_VERSION].tolist():
            if version > 0:
                raise UnknownRules(version)
        return events

    def frames(self, frames: Iterable[BookFrame]) -> None:
        """Apply frames whose events are not needed, such as when a book is rebuilt."""
        for frame in frames:
            self.frame(frame)

    def _apply(self, rtype: int, records: RecordArray) -> list[bytes]:
        if rtype == RTYPE_ORDER:
            commands = records.astype(ORDER, copy=False)
            self._check_rules(commands[0])
            return [self.kernel.run(np.ascontiguousarray(commands).view(np.uint8).data)]
        if rtype == RTYPE_INSTRUMENT:
            for record in records.astype(INSTRUMENT, copy=False):
                self._define(record)
        if rtype == RTYPE_STATUS:
            return [self._status(record) for record in records.astype(STATUS, copy=False)]
        return []

    def _check_rules(self, first: RecordArray) -> None:
        """Raise UnknownRules for commands before the first change of a version that is too old."""
        changes = first["action"] == b"N" and first["command"] == b"P" and first["order_id"] == InstrumentSetting.RULES
        if self.kernel.rules < OLDEST_RULES and not changes:
            raise UnknownRules(self.kernel.rules)

    def _define(self, record: RecordArray) -> None:
        if record["instrument_id"] == 0:
            return
        limits = _limits(record)
        currency = int.from_bytes(bytes(record["currency"]).ljust(4, b"\0"), "little")
        self.kernel.define(int(record["instrument_id"]), *limits, currency)
        if 0 < record["expiration"] < UNDEF_TIMESTAMP:
            self._plan(int(record["expiration"]), int(record["instrument_id"]), int(BookPhase.UNAVAILABLE))

    def _status(self, record: RecordArray) -> bytes:
        at, instrument, action = int(record["ts_event"]), int(record["instrument_id"]), int(record["action"])
        if self.timestamp_ns < at < UNDEF_TIMESTAMP:
            self._plan(at, instrument, action)
            return b""
        return self.kernel.status(instrument, action)

    def _plan(self, at_ns: int, instrument: int, action: int) -> None:
        self._entries += 1
        heapq.heappush(self._calendar, (at_ns, self._entries, instrument, action))

    # Snapshots (M14)

    def snapshot(self) -> bytes:
        """Return the state between two frames; the last 32 bytes are the hash of the others."""
        calendar = sorted(self._calendar)
        kernel = self.kernel.snapshot()
        head = _HEAD.pack(
            MAGIC, SNAPSHOT_VERSION, self.sequence, self.timestamp_ns, self.chain, self._entries, len(calendar),
            len(kernel),
        )  # fmt: skip
        octets = b"".join([head, *(_ENTRY.pack(*entry) for entry in calendar), kernel])
        return octets + blake3.blake3(octets).digest()

    def state_hash(self) -> bytes:
        return self.snapshot()[-HASH_BYTES:]

    @classmethod
    def restore(cls, octets: bytes) -> MatchingEngine:
        """Return the engine of a snapshot; SnapshotError if it is damaged or of another version."""
        body = octets[:-HASH_BYTES]
        if octets[:4] != MAGIC or len(body) < _HEAD.size:
            raise SnapshotError("not a snapshot of a matching engine; create one with this release")
        _, version, sequence, timestamp, chain, entries, planned, size = _HEAD.unpack_from(body)
        if version != SNAPSHOT_VERSION:
            raise SnapshotError(f"the snapshot has version {version}, not {SNAPSHOT_VERSION}; rebuild it from the tape")
        if blake3.blake3(body).digest() != octets[-HASH_BYTES:]:
            raise SnapshotError(
                "the snapshot is damaged: its hash differs; use another copy or rebuild it from the tape"
            )
        at = _HEAD.size + planned * _ENTRY.size
        engine = cls()
        try:
            engine.kernel = BookKernel.restore(body[at : at + size])
        except ValueError as error:
            raise SnapshotError(f"{error}; rebuild it from the tape") from None
        engine.sequence, engine.timestamp_ns, engine.chain = sequence, timestamp, chain
        engine._entries = entries
        engine._calendar = list(_ENTRY.iter_unpack(body[_HEAD.size : at]))
        return engine


def _limits(record: RecordArray) -> tuple[int, int, int, int, int, int, int]:
    """Return tick, lot, smallest and largest size, high and low limit, and collar of a definition."""

    def given(name: str, undefined: int, default: int, least: int) -> int:
        value = int(record[name])
        return default if value == undefined or value < least else value

    return (
        given("min_price_increment", UNDEFINED, 1, 1),
        given("min_lot_size_round_lot", _SMALL, 1, 1),
        given("min_trade_vol", NO_SIZE, 1, 0),
        given("max_trade_vol", NO_SIZE, NO_SIZE - 1, 1),
        given("high_limit_price", UNDEFINED, UNDEFINED, 0),
        given("low_limit_price", UNDEFINED, 0, 0),
        given("max_price_variation", UNDEFINED, -1, 0),
    )
