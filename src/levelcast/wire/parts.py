"""Common parts of the bodies of core messages.

Each `unpack` reads a datagram without its seal from the offset of the part, and returns the part and its end. A
`check_*` defines once the values that are allowed; encoders and decoders both call it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sized
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from levelcast.wire.header import HEADER_SIZE, Malformed, Reason, bad_field, new_tuple, seal_datagram
from levelcast.wire.messages import Run

COUNT = Struct("<I")

# A full token, and a Repair with one, fit a datagram: everything that was sent can be repaired.
MAX_RUNS = 1_024
MAX_LINES = 256
"""Maximum number of lines of all regions: their assignment is a part of a RING, which fits a datagram."""
MAX_TEXT = 255
MAX_TIME_NS = 2**63 - 1
"""Times stay within a signed 64-bit number: numpy's datetime64 and Arrow's timestamps are signed."""

_Row = TypeVar("_Row", bound=tuple[Any, ...])

Encoder = Callable[[Any, int], bytes]
Decoder = Callable[[bytes, int, int, int], tuple[Any, int]]


class Codec(NamedTuple):
    """The number of a kind of message, its encoder and its decoder.

    A decoder gets the datagram without its seal and the header's domain, sender and generation, and returns the message
    and the end of its body.
    """

    kind: int
    encode: Encoder
    decode: Decoder


class Packed(Generic[_Row]):
    """A counted array of fixed-width rows."""

    def __init__(self, layout: str, row: type[_Row], limit: int) -> None:
        self._layout, self._row = Struct(layout), row
        self._limit, self._what = limit, f"rows of {row.__name__}"

    def pack(self, rows: tuple[_Row, ...]) -> bytes:
        check_limit(rows, self._limit, self._what)
        pack = self._layout.pack
        return COUNT.pack(len(rows)) + b"".join([pack(*row) for row in rows])

    def unpack(self, datagram: bytes, at: int) -> tuple[tuple[_Row, ...], int]:
        """Return the rows, and their end."""
        (count,) = COUNT.unpack_from(datagram, at)
        at += 4
        if not count:
            return (), at
        # The limit is checked first: a hostile count must not even be multiplied into a slice.
        if count > self._limit:
            bad_field("count")
        layout = self._layout
        end = at + count * layout.size
        if end > len(datagram):
            raise Malformed(Reason.TRUNCATED_BODY)
        row = self._row
        return tuple([new_tuple(row, values) for values in layout.iter_unpack(datagram[at:end])]), end


class PackedNumbers:
    """A counted array of integers of one width."""

    def __init__(self, code: str, limit: int, what: str) -> None:
        self._code, self._limit, self._what = code, limit, what

    def pack(self, numbers: tuple[int, ...]) -> bytes:
        check_limit(numbers, self._limit, self._what)
        return struct.pack(f"<I{len(numbers)}{self._code}", len(numbers), *numbers)

    def unpack(self, datagram: bytes, at: int) -> tuple[tuple[int, ...], int]:
        """Return the numbers, and their end."""
        count, at = unpack_count(datagram, at, self._limit)
        layout = f"<{count}{self._code}"
        return struct.unpack_from(layout, datagram, at), at + struct.calcsize(layout)


def fixed(
    kind: int,
    message: type[_Row],
    layout: str,
    sender: str,
    generation: str = "",
    check: Callable[[_Row], None] = lambda _: None,
) -> Codec:
    """Return the codec of a message without arrays: `sender` and `generation` in the header, the rest in the body."""
    body = Struct("<" + layout)
    names = [name for name in message._fields if name not in (sender, generation)]  # type: ignore[attr-defined]

    def encode(value: _Row, domain: int) -> bytes:
        check(value)
        content = body.pack(*(getattr(value, name) for name in names))
        number = getattr(value, generation) if generation else 0
        return seal_datagram(kind, domain, getattr(value, sender), number, content)

    def decode(datagram: bytes, _: int, node: int, number: int) -> tuple[_Row, int]:
        fields = dict(zip(names, body.unpack_from(datagram, HEADER_SIZE), strict=True))
        if generation:
            fields[generation] = number
        else:
            check_no_generation(number)
        found = message(**fields, **{sender: node})
        check(found)
        return found, HEADER_SIZE + body.size

    return Codec(kind, encode, decode)


def check_limit(values: Sized, limit: int, what: str) -> None:
    if len(values) > limit:
        bad_field(f"{len(values)} {what}, {limit} at most")


def unpack_count(datagram: bytes, at: int, limit: int) -> tuple[int, int]:
    """Return the number of items, and the offset of the first."""
    count: int = COUNT.unpack_from(datagram, at)[0]
    if count > limit:
        bad_field("count")
    return count, at + COUNT.size


def pack_bytes(value: bytes, limit: int) -> bytes:
    check_limit(value, limit, "bytes")
    return bytes((len(value),)) + value


def unpack_bytes(datagram: bytes, at: int, limit: int) -> tuple[bytes, int]:
    """Return the bytes, and their end."""
    if at >= len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    size = datagram[at]
    if size > limit:
        bad_field("length")
    end = at + 1 + size
    if end > len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    return datagram[at + 1 : end], end


_NODE = Struct("<H")


def pack_holders(holders: tuple[tuple[int, str], ...]) -> bytes:
    """Return the receivers of lines, each with the name of a line."""
    check_limit(holders, MAX_LINES, "lines")
    parts = [COUNT.pack(len(holders))]
    for node, line in holders:
        parts.append(_NODE.pack(node))
        try:
            parts.append(pack_bytes(line.encode(), MAX_TEXT))
        except UnicodeEncodeError:
            bad_field("name of a line")
    return b"".join(parts)


def unpack_holders(datagram: bytes, at: int) -> tuple[tuple[tuple[int, str], ...], int]:
    """Return the receivers of lines, and their end."""
    count, at = unpack_count(datagram, at, MAX_LINES)
    holders: list[tuple[int, str]] = []
    for _ in range(count):
        (node,) = _NODE.unpack_from(datagram, at)
        line, at = unpack_bytes(datagram, at + _NODE.size, MAX_TEXT)
        try:
            holders.append((node, line.decode()))  # strict UTF-8 has one encoding per string
        except UnicodeDecodeError:
            bad_field("name of a line")
    return tuple(holders), at


RUNS = Packed("<HQQQ", Run, MAX_RUNS)


def check_time(time_ns: int) -> None:
    if time_ns > MAX_TIME_NS:
        bad_field("time")


def check_runs(runs: tuple[Run, ...]) -> None:
    for _, _, first, last in runs:
        if not 0 < first <= last:  # packets are numbered from 1 (rule 10)
            bad_field("run")


def check_no_generation(generation: int) -> None:
    if generation:
        bad_field("generation in a kind that has none")
