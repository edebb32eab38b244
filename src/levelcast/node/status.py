"""Serve a node's status over HTTP from its event loop.

| path       | is                                                                        |
|------------|---------------------------------------------------------------------------|
| `/status`  | everything as one JSON object; used by `levelcast status`                 |
| `/metrics` | its values for Prometheus (`levelcast.node.metrics`)                       |
| `/probes`  | its last samples of delay and loss; used by `levelcast probe`             |
| `/paths`   | delay and loss of all paths that it knows; used by `levelcast network`    |
| `/`        | name, role and version of the node                                        |

Between requests a node only counts releases in buckets and keeps its last reports.
"""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from levelcast.node.http_server import Page, Responder
from levelcast.node.metrics import CONTENT_TYPE, exposition
from levelcast.node.roles.base import Names, Role, Status
from levelcast.protocol.effects import Release
from levelcast.protocol.event_text import Cause, cause_of, sentence
from levelcast.protocol.events import (
    Event,
    RingEntered,
    RingFormed,
    event_fields,
    event_name,
)
from levelcast.runtime.clock_sync import kernel_clock
from levelcast.runtime.sockets import Address
from levelcast.version import __version__

KEPT = 20
"""Number of reports, and of reformations, on the page."""
BOUNDS_S = (
    *(1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds of the buckets in which releases are counted by their delay."""
_BOUNDS_NS = tuple(round(bound * 1e9) for bound in BOUNDS_S)
_STATM = Path("/proc/self/statm")


class DelayBuckets:
    """Delays of releases, counted in fixed buckets."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_NS) + 1)
        self._sum_ns = 0

    def add(self, delay_ns: int) -> None:
        self._counts[bisect_left(_BOUNDS_NS, delay_ns)] += 1
        self._sum_ns += max(0, delay_ns)

    def as_json(self) -> Status:
        """Return the count of each bucket; the last one has everything above the last bound."""
        return {"bounds_s": BOUNDS_S, "counts": list(self._counts), "sum_s": self._sum_ns / 1e9}


class Reformation(NamedTuple):
    """A ring that this node formed or entered, and the cause if known."""

    at_ns: int
    cause: str
    slot: int
    detail: str


class EventLog:
    """The last reports of a node, and the last reformations among them.

    A receiver knows the cause if it reported the fault itself; a reformation server knows the fault it received.
    """

    def __init__(self, node: str, names: Names) -> None:
        self._node = node
        self._names = names
        self.events: deque[Status] = deque(maxlen=KEPT)
        self.reformations: deque[Reformation] = deque(maxlen=KEPT)
        self._cause = ""

    def note(self, event: Event, at_ns: int) -> None:
        detail = sentence(event, self._names)
        slot = event.start_slot if isinstance(event, RingFormed) else event.slot
        known = {"at_ns": at_ns, "kind": event_name(event), "slot": slot, "detail": detail}
        self.events.append(known | event_fields(event))
        if isinstance(event, Cause):
            self._cause = cause_of(event, self._node, self._names)
        elif isinstance(event, RingEntered | RingFormed):
            self.reformations.append(Reformation(at_ns, self._cause or "invited", slot, detail))
            self._cause = ""

    def as_json(self) -> Status:
        return {"reformations": [each._asdict() for each in self.reformations], "events": list(self.events)}


class StatusService(Responder):
    """The status page of one node: a `runtime.driver.Service`. `known` returns the status line."""

    def __init__(
        self,
        address: Address,
        role: Role,
        known: Callable[[], Status],
        pages: Mapping[str, Callable[[], Status]] | None = None,
        node: str = "",
        names: Names | None = None,
    ) -> None:
        self.lateness = DelayBuckets()
        """From the scheduled release time."""
        self.scheduling = DelayBuckets()
        """From the time from which the release was possible (`levelcast.runtime.lateness`)."""
        self.log = EventLog(node, names or {})
        self._role = role
        self._known = known
        self._began_s = time.monotonic()
        self._apart_ns = time.time_ns() - time.monotonic_ns()
        served: dict[str, Callable[[int], Page]] = {"/": self._index, "/status": self._json, "/metrics": self._metrics}
        served |= {path: _json_page(made) for path, made in (pages or {}).items()}
        super().__init__(address, served, lambda: role.machine.wake_ns)

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        self.lateness.add(now - release.scheduled_ns)
        self.scheduling.add(release.delay_ns(now))

    def note(self, event: Event) -> None:
        """Keep an event for the page."""
        self.log.note(event, time.time_ns())

    # -- the pages ----------------------------------------------------------------------------------------

    def status(self, now: int) -> Status:
        """Return the status line, the resource usage, the details of the role and the last events."""
        status = self._known()
        status |= {
            "version": __version__,
            "pid": os.getpid(),
            "now_ns": now,
            "uptime_s": time.monotonic() - self._began_s,
            "cpu_s": time.process_time(),
            "rss_bytes": _resident_bytes(),
            "clock": self._clock(bool(status["clock_trusted"])) | status.get("clock", {}),
            "journal_bytes": self._role.store.journal.size_bytes,
        }
        if self._role.KIND.releases:
            status["lateness"] = self.lateness.as_json()
            status["scheduling_delay"] = self.scheduling.as_json()
        return status | self._role.details(status, now) | self.log.as_json()

    def _clock(self, trusted: bool) -> Status:
        drift_ns = time.time_ns() - time.monotonic_ns() - self._apart_ns
        kernel = kernel_clock()
        return {"trusted": trusted, "drift_ns": drift_ns, "kernel": kernel._asdict() if kernel is not None else None}

    def _json(self, now: int) -> Page:
        return Page("application/json", json.dumps(self.status(now)) + "\n")

    def _metrics(self, now: int) -> Page:
        return Page(CONTENT_TYPE, exposition(self.status(now), self._role.METRICS, self._role.STATE))

    def _index(self, now: int) -> Page:
        known = self._known()
        text = f"{known['name']}, {known['role']} of a Levelcast network, version {__version__}\n"
        return Page("text/plain", text + "/status   JSON\n/metrics  for Prometheus\n")


def _resident_bytes() -> int:
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # not Linux
        return 0


def _json_page(make: Callable[[], Status]) -> Callable[[int], Page]:
    return lambda _: Page("application/json", json.dumps(make()) + "\n")
