"""The report of a subscriber that delivers together: how long records needed to reach it, and how many were late.

A subscriber sends it every `REPORT_EVERY_NS` to the address of an edge that receives requests. Nothing is sent back.
All numbers are big-endian and of the time since the report before:

    offset  type  field
    0       4s    "LCDR"
    4       u8    1, the version
    5       3x    reserved, 0
    8       u64   subscriber: a random number, the same in all its reports
    16      u32   bound after the release, in µs
    20      u32   records delivered together
    24      u32   late records
    28      u32   delay from the release to the arrival, in µs: p50
    32      u32   p99
    36      u32   maximum
    40      u32   time from release + bound to the delivery, in µs: p99 of the records that were not late
    44      u32   maximum time since the start by which a record arrived before its release, in µs: a clock is wrong

Its size differs from that of a request (20 bytes).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from levelcast.wire.header import Malformed, Reason, bad_field

REPORT_EVERY_NS = 5_000_000_000
_MAGIC = b"LCDR"
_VERSION = 1
_LAYOUT = struct.Struct(">4sB3xQIIIIIIII")
REPORT_BYTES = _LAYOUT.size
_UNIT_NS = 1_000
_MOST = 2**32 - 1


class DeliveryReport(NamedTuple):
    """Times are in ns; the report has µs."""

    subscriber: int
    bound_ns: int
    records: int
    late: int
    delay_p50_ns: int
    delay_p99_ns: int
    delay_max_ns: int
    error_p99_ns: int
    early_ns: int


def encode_delivery_report(report: DeliveryReport) -> bytes:
    subscriber, bound_ns, records, late, *times_ns = report
    bound, *times = (min(max(0, -(-ns // _UNIT_NS)), _MOST) for ns in (bound_ns, *times_ns))
    return _LAYOUT.pack(_MAGIC, _VERSION, subscriber, bound, min(records, _MOST), min(late, _MOST), *times)


def decode_delivery_report(datagram: bytes | memoryview) -> DeliveryReport:
    """Decode a report; raises `Malformed`, and nothing else, whatever the bytes are."""
    if len(datagram) != REPORT_BYTES:
        raise Malformed(Reason.WRONG_LENGTH)
    magic, version, subscriber, bound, records, late, *times = _LAYOUT.unpack(datagram)
    if magic != _MAGIC:
        raise Malformed(Reason.BAD_MAGIC)
    if version != _VERSION:
        raise Malformed(Reason.UNKNOWN_VERSION, f"{version}")
    if any(datagram[5:8]):
        bad_field("reserved")
    p50, p99, largest, error, early = (number * _UNIT_NS for number in times)
    if not p50 <= p99 <= largest:
        bad_field("delays")
    return DeliveryReport(subscriber, bound * _UNIT_NS, records, late, p50, p99, largest, error, early)
