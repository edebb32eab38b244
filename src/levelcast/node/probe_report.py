"""Report a node's probes, and collect the rows of `probes.csv` from all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from levelcast.errors import NetError
from levelcast.overlay.probe import KEPT, Prober

COLUMNS = ("from_site", "to_site", "at_ns", "round_trip_ns", "loss_ratio", "one_way_ns", "from_node", "to_node")

Status = dict[str, Any]
Row = tuple[str, str, int, int | None, int, int | None, str, str]


def probe_status(prober: Prober, names: Mapping[int, str]) -> Status:
    """Return the counts per peer, for the status and for Prometheus."""
    return {
        names.get(node, str(node)): {key: value for key, value in asdict(peer).items() if key != "silent"}
        for node, peer in prober.peers.items()
    }


def probe_page(prober: Prober, names: Mapping[int, str], sites: Mapping[int, str]) -> Status:
    """Return the stored samples, oldest first."""
    samples = [
        (index, at_ns, names.get(peer, str(peer)), sites.get(peer, ""), round_trip_ns, one_way_ns)
        for index, at_ns, peer, round_trip_ns, one_way_ns in prober.samples
    ]
    return {"every_ns": prober.every_ns, "known": prober.known, "samples": samples}


@dataclass(slots=True)
class Gathered:
    """Samples of all nodes, each once, regardless of how often the nodes are queried."""

    rows: list[Row] = field(default_factory=list)
    overwritten: int = 0
    """Samples that a node had overwritten before it was queried."""
    _seen: dict[str, int] = field(default_factory=dict)

    def take(self, part: str, page: Status, *, first: bool = False) -> None:
        """Add a node's samples; use the `first` page only as start position. Raise NetError if it does not probe."""
        if page.get("every_ns") is None:
            raise NetError(
                f'{part} sends no probes; set [probe] every = "1s" in the network file and restart the nodes'
            )
        seen = self._seen.get(part)
        known = int(page["known"])
        if seen is None or known < seen:  # a new life counts from 1
            seen = known if first else 0
        samples: Sequence[Sequence[Any]] = page["samples"]
        self.overwritten += max(0, known - seen - KEPT)
        self.rows += [
            (page["site"], site, at_ns, round_trip_ns, int(round_trip_ns is None), one_way_ns, page["name"], name)
            for index, at_ns, name, site, round_trip_ns, one_way_ns in samples
            if index > seen
        ]
        self._seen[part] = known
