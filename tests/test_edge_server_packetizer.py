"""Gathering: every record in its session once, in order, in packets that every receiver would send alike."""

from __future__ import annotations

import doctest
from collections import defaultdict
from collections.abc import Iterable
from types import ModuleType

import databento_dbn as dbn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast import records
from levelcast.edge.server import packetizer
from levelcast.edge.server.packetizer import GatherConfig, Outgoing, Packetizer, SessionMap
from levelcast.wire import mold
from levelcast.wire.mold import EdgePacket, EndOfSession, Heartbeat, session_name
from levelcast.wire.watermark import Holds, Watermark, decode_watermark, encode_watermark, last_watermark
from tests.edge_parts import ALPHA, BETA, GAMMA, KINDS, each_record, payloads, some_trades, with_ids

PLAN = SessionMap({1: ALPHA, 2: ALPHA, 3: BETA, 4: BETA, 5: GAMMA, 6: ALPHA})  # 7 and 8 have none
QUIET = GatherConfig(watermark_ns=0)
MS = 1_000_000


def packets_of(out: Iterable[Outgoing]) -> dict[bytes, list[EdgePacket]]:
    """The packets of each session, after checking that what is said beside them is what is in them."""
    found: dict[bytes, list[EdgePacket]] = defaultdict(list)
    for outgoing in out:
        assert len(outgoing.datagrams) == outgoing.packets > 0
        assert b"".join(outgoing.datagrams) == outgoing.buffer
        following = outgoing.sequence
        for datagram in outgoing.datagrams:
            packet = mold.decode(datagram)
            assert isinstance(packet, EdgePacket)
            assert packet[:2] == (outgoing.session, following)
            assert len(datagram) <= 1_400
            following += packet.records
            found[packet.session].append(packet)
        assert following == outgoing.sequence + outgoing.records
    return found


def expected(payload: bytes, plan: SessionMap) -> dict[bytes, list[bytes]]:
    """The rule, one record at a time."""
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for record in each_record(payload):
        floor = int.from_bytes(record[2:4], "little")
        instrument = int.from_bytes(record[4:8], "little")
        if instrument in plan.session_of:
            found[plan.session_of[instrument]].append(record)
        elif instrument == 0 and floor != 0:
            for session in plan.sessions:
                found[session].append(record)
    return found


@given(st.lists(payloads(), min_size=1, max_size=4), st.sampled_from([0, 2**31]))
def test_each_session_gets_its_records_in_order(frames: list[bytes], far: int) -> None:
    # The same plan with an instrument far out is searched instead of looked up.
    plan = SessionMap({**PLAN.session_of, **({far: GAMMA} if far else {})})
    gatherer = Packetizer(plan, 0, config=QUIET)
    sequences = dict.fromkeys(plan.sessions, 1)
    for slot, payload in enumerate(frames, 1):
        wanted = expected(payload, plan)
        found = packets_of(gatherer.release(slot, 1, payload, 0))
        assert set(found) == set(wanted)
        for session, packets in found.items():
            assert [each for packet in packets for each in each_record(packet.payload)] == wanted[session]
            for packet in packets:
                assert packet.sequence == sequences[session]
                sequences[session] += packet.records
    assert gatherer.state.next_sequences == sequences


def test_packets_are_full() -> None:
    out = Packetizer(PLAN, 0, config=QUIET).release(1, 1, with_ids([(KINDS[0], 1, 1)] * 50), 0)
    assert [each.records for each in packets_of(out)[ALPHA]] == [20, 20, 10]  # 20 + 20 * (2 + 64) = 1,340 bytes


def test_records_of_no_session_are_counted() -> None:
    gatherer = Packetizer(PLAN, 0, config=QUIET)
    control, halt, unplanned = (KINDS[3], 0, 0), (KINDS[2], 1, 0), (KINDS[0], 1, 7)
    found = packets_of(gatherer.release(1, 1, with_ids([control, halt, unplanned]), 0))
    assert {session: [packet.records for packet in packets] for session, packets in found.items()} == {
        ALPHA: [1],
        BETA: [1],
        GAMMA: [1],
    }
    assert gatherer.unplanned == 1


@given(st.lists(payloads(), min_size=1, max_size=3), st.sampled_from([{}, {1: ALPHA}, {1: ALPHA, 2**31: BETA}]))
def test_with_a_default_session_no_record_is_lost(frames: list[bytes], session_of: dict[int, bytes]) -> None:
    everything = SessionMap({**dict.fromkeys(range(1, 10), GAMMA), **session_of})
    one, other = Packetizer(SessionMap(session_of, GAMMA), 0), Packetizer(everything, 0)
    for slot, payload in enumerate(frames, 1):
        assert one.release(slot, 1, payload, 0) == other.release(slot, 1, payload, 0)
    assert one.unplanned == 0


def test_a_plan_without_instruments_sends_nothing() -> None:
    gatherer = Packetizer(SessionMap({}), 0)
    assert gatherer.release(10**9, 1, some_trades(3), 0) == []
    assert gatherer.next_ns is None


# -- watermarks -------------------------------------------------------------------------------------------

frames_strategy = st.lists(st.tuples(st.integers(1, 400), payloads(8)), min_size=1, max_size=6)


@given(frames_strategy, st.data())
def test_every_receiver_sends_the_same_packets(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """One learns what is complete in many steps, the other only by the frames themselves, and restarts between them."""
    times, at = [], 0
    for gap_ms, _ in frames:
        at += gap_ms * MS
        times.append(at)
    last_ns = at + 250 * MS

    one = Packetizer(PLAN, 0)
    ones: list[Outgoing] = []
    complete = 0
    for time_ns, (_, payload) in zip(times, frames, strict=True):
        for step in sorted(data.draw(st.lists(st.integers(complete, time_ns - 1), max_size=4))):
            ones += one.advance(step, now=step)
        ones += one.release(time_ns, 1, payload, now=time_ns)
        complete = time_ns
    for step in range(complete, last_ns + 1, 10 * MS):
        ones += one.advance(step, now=step)
    ones += one.advance(last_ns, now=last_ns)

    other = Packetizer(PLAN, 0)
    others: list[Outgoing] = []
    for time_ns, (_, payload) in zip(times, frames, strict=True):
        others += other.release(time_ns, 1, payload, now=5)
        other = Packetizer(PLAN, 0, resume=other.state)
    others += other.advance(last_ns, now=5)

    def by_session(out: list[Outgoing]) -> dict[bytes, list[bytes]]:
        return {session: [each.buffer for each in out if each.session == session] for session in PLAN.sessions}

    assert by_session(ones) == by_session(others)
    marks = [
        mark.complete_ns for packet in packets_of(ones)[ALPHA] if (mark := decode_watermark(packet.payload)) is not None
    ]
    assert marks == list(range(100 * MS, last_ns + 1, 100 * MS))


def test_a_watermark_stands_between_what_it_divides() -> None:
    gatherer = Packetizer(PLAN, 0, stripe=3)
    trade = with_ids([(KINDS[0], 1, 1)])
    out = gatherer.release(100 * MS, 2**40, trade, 0)  # on the grid: below the watermark
    assert gatherer.advance(100 * MS - 1, 0) == []
    out += gatherer.release(100 * MS + 1, 2**40 + 1, trade, 0)
    packets = packets_of(out)
    assert [decode_watermark(packet.payload) for packet in packets[ALPHA]] == [
        None,
        Watermark(100 * MS, 2**40 + 1, 3),
        None,
    ]
    assert [packet.sequence for packet in packets[ALPHA]] == [1, 2, 3]
    assert [packet.sequence for packet in packets[BETA]] == [1]  # silent, and complete all the same


def test_dbn_reads_a_watermark_as_the_end_of_an_interval() -> None:
    decoder = dbn.DBNDecoder()
    decoder.write(records.dbn_metadata() + encode_watermark(Watermark(10**18, 7, 0)) + KINDS[0])
    _, message, trade = decoder.decode()
    assert isinstance(message, dbn.SystemMsg)
    assert message.code == dbn.SystemCode.END_OF_INTERVAL
    assert message.msg == f"levelcast complete to {10**18}"
    assert message.ts_event == 10**18
    assert isinstance(trade, dbn.TradeMsg)


HOLD_TIMES = st.integers(0, 2**32 - 1).map(lambda us: us * 1_000)
HOLDS = st.builds(Holds, HOLD_TIMES, HOLD_TIMES, st.integers(0, 2**64 - 1))


@given(st.integers(0, 2**64 - 2), st.integers(0, 2**64 - 1), st.integers(0, 2**16 - 1), HOLDS, st.data())
def test_a_watermark_has_one_encoding(
    complete_ns: int, sequence: int, stripe: int, holds: Holds, data: st.DataObject
) -> None:
    watermark = Watermark(complete_ns, sequence, stripe, holds)
    record = encode_watermark(watermark)
    assert decode_watermark(record) == watermark
    assert records.count_records(record) == 1
    assert records.stamp(record, 1, 1) == record
    assert last_watermark(KINDS[0] + record + KINDS[1], 0) == watermark
    changed = bytearray(record)
    changed[data.draw(st.integers(0, len(record) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    other = decode_watermark(bytes(changed))
    assert other is None or encode_watermark(other) == changed
    assert decode_watermark(record[:-4]) is None


def test_a_hold_time_is_rounded_up_to_a_whole_microsecond() -> None:
    found = decode_watermark(encode_watermark(Watermark(1, 1, 0, Holds(417_000_001, 600_000_000, 7))))
    assert found is not None
    assert found.holds == Holds(417_001_000, 600_000_000, 7)


def test_no_mark_in_other_records() -> None:
    assert last_watermark(b"".join(KINDS), 0) is None
    lookalike = records.system_messages(1)
    lookalike["msg"] = b"levelcast complete to 5"
    assert last_watermark(lookalike.tobytes() + KINDS[0], 0) is None


# -- heartbeats and the end -------------------------------------------------------------------------------


def test_a_silent_session_gets_heartbeats() -> None:
    gatherer = Packetizer(PLAN, 0, config=GatherConfig(watermark_ns=0, heartbeat_ns=1_000), now=0)
    gatherer.release(1, 1, with_ids([(KINDS[0], 1, 1)] * 3), now=600)
    assert gatherer.next_ns == 1_000
    assert gatherer.heartbeats(999) == []
    assert [mold.decode(each.buffer) for each in gatherer.heartbeats(1_000)] == [
        Heartbeat(BETA, 1),
        Heartbeat(GAMMA, 1),
    ]
    assert gatherer.heartbeats(1_000) == []
    assert gatherer.next_ns == 1_600
    assert [mold.decode(each.buffer) for each in gatherer.heartbeats(1_600)] == [Heartbeat(ALPHA, 4)]


def test_watermarks_keep_heartbeats_away() -> None:
    gatherer = Packetizer(PLAN, 0, now=0)
    assert len(gatherer.advance(100 * MS, now=900 * MS)) == 3
    assert gatherer.heartbeats(1_800 * MS) == []
    assert len(gatherer.heartbeats(1_900 * MS)) == 3  # the ring stands still, the edge lives


def test_the_end_can_be_said_again() -> None:
    gatherer = Packetizer(PLAN, 0, config=QUIET)
    gatherer.release(1, 1, with_ids([(KINDS[0], 1, 1)] * 3), 0)
    said = [mold.decode(each.buffer) for each in gatherer.end()]
    assert said == [EndOfSession(ALPHA, 4), EndOfSession(BETA, 1), EndOfSession(GAMMA, 1)]
    assert [mold.decode(each.buffer) for each in gatherer.end()] == said
    assert gatherer.heartbeats(10**12) == gatherer.advance(10**12, 0) == []
    assert gatherer.next_ns is None


@pytest.mark.parametrize("bad", [{"packet_bytes": 1_041}, {"packet_bytes": 65_508}, {"heartbeat_ns": 0}])
def test_settings_that_cannot_work(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        GatherConfig(**bad)


@pytest.mark.parametrize("module", [packetizer, mold])
def test_the_examples_in_the_modules_hold(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


@given(st.lists(st.tuples(st.sampled_from([0, 1, 7]), st.booleans()), min_size=1, max_size=60), st.integers(1, 3))
def test_one_session_for_everything_is_cut_as_any_plan_is(rows: list[tuple[int, bool]], frames: int) -> None:
    payload = b""
    for instrument, is_trade in rows:
        record = (records.trades if is_trade else records.statuses)(1)
        record["instrument_id"], record["publisher_id"] = instrument, 3
        payload += record.tobytes()
    name = session_name("ALL")
    whole = Packetizer(SessionMap({}, name), start_ns=0)
    named = Packetizer(SessionMap({1: name}, name), start_ns=0)
    for number in range(frames):
        arguments = (5_000_000 * (number + 1), 1 + number * len(rows), payload, 0)
        assert whole.release(*arguments) == named.release(*arguments)
    assert whole.state == named.state
