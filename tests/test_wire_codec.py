"""Core datagrams: every message survives the wire, everything else is rejected with a reason."""

from __future__ import annotations

import json
import pickle
import struct
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.wire import codec, group_codec, parts, reformation_codec, token_codec
from levelcast.wire.chain_messages import (
    ChainEvidence,
    ChainHeader,
    ChainMessage,
    ChainRequest,
    ChainStatement,
    ChainSuccession,
    Citation,
    DeliveredRow,
    EpochKey,
    EpochRecord,
    EpochVote,
)
from levelcast.wire.codec import decode, decode_batch, encode, seal_message
from levelcast.wire.header import HEADER_SIZE, MAX_DATAGRAM, Malformed, Reason, domain_in, domain_of, split_domain
from levelcast.wire.messages import (
    Beat,
    CatchUp,
    CatchUpPackets,
    CatchUpSlot,
    Claim,
    Cutoff,
    Data,
    Echo,
    Era,
    Fault,
    FaultReason,
    Group,
    GroupInvite,
    GroupRequest,
    GroupToken,
    Invite,
    Join,
    LineHolders,
    LineRequest,
    Mark,
    MemberLife,
    Membership,
    Message,
    Pace,
    Packet,
    Parity,
    PathFigures,
    PathRow,
    Probe,
    Promised,
    ReleaseRow,
    ReleaseSecond,
    Repair,
    Request,
    Ring,
    Run,
    Token,
)
from levelcast.wire.packets import DATA_OVERHEAD, MAX_PAYLOAD, open_packets, seal
from levelcast.wire.parity import MAX_PARITY_PACKETS, MAX_STEP
from levelcast.wire.seal import CRC32, MAX_SEAL_SIZE
from tests.fuzz.targets import TARGETS

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
u64 = st.integers(0, 2**64 - 1)
STRIPE = 1
"""The one that packets here are sealed for."""
SEAL_SIZE = CRC32.size
times_ns = st.integers(0, parts.MAX_TIME_NS)


def tuples_of(rows: st.SearchStrategy[Any], min_size: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(rows, min_size=min_size, max_size=5).map(tuple)


@st.composite
def a_run(draw: st.DrawFn) -> Run:
    first = draw(st.integers(1, 2**64 - 1))
    return Run(draw(u16), draw(u64), first, draw(st.integers(first, 2**64 - 1)))


@st.composite
def a_packet(draw: st.DrawFn) -> Data:
    payload = draw(st.binary(max_size=200))
    records = draw(st.integers(1, len(payload))) if payload else 0
    return seal(Packet(draw(u16), draw(u64), draw(st.integers(1, 2**64 - 1)), records, payload), STRIPE)


@st.composite
def a_settled(draw: st.DrawFn) -> CatchUp:
    numbers = sorted(draw(st.sets(u64, min_size=2, max_size=6)))
    runs = tuples_of(a_run())
    slots = tuple(CatchUpSlot(slot, draw(times_ns), draw(runs)) for slot in numbers[1:])
    upto = draw(st.integers(numbers[-1], 2**64 - 1))
    chain = st.binary(max_size=token_codec.MAX_HASH)
    return CatchUp(draw(u16), numbers[0], upto, draw(chain), draw(chain), slots)


@st.composite
def a_lineage(draw: st.DrawFn, least: int = 0) -> tuple[Era, ...]:
    size = draw(st.integers(least, 4))
    generations = sorted(draw(st.sets(u64, min_size=size, max_size=size)))
    slots = sorted(draw(st.sets(u64, min_size=size, max_size=size)))
    return tuple(Era(g, slot, draw(times_ns)) for g, slot in zip(generations, slots, strict=True))


@st.composite
def a_ring(draw: st.DrawFn) -> Ring:
    lineage = draw(a_lineage(1))
    generation = lineage[-1].generation
    addresses = st.text(max_size=60)
    edges = draw(tuples_of(st.tuples(u16, addresses)))
    members = draw(tuples_of(lives, 1))
    stands = draw(st.booleans())
    pace = draw(st.none() | a_pace(members))
    return Ring(generation, draw(u16), draw(u16), draw(memberships), stands, members, lineage, edges, pace)


def a_pace(members: tuple[MemberLife, ...]) -> st.SearchStrategy[Pace]:
    """The times of a ring, with a cut-off for each of its members if there are beats."""
    ids = sorted({life.member for life in members})
    cutoffs = st.tuples(*(st.builds(Cutoff, st.just(each), times_ns) for each in ids))
    beats = st.integers(1, parts.MAX_TIME_NS)
    return st.builds(Pace, times_ns, beats, cutoffs) | st.builds(Pace, times_ns, st.just(0), st.just(()))


@st.composite
def parities(draw: st.DrawFn) -> Parity:
    packets = draw(st.integers(1, MAX_PARITY_PACKETS))
    step = draw(st.integers(1, MAX_STEP)) if packets > 1 else 1
    first = draw(st.integers(1, 2**64 - packets * step))
    return Parity(draw(u16), draw(u64), first, packets, step, draw(st.binary(min_size=DATA_OVERHEAD, max_size=90)))


@st.composite
def release_rows(draw: st.DrawFn) -> ReleaseRow:
    numbers = sorted(draw(st.sets(u64, max_size=8)))
    counts = [sorted((draw(u32), draw(u32))) for _ in numbers]
    seconds = tuple(ReleaseSecond(n, slots, late, draw(u32)) for n, (late, slots) in zip(numbers, counts, strict=True))
    return ReleaseRow(draw(u16), draw(u32), draw(u32), draw(u32), seconds)


a_path = st.builds(PathFigures, u16, u32, u32, u32, i32, i32, i32, i32, u64, st.binary(min_size=32, max_size=32), i32)


@st.composite
def a_beat(draw: st.DrawFn) -> Beat:
    steps = draw(st.lists(st.tuples(st.integers(1, 2**16 - 1), st.integers(0, 2**16 - 1)), max_size=7))
    starts = st.integers(0, 2**63)
    ticks = accumulate((passed for passed, _ in steps), initial=draw(starts))
    haves = accumulate((rise for _, rise in steps), initial=draw(starts))
    claims = tuple(Claim(*each) for each in zip(ticks, haves, strict=True))
    error_us = draw(st.none() | st.integers(0, 2**32 - 2))
    offset_us = draw(st.none() | st.integers(1 - 2**31, 2**31 - 1))
    return Beat(draw(u16), draw(u64), claims, draw(u64), draw(times_ns), error_us, offset_us)


_AUTHORED = (Token, Ring, Group, LineHolders, ChainMessage)


def authored(message: Any) -> Any:
    """A message that others may pass on, as its author sealed it; others as they are."""
    return seal_message(message, STRIPE) if isinstance(message, _AUTHORED) else message


digests = st.binary(min_size=32, max_size=32)
numbers = st.integers(1, 2**64 - 1)
citations = st.sets(st.builds(Citation, u16, numbers, digests), max_size=5).map(sorted).map(tuple)
chain_headers = st.builds(ChainHeader, u16, numbers, u64, digests, citations, st.binary(min_size=64, max_size=64))
signatures = st.binary(min_size=64, max_size=64)


@st.composite
def successions(draw: st.DrawFn) -> ChainSuccession:
    nodes = draw(st.lists(u16, min_size=1, max_size=6, unique=True))
    keys = draw(st.lists(digests, min_size=len(nodes), max_size=len(nodes), unique=True))
    listed = tuple(EpochKey(node, key) for node, key in zip(nodes, keys, strict=True))
    split = draw(st.integers(1, len(listed)))
    record = EpochRecord(draw(st.integers(1, 2**64 - 1)), listed[:split], listed[split:])
    voters = sorted(draw(st.sets(u16, max_size=4)))
    votes = tuple(EpochVote(voter, draw(signatures)) for voter in voters)
    return ChainSuccession(draw(u16), record.epoch - 1, record, votes)


chain_messages = st.builds(ChainMessage, u64, chain_headers, st.binary(max_size=300), st.just(b""))
lives = st.builds(MemberLife, u16, u32)
memberships = st.builds(Membership, u64, tuples_of(lives))
tokens = st.builds(
    Token,
    *(u64, u64, times_ns, u16, u64, u32, tuples_of(a_run()), tuples_of(st.builds(Mark, u16, u64, u64))),
    sealed=st.just(b""),
)
groups = st.builds(Group, u64, u16, u16, st.lists(u16, max_size=6, unique=True).map(tuple), st.just(b""))
line_holders = st.builds(LineHolders, u64, u16, u64, tuples_of(st.tuples(u16, st.text(max_size=60))), st.just(b""))
KINDS: dict[type, st.SearchStrategy[Message]] = {
    Data: a_packet(),
    Token: tokens,
    Beat: a_beat(),
    Request: st.builds(Request, u16, u64, u64, tuples_of(u64), tuples_of(a_run())),
    Repair: st.builds(
        Repair,
        u16,
        tuples_of(
            st.one_of(
                *(each.map(authored) for each in (tokens, a_ring(), groups, line_holders, chain_messages)), a_packet()
            ),
        ),
    ),
    Parity: parities(),
    CatchUp: a_settled(),
    CatchUpPackets: st.builds(CatchUpPackets, u16, u64, tuples_of(a_packet().map(lambda data: open_packets(data)[0]))),
    Fault: st.builds(Fault, u16, u32, u64, u64, st.sampled_from(sorted(FaultReason.NAMES)), u64, u16),
    Invite: st.builds(Invite, u64, u16),
    Join: st.builds(
        Join,
        *(u64, u16, u32, u64, u64, u64, times_ns),
        *(a_lineage(), st.none() | memberships, memberships, st.booleans()),
    ),
    Promised: st.builds(Promised, u16, u64),
    Ring: a_ring(),
    GroupToken: st.builds(GroupToken, u16, u64, u64, u64, u64),
    GroupRequest: st.builds(GroupRequest, u16, u64, u64, u16, u16),
    GroupInvite: st.builds(GroupInvite, u64, u16),
    Group: groups,
    LineHolders: line_holders,
    LineRequest: st.builds(LineRequest, u16, u64, u64),
    Probe: st.builds(Probe, u16, u64, u64),
    Echo: st.builds(Echo, u16, u16, u64, u64, u64, u64),
    PathRow: st.builds(PathRow, u16, st.lists(a_path, max_size=15).map(tuple)),
    ReleaseRow: release_rows(),
    ChainMessage: chain_messages,
    ChainRequest: st.builds(
        ChainRequest,
        u16,
        u64,
        tuples_of(u64),
        citations,
        st.sets(u16, max_size=4).map(sorted).map(tuple),
        st.booleans(),
    ),
    ChainEvidence: st.builds(ChainEvidence, u16, u64, chain_headers, chain_headers),
    ChainSuccession: successions(),
    ChainStatement: st.builds(
        ChainStatement,
        *(u16, u64),
        st.sets(st.builds(DeliveredRow, u16, numbers, digests, digests), max_size=4).map(sorted).map(tuple),
        st.binary(min_size=64, max_size=64),
    ),
}
messages = st.one_of(list(KINDS.values()))

RUN = Run(7, 1, 5, 9)
PACKET = Packet(7, 1, 12, 2, b"ab")
DATA = seal(PACKET, STRIPE)
ELSEWHERE = seal(PACKET, 2)
TOKEN = Token(3, 100, 10**18, 2, 99, 64, (RUN,), (Mark(7, 1, 4),))
LIVES = (MemberLife(1, 1),)
RING = Ring(
    *(3, 9, 1, Membership(2, LIVES), True),
    *(LIVES, (Era(3, 101, 10**18),), ((1, "233.252.0.1:7001"),)),
)
BEAT = Beat(1, 3, (Claim(5, 96), Claim(65, 97), Claim(125, 97), Claim(185, 99)), 1_012, 10**18, 412, -350)
PATHS = PathRow(1, (PathFigures(2, 1_200, 12, 9, 69_900, 71_250, 75_850, -5, 4_711, bytes(range(32)), 70_100),))
SECONDS = ReleaseSecond(10**9, 20, 0, 310_000), ReleaseSecond(10**9 + 1, 20, 2, 430_000)
NEEDS = ReleaseRow(1, 174_000, 290_000, 330_000, SECONDS)
PACED = RING._replace(pace=Pace(420_000_000, 25_000_000, (Cutoff(1, 220_000_000),)))
JOIN = Join(
    *(3, 1, 1, 2, 99, 90, 10**18, (Era(2, 1, 10**18),)),
    *(Membership(1, LIVES), Membership(2, (MemberLife(1, 2),)), True),
)
GROUP = Group(6, 9, 1, (301, 302))
LINES = LineHolders(3, 9, 7, ((1, "europe-a"), (301, "europe-b")))
ITEMS = (seal_message(TOKEN, STRIPE), DATA, seal_message(RING, STRIPE), seal_message(GROUP, STRIPE))
PARITY = Parity(7, 1, 12, 3, 2, bytes(range(DATA_OVERHEAD)))
CITED = Citation(2, 5, b"d" * 32)
CHAIN = ChainMessage(3, ChainHeader(1, 6, 21, b"c" * 32, (CITED,), b"s" * 64), b"content")
EXAMPLES: list[Message] = [
    DATA,
    TOKEN,
    Request(1, 3, 90, (91, 95), (RUN,)),
    Repair(1, ITEMS),
    CatchUp(1, 10, 20, b"h" * 32, b"i" * 32, (CatchUpSlot(12, 10**18, (RUN,)), CatchUpSlot(20, 10**18, ()))),
    Fault(1, 1, 3, 4, FaultReason.STUCK, 91, 2),
    Invite(4, 9),
    JOIN,
    Promised(1, 5),
    PACED,
    BEAT,
    GroupToken(301, 3, 5, 77, 90),
    GroupRequest(301, 0, 5, 1, 302),
    GroupInvite(6, 9),
    GROUP,
    LINES,
    LineRequest(301, 3, 7),
    Probe(301, 8, 10**18),
    Echo(9, 301, 8, 10**18, 10**18 + 5, 10**18 + 7),
    PATHS,
    NEEDS,
    PARITY,
    CHAIN,
    ChainRequest(1, 3, (4, 0, 7), (CITED,), (2, 4), True),
    ChainEvidence(1, 3, CHAIN.header, CHAIN.header._replace(slot=9)),
    ChainStatement(1, 3, (DeliveredRow(2, 1, b"d" * 32, b"c" * 32),), b"s" * 64),
    ChainSuccession(
        1,
        3,
        EpochRecord(4, (EpochKey(2, b"k" * 32), EpochKey(1, b"l" * 32)), (EpochKey(9, b"m" * 32),)),
        (EpochVote(1, b"s" * 64), EpochVote(3, b"t" * 64)),
    ),
    CatchUpPackets(1, 10, (PACKET, PACKET._replace(number=13, payload=b"abc"))),
]


GOLDEN = Path(__file__).with_name("baseline") / "golden_datagrams.json"


def reason_for(datagram: bytes) -> Reason:
    with pytest.raises(Malformed) as caught:
        decode(datagram)
    return caught.value.reason


# The helpers below seal again what they damage: otherwise every test would see BROKEN_SEAL and nothing else.


def unsealed(datagram: bytes) -> bytes:
    return datagram[:-SEAL_SIZE]


def sealed(head_and_body: bytes) -> bytes:
    return head_and_body + struct.pack("<I", crc32(head_and_body))


def patched(datagram: bytes, at: int, layout: str, *values: int) -> bytes:
    changed = bytearray(unsealed(datagram))
    struct.pack_into(layout, changed, at, *values)
    return sealed(bytes(changed))


def resized(head_and_body: bytes) -> bytes:
    """Sealed, with the header's length made true again, so that the body is what is wrong."""
    length = struct.pack("<I", len(head_and_body) + SEAL_SIZE)
    return sealed(head_and_body[:16] + length + head_and_body[20:])


def flipped(datagram: bytes, bit: int) -> bytes:
    changed = bytearray(datagram)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def decodes_canonically_or_is_rejected(datagram: bytes) -> None:
    try:
        stripe, message = decode(datagram)
    except Malformed:
        return
    assert encode(message, stripe) == datagram


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data(), stripe=u16)
def test_a_message_comes_back_as_it_was_sent(kind: type, data: st.DataObject, stripe: int) -> None:
    message = data.draw(KINDS[kind])
    if kind in (Data, Repair):
        stripe = STRIPE
    datagram = encode(message, stripe)
    decoded = decode(datagram)
    assert decoded == (stripe, message)
    assert type(decoded.message) is kind
    assert decode(memoryview(datagram)) == decoded
    assert encode(decoded.message, stripe) == datagram


@given(messages)
def test_rows_come_back_as_named_tuples_and_bytes_as_bytes(message: Message) -> None:
    # Named tuples equal plain tuples, so equality alone would not notice a row that lost its names.
    assert repr(decode(encode(message, 1)).message) == repr(authored(message))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_truncation_is_rejected(message: Message) -> None:
    datagram = encode(message, 1)
    for size in range(len(datagram)):
        expected = Reason.TOO_SHORT if size < HEADER_SIZE else Reason.WRONG_LENGTH
        assert reason_for(datagram[:size]) is expected


@pytest.mark.parametrize(
    "message",
    [message for message in EXAMPLES if not isinstance(message, Data | Parity)],  # their last field is the rest
    ids=lambda message: type(message).__name__,
)
def test_every_truncation_with_a_true_length_is_rejected(message: Message) -> None:
    # Not Data: its payload is the rest of the datagram, so a shorter one is another valid packet.
    whole = unsealed(encode(message, 1))
    for size in range(HEADER_SIZE, len(whole)):
        assert reason_for(resized(whole[:size])) is Reason.TRUNCATED_BODY
    assert reason_for(resized(whole + b"\0")) is Reason.TRAILING_BYTES


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_bit_that_flips_on_the_way_is_noticed(message: Message) -> None:
    looked_at_before_the_seal = {
        **dict.fromkeys(range(0, 2), Reason.BAD_MAGIC),
        **dict.fromkeys(range(2, 3), Reason.UNKNOWN_VERSION),
        **dict.fromkeys(range(16, 20), Reason.WRONG_LENGTH),
        **dict.fromkeys(range(20, 22), Reason.UNKNOWN_SEAL),
    }
    datagram = encode(message, 1)
    for bit in range(8 * len(datagram)):
        expected = looked_at_before_the_seal.get(bit // 8, Reason.BROKEN_SEAL)
        assert reason_for(flipped(datagram, bit)) is expected


@settings(max_examples=300)
@given(messages, st.data())
def test_every_burst_of_32_bits_on_the_way_is_noticed(message: Message, data: st.DataObject) -> None:
    datagram = encode(message, 1)
    burst = data.draw(st.integers(1, 2**32 - 1)) << data.draw(st.integers(0, 8 * len(datagram) - 32))
    changed = int.from_bytes(datagram, "little") ^ burst
    reason_for(changed.to_bytes(len(datagram), "little"))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_flipped_bit_under_a_good_seal_is_rejected_or_has_one_encoding(message: Message) -> None:
    head_and_body = unsealed(encode(message, 1))
    for bit in range(8 * len(head_and_body)):
        decodes_canonically_or_is_rejected(sealed(flipped(head_and_body, bit)))


@given(st.binary(max_size=300))
def test_random_bytes_are_rejected(junk: bytes) -> None:
    reason_for(junk)


@settings(max_examples=300)
@given(st.integers(0, 18), u16, u64, st.binary(max_size=200))
def test_random_bodies_are_rejected_or_have_one_encoding(kind: int, sender: int, generation: int, body: bytes) -> None:
    size = HEADER_SIZE + len(body) + SEAL_SIZE
    header = struct.pack("<2sBBHHQIBBHQ", b"LC", 2, kind, 1, sender, generation, size, 1, SEAL_SIZE, 0, 0)
    decodes_canonically_or_is_rejected(sealed(header + body))


@settings(max_examples=300)
@given(messages, st.data())
def test_a_damaged_body_is_rejected_or_has_one_encoding(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(unsealed(encode(message, 1)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        # Small numbers make plausible counts; the rest are whatever.
        damaged[at] = data.draw(st.one_of(st.integers(0, 4), st.integers(0, 255)))
    decodes_canonically_or_is_rejected(sealed(bytes(damaged)))


@pytest.mark.parametrize(
    ("at", "layout", "value", "reason"),
    [
        (0, "<H", 0, Reason.BAD_MAGIC),
        (2, "<B", 1, Reason.VERSION_1),
        (2, "<B", 3, Reason.UNKNOWN_VERSION),
        (3, "<B", 0, Reason.UNKNOWN_KIND),
        (3, "<B", 38, Reason.UNKNOWN_KIND),
        (16, "<I", 2**32 - 1, Reason.WRONG_LENGTH),
        (20, "<B", 0, Reason.UNKNOWN_SEAL),
        (20, "<B", 2, Reason.UNKNOWN_SEAL),
        (21, "<B", 0, Reason.UNKNOWN_SEAL),
        (21, "<B", 32, Reason.UNKNOWN_SEAL),
        (22, "<H", 1, Reason.BAD_FIELD),
    ],
)
def test_each_header_field_has_its_reason(at: int, layout: str, value: int, reason: Reason) -> None:
    assert reason_for(patched(encode(TOKEN, 1), at, layout, value)) is reason


def test_a_generation_where_there_is_none_is_rejected() -> None:
    for message in (DATA, Repair(1, (DATA,)), EXAMPLES[4]):
        assert reason_for(patched(encode(message, 1), 8, "<Q", 3)) is Reason.BAD_FIELD


BODY = HEADER_SIZE


@pytest.mark.parametrize(
    ("message", "at", "layout", "value"),
    [
        (DATA, BODY + 8, "<Q", 0),  # number
        (DATA, BODY + 16, "<I", 0),  # no records, with a payload
        (DATA, BODY + 16, "<I", 3),  # more records than bytes
        (TOKEN, BODY + 8, "<Q", 2**63),  # timestamp
        (TOKEN, BODY + 28, "<I", parts.MAX_RUNS + 1),
        (TOKEN, BODY + 28, "<I", 2**32 - 1),
        (TOKEN, BODY + 32 + 10, "<Q", 0),  # a run from 0
        (TOKEN, BODY + 32 + 10, "<Q", 10),  # a run that ends before it starts
        (EXAMPLES[2], BODY + 8, "<I", token_codec.MAX_REQUEST_SLOTS + 1),
        (EXAMPLES[3], BODY, "<I", codec.MAX_REPAIR_ITEMS + 1),
        (CatchUp(1, 10, 20, b"", b"", ()), BODY, "<Q", 21),  # after > upto
        (EXAMPLES[4], BODY + 8, "<Q", 19),  # a slot beyond upto
        (EXAMPLES[4], BODY + 16 + 33 + 33 + 4 + 8, "<Q", 2**63),  # a slot's timestamp
        (EXAMPLES[4], BODY + 16 + 33 + 33 + 4 + 20 + 10, "<Q", 0),  # a slot's run
        (EXAMPLES[5], BODY + 12, "<B", 0),  # fault reason
        (EXAMPLES[5], BODY + 12, "<B", 99),
        (EXAMPLES[-1], BODY + 8, "<I", token_codec.MAX_CATCH_UP_PACKETS + 1),
        (EXAMPLES[-1], BODY + 12 + 10, "<Q", 0),  # a packet without a number
        (EXAMPLES[-1], BODY + 12 + 18, "<I", 3),  # more records than bytes
        (JOIN, BODY + 28, "<Q", 2**63),  # clock
        (JOIN, BODY + 36, "<B", 4),  # a flag that does not exist
        (JOIN, BODY + 37 + 4 + 16, "<Q", 2**63),  # an era's start
        (RING, 8, "<Q", 4),  # not the generation of its last era
        (RING, BODY + 2, "<B", 4),  # a flag that does not exist
        (PACED, BODY + 102, "<H", 2),  # the cut-off of another member than those of the ring
        (PACED, BODY + 104, "<Q", 2**63),  # a time that no signed number holds
        (BEAT, BODY, "<Q", 2),  # claims before the start of the ring
        (BEAT, BODY + 8, "<Q", 2),  # claims below 0
        (BEAT, BODY + 24, "<Q", 2**63),  # the time at which it was sent
        (BEAT, BODY + 32, "<I", 8),  # more claims than a beat repeats
        (BEAT, BODY + 36, "<H", 0),  # two claims at the same time
        (PATHS, BODY, "<I", 17),  # more paths than a row has
        (NEEDS, BODY + 12, "<I", 9),  # more seconds than a row has
        (NEEDS, BODY + 16, "<Q", 10**9 + 1),  # a second twice
        (NEEDS, BODY + 28, "<I", 21),  # more late slots than slots
        (PARITY, 8, "<Q", 1),  # a generation in a kind that has none
        (PARITY, BODY + 8, "<Q", 0),  # packets from 0
        (PARITY, BODY + 8, "<Q", 2**64 - 5),  # packets beyond the largest number
        (PARITY, BODY + 16, "<H", 0),  # no packet
        (PARITY, BODY + 16, "<H", 1),  # one packet, with a step
        (PARITY, BODY + 16, "<H", MAX_PARITY_PACKETS + 1),
        (PARITY, BODY + 18, "<H", 0),  # no step
        (PARITY, BODY + 18, "<H", MAX_STEP + 1),
        (RING, BODY + 66, "<B", 0xFF),  # no UTF-8
        (GroupRequest(301, 0, 5, 1, 302), 8, "<Q", 1),  # a generation in a kind that has none
        (Group(6, 9, 1, (301, 302)), BODY + 2, "<I", group_codec.MAX_GROUP + 1),
        (Group(6, 9, 1, (301, 302)), BODY + 6, "<H", 302),  # a member twice
    ],
)
def test_a_field_out_of_range_is_rejected(message: Message, at: int, layout: str, value: int) -> None:
    assert reason_for(patched(encode(message, 1), at, layout, value)) is Reason.BAD_FIELD


def test_a_hash_that_is_too_long_is_rejected() -> None:
    longest = bytearray(unsealed(encode(CatchUp(1, 10, 20, b"h" * token_codec.MAX_HASH, b"", ()), 1)))
    longest[BODY + 16 : BODY + 17] = bytes((token_codec.MAX_HASH + 1, 0))
    assert reason_for(resized(bytes(longest))) is Reason.BAD_FIELD


def repair_of(item: bytes) -> bytes:
    """A well-sealed Repair of one item, whatever that is."""
    empty = unsealed(encode(Repair(1, ()), 1))
    return resized(empty[:BODY] + struct.pack("<I", 1) + item)


def test_a_repair_carries_only_what_others_may_pass_on_of_its_stripe() -> None:
    for item in ITEMS:
        assert decode(repair_of(encode(item, 1))).message == Repair(1, (item,))
    assert reason_for(repair_of(ELSEWHERE.sealed)) is Reason.BAD_FIELD
    assert reason_for(repair_of(encode(TOKEN, 2))) is Reason.BAD_FIELD
    for kind in (codec.KIND_REPAIR, reformation_codec.KIND_INVITE, token_codec.KIND_CATCH_UP_PACKETS, 0, 255):
        assert reason_for(repair_of(patched(encode(DATA, 1), 3, "<B", kind))) is Reason.BAD_FIELD
    # Nested a thousand deep, by a sender who hopes for a stack overflow.
    deep = encode(DATA, 1)
    for _ in range(1_000):
        deep = repair_of(deep)
    assert reason_for(deep) is Reason.BAD_FIELD


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_every_flipped_bit_of_an_item_is_rejected_although_the_repair_is_sealed_again(item: Message) -> None:
    datagram = encode(item, 1)
    for bit in range(8 * len(datagram)):
        byte = bit // 8
        reason = reason_for(repair_of(flipped(datagram, bit)))
        if byte == 3:
            assert reason in (Reason.BROKEN_SEAL, Reason.BAD_FIELD)
        elif 16 <= byte < 20:
            assert reason in (Reason.WRONG_LENGTH, Reason.TRUNCATED_BODY, Reason.TOO_SHORT, Reason.BROKEN_SEAL)
        elif byte < 3 or 20 <= byte < 22:
            assert reason in (Reason.BAD_MAGIC, Reason.UNKNOWN_VERSION, Reason.UNKNOWN_SEAL)
        else:
            assert reason is Reason.BROKEN_SEAL


def test_an_item_of_a_wrong_length_is_rejected() -> None:
    item = encode(DATA, 1)
    assert reason_for(repair_of(patched(item, 16, "<I", 0))) is Reason.TOO_SHORT
    assert reason_for(repair_of(patched(item, 16, "<I", len(item) + 1))) is Reason.TRUNCATED_BODY


def test_items_keep_their_authors_bytes_and_equality_ignores_them() -> None:
    repair = decode(encode(Repair(7, ITEMS), 1)).message
    assert isinstance(repair, Repair)
    assert [item.sealed for item in repair.items] == [item.sealed for item in ITEMS]
    for unsealed_one, item in ((TOKEN, ITEMS[0]), (RING, ITEMS[2]), (GROUP, ITEMS[3])):
        assert unsealed_one == item
        assert not unsealed_one.__ne__(item)
        assert hash(unsealed_one) == hash(item)
    assert TOKEN._replace(have=98) != TOKEN
    assert tuple(TOKEN) != TOKEN


def test_a_datagram_of_version_1_is_rejected_for_that_reason_however_short_it_is() -> None:
    invite = bytes.fromhex("4c4301070201090004000000000000001c0000000104000082194996")  # as version 1 sent it
    assert reason_for(invite) is Reason.VERSION_1
    assert decode_batch([invite, encode(TOKEN, 1)], 1) == ([TOKEN], Counter({Reason.VERSION_1: 1}))


@pytest.mark.parametrize(
    "message",
    [
        ELSEWHERE,
        DATA._replace(source=8),
        DATA._replace(last=13, sealed=DATA.sealed * 2),
        TOKEN._replace(timestamp_ns=2**63),
        TOKEN._replace(slot=-1),
        TOKEN._replace(runs=(RUN,) * (parts.MAX_RUNS + 1)),
        TOKEN._replace(runs=(Run(1, 1, 3, 2),)),
        Request(1, 1, 1, tuple(range(token_codec.MAX_REQUEST_SLOTS + 1)), ()),
        Repair(1, (seal(PACKET._replace(payload=bytes(40_000)), STRIPE),) * 2),
        Repair(1, (Repair(1, ()),)),  # type: ignore[arg-type]
        Repair(1, (TOKEN,)),  # its author has not sealed it
        seal_message(TOKEN, 2),
        CatchUp(1, 5, 9, b"", b"", (CatchUpSlot(7, 0, ()), CatchUpSlot(6, 0, ()))),
        CatchUp(1, 5, 9, b"", b"x" * (token_codec.MAX_HASH + 1), ()),
        Fault(1, 1, 1, 1, 0, 1, 1),
        RING._replace(members=()),
        RING._replace(lineage=()),
        RING._replace(edges=((1, "\ud800"),)),
        RING._replace(edges=((1, "x" * 256),)),
    ],
)
def test_what_every_receiver_would_reject_is_not_sent(message: Message) -> None:
    with pytest.raises(Malformed):
        encode(message, 1)


@pytest.mark.parametrize(
    "packet",
    [
        PACKET._replace(number=0),
        PACKET._replace(source=2**16),
        PACKET._replace(records=0),
        PACKET._replace(payload=bytes(MAX_PAYLOAD + 1)),
    ],
)
def test_what_every_receiver_would_reject_is_not_sealed(packet: Packet) -> None:
    with pytest.raises(Malformed):
        seal(packet, 1)


def test_the_fullest_token_and_packet_can_be_repaired() -> None:
    packet = seal(PACKET._replace(payload=bytes(MAX_PAYLOAD)), STRIPE)
    token = TOKEN._replace(
        runs=tuple(Run(source, 1, 1, 2) for source in range(parts.MAX_RUNS)),
        witnessed=tuple(Mark(source, 1, 1) for source in range(token_codec.MAX_MARKS)),
    )
    for item in (packet, seal_message(token, STRIPE)):
        repair = Repair(1, (item,))
        datagram = encode(repair, 1)
        assert len(datagram) <= MAX_DATAGRAM
        assert decode(datagram).message == repair
    assert len(encode(Repair(1, (packet,)), 1)) == MAX_DATAGRAM - 2 * (MAX_SEAL_SIZE - SEAL_SIZE)
    too_long = unsealed(encode(packet, 1)) + bytes(1_000)
    assert reason_for(resized(too_long)) is Reason.WRONG_LENGTH


def test_a_batch_keeps_its_order_and_counts_what_it_rejects() -> None:
    datagrams = [encode(message, 1) for message in EXAMPLES]
    datagrams.insert(3, b"")
    datagrams.insert(5, ELSEWHERE.sealed)
    datagrams.append(b"XX" + datagrams[0][2:])
    datagrams += [flipped(datagrams[0], 100), flipped(datagrams[1], 300)]
    messages, rejected = decode_batch(datagrams, 1)
    assert messages == EXAMPLES
    assert rejected == Counter(
        {Reason.TOO_SHORT: 1, Reason.WRONG_STRIPE: 1, Reason.BAD_MAGIC: 1, Reason.BROKEN_SEAL: 2}
    )


def test_the_layout_is_the_one_in_the_module_heads() -> None:
    head_and_body = bytes.fromhex(
        "4c43" "02" "01" "0100" "0700" "0000000000000000" "3a000000" "01" "04" "0000" "0000000000000000"
        "0100000000000000" "0c00000000000000" "02000000" "6162"
    )  # fmt: skip
    assert encode(DATA, 1) == sealed(head_and_body)
    assert [encode(RING._replace(membership_stands=stands), 1)[BODY + 2] for stands in (False, True)] == [
        0,
        1,
    ]


def test_every_example_has_its_golden_bytes() -> None:
    """`python -m tests.test_wire_codec` records them again: only where the header gets another version."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert {type(message).__name__: encode(message, 1).hex() for message in EXAMPLES} == golden
    assert len(golden) == len(KINDS)


@pytest.mark.parametrize(("error_us", "offset_us"), [(2**32 - 1, 0), (-1, 0), (0, -(2**31)), (0, 2**31)])
def test_a_beat_states_no_value_that_stands_for_an_unknown_one(error_us: int, offset_us: int) -> None:
    with pytest.raises(Malformed):
        encode(BEAT._replace(error_us=error_us, offset_us=offset_us), 1)


@pytest.mark.parametrize("second", [Era(2, 6, 1), Era(3, 5, 1)])
def test_a_lineage_that_does_not_rise_is_rejected(second: Era) -> None:
    ring = RING._replace(generation=second.generation, lineage=(Era(2, 5, 1), second))
    with pytest.raises(Malformed, match="lineage"):
        codec.encode(ring, 0)


if __name__ == "__main__":
    recorded = {type(message).__name__: encode(message, 1).hex() for message in EXAMPLES}
    GOLDEN.write_text(json.dumps(recorded, indent=0) + "\n", encoding="utf-8")


FOREIGN = domain_of(5, 1)
"""The same stripe of another network."""


def test_a_datagram_of_another_network_is_rejected_as_such_and_never_forwarded() -> None:
    datagrams = [encode(message, 1) for message in EXAMPLES]
    others = [encode(each, FOREIGN) for each in (TOKEN._replace(sealed=b""), seal(PACKET, FOREIGN))]
    messages, rejected = decode_batch([*datagrams, *others], 1)
    assert messages == EXAMPLES
    assert rejected == Counter({Reason.WRONG_NETWORK: 2})
    assert [decode(each).domain for each in others] == [FOREIGN, FOREIGN]
    for message in (seal(PACKET, FOREIGN), seal_message(TOKEN._replace(sealed=b""), FOREIGN)):
        with pytest.raises(Malformed, match="another stripe or network"):
            encode(message, 1)
        with pytest.raises(Malformed, match="another stripe or network"):
            encode(Repair(1, (message,)), 1)


def test_an_item_of_another_network_spoils_its_repair() -> None:
    repair = encode(Repair(1, (seal(PACKET, FOREIGN),)), FOREIGN)
    assert reason_for(patched(repair, 24, "<Q", 0)) is Reason.BAD_FIELD


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**16 - 1))
def test_a_domain_is_a_network_and_a_stripe(network: int, stripe: int) -> None:
    domain = domain_of(network, stripe)
    assert split_domain(domain) == (network, stripe)
    assert domain_in(encode(Probe(3, 1, 2), domain)) == domain


def test_the_fuzzer_starts_with_every_kind_and_with_each_form_of_a_ring() -> None:
    check, seeds = TARGETS["core"].prepare()
    decoded = [decode(seed)[1] for seed in seeds]
    assert {type(message) for message in decoded} == set(get_args(Message))
    paces = [message.pace for message in decoded if isinstance(message, Ring)]
    assert {pace and len(pace.cutoffs) for pace in paces} == {None, 0, 1}
    for seed in seeds:
        check(seed)


def test_an_error_passes_from_one_process_to_another() -> None:
    error = pickle.loads(pickle.dumps(Malformed(Reason.BAD_FIELD, "beat")))
    assert (error.reason, str(error)) == (Reason.BAD_FIELD, "bad field: beat")
