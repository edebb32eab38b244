"""Encode and decode the entries of a journal.

    offset  type  field
    0       2s    mark "LJ"
    2       u8    kind
    3       u8    flags: 1 is the first entry of a write
    4       u32   length of the body
    8       u32   CRC-32 (zlib's) of bytes 2 to 7 and of the body; where messages have a CRC-32 as their seal, of
                  the last seal instead of the complete body. It continues from the segment's number, so that
                  bytes left from an earlier use of the file are not an entry
    12            body

    kind               body
    1  message         a Token or Ring as its author's datagram, or a Data: its packets' datagrams, back to back;
                       still sealed (rule 9), so that they can be forwarded after a restart as their authors sent them
    2  Promise         generation u64
    3  Checkpoint      slot u64, chain (the rest)
    4  ServerCounter   generation u64
    5  SourceMark      incarnation u64, number u64

An interrupted write leaves an incomplete last entry. Entries of a *later* write after a bad one have another cause:
then the file is damaged, and the node's promises may be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from levelcast.native import crc32
from levelcast.native.layout import LENGTH_AT, SEAL_KIND_AT
from levelcast.protocol.effects import Checkpoint, JournalEntry, Promise, ServerCounter, SourceMark
from levelcast.wire.codec import decode
from levelcast.wire.header import Malformed
from levelcast.wire.messages import Data, Message, Ring, Token
from levelcast.wire.packets import MAX_TOGETHER, join
from levelcast.wire.parts import COUNT
from levelcast.wire.seal import CHECKED, CRC32

MARK = b"LJ"
HEAD = Struct("<2sBBII")
FIRST_OF_WRITE = 1
KIND_MESSAGE, KIND_PROMISE, KIND_CHECKPOINT, KIND_COUNTER, KIND_MARK = 1, 2, 3, 4, 5
_SMALL = {
    KIND_PROMISE: (Promise, Struct("<Q")),
    KIND_COUNTER: (ServerCounter, Struct("<Q")),
    KIND_MARK: (SourceMark, Struct("<QQ")),
}
_SLOT = Struct("<Q")
_CHECKED = Struct("<BBI")
_CRC = Struct("<I")
MESSAGES = (Data, Token, Ring)


class BadEntry(ValueError):
    """Bytes that are not an entry."""


class LocatedEntry(NamedTuple):
    """An entry and the location of its bytes."""

    at: int
    size: int
    entry: JournalEntry


def body_of(entry: JournalEntry) -> tuple[int, bytes]:
    """Return kind and body. The body of a message is its author's datagram."""
    if isinstance(entry, MESSAGES):
        assert entry.sealed, "the author must seal a message before it is stored"
        return KIND_MESSAGE, entry.sealed
    if isinstance(entry, Checkpoint):
        return KIND_CHECKPOINT, _SLOT.pack(entry.slot) + entry.chain
    for kind, (cls, layout) in _SMALL.items():
        if type(entry) is cls:
            return kind, layout.pack(*entry)
    raise TypeError(f"{type(entry).__name__} is not a journal entry")


def head_of(kind: int, flags: int, body: bytes, segment: int) -> bytes:
    checked = _CHECKED.pack(kind, flags, len(body))
    return MARK + checked + _CRC.pack(_checksum(kind, checked, memoryview(body), segment))


def _checksum(kind: int, checked: bytes | memoryview, body: memoryview, segment: int) -> int:
    """Return the checksum of an entry. For a message with its own CRC-32, cover only that: it covers the rest."""
    own = kind == KIND_MESSAGE and len(body) > SEAL_KIND_AT and body[SEAL_KIND_AT] == CRC32.kind
    return crc32(body[-CRC32.size :] if own else body, crc32(checked, segment & 0xFFFFFFFF))


def read_entry(content: bytes, at: int, domain: int, segment: int) -> LocatedEntry:
    """Return the entry that starts at byte `at`; raise BadEntry if it is missing or incomplete."""
    body = content[at + HEAD.size : _end_of(content, at, segment)]
    kind = content[at + 2]
    size = HEAD.size + len(body)
    try:
        if kind == KIND_MESSAGE:
            return LocatedEntry(at, size, _read_message(body, domain))
        if kind == KIND_CHECKPOINT:
            return LocatedEntry(at, size, Checkpoint(_SLOT.unpack_from(body)[0], body[_SLOT.size :]))
        if kind in _SMALL:
            cls, layout = _SMALL[kind]
            return LocatedEntry(at, size, cls(*layout.unpack(body)))
    except (Malformed, struct_error) as error:
        raise BadEntry(str(error)) from None
    raise BadEntry(f"unknown kind {kind}")


def _read_message(body: bytes, domain: int) -> Token | Data | Ring:
    """Decode one datagram, or the datagrams of consecutive packets."""
    messages: list[Message] = []
    at = 0
    while at < len(body) or not messages:
        (length,) = COUNT.unpack_from(body, at + LENGTH_AT)
        found, message = decode(body[at : at + length], CHECKED)
        if not isinstance(message, MESSAGES) or found != domain:
            raise BadEntry("message of a type that is not journaled")
        messages.append(message)
        at += length
    joined = join(message for message in messages if isinstance(message, Data)) or messages
    if len(joined) != 1 or (len(messages) > 1 and not isinstance(messages[0], Data)):
        raise BadEntry("messages that do not belong together")
    assert isinstance(joined[0], MESSAGES)
    return joined[0]


def _end_of(content: bytes, at: int, segment: int) -> int:
    """Return the end offset of the entry at `at`, if its checksum is correct."""
    if at + HEAD.size > len(content):
        raise BadEntry("incomplete entry")
    mark, kind, _, length, checksum = HEAD.unpack_from(content, at)
    if mark != MARK or length > MAX_TOGETHER:
        raise BadEntry("not an entry")
    end: int = at + HEAD.size + length
    if end > len(content):
        raise BadEntry("incomplete entry")
    view = memoryview(content)
    if _checksum(kind, view[at + 2 : at + 8], view[at + HEAD.size : end], segment) != checksum:
        raise BadEntry("wrong checksum")
    return end


def read_entries(content: bytes, at: int, domain: int, segment: int) -> Iterator[LocatedEntry]:
    """Yield entries from byte `at` up to the first bad one."""
    while at < len(content):
        try:
            found = read_entry(content, at, domain, segment)
        except BadEntry:
            return
        yield found
        at += found.size


def later_write_after(content: bytes, at: int, segment: int) -> int | None:
    """Return the offset of a complete entry that begins a later write after the bad one at `at`."""
    at = content.find(MARK, at + 1)
    while at >= 0:
        if at + HEAD.size <= len(content) and content[at + 3] & FIRST_OF_WRITE:
            try:
                _end_of(content, at, segment)
            except BadEntry:
                pass
            else:
                return at
        at = content.find(MARK, at + 1)
    return None
