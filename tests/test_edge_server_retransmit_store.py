"""The retransmit server gives back what was sent, bounded, and counts what it cannot give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.edge.server.packetizer import GatherConfig, Outgoing, Packetizer, SessionMap
from levelcast.edge.server.retransmit_store import RetransmitConfig, Retransmitter
from levelcast.wire import mold
from levelcast.wire.header import Reason
from levelcast.wire.mold import EdgePacket, RetransmitRequest
from tests.edge_parts import ALPHA, BETA, KINDS, each_record, payloads, with_ids

PLAN = SessionMap(dict.fromkeys(range(1, 9), ALPHA))


def sent_of(frames: list[bytes]) -> list[Outgoing]:
    gatherer = Packetizer(PLAN, 0, config=GatherConfig(watermark_ns=0))
    return [packet for slot, payload in enumerate(frames, 1) for packet in gatherer.release(slot, 1, payload, 0)]


def small(count: int) -> list[Outgoing]:
    """`count` packets of one trade each."""
    return sent_of([with_ids([(KINDS[0], 1, 1)])] * count)


def records_of(sent: list[Outgoing], first: int) -> list[bytes]:
    """The records of an answer, after checking that it begins at `first` and has no hole."""
    found: list[bytes] = []
    for out in sent:
        assert out.sequence == first + len(found)
        for datagram in out.datagrams:
            packet = mold.decode(datagram)
            assert isinstance(packet, EdgePacket)
            assert packet[:2] == (out.session, first + len(found))
            assert len(datagram) <= 1_400
            found += each_record(packet.payload)
        assert out.sequence + out.records == first + len(found)
    return found


def ask(server: Retransmitter, sequence: int, count: int, session: bytes = ALPHA) -> list[Outgoing]:
    """The answer, if there is one."""
    answer = server.answer(mold.encode(RetransmitRequest(session, sequence, count)))
    return [] if answer is None else [answer]


def counts(answer: list[Outgoing]) -> list[int]:
    """How many records each packet of an answer has."""
    return [int.from_bytes(datagram[18:20], "big") for out in answer for datagram in out.datagrams]


@given(st.lists(payloads(30), min_size=1, max_size=5), st.data())
def test_it_gives_back_exactly_what_is_wanted(frames: list[bytes], data: st.DataObject) -> None:
    server = Retransmitter(RetransmitConfig(reply_packets=1_000))
    sent = sent_of(frames)
    server.keep(sent)
    everything = records_of(sent, 1)
    if not everything:
        assert ask(server, 1, 1) == []
        return
    first = data.draw(st.integers(1, len(everything)))
    count = data.draw(st.integers(1, len(everything) - first + 1))
    assert records_of(ask(server, first, count), first) == everything[first - 1 : first - 1 + count]
    assert server.counts.whole == 1
    assert server.counts.messages == count


def test_small_packets_come_back_as_full_ones() -> None:
    server = Retransmitter()
    server.keep(small(45))
    assert counts(ask(server, 3, 43)) == [20, 20, 3]


def test_an_answer_is_bounded() -> None:
    server = Retransmitter(RetransmitConfig(reply_packets=2))
    server.keep(small(100))
    assert counts(ask(server, 1, 0xFFFF)) == [20, 20]
    assert counts(ask(server, 41, 10)) == [10]
    assert (server.counts.partly, server.counts.whole) == (1, 1)


def test_what_has_left_the_store_is_gone() -> None:
    server = Retransmitter(RetransmitConfig(store_bytes=20 * 86))  # a packet of one trade has 86 bytes
    sent = small(5_000)
    for packet in sent:
        server.keep([packet])
    assert server.held(ALPHA) == (4_981, 5_001)
    assert records_of(ask(server, 4_975, 10), 4_981) == records_of(sent[4_980:4_984], 4_981)
    assert ask(server, 4_970, 11) == []
    assert ask(server, 5_001, 1) == []
    told = server.counts
    assert (told.whole, told.partly, told.gone, told.ahead) == (0, 1, 1, 1)


@given(st.lists(payloads(60), min_size=1, max_size=8), st.integers(1_400, 9_000))
def test_the_store_is_bounded_and_has_the_last_of_what_was_sent(frames: list[bytes], limit: int) -> None:
    server = Retransmitter(RetransmitConfig(store_bytes=limit, reply_packets=1_000))
    sent = sent_of(frames)
    everything = records_of(sent, 1)
    for out in sent:
        server.keep([out])
        start, following = server.held(ALPHA) or (0, 0)
        assert following == out.sequence + out.records
        assert start < following, "a packet always fits"
        kept = records_of(ask(server, start, following - start), start)
        assert kept == everything[start - 1 : following - 1]
        assert sum(len(buffer) for buffer, _ in server._stores[ALPHA].runs) == server._stores[ALPHA].size <= limit


def test_requests_that_make_no_sense_are_counted() -> None:
    server = Retransmitter()
    server.keep(small(3))
    assert ask(server, 1, 1, BETA) == []
    assert server.answer(b"what?") is None
    assert server.answer(bytes(20)) is None
    assert server.counts.unknown == 1
    assert server.counts.malformed == {Reason.TOO_SHORT: 1, Reason.BAD_FIELD: 1}


@given(st.binary(max_size=40))
def test_no_request_is_an_error(datagram: bytes) -> None:
    server = Retransmitter()
    server.keep(small(3))
    server.answer(datagram)


def test_heartbeats_are_not_kept_and_a_session_that_jumps_begins_anew() -> None:
    server = Retransmitter()
    sent = small(10)
    server.keep([*sent[:3], Outgoing(ALPHA, 4, 0, mold.encode(mold.Heartbeat(ALPHA, 4)), b"\x14\0\0\0")])
    assert server.held(ALPHA) == (1, 4)
    server.keep(sent[6:])
    assert server.held(ALPHA) == (7, 11)
    server.forget(ALPHA)
    assert server.held(ALPHA) is None


@pytest.mark.parametrize("bad", [{"packet_bytes": 100}, {"store_bytes": 100}, {"reply_packets": 0}])
def test_settings_that_cannot_work(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        RetransmitConfig(**bad)
