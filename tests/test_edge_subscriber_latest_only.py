"""The grade *latest only*: never an older price behind a newer one, and in the end the newest of every symbol."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast import records
from levelcast.edge.subscriber import latest_only
from levelcast.edge.subscriber.delivery import Ask, Complete, Deliver, Effect, Ended, Grade, Lost, SubscriberConfig
from levelcast.edge.subscriber.session_reader import SessionReader
from levelcast.wire import mold
from levelcast.wire.mold import EndOfSession, Heartbeat
from levelcast.wire.watermark import Watermark, encode_watermark
from tests.edge_parts import ALPHA, KINDS, each_record, payloads, with_ids

MS = 1_000_000
LATEST = SubscriberConfig(Grade.LATEST_ONLY, retry_ns=5 * MS, attempts=3)
PRICES = (records.RTYPE_TRADE, records.RTYPE_QUOTE, records.RTYPE_STATUS, records.RTYPE_INSTRUMENT)


def trades(first: int, *instruments: int) -> bytes:
    """A packet of trades of these instruments on floor 1; `ts_event` is the sequence."""
    made = each_record(with_ids([(KINDS[0], 1, 1)] * first + [(KINDS[0], 1, each) for each in instruments]))
    (datagram,) = mold.encode_payload(ALPHA, first, b"".join(made[first:]))
    return datagram


def delivered(effects: list[Effect]) -> list[int]:
    found = []
    for effect in effects:
        if isinstance(effect, Deliver):
            for number, record in enumerate(each_record(effect.payload), effect.sequence):
                assert int.from_bytes(record[8:16], "little") == number
                found.append(number)
    return found


def asked(effects: list[Effect]) -> list[tuple[int, int]]:
    requests = [mold.decode_request(effect.datagram) for effect in effects if isinstance(effect, Ask)]
    return [(request.sequence, request.messages) for request in requests]


# -- one step at a time -----------------------------------------------------------------------------------


def test_what_is_behind_a_hole_does_not_wait() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    assert delivered(customer.receive([trades(1, 1), trades(4, 1, 2)], 0)) == [1, 4, 5]
    assert customer.position(ALPHA) == 6
    assert customer.counts.gaps == 1
    assert customer.next_ns == MS


def test_of_an_answer_only_what_is_not_out_of_date_is_delivered_under_its_own_sequence() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(1, 1), trades(7, 1, 2)], 0)
    assert asked(customer.wake(MS)) == [(2, 5)]
    effects = customer.receive([trades(2, 3, 1, 3, 2, 4)], 2 * MS)
    assert delivered(effects) == [2, 4, 6]
    assert [(each.sequence, each.records) for each in effects if isinstance(each, Deliver)] == [(2, 1), (4, 1), (6, 1)]
    assert customer.counts.superseded == 2
    assert customer.next_ns is None


def test_records_of_two_holes_never_go_back() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(2, 9), trades(4, 9)], 0)
    assert delivered(customer.receive([trades(3, 5)], 0)) == [3]
    assert delivered(customer.receive([trades(1, 5)], 0)) == []  # 3 is newer
    assert customer.counts.superseded == 1


def test_a_packet_that_fills_holes_and_goes_on() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(2, 7), trades(4, 7)], 0)
    assert delivered(customer.receive([trades(1, 1, 7, 2, 7, 3)], 0)) == [1, 3, 5]
    assert (customer.counts.duplicates, customer.counts.superseded) == (2, 0)
    assert customer.next_ns is None


def test_a_hole_is_asked_for_a_bounded_number_of_times_then_lost() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(3, 1)], 0)
    found: list[Effect] = []
    while (due := customer.next_ns) is not None:
        found += customer.wake(due)
    assert asked(found) == [(1, 2)] * 3
    assert found[-1] == Lost(ALPHA, 1, 2)
    assert customer.receive([trades(1, 1, 2)], 10**9) == []
    assert (customer.counts.lost, customer.counts.late) == (2, 2)


def test_a_hole_that_cannot_matter_is_not_asked_for() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.expect(ALPHA, [(1, 5), (1, 6)])
    customer.receive([trades(1, 5), trades(4, 5)], 0)
    assert asked(customer.wake(MS)) == [(2, 2)]  # 6 may be in it
    customer.receive([trades(5, 9, 6)], 2 * MS)
    due = customer.next_ns
    assert due is not None
    assert customer.wake(due) == []
    assert customer.counts.superseded == 2
    assert customer.next_ns is None


def test_what_is_no_price_is_never_out_of_date() -> None:
    bust = records.trades(1)
    bust["action"] = records.ACTION_BUST
    bust["instrument_id"], bust["publisher_id"], bust["ts_event"] = 5, 1, 1
    order = records.orders(1)
    order["instrument_id"], order["publisher_id"], order["ts_event"] = 5, 1, 2
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(3, 5)], 0)
    (packet,) = mold.encode_payload(ALPHA, 1, bust.tobytes() + order.tobytes())
    assert delivered(customer.receive([packet], 0)) == [1, 2]


def test_a_session_is_complete_up_to_a_watermark_when_no_hole_before_it_is_open() -> None:
    def mark(sequence: int, complete_ns: int) -> bytes:
        return mold.encode_payload(ALPHA, sequence, encode_watermark(Watermark(complete_ns, 1, 0)))[0]

    def told(effects: list[Effect]) -> list[int]:
        return [each.watermark.complete_ns for each in effects if isinstance(each, Complete)]

    customer = SessionReader({ALPHA: 1}, LATEST)
    assert told(customer.receive([trades(1, 1), mark(2, 100)], 0)) == [100]
    assert told(customer.receive([mark(4, 200), trades(5, 3), mark(7, 300)], 0)) == []
    assert told(customer.receive([trades(3, 3)], 0)) == [200]  # of which nothing is delivered
    assert told(customer.receive([trades(6, 3)], 0)) == [300]


def test_the_end_waits_for_what_may_hold_a_newest_price() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(1, 1), trades(3, 1), mold.encode(EndOfSession(ALPHA, 6))], 0)
    assert asked(customer.wake(MS)) == [(2, 1), (4, 2)]
    customer.receive([trades(2, 2)], 2 * MS)
    effects: list[Effect] = []
    while (due := customer.next_ns) is not None:
        effects += customer.wake(due)
    assert effects[-2:] == [Lost(ALPHA, 4, 2), Ended(ALPHA, 6)]


def test_a_heartbeat_that_lies_does_not_make_it_deaf() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(1, 1), mold.encode(Heartbeat(ALPHA, 2**63))], 0)
    for _ in range(50):
        due = customer.next_ns
        assert due is not None
        customer.wake(due)
    assert delivered(customer.receive([trades(2, 1)], 10**12)) == [2]


def test_the_largest_sequences_there_are() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    (packet,) = mold.encode_payload(ALPHA, 2**64 - 3, records.trades(2).tobytes())
    (before,) = mold.encode_payload(ALPHA, 2**64 - 5, records.trades(2).tobytes())
    effects = customer.receive([trades(1, 1), packet, before], 0)
    assert [each.sequence for each in effects if isinstance(each, Deliver)] == [1, 2**64 - 3]
    assert customer.counts.superseded == 2


def test_holes_and_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(2 * number, 1) for number in range(1, 400)], 0)
    assert customer.counts.lost == 399 - latest_only.MAX_HOLES
    monkeypatch.setattr(latest_only, "MAX_KEYS", 3)
    customer = SessionReader({ALPHA: 1}, LATEST)
    effects = customer.receive([trades(2, 1, 2, 3)], 0)
    assert Lost(ALPHA, 1, 1) not in effects
    assert Lost(ALPHA, 1, 1) in customer.receive([trades(5, 4)], 0)
    assert customer.receive([trades(1, 4)], 0) == []


def test_the_caller_may_skip_a_hole() -> None:
    customer = SessionReader({ALPHA: 1}, LATEST)
    customer.receive([trades(3, 1), trades(5, 1)], 0)
    assert customer.skip(ALPHA, 0) == [Lost(ALPHA, 1, 2)]
    assert customer.skip(ALPHA, 0) == [Lost(ALPHA, 4, 1)]
    assert customer.skip(ALPHA, 0) == []
    assert customer.next_ns is None


# -- against a model --------------------------------------------------------------------------------------


class Model(NamedTuple):
    """What a customer may see: the stream, and the newest delivered of each type, floor and instrument."""

    stream: list[bytes]
    newest: dict[tuple[int, bytes], int]
    seen: set[int]

    @staticmethod
    def key(record: bytes) -> tuple[int, bytes] | None:
        is_price = record[1] in PRICES and (record[1] != records.RTYPE_TRADE or record[28:29] == b"T")
        return (record[1], record[2:8]) if is_price else None

    def deliver(self, effect: Deliver) -> None:
        for number, record in enumerate(each_record(effect.payload), effect.sequence):
            assert record == self.stream[number - 1]
            assert number not in self.seen
            self.seen.add(number)
            if (key := self.key(record)) is not None:
                assert self.newest.get(key, 0) < number, "an older price behind a newer one"
                self.newest[key] = number

    def check_end(self) -> None:
        for number, record in enumerate(self.stream, 1):
            key = self.key(record)
            assert number in self.seen if key is None else self.newest[key] >= number


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.lists(payloads(25, instruments=4), min_size=1, max_size=8),
    st.booleans(),
)
def test_whatever_is_lost_and_repaired_prices_never_go_back_and_the_last_ones_come(
    seed: int, loss: float, parts: list[bytes], answered: bool
) -> None:
    chance = random.Random(seed)
    stream = [record for part in parts for record in each_record(part)]
    stream = [record[:8] + number.to_bytes(8, "little") + record[16:] for number, record in enumerate(stream, 1)]
    model = Model(stream, {}, set())
    customer = SessionReader({ALPHA: 1}, SubscriberConfig(Grade.LATEST_ONLY, attempts=10**6 if answered else 2))
    end = mold.encode(EndOfSession(ALPHA, len(stream) + 1))

    def cut(first: int, last: int) -> list[bytes]:
        """Packets of any sizes."""
        found = []
        while first < last:
            number = min(chance.randint(1, 7), last - first)
            found += mold.encode_payload(ALPHA, first, b"".join(stream[first - 1 : first - 1 + number]))
            first += number
        return found

    wire = [(number + chance.uniform(0, 4), packet) for number, packet in enumerate(cut(1, len(stream) + 1))]
    coming = [packet for _, packet in sorted(wire) if chance.random() >= loss] + [end]
    now, over, lost = 0, False, 0
    while not over:
        some = [coming.pop(0) for _ in range(min(len(coming), chance.randint(1, 5)))]
        effects = customer.receive(some, now)
        due = customer.next_ns
        if due is not None and (not coming or chance.random() < 0.3):
            now = max(now, due)
            effects += customer.wake(now)
        for effect in effects:
            if isinstance(effect, Deliver):
                model.deliver(effect)
            elif isinstance(effect, Ask) and answered:
                request = mold.decode_request(effect.datagram)
                answer = cut(request.sequence, min(request.sequence + request.messages, len(stream) + 1))
                coming += [packet for packet in answer if chance.random() >= loss]
            elif isinstance(effect, Lost):
                lost += effect.messages
            elif isinstance(effect, Ended):
                over = True
    counts = customer.counts
    assert lost == counts.lost
    assert len(model.seen) == counts.records
    assert counts.records + counts.superseded + counts.lost == len(stream)
    if answered:
        assert not lost
        model.check_end()
