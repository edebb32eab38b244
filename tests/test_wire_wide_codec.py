"""Messages of wide-area groups: each survives the wire, everything else is rejected with a reason."""

from __future__ import annotations

import struct
from typing import Any, get_args
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.wire.codec import decode, encode, seal_message
from levelcast.wire.header import HEADER_SIZE, Malformed, Reason
from levelcast.wire.messages import Message, Probe
from levelcast.wire.wide_codec import KIND_WIDE_DATA, MAX_WIDE_PAYLOAD
from levelcast.wire.wide_messages import (
    WideAccept,
    WideAccepted,
    WideConfirm,
    WideContent,
    WideData,
    WideId,
    WideMember,
    WideMessage,
    WidePredecessor,
    WidePrepare,
    WidePromise,
    WideRelay,
    WideRequest,
    WideStatement,
    WideView,
)

BODY = HEADER_SIZE
ID = WideId(3, 1, 7)
STATEMENT = WideStatement(ID, 2, asks=True)
CONTENT = WideContent((WideMember(1, 1, 9, 2), WideMember(3, 4, 10, 0)), (WideId(2, 1, 5), ID))
DATA = WideData(4, 2, 1, 8, 0, 1, 7, 6, (1, 3), (WidePredecessor(ID, 3, (1, 3, 5)),), (STATEMENT,), b"content")
EXAMPLES: list[Message] = [
    DATA,
    WideRelay(5, 4, True, seal_message(DATA, 1)),
    WideConfirm(2, 4, 7, 6, (STATEMENT, WideStatement(ID, 3), WideStatement(ID, 0, wants=True))),
    WideRequest(2, 4, 10**18, True),
    WidePrepare(2, 4, 1, (1, 3)),
    WidePromise(2, 4, 2, 1, 1, 3, CONTENT, 5, (ID,)),
    WidePromise(2, 4, 2, 1, 0, 0, WideContent((), ()), 0, ()),
    WideAccept(2, 4, 1, CONTENT),
    WideAccepted(2, 4, 1, 3),
    WideView(2, 5, CONTENT),
]

u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
processes = st.sets(u16, min_size=1, max_size=6).map(lambda found: tuple(sorted(found)))
ids = st.builds(WideId, u16, st.integers(1, 2**32 - 1), st.integers(1, 2**64 - 1))
statements = st.lists(st.builds(WideStatement, ids, st.integers(0, 3), st.booleans(), st.booleans()), max_size=5)


@st.composite
def a_data(draw: st.DrawFn) -> WideData:
    source, *members = draw(st.lists(u16, min_size=2, max_size=7, unique=True))
    members.sort()
    everybody = tuple(sorted((source, *members)))
    lists = st.one_of(st.just(()), processes).filter(lambda found: found != everybody)
    predecessors = draw(st.lists(st.builds(WidePredecessor, ids, u64, lists), max_size=4))
    life = draw(st.integers(1, 2**32 - 1))
    number, parts = draw(st.integers(1, 2**64 - 1)), draw(st.integers(1, 2**16 - 1))
    settled = draw(st.integers(0, number - 1))
    return WideData(
        draw(st.integers(life, 2**64 - 1)),
        source,
        life,
        number,
        draw(st.integers(0, parts - 1)),
        parts,
        settled,
        draw(st.integers(0, settled)),
        tuple(members),
        tuple(predecessors),
        tuple(draw(statements)),
        draw(st.binary(max_size=40)),
    )


contents = st.builds(
    WideContent,
    st.dictionaries(u16, st.tuples(st.integers(1, 2**32 - 1), u64, u64), max_size=5).map(
        lambda found: tuple(WideMember(process, *rest) for process, rest in sorted(found.items()))
    ),
    st.sets(ids, max_size=4).map(lambda found: tuple(sorted(found))),
)
MESSAGES: st.SearchStrategy[Any] = st.one_of(
    a_data(),
    st.builds(WideConfirm, u16, u64, st.integers(5, 9), st.integers(0, 5), statements.map(tuple)),
    st.builds(WideRequest, u16, u64, u64, st.booleans()),
    st.builds(WidePrepare, u16, u64, u32, processes),
    st.builds(WidePromise, u16, u64, u32, u16, st.integers(1, 9), u16, contents, u64, st.just(())),
    st.builds(WideAccept, u16, u64, u32, contents),
    st.builds(WideAccepted, u16, u64, u32, u16),
    st.builds(WideView, u16, u64, contents),
)


def sealed(head_and_body: bytes) -> bytes:
    return head_and_body + struct.pack("<I", crc32(head_and_body))


def resized(head_and_body: bytes) -> bytes:
    return sealed(head_and_body[:16] + struct.pack("<I", len(head_and_body) + 4) + head_and_body[20:])


def patched(datagram: bytes, at: int, layout: str, *values: int) -> bytes:
    changed = bytearray(datagram[:-4])
    struct.pack_into(layout, changed, at, *values)
    return sealed(bytes(changed))


def reason_for(datagram: bytes) -> Reason:
    with pytest.raises(Malformed) as caught:
        decode(datagram)
    return caught.value.reason


def decodes_canonically_or_is_rejected(datagram: bytes) -> None:
    try:
        stripe, message = decode(datagram)
    except Malformed:
        return
    assert encode(message, stripe) == datagram


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(message) for message in EXAMPLES} == set(get_args(WideMessage))


@given(MESSAGES, u16)
def test_a_message_comes_back_as_it_was_sent(message: Message, stripe: int) -> None:
    datagram = encode(message, stripe)
    found = decode(datagram)
    assert found == (stripe, message)
    assert encode(found.message, stripe) == datagram


@given(a_data(), u16)
def test_a_relay_keeps_the_datagram_of_the_source(message: WideData, forwarder: int) -> None:
    item = seal_message(message, 1)
    relay = decode(encode(WideRelay(forwarder, 9, False, item), 1)).message
    assert isinstance(relay, WideRelay)
    assert relay.item.sealed == item.sealed == encode(message, 1)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_flipped_bit_under_a_good_seal_is_rejected_or_has_one_encoding(message: Message) -> None:
    head_and_body = encode(message, 1)[:-4]
    for bit in range(8 * len(head_and_body)):
        changed = bytearray(head_and_body)
        changed[bit // 8] ^= 1 << bit % 8
        decodes_canonically_or_is_rejected(sealed(bytes(changed)))


@pytest.mark.parametrize("message", EXAMPLES[2:], ids=lambda message: type(message).__name__)
def test_every_truncation_with_a_true_length_is_rejected(message: Message) -> None:
    whole = encode(message, 1)[:-4]
    for size in range(HEADER_SIZE, len(whole)):
        assert reason_for(resized(whole[:size])) is Reason.TRUNCATED_BODY
    assert reason_for(resized(whole + b"\0")) is Reason.TRAILING_BYTES


@settings(max_examples=300)
@given(st.integers(23, 31), u16, u64, st.binary(max_size=120))
def test_random_bodies_are_rejected_or_have_one_encoding(kind: int, sender: int, generation: int, body: bytes) -> None:
    size = HEADER_SIZE + len(body) + 4
    header = struct.pack("<2sBBHHQIBBHQ", b"LC", 2, kind, 1, sender, generation, size, 1, 4, 0, 0)
    decodes_canonically_or_is_rejected(sealed(header + body))


MEMBERS_AT = BODY + 32
PREDECESSORS_AT = MEMBERS_AT + 4 + 2 * 2


@pytest.mark.parametrize(
    ("message", "at", "layout", "value"),
    [
        (DATA, 8, "<Q", 0),  # a view before the life
        (DATA, BODY, "<I", 0),  # life
        (DATA, BODY + 4, "<Q", 0),  # number
        (DATA, BODY + 12, "<H", 1),  # part 1 of 1
        (DATA, BODY + 14, "<H", 0),  # no parts
        (DATA, BODY + 16, "<Q", 8),  # settled before it is sent
        (DATA, BODY + 16, "<Q", 5),  # closed and not settled
        (DATA, MEMBERS_AT, "<I", 2**32 - 1),  # count of members
        (DATA, MEMBERS_AT + 4, "<H", 3),  # members twice
        (DATA, MEMBERS_AT + 4, "<H", 2),  # the source itself
        (DATA, PREDECESSORS_AT + 4 + 2, "<I", 0),  # life of a predecessor
        (DATA, PREDECESSORS_AT + 4 + 14 + 8 + 4 + 4, "<H", 2),  # members that are not in order
        (EXAMPLES[2], BODY, "<Q", 5),  # closed and not settled
        (EXAMPLES[2], BODY + 16, "<I", 2**20),  # count of statements
        (EXAMPLES[2], BODY + 20 + 14, "<B", 16),  # flags
        (EXAMPLES[2], BODY + 20 + 2, "<I", 0),  # life
        (EXAMPLES[3], BODY + 8, "<B", 2),  # flags
        (EXAMPLES[4], BODY + 8, "<H", 3),  # members twice
        (EXAMPLES[5], BODY + 6, "<I", 0),  # a content of round 0
        (EXAMPLES[7], BODY + 4 + 4 + 2, "<I", 0),  # life of a member
        (EXAMPLES[7], BODY + 4 + 4, "<H", 9),  # members that are not in order
        (EXAMPLES[1], 4, "<H", 2),  # an item of another stripe
        (EXAMPLES[1], BODY, "<B", 2),  # flags
        (EXAMPLES[1], BODY + 4, "<B", 25),  # an item whose seal is broken
    ],
)
def test_each_field_is_checked(message: Message, at: int, layout: str, value: int) -> None:
    expected = Reason.BROKEN_SEAL if (at, value) == (BODY + 4, 25) else Reason.BAD_FIELD
    assert reason_for(patched(encode(message, 1), at, layout, value)) is expected


def test_a_relay_carries_nothing_but_data() -> None:
    relay, probe = encode(EXAMPLES[1], 1), encode(Probe(2, 1, 1), 1)
    assert reason_for(resized(relay[: HEADER_SIZE + 1] + probe)) is Reason.BAD_FIELD
    assert reason_for(resized(relay[: HEADER_SIZE + 1] + relay)) is Reason.BAD_FIELD
    assert relay[HEADER_SIZE + 4] == KIND_WIDE_DATA


@pytest.mark.parametrize(
    "message",
    [
        DATA._replace(members=()),
        DATA._replace(members=(3, 1)),
        DATA._replace(members=(1, 2)),
        DATA._replace(part=1),
        DATA._replace(number=0),
        DATA._replace(number=2**64),
        DATA._replace(life=9),
        DATA._replace(settled=8),
        DATA._replace(closed=8),
        DATA._replace(payload=bytes(MAX_WIDE_PAYLOAD + 1)),
        DATA._replace(predecessors=(WidePredecessor(ID, 3, (1, 2, 3)),)),
        DATA._replace(statements=(WideStatement(ID, 4),)),
        DATA._replace(statements=(WideStatement(ID._replace(life=0), 1),)),
        WidePrepare(2, 4, 1, (3, 1)),
        WidePromise(2, 4, 2, 1, 0, 0, CONTENT, 0, ()),
        WideView(2, 5, CONTENT._replace(orphans=(ID, ID))),
        WideView(2, 5, CONTENT._replace(members=CONTENT.members[::-1])),
    ],
)
def test_what_every_receiver_would_reject_is_not_sent(message: Message) -> None:
    with pytest.raises(Malformed) as caught:
        encode(message, 1)
    assert caught.value.reason is Reason.BAD_FIELD
