"""Timing records that a running ring accepts."""

from __future__ import annotations

import pytest

from levelcast.protocol.pace import follows, hold_at, with_change
from levelcast.protocol.timing_record import MARGIN_NS, settled_ns, timing_record
from levelcast.wire.messages import Cutoff, Pace
from levelcast.wire.pace_change import decode_pace_change, encode_pace_change

MS = 1_000_000
NOW = 1_700_000_000_000_000_000
PACE = Pace(417 * MS, 25 * MS, (Cutoff(1, 80 * MS), Cutoff(2, 90 * MS + 1)))


@pytest.mark.parametrize("hold_ns", [200 * MS, 417 * MS, 459 * MS + 1, 6_000 * MS])
def test_a_record_is_in_whole_units_and_counts_as_the_first(hold_ns: int) -> None:
    change = timing_record(0, PACE, hold_ns, NOW)
    assert decode_pace_change(encode_pace_change(change)) == change
    assert hold_ns <= change.pace.hold_ns < hold_ns + MS // 10
    assert change.pace.beat_ns == 25 * MS
    assert [each.ns for each in change.pace.cutoffs] == [80 * MS, 90 * MS + MS // 10]
    assert follows((), change, NOW + MARGIN_NS - 1)
    assert not follows((), change, NOW + MARGIN_NS)


def test_a_record_after_a_shorter_hold_time_applies_when_that_is_reached() -> None:
    first = timing_record(0, PACE, 100 * MS, NOW)
    paces = with_change((), first, NOW)
    assert settled_ns(first) == first.from_ns + 2 * 317 * MS
    assert hold_at(paces, settled_ns(first), 0) == 100 * MS < hold_at(paces, settled_ns(first) - 2, 0)
    now = first.from_ns + MS
    early = timing_record(1, first.pace, 200 * MS, now, margin_ns=10 * MS)
    assert not follows(paces, early, now)
    assert follows(paces, timing_record(1, first.pace, 200 * MS, now, settled_ns=settled_ns(first)), now)


def test_a_record_after_a_longer_hold_time_need_not_wait() -> None:
    first = timing_record(0, PACE, 800 * MS, NOW)
    assert settled_ns(first) == first.from_ns
    assert follows([first], timing_record(1, first.pace, 900 * MS, first.from_ns), first.from_ns)
