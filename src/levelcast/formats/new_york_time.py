"""Convert the time of day in New York, which files of US markets use, to UTC."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from levelcast.formats.columns import TradeFileError

ZONE = "America/New_York"
DAY_NS = 86_400_000_000_000
_HOUR_NS = 3_600_000_000_000


class NewYorkClock:
    """Converts the time of day in New York to nanoseconds UTC. Clock changes are at a full hour."""

    def __init__(self, day: date) -> None:
        try:
            zone = ZoneInfo(ZONE)
        except ZoneInfoNotFoundError:
            raise TradeFileError(f"time zone {ZONE} is not installed on this machine; run pip install tzdata") from None
        hours = [datetime(day.year, day.month, day.day, hour, tzinfo=zone) for hour in range(24)]
        offsets = [(hour.utcoffset() or timedelta()) // timedelta(microseconds=1) * 1000 for hour in hours]
        self._offset_ns = np.array(offsets, np.int64)
        self._midnight_ns = (day - date(1970, 1, 1)).days * DAY_NS

    def utc_ns(self, since_midnight_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        hour = np.minimum(since_midnight_ns // _HOUR_NS, 23)
        return (self._midnight_ns + since_midnight_ns - self._offset_ns[hour]).astype(np.uint64)
