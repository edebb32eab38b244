"""Journal and log of deliveries of one member of a multicast group, in one append-only file.

    DIR/multicast.log

    offset  type  header                       offset  type  entry
    0       8s    "LVLCMCST"                   0       u32   length of the body
    8       u16   version, 1                   4       u32   CRC-32 of kind and body
    10      12s   domain, little-endian        8       u8    kind
    22      2s    zeros                        9             body

    kind          body
    1 direct      a chain message as its author sealed it (C-2, C-3.4)
    2 settled     epoch u64, [row], [size u32, sealed chain message] (C-10)
    3 delivered   epoch u64, caught up u8, row, offset u64 of the entry with the message, or 0 and the sealed message
    4 signed      a succession with the own vote (E-2)
    5 begun       last u64, a succession with Q votes (E-1)
    6 ended       epoch u64, [delivered u64] (E-6)
    7 confirmed   what the application has confirmed: deliveries u64, and of the following ones, payloads u64
    8 first       a succession without votes: the record of the first epoch

    row           sender u16, seq u64, digest 32 bytes, content digest 32 bytes

Entries of a step are written with one write before anything of the step is sent. `open` cuts off a torn last entry:
its write never returned, so nothing that depends on it was sent. In memory a delivery needs 16 bytes: the offset of its
message, and its number.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from blake3 import blake3

from levelcast.protocol.effects import (
    ChainDeliver,
    ChainDirect,
    ChainEntry,
    ChainSettled,
    EpochBegun,
    EpochEnded,
    EpochSigned,
)
from levelcast.storage.append_file import (
    AppendFile,
    Durability,
    TapeError,
    check_version,
    cut_tail,
    cut_text,
    lock_directory,
)
from levelcast.wire.chain_codec import signed_bytes
from levelcast.wire.chain_messages import (
    ChainMessage,
    ChainSuccession,
    Citation,
    DeliveredRow,
    EpochRecord,
)
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import Malformed

NAME = "multicast.log"
_MAGIC = b"LVLCMCST"
_VERSION = 1
_HEADER = Struct("<8sH12s2s")
_HEAD = Struct("<IIB")
_ROW = Struct("<HQ32s32s")
_COUNT, _NUMBER = Struct("<I"), Struct("<Q")
_DELIVERED = Struct("<QB")
_CONFIRMED = Struct("<QQ")
DIRECT, SETTLED, DELIVERED, SIGNED, BEGUN, ENDED, CONFIRMED, FIRST = range(1, 9)
MAX_ENTRY = 8 << 20
_READ = 4 << 20


class Confirmed(NamedTuple):
    """A position that the application has confirmed, in the order of its payloads."""

    number: int = 0
    """Number of deliveries whose payloads are all confirmed, and after which no payload is incomplete."""
    payloads: int = 0
    """Number of payloads that are confirmed after that."""


class StoredDelivery(NamedTuple):
    """A delivery in the log, with its number from 1 over all epochs."""

    number: int
    message: ChainMessage


class ChainStore:
    """The open file of one member."""

    def __init__(self, directory: Path, domain: int, durable: Durability = "process") -> None:
        """Open the file, or create it; raise TapeError for one that is damaged, in use or of another network."""
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = lock_directory(directory, "multicast log")
        self._domain, self._durable = domain, durable
        self.notices: list[str] = []
        self.entries: list[ChainEntry] = []
        """Entries to restore, without messages that are delivered or settled."""
        self.deliveries: list[tuple[int, DeliveredRow]] = []
        """Deliveries to restore: (epoch, row), in their order."""
        self.first: EpochRecord | None = None
        self.confirmed = Confirmed()
        self._order = array("Q")
        """Offset of each delivery's message, in the order of deliveries."""
        self._at: dict[tuple[int, Citation], int] = {}
        """Offsets of messages that are not delivered, and of versions besides those that are."""
        self._numbers: dict[tuple[int, int], array[int]] = {}
        """Per (epoch, sender), the number of each delivery, in the order of its messages."""
        self._buffer: list[bytes] = []
        path = directory / NAME
        try:
            if path.exists():
                self._file = AppendFile.open(path)
                self._restore()
            else:
                header = _HEADER.pack(_MAGIC, _VERSION, domain.to_bytes(12, "little"), b"")
                self._file = AppendFile.create(path, header, durable)
        except BaseException:
            os.close(self._lock)
            raise
        self._end = self._file.size

    @property
    def delivered(self) -> int:
        """Number of deliveries in the log."""
        return len(self._order)

    @property
    def index_bytes(self) -> int:
        """Size in bytes of the offsets that are held in memory."""
        return 8 * (len(self._order) + sum(map(len, self._numbers.values()))) + 200 * len(self._at)

    # -- writing -------------------------------------------------------------------------------------------

    def begin(self, first: EpochRecord) -> None:
        """Note the record of the first epoch."""
        self.first = first
        self._add(FIRST, encode(ChainSuccession(0, first.epoch - 1, first, ()), self._domain))

    def record(self, entry: ChainEntry) -> None:
        """Write an entry of the journal at the next commit."""
        if isinstance(entry, ChainDirect):
            self._note(entry.message, self._add(DIRECT, entry.message.sealed))
        elif isinstance(entry, ChainSettled):
            rows = b"".join(_ROW.pack(*row) for row in entry.rows)
            parts = [_NUMBER.pack(entry.epoch), _COUNT.pack(len(entry.rows)), rows, _COUNT.pack(len(entry.messages))]
            for message in entry.messages:
                parts += [_COUNT.pack(len(message.sealed)), message.sealed]
            at = self._add(SETTLED, b"".join(parts))
            self._note_settled(entry, at)
        elif isinstance(entry, EpochSigned):
            signed = ChainSuccession(entry.vote.member, entry.record.epoch - 1, entry.record, (entry.vote,))
            self._add(SIGNED, encode(signed, self._domain))
        elif isinstance(entry, EpochBegun):
            self._add(BEGUN, _NUMBER.pack(entry.last) + encode(entry.succession, self._domain))
        else:
            numbers = struct.pack(f"<{len(entry.delivered)}Q", *entry.delivered)
            self._add(ENDED, _NUMBER.pack(entry.epoch) + _COUNT.pack(len(entry.delivered)) + numbers)

    def deliver(self, effect: ChainDeliver) -> int:
        """Write a delivery at the next commit; return its number."""
        message, epoch = effect.message, effect.message.epoch
        known = self._at.pop((epoch, Citation(*effect.row[:3])), 0)
        head = _DELIVERED.pack(epoch, effect.caught_up) + _ROW.pack(*effect.row) + _NUMBER.pack(known)
        at = self._add(DELIVERED, head if known else head + message.sealed)
        return self._index(epoch, effect.row, known or at)

    def confirm(self, position: Confirmed) -> None:
        """Note what the application has confirmed."""
        if position > self.confirmed:
            self.confirmed = position
            self._add(CONFIRMED, _CONFIRMED.pack(*position))

    def commit(self) -> None:
        """Write what has been added since the last commit."""
        if self._buffer:
            parts, self._buffer = self._buffer, []
            self._file.append(*parts)
            if self._durable == "power":
                self._file.sync()

    def _add(self, kind: int, body: bytes) -> int:
        at = self._end
        self._buffer += [_HEAD.pack(len(body), crc32(body, kind), kind), body]
        self._end += _HEAD.size + len(body)
        return at

    def close(self) -> None:
        """Write pending entries and close the file."""
        try:
            self.commit()
        finally:
            self._file.close()
            os.close(self._lock)

    # -- reading -------------------------------------------------------------------------------------------

    def messages(self, epoch: int, versions: Iterable[Citation]) -> Iterator[ChainMessage]:
        """Yield these versions of messages; if one is not in the file, another version of the same message (C-9)."""
        self.commit()
        for ref in versions:
            at = self._at.get((epoch, ref))
            if at is None:
                numbers = self._numbers.get((epoch, ref.sender), ())
                at = self._order[numbers[ref.seq - 1] - 1] if ref.seq <= len(numbers) else None
            if at is not None:
                found = [message for message in self._messages_at(at) if message.header[:2] == ref[:2]]
                exact = [message for message in found if self._ref(message) == ref]
                yield from (exact or found)[:1]

    def after(self, number: int) -> Iterator[StoredDelivery]:
        """Yield the deliveries after a number."""
        self.commit()
        for each in range(number, len(self._order)):
            yield StoredDelivery(each + 1, self._messages_at(self._order[each])[0])

    def _messages_at(self, at: int) -> list[ChainMessage]:
        size, _, kind = _HEAD.unpack(self._file.read(_HEAD.size, at))
        body = self._file.read(size, at + _HEAD.size)
        if kind == DELIVERED:
            body = body[_DELIVERED.size + _ROW.size + _NUMBER.size :]
        return list(_settled_messages(body)[2]) if kind == SETTLED else [_chain_message(body)]

    def _ref(self, message: ChainMessage) -> Citation:
        header = message.header
        content = signed_bytes(header, self._domain, message.epoch)
        return Citation(header.sender, header.seq, blake3(content).digest())

    def _note(self, message: ChainMessage, at: int) -> None:
        self._at[message.epoch, self._ref(message)] = at

    def _note_settled(self, entry: ChainSettled, at: int) -> None:
        for message in entry.messages:
            self._note(message, at)

    def _index(self, epoch: int, row: DeliveredRow, at: int) -> int:
        self._order.append(at)
        self._numbers.setdefault((epoch, row.sender), array("Q")).append(len(self._order))
        return len(self._order)

    # -- restoring -----------------------------------------------------------------------------------------

    def _restore(self) -> None:
        path, file = self._file.path, self._file
        head = file.read(_HEADER.size, 0)
        if len(head) < _HEADER.size or head[: len(_MAGIC)] != _MAGIC:
            raise TapeError(f"{path}: not a multicast log; pass another --data, or restore the file")
        _, version, domain, _ = _HEADER.unpack(head)
        check_version(path, version, _VERSION)
        if int.from_bytes(domain, "little") != self._domain:
            raise TapeError(f"{path}: this log belongs to another network or stripe; pass another --data")
        direct: dict[tuple[int, Citation], ChainMessage] = {}
        last_of: dict[tuple[int, int], ChainMessage] = {}
        """Per epoch and sender the last message: an own one has the last slot."""
        end = _HEADER.size
        for at, kind, body in _entries(file):
            end = at + _HEAD.size + len(body)
            try:
                self._apply(at, kind, body, direct, last_of)
            except (Malformed, struct.error, IndexError, KeyError, ValueError):
                raise TapeError(
                    f"{path}: damaged entry at byte {at:,}; restore the file, or take the member out of the group"
                ) from None
        kept = cut_tail(file, end, self._durable)
        if kept is not None:
            self.notices.append(cut_text(path, end, kept))
        last = {(message.epoch, self._ref(message)): message for message in last_of.values()}
        self.entries += map(ChainDirect, (last | direct).values())

    def _apply(
        self,
        at: int,
        kind: int,
        body: bytes,
        direct: dict[tuple[int, Citation], ChainMessage],
        last_of: dict[tuple[int, int], ChainMessage],
    ) -> None:
        if kind == DIRECT:
            message = _chain_message(body)
            direct[message.epoch, self._ref(message)] = message
            self._note(message, at)
            last_of[message.epoch, message.header.sender] = message
        elif kind == SETTLED:
            epoch, rows, messages = _settled_messages(body)
            entry = ChainSettled(epoch, rows, messages)
            self.entries.append(entry._replace(messages=()))
            self._note_settled(entry, at)
            for row in rows:
                direct.pop((epoch, Citation(*row[:3])), None)
        elif kind == DELIVERED:
            epoch, _ = _DELIVERED.unpack_from(body)
            row = DeliveredRow(*_ROW.unpack_from(body, _DELIVERED.size))
            (known,) = _NUMBER.unpack_from(body, _DELIVERED.size + _ROW.size)
            self.deliveries.append((epoch, row))
            direct.pop((epoch, Citation(*row[:3])), None)
            self._at.pop((epoch, Citation(*row[:3])), None)
            self._index(epoch, row, known or at)
        elif kind == CONFIRMED:
            self.confirmed = Confirmed(*_CONFIRMED.unpack(body))
        elif kind == ENDED:
            (epoch,) = _NUMBER.unpack_from(body)
            (count,) = _COUNT.unpack_from(body, 8)
            self.entries.append(EpochEnded(epoch, struct.unpack_from(f"<{count}Q", body, 12)))
        elif kind == BEGUN:
            self.entries.append(EpochBegun(_succession(body[8:]), _NUMBER.unpack_from(body)[0]))
        elif kind == SIGNED:
            signed = _succession(body)
            self.entries.append(EpochSigned(signed.record, signed.votes[0]))
        elif kind == FIRST:
            self.first = _succession(body).record
        else:
            raise ValueError("an unknown kind of entry")


def _entries(file: AppendFile) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, kind and body of every complete entry."""
    at, chunk, base = _HEADER.size, b"", _HEADER.size
    while True:
        need = _HEAD.size
        if at - base + need <= len(chunk):
            size, _, _ = _HEAD.unpack_from(chunk, at - base)
            need += min(size, MAX_ENTRY)
        if at - base + need > len(chunk):
            chunk, base = file.read(max(_READ, need), at), at
            if len(chunk) < _HEAD.size:
                return
            size, _, _ = _HEAD.unpack_from(chunk)
            if _HEAD.size + size > len(chunk) and (size > MAX_ENTRY or len(chunk) < max(_READ, need)):
                return
            if _HEAD.size + size > len(chunk):
                continue
        size, checksum, kind = _HEAD.unpack_from(chunk, at - base)
        body = chunk[at - base + _HEAD.size : at - base + _HEAD.size + size]
        if crc32(body, kind) != checksum:
            return
        yield at, kind, body
        at += _HEAD.size + size


def _chain_message(datagram: bytes) -> ChainMessage:
    message = decode(datagram).message
    if not isinstance(message, ChainMessage):
        raise ValueError("another kind of message")
    return message


def _succession(datagram: bytes) -> ChainSuccession:
    message = decode(datagram).message
    if not isinstance(message, ChainSuccession):
        raise ValueError("another kind of message")
    return message


def _settled_messages(body: bytes) -> tuple[int, tuple[DeliveredRow, ...], tuple[ChainMessage, ...]]:
    (epoch,), (count,) = _NUMBER.unpack_from(body), _COUNT.unpack_from(body, 8)
    end = 12 + count * _ROW.size
    rows = tuple(DeliveredRow(*values) for values in _ROW.iter_unpack(body[12:end]))
    (count,) = _COUNT.unpack_from(body, end)
    at, messages = end + 4, []
    for _ in range(count):
        (size,) = _COUNT.unpack_from(body, at)
        messages.append(_chain_message(body[at + 4 : at + 4 + size]))
        at += 4 + size
    return epoch, rows, tuple(messages)
