"""Report the paths that a node knows, and combine the reports of several nodes to the live matrix (TT §2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from levelcast.network.measured.matrix import CONFIDENCE_Z, Hour
from levelcast.overlay.paths import MINUTE_NS, WINDOW, Paths, loss_of
from levelcast.timing.hold import wilson_limits

Status = dict[str, Any]
LIVE_QUANTILES = (0.5, 0.99, 0.999)
STALE_NS = 10_000_000_000
"""A row that is older is not part of the live matrix: rows are sent once a second."""


def path_status(paths: Paths, names: Mapping[int, str]) -> Status:
    """Return the paths to this node by peer, for the status and for Prometheus."""
    return {
        names.get(path.peer, str(path.peer)): {
            "heard": path.heard,
            "lost": path.lost,
            "loss_ratio": loss_of(path),
            "p50_ns": path.p50_us * 1_000,
            "p99_ns": path.p99_us * 1_000,
        }
        for _, path in paths.own().values()
    }


def path_page(paths: Paths, names: Mapping[int, str], sites: Mapping[int, str]) -> Status:
    """Return all rows that this node knows, and the losses that it shares with others."""
    rows = [
        {
            "from": names.get(path.peer, str(path.peer)),
            "to": names.get(node, str(node)),
            "from_site": sites.get(path.peer, ""),
            "to_site": sites.get(node, ""),
            "at_ns": at_ns,
            "heard": path.heard,
            "lost": path.lost,
            "bursts": path.bursts,
            "least_ns": path.least_us * 1_000,
            "p50_ns": path.p50_us * 1_000,
            "p99_ns": path.p99_us * 1_000,
            "p999_ns": path.p999_us * 1_000,
        }
        for node, row in sorted(paths.rows.items())
        for at_ns, path in row.values()
    ]
    shared = [
        {"from": sites.get(sender, ""), "with": sites.get(other, ""), **found._asdict()}
        for (sender, other), found in sorted(paths.shared.items())
    ]
    return {"window_s": WINDOW * MINUTE_NS // 1_000_000_000, "paths": rows, "shared": shared}


@dataclass(frozen=True, slots=True)
class LivePath:
    """One direction between two nodes, in the last minutes."""

    sender: str
    receiver: str
    from_site: str
    to_site: str
    at_ns: int
    heard: int
    lost: int
    bursts: int
    least_ns: int
    p50_ns: int
    p99_ns: int
    p999_ns: int

    @property
    def loss_ratio(self) -> float:
        return self.lost / (self.heard + self.lost) if self.heard + self.lost else 0.0

    @property
    def loss_limits(self) -> tuple[float, float]:
        """The 95 % interval of the loss (Wilson)."""
        return wilson_limits(self.lost, self.heard + self.lost)


class LiveMatrix:
    """The newest row of each node, of all nodes that were asked."""

    def __init__(self, pages: Iterable[Status]) -> None:
        found: dict[tuple[str, str], LivePath] = {}
        self.shared: list[dict[str, Any]] = []
        self.window_s = 0
        for page in pages:
            self.window_s = page["window_s"]
            site = page["site"]
            self.shared += [each | {"site": site} for each in page["shared"]]
            for row in page["paths"]:
                values = dict(row)
                path = LivePath(values.pop("from"), values.pop("to"), **values)
                known = found.get((path.sender, path.receiver))
                if path.heard and (known is None or path.at_ns > known.at_ns):
                    found[path.sender, path.receiver] = path
        newest = max((path.at_ns for path in found.values()), default=0)
        self.paths = [path for _, path in sorted(found.items()) if path.at_ns > newest - STALE_NS]
        """The directions, sorted by sender and receiver."""
        self.at_ns = newest

    @property
    def nodes(self) -> list[str]:
        return sorted({name for path in self.paths for name in (path.sender, path.receiver)})

    def hour(self, quantile: float) -> Hour:
        """Return the links between sites, as `levelcast matrix` computes them from the tables of a lake."""
        rows = []
        trips = {(path.sender, path.receiver): path.p50_ns for path in self.paths}
        for path in self.paths:
            tried = path.heard + path.lost
            there = trips.get((path.receiver, path.sender), path.p50_ns)
            rows.append(
                {
                    "start_ns": self.at_ns,
                    "from_site": path.from_site,
                    "to_site": path.to_site,
                    "answered": path.heard,
                    "tried": tried,
                    "lost": path.lost,
                    "min_ns": max(0, path.least_ns),
                    "p50_ns": max(0, path.p50_ns),
                    "p99_ns": max(0, path.p99_ns),
                    "p999_ns": max(0, path.p999_ns),
                    "round_trip_ns": max(0, path.p50_ns + there),
                    "loss_ratio": path.loss_ratio,
                    "loss_upper": wilson_limits(path.lost, tried, CONFIDENCE_Z)[1],
                }
            )
        shared = [
            {
                "from_site": each["from"],
                "site": each["site"],
                "helper": each["with"],
                "tried": each["here"],
                "both": each["both"],
            }
            for each in self.shared
            if each["with"] != each["site"]
        ]
        return Hour(rows, quantile, shared, one_way=True)
