"""Customers in bulk: what two lines, loss and grades must come to, and what real subscribers do on the same lines."""

from __future__ import annotations

import heapq
from random import Random

import numpy as np
import pytest

from levelcast.edge.server.packetizer import Outgoing
from levelcast.edge.server.retransmit_store import Retransmitter
from levelcast.edge.subscriber.delivery import Ask, SubscriberConfig
from levelcast.edge.subscriber.session_reader import SessionReader
from levelcast.network.regions.delays import Delays
from levelcast.sim.bulk.core import CoreRun
from levelcast.sim.bulk.edge import (
    BEST_EFFORT,
    GUARANTEED,
    LATEST_ONLY,
    BulkEdge,
    BulkSubscribers,
    EdgeRules,
    EdgeRun,
    histogram_quantile,
)
from levelcast.wire import mold
from tests.edge_parts import ALPHA, some_trades

HOLD_MS = 1_000.0
SLOT_MS = 50.0


def released(receivers: int, slots: int, late: float = 0.0) -> CoreRun:
    """Every slot has a packet, and all receivers release it at the instant, or `late` ms after it."""
    nothing = np.zeros((slots, receivers), np.float32)
    counts = np.zeros(receivers, np.int64)
    return CoreRun(
        slots=range(slots),
        held=nothing,
        ready=nothing,
        release=nothing + np.float32(HOLD_MS + late),
        late=nothing > 0,
        packets=np.ones(slots, np.int64),
        wait_ms=np.zeros(slots),
        sent_nacks=counts,
        nacks=counts,
        instant_ms=np.zeros(slots),
        needed_ms=0.0,
    )


def run(loss: float, grade: int = GUARANTEED, customers: int = 20_000, slots: int = 20, **rules: float) -> EdgeRun:
    """One region: customers in city 0, their lines at cities 1 (5 ms) and 2 (20 ms), one receiver each."""
    delay = np.array([[0.5, 5.0, 20.0], [5.0, 0.5, 15.0], [20.0, 15.0, 0.5]])
    delays = Delays(("a", "b", "c"), delay, np.full((3, 3), 1.0), np.full((3, 3), loss))
    everybody = BulkSubscribers(
        np.zeros(customers, np.int32),
        np.zeros(customers, np.int32),
        np.ones(customers, np.int32),
        np.full(customers, grade, np.int8),
        np.array([0, customers]),
    )
    edge = BulkEdge(delays, np.array([1, 2]), everybody, EdgeRules(**rules), 3)  # type: ignore[arg-type]
    return edge.run(released(2, slots), HOLD_MS, SLOT_MS, slots)


def test_without_loss_the_nearer_line_is_first_and_nobody_asks() -> None:
    seen = run(0.0)
    assert seen.first_line == 20_000 * seen.slots
    assert seen.asked.sum() == 0
    assert 5.0 <= seen.quantile_ms(0.001) < seen.quantile_ms(0.999) <= 6.1
    assert seen.spread_ms.max() <= 1.0


def test_the_second_line_brings_what_the_first_has_lost() -> None:
    seen = run(0.1)
    share = np.array([seen.first_line, seen.second_line, seen.repaired]) / (20_000 * seen.slots)
    assert share == pytest.approx([0.9, 0.09, 0.01], rel=0.05)
    assert 5.0 < seen.quantile_ms(0.89) < 6.1 < 20.0 < seen.quantile_ms(0.92) < 21.1


def test_requests_are_as_many_as_lost_packets_and_attempts_make() -> None:
    """p² of the packets are asked for, on average 1 / (1 - p)² times, and (1 - p) of the requests arrive."""
    seen = run(0.2)
    per_packet = 20_000 * 0.04 / 0.64
    assert seen.asked.mean() == pytest.approx(per_packet, rel=0.05)
    assert seen.nacks.sum() / seen.slots == pytest.approx(per_packet * 0.8, rel=0.05)
    assert seen.nacks[0] > 2 * seen.nacks[1], "the nearer server is asked first"
    assert seen.lost.sum() == 0


def test_a_repair_takes_the_next_packet_and_a_round_trip() -> None:
    seen = run(0.1)
    counts = seen.arrivals[0].copy()
    counts[: int((22.0 + 10.0) / 0.1)] = 0
    soonest = histogram_quantile(counts, 0.001)
    assert soonest == pytest.approx(SLOT_MS + 5.0 + 1.0 + 10.0, abs=3.0)


def test_best_effort_loses_and_does_not_ask() -> None:
    seen = run(0.1, BEST_EFFORT)
    assert seen.asked.sum() == 0
    assert seen.lost[BEST_EFFORT] / (20_000 * seen.slots) == pytest.approx(0.01, rel=0.1)


def test_latest_only_asks_for_what_is_not_superseded() -> None:
    asked = [run(0.1, LATEST_ONLY, superseded=share).asked.sum() for share in (0.0, 0.5, 1.0)]
    assert asked[2] == 0
    assert asked[1] == pytest.approx(asked[0] / 2, rel=0.1)


def test_one_line_is_asked_about_far_more_often() -> None:
    alone = run(0.1, two_lines=False)
    assert alone.second_line == 0
    assert alone.asked.sum() > 8 * run(0.1).asked.sum()
    assert alone.nacks[1] == 0


def test_loss_that_a_whole_place_shares() -> None:
    seen = run(0.0, slots=200, customers=50, branch_loss=0.1)
    per_slot = np.unique(seen.asked)
    assert per_slot.tolist() == [0, 50], "all or nobody"


def test_a_late_release_is_late_at_customers() -> None:
    seen = run(0.0)
    assert seen.slowest_ms < 7.0
    delays = Delays(("a",), np.ones((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
    here = np.zeros(5, np.int32)
    one = BulkSubscribers(here, here, here, np.zeros(5, np.int8), np.array([0, 5]))
    late = BulkEdge(delays, np.zeros(1, np.intp), one, EdgeRules(), 1).run(released(1, 4, 300.0), HOLD_MS, SLOT_MS, 4)
    assert late.quantile_ms(0.5) == pytest.approx(301.0, abs=0.2)


# -- the real subscriber on the same lines --------------------------------------------------------------------------

LINES_MS = (5.0, 20.0)
RETRY_MS = 2.0 * (20.0 + 1.0 + 1.0)


def subscribed(rng: Random, loss: float, packets: int) -> tuple[int, list[float]]:
    """One guaranteed customer: how often it asked, and after how many ms it had each packet but the last ones."""
    config = SubscriberConfig(reorder_ns=1_000_000, retry_ns=int(RETRY_MS * 1e6), attempts=1_000)
    customer, server = SessionReader({ALPHA: 1}, config), Retransmitter()
    events: list[tuple[float, int, bytes]] = []

    def travel(at_ms: float, line: int, data: bytes) -> None:
        if rng.random() >= loss:
            heapq.heappush(events, (at_ms + LINES_MS[line] + rng.random(), len(events), data))

    for number in range(packets):
        payload = some_trades(1)
        packet = mold.encode(mold.EdgePacket(ALPHA, number + 1, 1, len(payload), payload))
        server.keep([Outgoing(ALPHA, number + 1, 1, packet, len(packet).to_bytes(4, "little"))])
        for line in (0, 1):
            travel(number * SLOT_MS, line, packet)
    came: dict[int, float] = {}
    asked = 0
    while events or customer.next_ns is not None:
        wake_ns = customer.next_ns
        wake_ms = wake_ns / 1e6 if wake_ns is not None else float("inf")
        if events and events[0][0] <= wake_ms:
            now_ms, _, data = heapq.heappop(events)
            for sequence in range(int.from_bytes(data[10:18], "big"), sum(_range_of(data))):
                came.setdefault(sequence, now_ms - (sequence - 1) * SLOT_MS)
            customer.receive([data], int(now_ms * 1e6))
            continue
        assert wake_ns is not None
        for effect in customer.wake(wake_ns):
            if isinstance(effect, Ask):
                asked += 1
                line = effect.attempt % 2
                answer = server.answer(effect.datagram)
                if rng.random() >= loss and answer is not None:
                    for datagram in answer.datagrams:
                        travel(wake_ms + LINES_MS[line] + rng.random(), line, datagram)
        if wake_ms > (packets + 100) * SLOT_MS:
            break
    return asked, [came[number] for number in range(1, packets - 5)]


def _range_of(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[10:18], "big"), int.from_bytes(data[18:20], "big")


@pytest.mark.parametrize("loss", [0.1, 0.2])
def test_bulk_customers_do_as_real_subscribers_do(loss: float) -> None:
    """As often asking, and packets as late: quantiles up to the last thousandth, which is all repairs."""
    rng = Random(5)
    packets, customers = 400, 60
    real = [subscribed(rng, loss, packets) for _ in range(customers)]
    asked = sum(each for each, _ in real) / customers / packets
    came = np.concatenate([times for _, times in real])
    seen = run(loss)
    assert seen.asked.mean() / 20_000 == pytest.approx(asked, rel=0.2)
    for share in (0.5, 0.8, 0.985 if loss < 0.2 else 0.95):
        assert seen.quantile_ms(share) == pytest.approx(np.quantile(came, share), abs=1.0)
    assert seen.quantile_ms(0.999) == pytest.approx(np.quantile(came, 0.999), rel=0.15)


def test_with_a_bound_above_all_delays_the_spread_is_that_of_the_clocks() -> None:
    seen = run(0.01, slots=40)
    bound_ms = seen.bound_ms()
    assert 5.0 < bound_ms <= 7.0  # 1 % of 1 % comes later than by the first line, and 1 % by the second
    later_ms = seen.bound_ms(0.999)
    assert 20.0 < later_ms <= 22.0
    low, high = (seen.together_quantile_ms(share, later_ms, 1.0) for share in (0.01, 0.99))
    assert high - low == pytest.approx(2.0, abs=0.2)
    assert seen.together_quantile_ms(0.5, later_ms, 1.0) == pytest.approx(later_ms, abs=0.2)
    assert seen.quantile_ms(0.995) - seen.quantile_ms(0.005) > 15.0
    assert 0.0 < seen.missed(later_ms)[0] < 0.001
    assert seen.missed(5.0)[0] == pytest.approx(1.0, abs=0.02)
    assert seen.missed(0.0)[1] == 0.0  # no subscriber there


def test_packets_after_the_bound_keep_their_times() -> None:
    seen = run(0.1)
    for share in (0.95, 0.98):
        assert seen.together_quantile_ms(share, 10.0, 0.0) == pytest.approx(seen.quantile_ms(share), abs=0.2)
    assert seen.together_quantile_ms(0.2, 10.0, 0.0) == pytest.approx(10.0, abs=0.2)
