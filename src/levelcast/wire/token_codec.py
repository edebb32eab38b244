"""Tokens, beats, requests and catch-up as bytes (rules 2, 5, 8, 9); part of the table in `levelcast.wire.codec`.

    kind               sender  generation   body
    2  Token           owner   of the ring  slot u64, timestamp u64, have u64, credit u32, [run], [mark]
    3  Request         sender  entered      have u64, [slot u64], [run]
    5  CatchUp         sender  0            after u64, upto u64, hash before, hash after,
                                            [slot u64, timestamp u64, [run]]
    17 CatchUpPackets  sender  0            after u64, [source u16, incarnation u64, number u64, records u32, size u32,
                                            payload]
    20 Beat            sender  of the ring  tick u64, have u64, sequence u64, sent u64, [ticks u16, rise u16]: the time
                                            since the claim before it, and the rise of `have`, newest first; clock error
                                            in µs u32, offset in µs i32, 2³² − 1 and −2³¹ if unknown

The header, the seal and the rule that a message has one encoding are those of every core datagram.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import Any

from levelcast.wire.header import HEADER_SIZE, Malformed, Reason, bad_field, new_tuple, seal_datagram
from levelcast.wire.messages import Beat, CatchUp, CatchUpPackets, CatchUpSlot, Claim, Mark, Packet, Request, Token
from levelcast.wire.packets import check_packet
from levelcast.wire.parts import (
    COUNT,
    RUNS,
    Codec,
    Packed,
    PackedNumbers,
    check_limit,
    check_no_generation,
    check_runs,
    check_time,
    pack_bytes,
    unpack_bytes,
    unpack_count,
)
from levelcast.wire.seal import CRC32

KIND_TOKEN, KIND_REQUEST, KIND_CATCH_UP, KIND_CATCH_UP_PACKETS = 2, 3, 5, 17
KIND_BEAT = 20
MAX_MARKS = 1_024
MAX_REQUEST_SLOTS = 4_096
MAX_CATCH_UP_SLOTS = 2_048
MAX_CATCH_UP_PACKETS = 1_024
MAX_HASH = 64
MAX_BEATS = 8
"""Claims in a beat: its own, and those of the beats before it, in case they were lost."""
MAX_STEP = 2**16 - 1
"""A beat does not go back beyond a greater rise of `have`, or a longer time."""

_TOKEN = Struct("<QQQI")
_MARKS = Packed("<HQQ", Mark, MAX_MARKS)
_REQUEST = Struct("<Q")
_SLOTS = PackedNumbers("Q", MAX_REQUEST_SLOTS, "slots")
_BEAT = Struct("<QQQQ")
_STEPS = Packed("<HH", Claim, MAX_BEATS - 1)
_STEP_SIZE = 4
_CLOCK = Struct("<Ii")
NO_ERROR, NO_OFFSET = 2**32 - 1, -(2**31)
"""Encodings of a clock error and of an offset that are not known."""
_CATCH_UP = Struct("<QQ")
_CATCH_UP_SLOT = Struct("<QQ")
_AFTER = Struct("<Q")
_PACKET = Struct("<HQQII")

CATCH_UP_PACKET_OVERHEAD = _PACKET.size
"""Size of a packet of a CatchUpPackets without its payload."""


def encode_token(message: Token, domain: int) -> bytes:
    generation, slot, timestamp_ns, owner, have, credit, runs, witnessed, _ = message
    check_time(timestamp_ns)
    check_runs(runs)
    body = _TOKEN.pack(slot, timestamp_ns, have, credit) + RUNS.pack(runs) + _MARKS.pack(witnessed)
    return seal_datagram(KIND_TOKEN, domain, owner, generation, body)


def decode_token(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[Token, int]:
    slot, timestamp_ns, have, credit = _TOKEN.unpack_from(datagram, HEADER_SIZE)
    check_time(timestamp_ns)
    runs, at = RUNS.unpack(datagram, HEADER_SIZE + _TOKEN.size)
    check_runs(runs)
    witnessed, at = _MARKS.unpack(datagram, at)
    return new_tuple(Token, (generation, slot, timestamp_ns, sender, have, credit, runs, witnessed, b"")), at


def encode_request(message: Request, domain: int) -> bytes:
    check_runs(message.packets)
    body = _REQUEST.pack(message.have) + _SLOTS.pack(message.slots) + RUNS.pack(message.packets)
    return seal_datagram(KIND_REQUEST, domain, message.sender, message.generation, body)


def decode_request(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[Request, int]:
    (have,) = _REQUEST.unpack_from(datagram, HEADER_SIZE)
    slots, at = _SLOTS.unpack(datagram, HEADER_SIZE + _REQUEST.size)
    packets, at = RUNS.unpack(datagram, at)
    check_runs(packets)
    return Request(sender, generation, have, slots, packets), at


def encode_beat(message: Beat, domain: int) -> bytes:
    if not message.claims:
        bad_field("a beat without a claim")
    steps = tuple([Claim(late[0] - early[0], late[1] - early[1]) for early, late in pairwise(message.claims)][::-1])
    _check_steps(steps)
    check_time(message.sent_ns)
    body = _BEAT.pack(*message.claims[-1], message.sequence, message.sent_ns) + _STEPS.pack(steps)
    body += _pack_clock(message)
    return seal_datagram(KIND_BEAT, domain, message.sender, message.generation, body)


def beat_size(message: Beat) -> int:
    """Return the size of a beat's datagram."""
    steps = (len(message.claims) - 1) * _STEP_SIZE
    return HEADER_SIZE + _BEAT.size + COUNT.size + steps + _CLOCK.size + CRC32.size


def decode_beat(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[Beat, int]:
    tick, have, sequence, sent_ns = _BEAT.unpack_from(datagram, HEADER_SIZE)
    check_time(sent_ns)
    steps, at = _STEPS.unpack(datagram, HEADER_SIZE + _BEAT.size)
    _check_steps(steps)
    claims = [new_tuple(Claim, (tick, have))]
    for passed, rise in steps:
        tick, have = tick - passed, have - rise
        claims.append(new_tuple(Claim, (tick, have)))
    if tick < 0 or have < 0:
        bad_field("claims before the first beat, or below 0")
    error_us, offset_us = _CLOCK.unpack_from(datagram, at)
    clock = None if error_us == NO_ERROR else error_us, None if offset_us == NO_OFFSET else offset_us
    return Beat(sender, generation, tuple(claims[::-1]), sequence, sent_ns, *clock), at + _CLOCK.size


def _check_steps(steps: tuple[Claim, ...]) -> None:
    if any(passed < 1 for passed, _ in steps):
        bad_field("claims that are not in their order")


def _pack_clock(beat: Beat) -> bytes:
    if beat.error_us == NO_ERROR or beat.offset_us == NO_OFFSET:
        bad_field("a clock error or an offset that stands for an unknown one")
    error_us = NO_ERROR if beat.error_us is None else beat.error_us
    return _CLOCK.pack(error_us, NO_OFFSET if beat.offset_us is None else beat.offset_us)


def _check_catch_up(message: CatchUp) -> None:
    if message.after_slot > message.upto_slot:
        bad_field("catch-up range")
    before = message.after_slot
    for slot, timestamp_ns, runs in message.slots:
        if not before < slot <= message.upto_slot:
            bad_field("catch-up slot")
        before = slot
        check_time(timestamp_ns)
        check_runs(runs)


def encode_catch_up(message: CatchUp, domain: int) -> bytes:
    _check_catch_up(message)
    check_limit(message.slots, MAX_CATCH_UP_SLOTS, "slots")
    parts = [
        _CATCH_UP.pack(message.after_slot, message.upto_slot),
        pack_bytes(message.chain_before, MAX_HASH),
        pack_bytes(message.chain_after, MAX_HASH),
        COUNT.pack(len(message.slots)),
    ]
    for slot, timestamp_ns, runs in message.slots:
        parts.append(_CATCH_UP_SLOT.pack(slot, timestamp_ns))
        parts.append(RUNS.pack(runs))
    return seal_datagram(KIND_CATCH_UP, domain, message.sender, 0, b"".join(parts))


def decode_catch_up(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[CatchUp, int]:
    check_no_generation(generation)
    after_slot, upto_slot = _CATCH_UP.unpack_from(datagram, HEADER_SIZE)
    chain_before, at = unpack_bytes(datagram, HEADER_SIZE + _CATCH_UP.size, MAX_HASH)
    chain_after, at = unpack_bytes(datagram, at, MAX_HASH)
    count, at = unpack_count(datagram, at, MAX_CATCH_UP_SLOTS)
    slots: list[CatchUpSlot] = []
    for _ in range(count):
        slot, timestamp_ns = _CATCH_UP_SLOT.unpack_from(datagram, at)
        runs, at = RUNS.unpack(datagram, at + _CATCH_UP_SLOT.size)
        slots.append(CatchUpSlot(slot, timestamp_ns, runs))
    message = CatchUp(sender, after_slot, upto_slot, chain_before, chain_after, tuple(slots))
    _check_catch_up(message)
    return message, at


def encode_catch_up_packets(message: CatchUpPackets, domain: int) -> bytes:
    packets = message.packets
    check_limit(packets, MAX_CATCH_UP_PACKETS, "packets")
    parts = [_AFTER.pack(message.after_slot), COUNT.pack(len(packets))]
    for source, incarnation, number, records, payload in packets:
        check_packet(number, records, len(payload))
        parts.append(_PACKET.pack(source, incarnation, number, records, len(payload)))
        parts.append(payload)
    return seal_datagram(KIND_CATCH_UP_PACKETS, domain, message.sender, 0, b"".join(parts))


def decode_catch_up_packets(datagram: bytes, domain: int, sender: int, generation: int) -> tuple[CatchUpPackets, int]:
    check_no_generation(generation)
    (after_slot,) = _AFTER.unpack_from(datagram, HEADER_SIZE)
    count, at = unpack_count(datagram, HEADER_SIZE + _AFTER.size, MAX_CATCH_UP_PACKETS)
    packets: list[Packet] = []
    for _ in range(count):
        source, incarnation, number, records, size = _PACKET.unpack_from(datagram, at)
        check_packet(number, records, size)
        at += _PACKET.size
        if at + size > len(datagram):
            raise Malformed(Reason.TRUNCATED_BODY)
        packets.append(Packet(source, incarnation, number, records, datagram[at : at + size]))
        at += size
    return CatchUpPackets(sender, after_slot, tuple(packets)), at


CODECS: dict[type[Any], Codec] = {
    Token: Codec(KIND_TOKEN, encode_token, decode_token),
    Beat: Codec(KIND_BEAT, encode_beat, decode_beat),
    Request: Codec(KIND_REQUEST, encode_request, decode_request),
    CatchUp: Codec(KIND_CATCH_UP, encode_catch_up, decode_catch_up),
    CatchUpPackets: Codec(KIND_CATCH_UP_PACKETS, encode_catch_up_packets, decode_catch_up_packets),
}
