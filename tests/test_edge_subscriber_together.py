"""Records wait for their release time and a common bound, whatever the hold time; late ones pass, in order."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.edge.subscriber.delivery import Ask, Complete, Deliver, Ended, Lost
from levelcast.edge.subscriber.plan_follower import Closed, Followed
from levelcast.edge.subscriber.together import MAX_EARLY_NS, PATIENCE_NS, TogetherQueue
from levelcast.protocol.pace import hold_at
from levelcast.records import statuses, trades, uniform_size
from levelcast.wire.messages import Cutoff, Pace, PaceChange
from levelcast.wire.mold import session_name
from levelcast.wire.pace_change import encode_pace_change
from levelcast.wire.watermark import Holds, Watermark, encode_watermark

MS = 1_000_000
T0 = 1_700_000_000_000_000_000
HOLD_NS, BOUND_NS = 400 * MS, 25 * MS
ALPHA, BETA = session_name("ALPHA"), session_name("BETA")
HOLDS = Holds(HOLD_NS, HOLD_NS)


def deliver(sequence: int, *times_ms: int, session: bytes = ALPHA) -> Deliver:
    batch = trades(len(times_ms))
    batch["ts_recv"] = T0 + np.array(times_ms, np.int64) * MS
    payload = batch.tobytes()
    return Deliver(session, sequence, len(times_ms), uniform_size(payload), payload)


def complete(at_ms: int, holds: Holds = HOLDS, session: bytes = ALPHA) -> Complete:
    return Complete(session, Watermark(T0 + at_ms * MS, 1, 0, holds))


def queue(bound_ns: int = BOUND_NS, *, in_order: bool = True) -> TogetherQueue:
    made = TogetherQueue(bound_ns, in_order=in_order)
    made.take([complete(-1000)], T0)
    made.due(T0 + 10**9)
    return made


def numbers(effects: object) -> list[int]:
    assert isinstance(effects, list)
    return [number for each in effects for number in range(each.sequence, each.sequence + each.records)]


def test_a_record_waits_for_its_release_and_the_bound() -> None:
    made = queue()
    assert made.take([deliver(1, 0, 0, 50)], T0 + 410 * MS) == []
    assert made.next_ns == T0 + 425 * MS
    assert made.due(T0 + 425 * MS - 1) == []
    assert numbers(made.due(T0 + 425 * MS)) == [1, 2]
    assert made.position(ALPHA) == 3
    assert numbers(made.due(T0 + 475 * MS)) == [3]
    assert made.position(ALPHA) is None
    assert made.next_ns is None
    assert not len(made)
    assert (made.counts.records, made.counts.late) == (3, 0)


def test_a_record_that_arrives_after_the_bound_is_delivered_and_counted() -> None:
    made = queue()
    made.take([deliver(1, 0, 50)], T0 + 405 * MS)
    assert numbers(made.take([deliver(3, 50, 50, 100)], T0 + 478 * MS)) == [1, 2, 3, 4]
    assert (made.counts.late, made.counts.largest_late_ns) == (2, 3 * MS)
    assert numbers(made.due(T0 + 525 * MS)) == [5]


def test_a_watermark_in_a_session_without_recent_records_is_not_late() -> None:
    made = queue()
    made.take([deliver(1, 0)], T0 + 405 * MS)
    assert numbers(made.due(T0 + 425 * MS)) == [1]
    record = encode_watermark(Watermark(T0 + 400 * MS, 1, 0, HOLDS))
    mark = Deliver(ALPHA, 2, 1, len(record), record)
    assert numbers(made.take([mark], T0 + 805 * MS)) == [2]
    assert (made.counts.records, made.counts.late) == (1, 0)


def test_a_report_has_the_delays_and_counts_since_the_one_before() -> None:
    made = queue()
    made.take([deliver(1, 0, 0), deliver(3, 50)], T0 + 460 * MS)  # 60 ms and 10 ms after their release
    made.due(T0 + 476 * MS)
    report = made.report(7)
    assert (report.subscriber, report.bound_ns, report.records, report.late) == (7, BOUND_NS, 1, 2)
    assert (report.delay_p50_ns, report.delay_max_ns, report.error_p99_ns) == (35 * MS, 60 * MS, MS)
    made.take([deliver(4, 100)], T0 + 505 * MS)
    report = made.report(7)
    assert (report.records, report.late, report.delay_max_ns, report.error_p99_ns) == (1, 0, 5 * MS, 0)


def test_history_is_not_late() -> None:
    made = TogetherQueue(BOUND_NS)
    assert numbers([each for each in made.take([deliver(1, 0, 50), complete(50)], T0 + 10**10) if each[0] == ALPHA][:1])
    assert made.counts.late == 0


def test_records_wait_for_the_first_watermark() -> None:
    made = TogetherQueue(BOUND_NS)
    assert made.take([deliver(1, 0), deliver(2, 50)], T0 + 460 * MS) == []
    assert (len(made), made.next_ns, made.position(ALPHA)) == (2, T0 + 460 * MS + PATIENCE_NS, 1)
    found = made.take([complete(60)], T0 + 465 * MS)
    assert numbers(found) == [1]
    assert made.counts.late == 0  # it was due before the hold time was known
    assert numbers(made.due(T0 + 475 * MS)) == [2]


def test_a_timing_record_applies_from_its_slot_on() -> None:
    made = queue()
    change = PaceChange(1, T0 + 100 * MS, HOLD_NS, Pace(500 * MS, 25 * MS, (Cutoff(1, MS),)))
    record = encode_pace_change(change)
    made.take([Deliver(ALPHA, 1, 1, len(record), record), deliver(2, 99, 100)], T0 + 450 * MS)
    made.due(T0 + (99 + 425) * MS - 1)
    assert numbers(made.due(T0 + (99 + 425) * MS)) == [2]
    assert made.next_ns == T0 + (100 + 525) * MS


@given(
    st.lists(st.integers(100, 900), min_size=1, max_size=3),
    st.lists(st.integers(0, 40), min_size=1, max_size=40),
    st.integers(0, 2**32),
)
@settings(max_examples=60)
def test_no_record_is_early_or_lost_and_all_keep_their_order(holds: list[int], steps: list[int], seed: int) -> None:
    """Whatever the delays, the changes of the hold time and the batches."""
    rng = Random(seed)
    changes: list[PaceChange] = []
    before, from_ms = 400, 0
    for version, hold in enumerate(holds, start=1):
        from_ms += 1_000
        pace = Pace(hold * MS, 25 * MS, (Cutoff(1, MS),))
        changes.append(PaceChange(version, T0 + from_ms * MS, before * MS, pace))
        before, from_ms = hold, from_ms + 2 * abs(hold - before)
    times = np.cumsum([each * (from_ms + 500) // 800 for each in steps]).tolist()
    made = queue()
    made.take([Deliver(ALPHA, 1, 1, 0, encode_pace_change(each)) for each in changes[:1]], T0 - 10**9)
    sequence, now, got, told = 1, T0, [], 1
    for number in range(0, len(times), 3):
        some = times[number : number + 3]
        release = T0 + some[-1] * MS + hold_at(changes, T0 + some[-1] * MS, HOLD_NS)
        arrived = release + rng.randint(0, 60) * MS
        while made.next_ns is not None and made.next_ns <= arrived:
            now = max(now, made.next_ns)
            got += [(now, each) for each in made.due(now)]
        now = max(now, arrived)
        effects: list[Deliver] = []
        while told < len(changes) and changes[told].from_ns - changes[told].before_ns <= T0 + some[-1] * MS + 50 * MS:
            record = encode_pace_change(changes[told])
            effects.append(Deliver(ALPHA, 1, 1, len(record), record))
            told += 1
        got += [(now, each) for each in made.take([*effects, deliver(sequence, *some)], now)]
        sequence += len(some)
    while (at := made.next_ns) is not None:
        got += [(at, each) for each in made.due(at)]
    found = [
        (at, each) for at, each in got if isinstance(each, Deliver) and not each.payload[16:].startswith(b"levelcast")
    ]
    assert numbers([each for _, each in found]) == list(range(1, len(times) + 1))
    for at, each in found:
        for time_ms in times[each.sequence - 1 : each.sequence - 1 + each.records]:
            timestamp_ns = T0 + time_ms * MS
            if all(timestamp_ns < change.from_ns for change in changes[told:]):
                assert at >= timestamp_ns + hold_at(changes, timestamp_ns, HOLD_NS) + BOUND_NS
    assert all(earlier[0] <= later[0] for earlier, later in pairwise(found))


def test_a_late_joiner_has_the_hold_time_of_the_watermark() -> None:
    falling = Holds(400 * MS, 600 * MS, T0)
    made = TogetherQueue(BOUND_NS)
    made.take([complete(-100, falling)], T0)
    times_ns = [made.hold_ns(0, T0 + ms * MS) for ms in (-1, 0, 100, 400, 1000)]
    assert times_ns == [each * MS for each in (600, 600, 550, 400, 400)]
    assert made.hold_ns(1, T0) is None


def test_other_effects_keep_their_place_or_pass() -> None:
    made = queue()
    closed, followed, ask = Closed(ALPHA), Followed((BETA,), 0, T0), Ask(ALPHA, 0, b"")
    assert made.take([deliver(1, 0), closed, followed, ask], T0 + 400 * MS) == [ask]
    assert made.due(T0 + 425 * MS)[1:] == [closed, followed]
    assert made.take([closed], T0 + 430 * MS) == [closed]


def test_losses_and_ends_come_after_the_records_before_them() -> None:
    made = queue()
    lost, ended = Lost(ALPHA, 2, 5), Ended(ALPHA, 7)
    assert made.take([deliver(1, 0), lost, ended], T0 + 400 * MS) == []
    assert made.due(T0 + 425 * MS)[1:] == [lost, ended]
    assert made.take([Lost(BETA, 1, 1)], T0 + 400 * MS) == [Lost(BETA, 1, 1)]


def test_a_session_without_a_watermark_delivers_its_records_all_the_same() -> None:
    made = TogetherQueue(BOUND_NS)
    assert made.take([deliver(1, 0), Closed(ALPHA), Ended(ALPHA, 2)], T0 + 500 * MS) == []
    assert made.next_ns == T0 + 500 * MS + PATIENCE_NS
    assert made.due(made.next_ns - 1) == []
    found = made.due(made.next_ns)
    assert numbers(found[:1]) == [1]
    assert found[1:] == [Closed(ALPHA), Ended(ALPHA, 2)]
    assert made.next_ns is None


def test_a_watermark_without_a_hold_time_changes_nothing() -> None:
    made = queue()
    made.take([complete(0, Holds())], T0)
    assert made.hold_ns(0, T0) == HOLD_NS


def test_stripes_have_their_own_hold_times() -> None:
    made = queue()
    made.follow([BETA], 1)
    assert made.take([deliver(1, 0, session=BETA)], T0 + 400 * MS) == []
    assert made.position(BETA) == 1
    made.take([complete(0, Holds(300 * MS, 300 * MS), BETA)], T0 + 400 * MS)
    assert (made.hold_ns(0, T0), made.hold_ns(1, T0)) == (HOLD_NS, 300 * MS)


def test_records_without_a_timestamp_have_that_of_the_record_before() -> None:
    made = queue()
    watermark = encode_watermark(Watermark(T0, 1, 0, HOLDS))
    halt = statuses(1)
    halt["ts_recv"] = T0 + 50 * MS
    payload = trades(1).tobytes() + watermark + halt.tobytes() + watermark
    made.take([deliver(1, 0)], T0 + 400 * MS)
    made.take([Deliver(ALPHA, 2, 4, 0, payload)], T0 + 400 * MS)
    assert numbers(made.due(T0 + 425 * MS)) == [1, 2, 3]
    assert numbers(made.due(T0 + 475 * MS)) == [4, 5]


@pytest.mark.parametrize("in_order", [True, False])
def test_the_messages_of_a_gap_wait_for_earlier_ones_only_in_order(*, in_order: bool) -> None:
    made = queue(in_order=in_order)
    made.take([deliver(9, 100)], T0 + 501 * MS)
    found = made.take([deliver(5, 50)], T0 + 502 * MS)
    assert numbers(found) == ([] if in_order else [5])
    assert made.counts.late == 1


def test_a_wrong_clock_delays_records_by_a_limited_time() -> None:
    made = queue()
    now = T0 - 3_600 * 10**9
    made.take([deliver(1, 0)], now)
    assert made.next_ns == now + MAX_EARLY_NS + BOUND_NS
    assert made.counts.largest_early_ns == 3_600 * 10**9 + HOLD_NS


def test_records_do_not_wait_for_a_clock_that_was_set_back() -> None:
    made = queue()
    made.take([deliver(1, 0)], T0 + 400 * MS)
    back = T0 - 3_600 * 10**9
    assert numbers(made.take([deliver(2, 50)], back)) == [1]
    assert numbers(made.due(back + MAX_EARLY_NS + BOUND_NS)) == [2]


@given(st.integers(0, 2**64 - 1))
def test_any_timestamp_is_delivered(timestamp_ns: int) -> None:
    made = queue()
    batch = trades(1)
    batch["ts_recv"] = timestamp_ns
    payload = batch.tobytes()
    found = made.take([Deliver(ALPHA, 1, 1, len(payload), payload)], T0)
    assert numbers(found) or numbers(made.due(T0 + MAX_EARLY_NS + BOUND_NS)) == [1]


def test_a_gap_that_begins_with_a_message_without_a_time_is_not_overtaken() -> None:
    """Found by a simulated history: the first message got the time of the records after the gap."""
    made = queue(in_order=False)
    made.take([deliver(9, 100)], T0 + 410 * MS)
    payload = encode_watermark(Watermark(T0 - MS, 1, 0, HOLDS)) + deliver(4, 0).payload
    filled = Deliver(ALPHA, 3, 2, 0, payload)
    assert made.take([filled, deliver(5, 0)], T0 + 411 * MS) == []
    assert numbers(made.due(T0 + 425 * MS)) == [3, 4, 5]


def test_the_sessions_of_a_new_plan_do_not_overtake_those_of_the_one_before() -> None:
    """Found by a simulated history: a new session began with a message without a time, before the first watermark."""
    made = TogetherQueue(BOUND_NS)
    followed = Followed((BETA,), 0, T0)
    assert made.take([deliver(1, 0, 50), followed, Closed(ALPHA)], T0 + 410 * MS) == []
    record = encode_watermark(Watermark(T0 + 60 * MS, 1, 0, HOLDS))
    payload = record + deliver(2, 60).payload
    found = made.take([Deliver(BETA, 1, 2, 0, payload)], T0 + 10**9)
    assert [type(each) for each in found] == [Deliver, Followed, Closed, Deliver]
    assert [each.session for each in found if isinstance(each, Deliver)] == [ALPHA, BETA]


def test_a_shorter_hold_time_lets_no_later_record_overtake_one_that_waits() -> None:
    """Found by a simulated history: the hold time of records was known only after earlier ones were scheduled."""
    made = queue(in_order=False)
    assert made.take([deliver(4, 0)], T0 + 410 * MS) == []
    holds = Holds(HOLD_NS // 2, HOLD_NS // 2)
    shorter = complete(-500, holds)
    assert made.take([shorter, deliver(9, 50), complete(50, holds)], T0 + 411 * MS) == [shorter]
    assert numbers(made.take([deliver(3, 0)], T0 + 412 * MS)) == [3]
    assert made.next_ns == T0 + 425 * MS
    *found, mark = made.due(T0 + 425 * MS)
    assert numbers(found) == [4, 9]
    assert isinstance(mark, Complete)
