"""Schedule of a session: when it is open, and when its numbers start at 1 again.

A schedule has one period a day, from `open_ns` to `close_ns` after midnight UTC, on the given weekdays. A close at or
before the open is on the next day; equal times make a period of 24 hours. The numbers of a session belong to one
period.
"""

from __future__ import annotations

from dataclasses import dataclass

DAY_NS = 86_400 * 1_000_000_000
_EPOCH_WEEKDAY = 3
"""1 January 1970 was a Thursday; Monday is 0."""
EVERY_DAY = frozenset(range(7))


@dataclass(frozen=True, slots=True)
class SessionSchedule:
    open_ns: int = 0
    close_ns: int = 0
    weekdays: frozenset[int] = EVERY_DAY
    """Days on which a period may begin, Monday is 0."""

    def __post_init__(self) -> None:
        if not (0 <= self.open_ns < DAY_NS and 0 <= self.close_ns < DAY_NS and self.weekdays <= EVERY_DAY):
            raise ValueError("a schedule needs times of day below 24 hours and weekdays from 0 to 6")

    @property
    def length_ns(self) -> int:
        return (self.close_ns - self.open_ns - 1) % DAY_NS + 1

    def period(self, now: int) -> int | None:
        """Return the start of the period at a time, None if the session is closed."""
        start = (now - self.open_ns) // DAY_NS * DAY_NS + self.open_ns
        weekday = (start // DAY_NS + _EPOCH_WEEKDAY) % 7
        return start if weekday in self.weekdays and now < start + self.length_ns else None

    def end(self, start: int) -> int:
        """Return the end of the period that starts at a time."""
        return start + self.length_ns
