"""A membership travels as one DBN record that people can read and nothing else is mistaken for."""

from __future__ import annotations

import databento_dbn as dbn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast import records
from levelcast.wire.membership import MAX_MEMBERS, decode_membership, encode_membership
from levelcast.wire.messages import MemberLife, Membership

lives = st.builds(MemberLife, st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1))
memberships = st.builds(
    Membership,
    st.integers(0, 2**64 - 1),
    st.lists(lives, min_size=1, max_size=60, unique_by=lambda each: each.member).map(tuple),
)


def longest(count: int) -> Membership:
    return Membership(2**64 - 1, tuple(MemberLife(65535 - i, 2**32 - 1) for i in range(count)))


def read_by_dbn(payload: bytes) -> dbn.SystemMsg:
    decoder = dbn.DBNDecoder()
    decoder.write(records.dbn_metadata() + payload + records.trades(1).tobytes())
    _, message, trade = decoder.decode()
    assert isinstance(message, dbn.SystemMsg)
    assert isinstance(trade, dbn.TradeMsg)
    return message


@given(memberships)
def test_there_and_back(membership: Membership) -> None:
    assert decode_membership(encode_membership(membership)) == membership


@given(memberships)
def test_it_is_one_record_that_dbn_reads_past(membership: Membership) -> None:
    payload = encode_membership(membership)
    assert records.count_records(payload) == 1
    assert payload[0] * 4 == len(payload) <= records.MAX_RECORD_BYTES
    text = read_by_dbn(payload).msg
    assert text.startswith(f"levelcast members v{membership.version}: ")
    listed = text.split()[3:]
    whole = [f"{each.member}/{each.life}" for each in membership.members]
    assert listed == whole or (listed[-1] == "..." and listed[:-1] == whole[: len(listed) - 1])


@given(memberships, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_stamp_leaves_it_alone(membership: Membership, sequence: int, ts_ns: int) -> None:
    payload = encode_membership(membership)
    assert records.stamp(payload, sequence, ts_ns) == payload


def test_people_can_read_it() -> None:
    payload = encode_membership(Membership(4, (MemberLife(1, 1), MemberLife(2, 1), MemberLife(3, 7))))
    assert read_by_dbn(payload).msg == "levelcast members v4: 1/1 2/1 3/7"


def test_the_system_message_is_the_one_of_records() -> None:
    payload = encode_membership(Membership(4, (MemberLife(1, 1),)))
    ours = records.system_messages(1)
    ours["length"] = len(payload) // 4
    ours["msg"] = b"levelcast members v4: 1/1"
    assert payload[: records.SYSTEM.itemsize] == ours.tobytes()


def test_sixty_of_the_longest_fit_and_more() -> None:
    assert MAX_MEMBERS >= 60
    for count in (60, MAX_MEMBERS):
        payload = encode_membership(longest(count))
        assert decode_membership(payload) == longest(count)
        assert read_by_dbn(payload).msg.endswith(" ...")


@pytest.mark.parametrize(
    "membership",
    [
        Membership(1, ()),
        longest(MAX_MEMBERS + 1),
        Membership(1, (MemberLife(1, 1), MemberLife(1, 2))),
        Membership(-1, (MemberLife(1, 1),)),
        Membership(2**64, (MemberLife(1, 1),)),
        Membership(1, (MemberLife(2**16, 1),)),
        Membership(1, (MemberLife(1, 2**32),)),
    ],
)
def test_no_ring_can_have_it(membership: Membership) -> None:
    with pytest.raises(ValueError):
        encode_membership(membership)


@given(st.binary(max_size=400))
def test_other_bytes_are_not_a_membership(payload: bytes) -> None:
    assert decode_membership(payload) is None


@given(memberships, st.data())
def test_there_is_one_encoding_of_a_set(membership: Membership, data: st.DataObject) -> None:
    payload = bytearray(encode_membership(membership))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    decoded = decode_membership(bytes(payload))
    assert decoded is None or encode_membership(decoded) == payload
    if b"..." not in payload:  # the text names every member, so it contradicts any change of the tail
        assert decoded is None


@given(memberships, st.data())
def test_cut_or_lengthened_it_is_none(membership: Membership, data: st.DataObject) -> None:
    payload = encode_membership(membership)
    assert decode_membership(payload[: data.draw(st.integers(0, len(payload) - 1))]) is None
    assert decode_membership(payload + data.draw(st.binary(min_size=1, max_size=8))) is None


def test_other_records_are_not_a_membership() -> None:
    hello = records.system_messages(1)
    hello["msg"] = b"levelcast members v1: 1/1"
    assert decode_membership(hello.tobytes()) is None
    assert decode_membership(records.trades(8).tobytes()) is None
