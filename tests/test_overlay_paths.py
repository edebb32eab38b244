"""Delay and loss of paths, from numbered messages."""

from __future__ import annotations

from random import Random

import pytest

from levelcast.overlay.paths import (
    BUCKET_NS,
    ENOUGH,
    MINUTE_NS,
    OUTAGE_NS,
    RECENT_NS,
    REORDER,
    WINDOW,
    PathMeter,
    Paths,
    RecentLeast,
    SharedLosses,
    burst_length,
    loss_of,
)
from levelcast.overlay.probe import SELECTED
from levelcast.protocol.effects import GROUP, Send
from levelcast.wire.codec import MAX_PATHS, decode, encode
from levelcast.wire.messages import NOTHING_RECENT, PathRow

MS = 1_000_000
T0 = 1_700_000_040_000_000_000 // MINUTE_NS * MINUTE_NS
EVERY = 50 * MS


def feed(meter: PathMeter, numbers: range, lost: set[int] = frozenset(), delay_ns: int = 30 * MS) -> None:  # type: ignore[assignment]
    for number in numbers:
        if number not in lost:
            sent_ns = T0 + number * EVERY
            meter.take(number, sent_ns, sent_ns + delay_ns)


def test_losses_are_gaps_in_the_numbers_and_count_once_nothing_can_overtake() -> None:
    meter = PathMeter()
    feed(meter, range(5, 5 + REORDER), {7, 8, 12})
    assert meter.figures().lost == 0, "they may still arrive"
    feed(meter, range(5 + REORDER, 100))
    figures = meter.figures()
    assert (figures.heard, figures.lost, figures.bursts) == (92, 3, 2)
    assert figures.least_ns == 30 * MS


def test_what_overtakes_is_not_lost_and_a_second_copy_does_not_count() -> None:
    meter = PathMeter()
    feed(meter, range(1, 20), {10})
    assert not meter.take(10, T0 + 10 * EVERY, T0 + 10 * EVERY + 500 * MS)
    assert not meter.take(10, T0 + 10 * EVERY, T0 + 10 * EVERY + 501 * MS)
    feed(meter, range(20, 60))
    assert not meter.take(30, T0 + 30 * EVERY, T0 + 61 * EVERY), "long after it counted as arrived"
    assert (meter.figures().heard, meter.figures().lost) == (59, 0)


def test_a_sender_that_starts_again_counts_from_one_and_loses_nothing() -> None:
    meter = PathMeter()
    feed(meter, range(1, 40))
    assert meter.take(1, T0 + 60 * EVERY, T0 + 60 * EVERY + MS)
    for number in range(2, 40):
        assert not meter.take(number, T0 + (59 + number) * EVERY, T0 + (59 + number) * EVERY + MS)
    assert meter.figures().lost == 0


def test_an_outage_is_no_loss() -> None:
    meter = PathMeter()
    feed(meter, range(1, 40))
    feed(meter, range(42 + OUTAGE_NS // EVERY, 42 + OUTAGE_NS // EVERY + 40))
    assert (meter.figures().lost, meter.figures().outages) == (0, 1)
    short = PathMeter()
    feed(short, range(1, 40))
    feed(short, range(40 + 50, 40 + 100))
    assert (short.figures().lost, short.figures().bursts) == (50, 1)


def test_quantiles_are_within_a_bucket_and_may_be_negative() -> None:
    rng, meter = Random(1), PathMeter()
    delays = sorted(rng.randrange(-20 * MS, 80 * MS) for _ in range(5_000))
    for number, delay_ns in enumerate(rng.sample(delays, len(delays)), 1):
        meter.take(number, T0 + number * MS, T0 + number * MS + delay_ns)
    for share, found in zip((0.5, 0.99, 0.999), meter.figures().quantiles_ns(0.5, 0.99, 0.999), strict=True):
        assert abs(found - delays[int(share * 5_000) - 1]) <= BUCKET_NS
    assert meter.figures().least_ns == delays[0]


def test_old_minutes_are_forgotten() -> None:
    meter = PathMeter()
    for minute in range(WINDOW + 5):
        at_ns = T0 + minute * MINUTE_NS
        meter.take(minute + 1, at_ns, at_ns + MS)
    assert len(meter.minutes) == WINDOW
    assert meter.figures().heard == WINDOW


def two_nodes(lost_at_1: set[int], lost_at_2: set[int]) -> tuple[Paths, Paths]:
    """Nodes 1 and 2, which hear node 3 and each other's rows."""
    nodes = Paths(1, {2, 3}, T0), Paths(2, {1, 3}, T0)
    for number in range(1, 2_001):
        now = T0 + number * EVERY
        for node, lost in zip(nodes, (lost_at_1, lost_at_2), strict=True):
            if number not in lost:
                node.hear_beat(3, number, now, now + 20 * MS)
        if number % 20 == 0:
            sent = [node.step([], now + 20 * MS) for node in nodes]
            for node, effects in zip(nodes, reversed(sent), strict=True):
                rows = [effect.message for effect in effects if isinstance(effect, Send)]
                assert node.step([row for row in rows if isinstance(row, PathRow)], now + 21 * MS) == []
    return nodes


def test_two_nodes_learn_what_they_both_miss() -> None:
    first, second = two_nodes({100, 101, 300, 1_000}, {101, 300, 1_500})
    shared = first.shared[3, 2]
    assert shared == SharedLosses(shared.compared, 4, 3, 2)
    assert 1_900 < shared.compared <= 2_000, "each message is compared once"
    assert second.shared[3, 1] == SharedLosses(shared.compared, 3, 4, 2)
    assert first.rows[2][3].figures.lost == 3
    assert first.rows[1][3].figures.lost == 4


def test_a_long_row_is_sent_in_parts_that_can_be_decoded() -> None:
    node = Paths(1, range(2, 40), T0)
    for peer in range(2, 40):
        node.hear_probe(peer, 1, T0, T0 + peer * MS)
    sent = node.step([], T0 + 1_100 * MS)
    rows = [effect.message for effect in sent if isinstance(effect, Send) and effect.to == GROUP]
    assert [len(row.paths) for row in rows if isinstance(row, PathRow)] == [MAX_PATHS, MAX_PATHS, 8]
    for row in rows:
        datagram = encode(row, 0)
        assert decode(datagram).message == row
        assert len(datagram) <= 1_200
    assert node.step([], T0 + 1_200 * MS) == [], "once a second"


def test_the_beats_of_a_node_replace_its_probes_and_strangers_are_ignored() -> None:
    node = Paths(1, {2}, T0)
    node.hear_probe(2, 70, T0, T0 + 5 * MS)
    node.hear_beat(2, 1, T0, T0 + 7 * MS)
    node.hear_probe(2, 71, T0 + MS, T0 + 5 * MS)
    node.hear_beat(9, 1, T0, T0 + 7 * MS)
    assert set(node.meters) == {2}
    assert node.meters[2].figures().delays == {70: 1}
    node.step([PathRow(9, tuple(node.own_row(T0)))], T0)
    assert node.rows == {}


def test_probes_to_some_nodes_only_are_not_counted_because_their_gaps_are_no_losses() -> None:
    node = Paths(1, {2}, T0)
    node.hear_probe(2, SELECTED + 3, T0, T0 + 5 * MS)
    assert node.meters == {}


def test_a_quantile_is_used_once_there_are_enough_arrivals() -> None:
    node = Paths(1, {2}, T0)
    for number in range(1, ENOUGH + 1):
        assert node.delays_ns(0.999) == {}
        node.hear_beat(2, number, T0 + number * MS, T0 + number * MS + 12 * MS)
    assert node.delays_ns(0.999) == {2: 12 * MS + BUCKET_NS // 2}


@pytest.mark.parametrize(("lost", "share", "length"), [({7, 8, 12}, 3 / 92, 1.5), (set(), 0.0, 0.0)])
def test_loss_and_burst_length(lost: set[int], share: float, length: float) -> None:
    node = Paths(1, {2}, T0)
    for number in range(1, 93 + REORDER):
        if number not in lost:
            node.hear_beat(2, number, T0 + number * EVERY, T0 + number * EVERY + MS)
    (figures,) = node.own_row(T0)
    assert loss_of(figures) == pytest.approx(share, rel=0.2)
    assert burst_length(figures) == length


def test_the_least_of_the_last_seconds_forgets_what_is_older() -> None:
    least = RecentLeast()
    assert least.at(T0) is None
    least.add(30 * MS, T0)
    least.add(20 * MS, T0 + MS)
    assert (least.at(T0 + RECENT_NS), least.count) == (20 * MS, 2)
    least.add(25 * MS, T0 + RECENT_NS + MS)
    assert least.at(T0 + 2 * RECENT_NS - 1) == 20 * MS
    assert least.at(T0 + 2 * RECENT_NS + MS) == 25 * MS
    assert least.at(T0 + 5 * RECENT_NS) is None
    assert least.count == 0


def test_a_clock_that_is_set_back_begins_the_least_again() -> None:
    least = RecentLeast()
    least.add(-900 * MS, T0)
    least.add(20 * MS, T0 - 900 * MS)
    assert least.at(T0 - 900 * MS) == 20 * MS


def test_a_row_states_the_least_of_the_last_seconds_or_that_nothing_arrived() -> None:
    node = Paths(1, {2}, T0)
    node.hear_beat(2, 1, T0, T0 + 7 * MS)
    assert node.own_row(T0 + 8 * MS)[0].recent_us == 7_000
    assert node.own_row(T0 + 3 * RECENT_NS)[0].recent_us == NOTHING_RECENT
    node.hear_beat(2, 2, T0, T0 + 10**18)
    assert node.own_row(T0 + 10**18)[0].recent_us == 2**31 - 1
