"""What the status says about a clock."""

from __future__ import annotations

from levelcast.node.clock_report import clock_status
from levelcast.overlay.clock_check import ClockCheck, Compared, MemberClock
from levelcast.overlay.paths import Paths
from levelcast.overlay.probe import Prober
from levelcast.protocol.clock import DAY_NS
from levelcast.protocol.events import ClockDoubt
from tests.ring_parts import MS, START, make_config

NAMES = {1: "tokyo-1", 2: "london-1"}


def test_a_clock_that_nobody_vouches_for_has_the_error_of_the_network_file() -> None:
    check = ClockCheck(1, make_config(), Prober(1, [2, 3], None, START), Paths(1, [2, 3], START), START, 0)
    status = clock_status(check, NAMES)
    assert (status["vouched"], status["source"], status["error_ns"]) == (False, None, make_config().clock_error_ns)
    assert (status["checked"], status["doubt"], status["group_offset_ns"]) == (False, None, None)
    assert (status["heard"], status["needed"], status["leap_announced"]) == (1, 2, False)
    assert status["members"]["london-1"] == {"offset_ns": None, "error_ns": None, "median_ns": None}


def test_bound_offset_members_and_doubt_are_told() -> None:
    check = ClockCheck(1, make_config(), Prober(1, [2, 3], None, START), Paths(1, [2, 3], START), START, 0)
    check.bound.vouch("chrony", 900_000, 0)
    check.step(START, 0)
    check.doubt, check.offset_ns = ClockDoubt.OFFSET, 7 * MS
    check.compared = {2: Compared(30 * MS, 10 * MS)}
    check.told = {2: MemberClock(400, -250), 3: MemberClock(None, None)}
    check.announce_leap(True, START)
    assert check.leap.at_ns == (START // DAY_NS + 1) * DAY_NS
    status = clock_status(check, NAMES)
    assert (status["vouched"], status["source"], status["error_ns"]) == (True, "chrony", 900_000)
    assert (status["doubt"], status["group_offset_ns"], status["leap_announced"]) == ("offset", 7 * MS, True)
    assert status["members"] == {
        "london-1": {"offset_ns": 10 * MS, "error_ns": 400_000, "median_ns": -250_000},
        "3": {"offset_ns": None, "error_ns": None, "median_ns": None},
    }
