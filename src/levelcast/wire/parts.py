"""Parts that the bodies of several core messages are made of.

Each `unpack` takes a datagram without its seal and the offset of the part, and returns the part and its end. A
`check_*` states once which values are allowed; encoders and decoders both call it.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Generic, TypeVar

from levelcast.wire.header import Malformed, Reason, bad_field, new_tuple
from levelcast.wire.messages import Run

COUNT = Struct("<I")

# A full token, and a Repair with one, fit a datagram: everything that was sent can be repaired.
MAX_RUNS = 1_024
MAX_TIME_NS = 2**63 - 1
"""Times stay within a signed 64-bit number: numpy's datetime64 and Arrow's timestamps are signed."""

_Row = TypeVar("_Row", bound=tuple[Any, ...])


class Packed(Generic[_Row]):
    """A counted array of fixed-width rows."""

    def __init__(self, layout: str, row: type[_Row], limit: int) -> None:
        self._layout = Struct(layout)
        self._row = row
        self._limit = limit

    def pack(self, rows: tuple[_Row, ...]) -> bytes:
        if len(rows) > self._limit:
            bad_field(f"{len(rows)} rows of {self._row.__name__}, {self._limit} at most")
        pack = self._layout.pack
        return COUNT.pack(len(rows)) + b"".join([pack(*row) for row in rows])

    def unpack(self, datagram: bytes, at: int) -> tuple[tuple[_Row, ...], int]:
        """The rows, and where they end."""
        (count,) = COUNT.unpack_from(datagram, at)
        at += 4
        if not count:
            return (), at
        # The limit comes first: a hostile count must not even be multiplied into a slice.
        if count > self._limit:
            bad_field("count")
        layout = self._layout
        end = at + count * layout.size
        if end > len(datagram):
            raise Malformed(Reason.TRUNCATED_BODY)
        row = self._row
        return tuple([new_tuple(row, values) for values in layout.iter_unpack(datagram[at:end])]), end


def unpack_count(datagram: bytes, at: int, limit: int) -> int:
    count: int = COUNT.unpack_from(datagram, at)[0]
    if count > limit:
        bad_field("count")
    return count


def pack_bytes(value: bytes, limit: int) -> bytes:
    if len(value) > limit:
        bad_field(f"{len(value)} bytes, {limit} at most")
    return bytes((len(value),)) + value


def unpack_bytes(datagram: bytes, at: int, limit: int) -> tuple[bytes, int]:
    """The bytes, and where they end."""
    if at >= len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    size = datagram[at]
    if size > limit:
        bad_field("length")
    end = at + 1 + size
    if end > len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    return datagram[at + 1 : end], end


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
