"""Gaps in the numbers of a source, which are requested before a token names the packets (rule 5).

A packet with a later number shows that earlier ones were sent. They may only be delayed, so a gap is requested after
the time within which packets of one sender overtake each other. It is requested a few times; then a token names the
packets, and `levelcast.protocol.loss` takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from levelcast.wire.messages import Run

MOST_ATTEMPTS = 3
MAX_GAPS = 256
"""Gaps beyond this number are left to the tokens."""


@dataclass(slots=True)
class _Gap:
    run: Run
    attempts: int
    next_ns: int


class GapRequest(NamedTuple):
    """Packets to request now, and how often they were requested before."""

    runs: tuple[Run, ...]
    attempt: int


class SourceGaps:
    """The gaps of one receiver."""

    def __init__(self) -> None:
        self._gaps: list[_Gap] = []
        self.next_ns: int | None = None
        """Time of the next call of `due`."""

    def open(self, run: Run, at_ns: int) -> None:
        """Note a gap; requests for it start at `at_ns`."""
        if len(self._gaps) < MAX_GAPS:
            self._gaps.append(_Gap(run, 0, at_ns))
            self.next_ns = at_ns if self.next_ns is None else min(self.next_ns, at_ns)

    def due(
        self, now: int, missing: Callable[[Run], tuple[Run, ...]], again_ns: Callable[[int], int]
    ) -> list[GapRequest]:
        """Return the requests to send at `now`; `missing` returns the packets of a gap that are still missing."""
        if self.next_ns is None or now < self.next_ns:
            return []
        requests: list[GapRequest] = []
        left: list[_Gap] = []
        for gap in self._gaps:
            if gap.next_ns <= now:
                runs = missing(gap.run)
                if not runs:
                    continue
                requests.append(GapRequest(runs, gap.attempts))
                gap.next_ns = now + again_ns(gap.attempts)
                gap.attempts += 1
            if gap.attempts < MOST_ATTEMPTS:
                left.append(gap)
        self._gaps = left
        self.next_ns = min((gap.next_ns for gap in left), default=None)
        return requests

    def clear(self) -> None:
        self._gaps.clear()
        self.next_ns = None
