"""Stamps and beats of a gateway (E1 to E4)."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from levelcast.market.fair.fair_order import is_beat
from levelcast.market.fair.stamps import IDLE_BEATS, GatewayStamper, ReleaseClock
from levelcast.records import orders
from tests.fair_entry_parts import MS, RULES, T0, S

US = 1_000


def stamp(clock: ReleaseClock, *received_ns: int) -> list[int]:
    return [int(each) - T0 for each in clock.stamps(np.array(received_ns, np.int64))[0]]


def test_a_stamp_is_the_clock_less_the_lateness_of_the_newest_release() -> None:
    clock = ReleaseClock(MS)
    assert stamp(clock, T0) == [0]
    clock.released((0, 1), T0 + 10 * MS, T0 + 10 * MS + 300 * US)
    assert stamp(clock, T0 + 10 * MS) == [10 * MS], "received before the release"
    assert stamp(clock, T0 + 15 * MS) == [15 * MS - 300 * US]
    clock.released((0, 2), T0 + 20 * MS, T0 + 20 * MS)
    assert stamp(clock, T0 + 21 * MS) == [21 * MS]


def test_the_error_of_a_clock_cancels() -> None:
    """Both sites release and stamp by their own clocks: the time from release to stamp is the same."""
    true = ReleaseClock(MS)
    ahead = ReleaseClock(MS)
    error = 700 * US
    true.released((0, 1), T0, T0)
    ahead.released((0, 1), T0, T0)  # earlier in true time, at T0 by its clock
    reaction = 5 * MS
    assert stamp(true, T0 + reaction) == stamp(ahead, T0 - error + reaction + error)


def test_the_correction_is_at_most_the_cap() -> None:
    clock = ReleaseClock(MS)
    clock.released((0, 1), T0, T0 + 50 * MS)
    stamps, corrections = clock.stamps(np.array([T0 + 60 * MS], np.int64))
    assert corrections.tolist() == [MS]
    assert stamps.tolist() == [T0 + 59 * MS]


def test_of_two_receivers_at_a_site_the_earlier_one_counts() -> None:
    for order in ((0, 1), (1, 0)):
        clock = ReleaseClock(MS)
        for place in order:
            clock.released((0, 1), T0, T0 + (100 * US, 600 * US)[place])
        assert clock.correction(T0 + MS) == 100 * US


def test_a_release_before_its_time_corrects_nothing() -> None:
    clock = ReleaseClock(MS)
    clock.released((0, 1), T0, T0 - 5)
    assert clock.correction(T0 + MS) == 0


@example([(3, 0), (1, 0)])
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2000)), min_size=1, max_size=60))
def test_stamps_never_go_back_whatever_is_released(steps: list[tuple[int, int]]) -> None:
    clock, now, last = ReleaseClock(MS), T0, 0
    for number, (kind, passed_us) in enumerate(steps):
        now += passed_us * US
        if kind == 0:
            clock.released((0, number), now - passed_us * US // 2, now)
        else:
            stamps, corrections = clock.stamps(np.arange(now, now + kind * 10, 10, dtype=np.int64))
            assert (np.diff(stamps) >= 0).all()
            assert stamps[0] >= last
            assert corrections.min() >= 0
            assert corrections.max() <= MS
            last = int(stamps[-1])


def test_orders_are_stamped_by_receive_time_and_those_of_one_segment_keep_their_order() -> None:
    stamper = GatewayStamper(11, 50 * MS, MS)
    commands = orders(4)
    commands["client_order_id"] = [1, 2, 3, 4]
    commands["account"] = [5, 6, 6, 7]
    done = stamper.stamped(commands, np.array([T0 + 9, T0 + 3, T0 + 3, T0 + 1]), T0 + 10)
    assert done["client_order_id"].tolist() == [4, 2, 3, 1]
    assert done["ts_event"].tolist() == [T0 + 1, T0 + 3, T0 + 3, T0 + 9]
    assert set(done["publisher_id"].tolist()) == {11}
    assert stamper.wake_ns == T0 + 10 + 50 * MS, "an order shows the clock: no beat is due"


def test_a_beat_shows_the_clock_up_to_which_the_sockets_were_read() -> None:
    stamper = GatewayStamper(11, 50 * MS, MS)
    beat = stamper.beat(T0 + 7, T0 + 20)
    assert is_beat(beat).all()
    assert beat["ts_event"].tolist() == [T0 + 7]
    assert stamper.wake_ns == T0 + 20 + 50 * MS
    assert stamper.stamped(orders(1), np.array([T0 + 7]), T0 + 30)["ts_event"].tolist() == [T0 + 7]


def test_the_cap_is_that_of_the_rules_in_force() -> None:
    stamper = GatewayStamper(11, 50 * MS)
    later = RULES._replace(version=2, from_ns=RULES.from_ns + S, late_cap_ns=3)
    stamper.learn([RULES, later], RULES.from_ns - 1)
    assert stamper.clock.late_cap_ns == 0
    stamper.learn([RULES, later], RULES.from_ns)
    assert stamper.clock.late_cap_ns == RULES.late_cap_ns
    stamper.learn([RULES, later], later.from_ns)
    assert stamper.clock.late_cap_ns == 3


def test_without_orders_a_gateway_beats_three_times_in_theta_and_at_once_when_it_hears_of_one() -> None:
    stamper = GatewayStamper(11, 20 * MS)
    stamper.learn([RULES], RULES.from_ns)
    now, beats = RULES.from_ns, 0
    while now < RULES.from_ns + 10 * RULES.close_ns:
        stamper.beat(now, now)
        beats += 1
        assert stamper.wake_ns - now <= RULES.close_ns // IDLE_BEATS, "it stays in the set"
        now = stamper.wake_ns
    assert beats < 35
    stamper.heard_order(now - 100 * MS)
    assert stamper.wake_ns <= now - 100 * MS, "a beat is due at once"
    stamper.beat(now, now)
    assert stamper.wake_ns == now + 20 * MS
    stamper.stamped(orders(1), np.array([now + 3]), now + 5)
    assert stamper.wake_ns == now + 5 + 2 * RULES.quantum_ns, "the bucket of the order is over by then"
    stamper.beat(stamper.wake_ns, stamper.wake_ns)
    assert stamper.wake_ns == now + 5 + 2 * RULES.quantum_ns + 20 * MS
