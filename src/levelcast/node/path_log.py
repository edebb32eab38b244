"""Keep what a node has measured on the paths to it, for `levelcast pipeline load paths` (TT §2).

It is written every minute and at the end of the node:

    DIR/2026-11-18.csv    one line per peer and minute of that UTC day, with the columns of `COLUMNS`

`delays` is a histogram: `bucket:count` of each bucket with an arrival, separated by spaces. A bucket is a tenth of a
millisecond. A node that stops writes the minute so far; `since_ns`, the start of its measurement, distinguishes that
line from one of the same minute after the restart. Writes are not synced.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from levelcast.overlay.paths import MINUTE_NS, PathMinute, Paths
from levelcast.protocol.effects import Release
from levelcast.protocol.events import Event, PathsNotWritten
from levelcast.storage.append_file import AppendFile, TapeError

COLUMNS = (
    "from_site",
    "to_site",
    "from_node",
    "to_node",
    "start_ns",
    "since_ns",
    "heard",
    "lost",
    "bursts",
    "outages",
    "least_ns",
    "delays",
)
DIRECTORY = "paths"
AFTER_NS = 1_000_000_000
"""Time after the end of a minute: not in the moment in which other work of the minute is due."""


Row = tuple[str | int | None, ...]


class PathLog:
    """The log of one node; `names` and `sites` are those of all nodes."""

    def __init__(
        self, directory: Path, node: int, names: Mapping[int, str], sites: Mapping[int, str], now: int
    ) -> None:
        self._directory = directory
        self._node, self._names, self._sites = node, names, sites
        self._since_ns = now
        self._written_ns = 0
        """Minutes before this one are written."""

    def write(self, paths: Paths, now: int, *, all_of_it: bool = False) -> int:
        """Append the minutes that are over, and with `all_of_it` the present one too; return the number of lines."""
        until_ns = now + MINUTE_NS if all_of_it else now - now % MINUTE_NS
        by_day: dict[str, list[Row]] = {}
        for peer, meter in sorted(paths.meters.items()):
            for minute in meter.minutes:
                if self._written_ns <= minute.start_ns < until_ns:
                    day = f"{datetime.fromtimestamp(minute.start_ns // 1_000_000_000, UTC):%Y-%m-%d}"
                    by_day.setdefault(day, []).append(self._row(peer, minute))
        for day, rows in by_day.items():
            self._append(self._directory / f"{day}.csv", rows)
        self._written_ns = max(self._written_ns, until_ns)
        return sum(map(len, by_day.values()))

    def _row(self, peer: int, minute: PathMinute) -> Row:
        delays = " ".join(f"{bucket}:{count}" for bucket, count in sorted(minute.delays.items()))
        who = self._sites[peer], self._sites[self._node], self._names[peer], self._names[self._node]
        counts = minute.start_ns, self._since_ns, minute.heard, minute.lost, minute.bursts, minute.outages
        return *who, *counts, minute.least_ns, delays

    def _append(self, path: Path, rows: Sequence[Row]) -> None:
        if not path.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            AppendFile.create(path, _lines([COLUMNS, *rows])).close()
            return
        file = AppendFile.open(path)
        try:
            tail = file.read(4096, max(0, file.size - 4096))
            if not tail.endswith(b"\n"):  # the process crashed while it wrote a line
                file.truncate(file.size - len(tail) + tail.rfind(b"\n") + 1)
            file.append(_lines(rows))
        finally:
            file.close()


def _lines(rows: Iterable[Row]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


class PathRecorder:
    """A `levelcast.runtime.driver.Service`. A disk that cannot be written is reported; measurement continues."""

    def __init__(self, log: PathLog, paths: Paths, now: int, report: Callable[[Event], None]) -> None:
        self._log = log
        self._paths = paths
        self._report = report
        self.filenos: Sequence[int] = ()
        self.wake_ns: int | None = self._next(now)

    def step(self, ready: Collection[int], now: int) -> None:
        if self.wake_ns is None or now < self.wake_ns:
            return
        self.wake_ns = self._next(now)
        try:
            self._log.write(self._paths, now)
        except (OSError, TapeError) as error:
            self._report(PathsNotWritten(0, str(error)))

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        with suppress(OSError, TapeError):
            self._log.write(self._paths, time.time_ns(), all_of_it=True)

    def _next(self, now: int) -> int:
        return now - now % MINUTE_NS + MINUTE_NS + AFTER_NS
