"""Make the timing record that changes the hold time of a running ring (rule W9).

An operator (`levelcast timing --apply`) and the ring itself (`hold = "auto"`) change it alike, so that the rules for
a record that counts (`levelcast.protocol.pace`) are in one place:

- its version follows that of the last record, and `before_ns` is the hold time that the last record has reached;
- it applies from a time by which every receiver has released it: now + the hold time before + `MARGIN_NS`, in which
  the record is sent, lost, sent again and ordered;
- beat interval and cut-offs stay as they are: they follow from the delays of the network file.
"""

from __future__ import annotations

from levelcast.protocol.pace import FALL
from levelcast.wire.messages import UNIT_NS, Cutoff, Pace, PaceChange

MARGIN_NS = 1_000_000_000
"""Time to order a record: several attempts to send it, and the wait for a slot."""


def timing_record(
    version: int, pace: Pace, hold_ns: int, now_ns: int, *, settled_ns: int = 0, margin_ns: int = MARGIN_NS
) -> PaceChange:
    """Return the record that changes the hold time to `hold_ns`, in whole units; `encode_pace_change` makes it bytes.

    `version` is that of the last record, 0 without one, and `pace` the times in force. A ring whose hold time is still
    falling keeps it until `settled_ns` (see there), so the record applies after that.

    >>> pace = Pace(600_000_000, 25_000_000, (Cutoff(1, 80_000_000),))
    >>> timing_record(3, pace, 416_960_001, 10_000_000_000)[:3]
    (4, 11600000000, 600000000)
    """
    cutoffs = tuple(Cutoff(each.member, units(each.ns)) for each in pace.cutoffs)
    before_ns = units(pace.hold_ns)
    from_ns = max(now_ns + before_ns + margin_ns, settled_ns)
    return PaceChange(version + 1, from_ns, before_ns, Pace(units(hold_ns), units(pace.beat_ns), cutoffs))


def settled_ns(change: PaceChange) -> int:
    """Return the time from which the hold time is that of `change`: a shorter one is reached in steps."""
    return change.from_ns + FALL * max(0, change.before_ns - change.pace.hold_ns)


def units(ns: float) -> int:
    """Return a duration in whole units, rounded up, at least one.

    >>> units(416_960_001), units(0)
    (417000000, 100000)
    """
    return max(1, -(-int(ns) // UNIT_NS)) * UNIT_NS
