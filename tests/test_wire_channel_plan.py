"""A plan travels as DBN records that people can read, and nothing else is mistaken for one."""

from __future__ import annotations

import databento_dbn as dbn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast import records
from levelcast.edge.plan_parts import Collector
from levelcast.wire.channel_plan import (
    PART_BYTES,
    ChannelPlan,
    Kind,
    PlanRecord,
    SessionId,
    build_channel_plan,
    decode_plan,
    decode_record,
    encode_record,
    parse_session,
    part_records,
    plan_session,
    session_of,
)
from levelcast.wire.header import Malformed

number = st.integers(1, 2**32 - 1)


@st.composite
def plans(draw: st.DrawFn) -> ChannelPlan:
    sessions = draw(st.integers(1, 6))
    ids = draw(st.sets(st.integers(1, 2**32 - 1), max_size=40))
    one = st.integers(0, sessions - 1)
    return build_channel_plan(
        draw(number),
        [(each, draw(one)) for each in ids],
        draw(st.lists(st.integers(0, 2**16 - 1), min_size=sessions, max_size=sessions)),
        rates=draw(st.lists(st.integers(0, 2**32 - 1), min_size=sessions, max_size=sessions)),
        default=draw(one),
        symbols=draw(st.integers(0, 2**32 - 1)),
    )


@given(plans(), st.integers(0, 9))
def test_a_plan_there_and_back_in_parts(plan: ChannelPlan, stripe: int) -> None:
    collector = Collector()
    for record in part_records(plan, stripe):
        found = decode_record(record)
        assert found is not None
        assert found.stripe == stripe
        assert not collector.complete
        assert collector.add(found)
    assert collector.complete
    back = collector.plan()
    assert back == plan
    assert (back.instruments.tolist(), back.sessions.tolist()) == (plan.instruments.tolist(), plan.sessions.tolist())
    assert (back.groups.tolist(), back.rates.tolist()) == (plan.groups.tolist(), plan.rates.tolist())
    assert (back.default, back.symbols, back.digest) == (plan.default, plan.symbols, plan.digest)


def test_a_large_plan_has_many_parts() -> None:
    plan = build_channel_plan(7, [(each * 7 + 1, pow(3, each, 65_537) % 1_000) for each in range(20_000)], range(1_000))
    parts = part_records(plan, 0)
    assert len(parts) == -(-len(plan.content) // PART_BYTES) > 10
    assert all(records.count_records(part) == 1 and len(part) <= records.MAX_RECORD_BYTES for part in parts)


def test_dbn_reads_a_part() -> None:
    part = part_records(build_channel_plan(3, [(1, 0)], [0]), 0)[0]
    decoder = dbn.DBNDecoder()
    decoder.write(records.dbn_metadata() + part + records.trades(1).tobytes())
    _, message, trade = decoder.decode()
    assert isinstance(message, dbn.SystemMsg)
    assert message.msg == "levelcast plan 3: part 1 of 1"
    assert isinstance(trade, dbn.TradeMsg)


@given(st.sampled_from(list(Kind)), number, st.binary(min_size=8, max_size=8), st.integers(0, 2**64 - 1))
def test_records_there_and_back(kind: Kind, number: int, digest: bytes, time_ns: int) -> None:
    content = b"x" * 5 if kind is Kind.PART else b""
    record = PlanRecord(kind, number, 9, digest, 2, 3, time_ns, time_ns, content)
    assert decode_record(encode_record(record)) == record


@given(plans(), st.data())
def test_a_damaged_record_is_none(plan: ChannelPlan, data: st.DataObject) -> None:
    record = bytearray(part_records(plan, 0)[0])
    at = data.draw(st.integers(0, 319))  # the text and what stands before it: there is one encoding
    record[at] ^= 1 << data.draw(st.integers(0, 7))
    found = decode_record(bytes(record))
    assert found is None or bytes(record[8:16]) != b"\xff" * 8  # the time is a field of its own
    assert decode_record(bytes(record[:-4])) is None


@given(st.binary(max_size=60), number)
def test_a_content_that_is_none_is_malformed(content: bytes, number: int) -> None:
    with pytest.raises(Malformed):
        decode_plan(number, content)


@given(plans(), st.data())
def test_a_damaged_content_is_malformed_or_another_plan(plan: ChannelPlan, data: st.DataObject) -> None:
    content = bytearray(plan.content)
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    collector = Collector()
    collector.number, collector.digest, collector.parts = plan.number, plan.digest, 1
    collector.found = [bytes(content)]
    with pytest.raises(Malformed):
        collector.plan()


@pytest.mark.parametrize(
    ("pairs", "groups", "default"),
    [([(0, 0)], [0], 0), ([(1, 0), (1, 0)], [0], 0), ([(1, 1)], [0], 0), ([(1, 0)], [], 0), ([(1, 0)], [0], 1),
     ([(1, 0)], [2**16], 0), ([(2**32, 0)], [0], 0)],
)  # fmt: skip
def test_what_no_plan_can_say(pairs: list[tuple[int, int]], groups: list[int], default: int) -> None:
    with pytest.raises(ValueError, match=r"instrument|sessions|default"):
        build_channel_plan(1, pairs, groups, default=default)


def test_the_sessions_of_some_instruments() -> None:
    plan = build_channel_plan(1, [(1, 0), (5, 2), (9, 1)], [0, 0, 1], default=1)
    assert plan.sessions_of([1, 5]) == [0, 2]
    assert plan.sessions_of([7]) == [1], "an instrument that was listed later"
    assert plan.sessions_of([]) == []


@given(st.integers(0, 35), st.integers(0, 2**15 - 1), st.integers(1, 36**3))
def test_names_there_and_back(stripe: int, session: int, number: int) -> None:
    name = session_of(number, stripe, session)
    assert len(name) == 10
    assert parse_session(name) == SessionId(number, stripe, session)
    assert parse_session(plan_session(number, stripe)) == SessionId(number, stripe, None)


@pytest.mark.parametrize("name", ["main", "1/2", "a/b/c/d", "01/0/0", "A/0/0", "1/0/ 1", "//", "1/0/", "-1/0/0"])
def test_other_names_are_of_no_plan(name: str) -> None:
    assert parse_session(name.encode().ljust(10)) is None
