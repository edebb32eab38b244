"""The gateway's journal as bytes (G2): batches of entries of all sessions.

A batch is written with one call and is valid or absent as a whole, by its checksum:

    u32 bytes after this field, u32 CRC-32 of the rest, u64 number of the packet, entries

The packet's payload is the commands of the entries in their order; number 0 means that there is no packet. An entry is
a kind, the number of its session, and what the kind needs:

| kind | entry | contents |
|---|---|---|
| O | request | MsgSeqNum, commands, ClOrdID, and OrigClOrdID or the symbol |
| X | refused request | MsgSeqNum, client order id, ClOrdID |
| C | commands of the gateway itself | commands |
| S | message sent | MsgSeqNum, cause, time, MsgType, head fields, body |
| N | number of a session message sent | MsgSeqNum |
| E | next expected number | MsgSeqNum |
| R | reset of both numbers | time |

An order's record and its ClOrdID take the place of the message itself, so a request is in the journal once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, MutableMapping
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from levelcast.market.fix.journal import Expecting, HeadFields, Numbered, Reset, Sent
from levelcast.market.fix.writer import encode_fields

BATCH_HEAD = Struct("<IIQ")
_SIZE = Struct("<I")
_REQUEST = Struct("<BHQcHHH")
_REFUSED = Struct("<BHQQH")
_COMMANDS = Struct("<BHH")
_SENT = Struct("<BHQQQBHI")
_NUMBER = Struct("<BHQ")
_O, _X, _C, _S, _N, _E, _R = b"OXCSNER"
MAX_COMMANDS = 0xFFFF // 96
"""Commands of one entry."""


class RequestEntry(NamedTuple):
    """A request that became commands."""

    seq: int
    side: bytes
    """FIX 54 of a new order, else the MsgType."""
    commands: bytes
    text: bytes
    second: bytes


class RefusedEntry(NamedTuple):
    """A request that the gateway refused."""

    seq: int
    client: int
    text: bytes


class CommandsEntry(NamedTuple):
    """Commands that no message asked for: a cancel on disconnect (G4)."""

    commands: bytes


GatewayEntry = RequestEntry | RefusedEntry | CommandsEntry | Sent | Numbered | Expecting | Reset


class JournalBatch(NamedTuple):
    packet: int
    entries: list[tuple[int, GatewayEntry, int]]
    """Session, entry, and the offset of the entry in the file."""


def pack_request(session: int, entry: RequestEntry) -> bytes:
    seq, side, commands, text, second = entry
    head = _REQUEST.pack(_O, session, seq, side, len(commands), len(text), len(second))
    return b"%b%b%b%b" % (head, commands, text, second)


def pack_refused(session: int, entry: RefusedEntry) -> bytes:
    return _REFUSED.pack(_X, session, entry.seq, entry.client, len(entry.text)) + entry.text


def pack_commands(session: int, commands: bytes) -> bytes:
    return _COMMANDS.pack(_C, session, len(commands)) + commands


def pack_sent(session: int, entry: Sent) -> bytes:
    seq, kind, body, sent_ns, cause, head = entry
    fields = encode_fields(head) if head else b""
    return b"%b%b%b%b" % (
        _SENT.pack(_S, session, seq, cause, sent_ns, len(kind), len(fields), len(body)), kind, fields, body,
    )  # fmt: skip


def pack_number(session: int, entry: Numbered | Expecting | Reset) -> bytes:
    kind = _N if isinstance(entry, Numbered) else _E if isinstance(entry, Expecting) else _R
    return _NUMBER.pack(kind, session, entry[0])


def seal_batch(packet: int, entries: bytes) -> bytes:
    """Return a batch with its head."""
    body = BATCH_HEAD.pack(0, 0, packet)[8:] + entries
    return BATCH_HEAD.pack(len(body) + 4, crc32(body), packet)[:8] + body


def read_batches(octets: bytes | memoryview) -> Iterator[tuple[JournalBatch, int]]:
    """Yield the complete batches from the beginning, each with the offset after it."""
    view, at = memoryview(octets), 0
    while at + BATCH_HEAD.size <= len(view):
        size, check, packet = BATCH_HEAD.unpack_from(view, at)
        end = at + _SIZE.size + size
        if size < 12 or end > len(view) or crc32(view[at + 8 : end]) != check:
            return
        yield JournalBatch(packet, list(_entries(view, at + BATCH_HEAD.size, end))), end
        at = end


def _entries(view: memoryview, at: int, end: int) -> Iterator[tuple[int, GatewayEntry, int]]:
    while at < end:
        kind, start = view[at], at
        if kind == _S:
            session, entry, at = _read_sent(view, at)
            yield session, entry, start
        elif kind == _O:
            _, session, seq, side, *sizes = _REQUEST.unpack_from(view, at)
            parts, at = _texts(view, at + _REQUEST.size, sizes)
            yield session, RequestEntry(seq, side, *parts), start
        elif kind == _X:
            _, session, seq, client, size = _REFUSED.unpack_from(view, at)
            (text,), at = _texts(view, at + _REFUSED.size, (size,))
            yield session, RefusedEntry(seq, client, text), start
        elif kind == _C:
            _, session, size = _COMMANDS.unpack_from(view, at)
            (commands,), at = _texts(view, at + _COMMANDS.size, (size,))
            yield session, CommandsEntry(commands), start
        else:
            _, session, number = _NUMBER.unpack_from(view, at)
            at += _NUMBER.size
            yield session, (Numbered if kind == _N else Expecting if kind == _E else Reset)(number), start


def _texts(view: memoryview, at: int, sizes: tuple[int, ...] | list[int]) -> tuple[list[bytes], int]:
    texts = []
    for size in sizes:
        texts.append(bytes(view[at : at + size]))
        at += size
    return texts, at


def _read_sent(view: memoryview, at: int) -> tuple[int, Sent, int]:
    _, session, seq, cause, sent_ns, *sizes = _SENT.unpack_from(view, at)
    (kind, fields, body), at = _texts(view, at + _SENT.size, sizes)
    head: HeadFields = tuple(
        (int(tag), value) for tag, _, value in (part.partition(b"=") for part in fields.split(b"\x01")[:-1])
    )
    return session, Sent(seq, kind, body, sent_ns, cause, head), at


def sent_at(octets: bytes) -> Sent:
    """Return the entry of a message sent from the bytes at its offset."""
    return _read_sent(memoryview(octets), 0)[1]


SENT_HEAD = _SENT.size


def sent_size(head: bytes) -> int:
    """Return the size of the entry of a message sent, by its first `SENT_HEAD` bytes."""
    *_, kind, fields, body = _SENT.unpack(head)
    size: int = _SENT.size + kind + fields + body
    return size


class SentLog(MutableMapping[int, Sent]):
    """Messages sent, by number: the newest in memory, the others by their offsets in the journal."""

    def __init__(self, read: Callable[[int], Sent]) -> None:
        self._read = read
        self._offsets = array("Q")
        """By number, from 1; 0 for a number without an entry."""
        self._new: dict[int, Sent] = {}

    def __setitem__(self, seq: int, entry: Sent) -> None:
        self._new[seq] = entry

    def place(self, seq: int, offset: int) -> None:
        """Note where an entry will be in the file."""
        offsets = self._offsets
        count = len(offsets)
        if seq == count + 1:
            offsets.append(offset)
            return
        if seq > count:
            offsets.frombytes(bytes(8 * (seq - count)))
        offsets[seq - 1] = offset

    def written(self) -> None:
        """Forget the entries in memory: they are in the file."""
        self._new.clear()

    def __getitem__(self, seq: int) -> Sent:
        entry = self._new.get(seq)
        if entry is not None:
            return entry
        offset = self._offsets[seq - 1] if 1 <= seq <= len(self._offsets) else 0
        if not offset:
            raise KeyError(seq)
        return self._read(offset)

    def __delitem__(self, seq: int) -> None:
        raise TypeError("a message sent cannot be removed")

    def __iter__(self) -> Iterator[int]:
        yield from (at + 1 for at, offset in enumerate(self._offsets) if offset)
        yield from (seq for seq in self._new if seq > len(self._offsets))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        self._offsets = array("Q")
        self._new.clear()
