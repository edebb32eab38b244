"""Frames of several order stripes become one sequence (E9, rule 15)."""

from __future__ import annotations

from random import Random

import pytest

from levelcast.market.fair.fair_order import EntryFrame, FairEntry
from levelcast.market.fair.stripes import StripeMerge, entry_frame
from levelcast.protocol.history import GENESIS, make_frame
from levelcast.wire.messages import Packet
from levelcast.wire.packets import CrcSealer
from tests.fair_entry_parts import MS, START, Shown, Tape, order_records


def frames_of(stripe: int, times: list[int]) -> list[EntryFrame]:
    payloads = [order_records([Shown(11 + stripe, START + at)]).tobytes() for at in times]
    rows = enumerate(zip(times, payloads, strict=True), 1)
    return [EntryFrame(sequence, START + at, bytes([stripe]) * 32, payload) for sequence, (at, payload) in rows]


def test_a_frame_waits_until_all_stripes_are_complete() -> None:
    merge = StripeMerge((0, 1))
    (first,) = frames_of(0, [10])
    merge.add(0, first)
    assert merge.take() == []
    merge.complete(1, START + 9)
    assert merge.take() == []
    merge.complete(1, START + 10)
    assert [each.timestamp_ns for each in merge.take()] == [START + 10]


def test_the_merged_sequence_does_not_depend_on_the_arrival() -> None:
    results = set()
    for seed in range(20):
        rng = Random(seed)
        left = {0: frames_of(0, [10, 20, 30, 40]), 1: frames_of(1, [10, 15, 40]), 2: frames_of(2, [5, 40])}
        merge, taken = StripeMerge(left), []
        while any(left.values()):
            stripe = rng.choice([each for each, frames in left.items() if frames])
            merge.add(stripe, left[stripe].pop(0))
            taken += merge.take()
        results.add(tuple((each.sequence, each.timestamp_ns, each.chain) for each in taken))
    assert len(results) == 1
    (merged,) = results
    assert [row[1] - START for row in merged] == [5, 10, 10, 15, 20, 30, 40, 40, 40]
    assert [row[0] for row in merged] == list(range(1, 10))


def test_a_stripe_that_goes_back_is_a_defect_of_the_caller() -> None:
    merge = StripeMerge((0,))
    early, late = frames_of(0, [10, 20])
    merge.add(0, late)
    with pytest.raises(ValueError, match="not after"):
        merge.add(0, early)


def test_gateways_of_two_stripes_share_buckets() -> None:
    tape = Tape()
    merge, entry = StripeMerge((0, 1)), FairEntry()
    for frame in tape.frames:
        merge.add(0, frame)
    merge.complete(1, tape.frames[-1].timestamp_ns)
    for step in range(40):
        at = START + step * 20 * MS
        orders = order_records([Shown(11, at), Shown(12, at, 1)])
        merge.add(0, EntryFrame(10 + step * 2, at + 10 * MS, b"a" * 32, orders.tobytes()))
        merge.add(1, EntryFrame(1 + step, at + 15 * MS, b"b" * 32, order_records([Shown(13, at, 2)]).tobytes()))
    ordered = [entry.frame(frame).orders for frame in merge.take()]
    accounts = [account for orders in ordered for account in orders["account"].tolist()]
    assert len(accounts) >= 70
    assert abs(accounts.count(1) - accounts.count(2)) <= 2


def test_a_frame_of_the_ring_has_the_source_of_each_record() -> None:
    sealer = CrcSealer(0)
    records = order_records([Shown(11, START), Shown(11, START)])
    pieces = [sealer.seal(Packet(source, 1, 1, 2, records.tobytes())) for source in (11, 12)]
    frame = make_frame(3, START, 5, pieces, GENESIS)
    converted = entry_frame(frame)
    assert converted.sources == ((11, 2), (12, 2))
    assert converted.sequence == 8
    assert converted.chain == frame.chain
