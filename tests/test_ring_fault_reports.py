"""When a member goes to the reformation servers, and how often (rule 12)."""

from __future__ import annotations

from levelcast.ring.fault_reports import FaultReports
from levelcast.timing.derive import Path, Shape, derive

MS = 1_000_000
TIMING = derive(Path(5 * MS, 0.01, 1 * MS, process_ns=1 * MS), Shape("pipelined", 10 * MS, 2, 3, 2)).timing
START = 1_000 * MS
STUCK_AFTER = TIMING.join_ns + TIMING.lead_ns + 2 * TIMING.late_ns + TIMING.request_ns


def test_a_new_member_asks_at_once_and_then_every_ask_interval() -> None:
    pleas = FaultReports(TIMING, START)
    assert pleas.outside
    assert pleas.asks(START)
    assert not pleas.asks(START + TIMING.ask_ns - 1)
    assert pleas.asks(START + TIMING.ask_ns)


def test_faults_are_reported_once_a_request_interval() -> None:
    pleas = FaultReports(TIMING, START)
    assert pleas.may_report(START)
    assert not pleas.may_report(START + TIMING.request_ns - 1)
    assert pleas.may_report(START + TIMING.request_ns)


def test_a_promise_gets_the_time_that_its_ring_may_take() -> None:
    pleas = FaultReports(TIMING, START)
    pleas.promised(START + 7)
    assert not pleas.is_stuck(START + 7 + STUCK_AFTER - 1)
    assert pleas.is_stuck(START + 7 + STUCK_AFTER)
    assert not pleas.is_stuck(START + 7 + STUCK_AFTER + 1)


def test_who_hears_of_a_ring_without_it_asks_at_once_but_only_once() -> None:
    pleas = FaultReports(TIMING, START)
    pleas.outside = False
    pleas.ask_ns = START + TIMING.ask_ns
    pleas.hear_of_other_ring(START + 5)
    assert pleas.outside
    assert pleas.asks(START + 5)
    pleas.hear_of_other_ring(START + 6)
    assert not pleas.asks(START + 6)


def test_while_the_clock_is_wrong_nothing_is_asked_and_no_timer_stands_in_the_past() -> None:
    pleas = FaultReports(TIMING, START)
    later = START + 10 * TIMING.ask_ns
    pleas.stay_silent(later)
    assert pleas.ask_ns > later
    assert pleas.stuck_ns > later
