"""The timing and the helpers that follow from the measured matrix of one hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations

from levelcast.errors import UserError
from levelcast.network.measured.matrix import Helper, Hour, Pair, helpers_of
from levelcast.network.model import Link, Links, Network
from levelcast.timing.derive import Path, Shape, derive
from levelcast.timing.rules import LOSS_LIMIT, Timing

ALL = "all"
"""Name of the worst hour of each pair."""
SLOT_NS = 50_000_000
CLOCK_ERROR_NS, PROCESS_NS = 1_000_000, 5_000_000
"""Defaults of a network file, used for the timing without a network file."""
SHOWN_NAMES = 5


class UnmeasuredError(UserError):
    """A pair of sites has neither a measurement nor a link in the network file."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The timing of one stripe from one hour's matrix."""

    start_ns: int
    stripe: str
    slot_ns: int
    witnesses: int
    sites: int
    unmeasured: tuple[Pair, ...]
    """Pairs of the ring without a probe but with a link in the network file."""
    delay_between: str
    delay_ns: int
    loss_between: str
    loss_ratio: float
    timing: Timing | None
    """None if the loss is above one half: no k_r is large enough."""

    @property
    def hold_ns(self) -> float:
        return float("inf") if self.timing is None else self.timing.hold_ns


@dataclass(frozen=True, slots=True)
class MatrixResult:
    """The chosen hour, and remarks about it."""

    hour: Hour
    name: str
    timed: tuple[Timed, ...]
    helpers: dict[str, list[tuple[int, Helper]]]
    remarks: tuple[str, ...]
    hours: int


def hour_name(start_ns: int) -> str:
    return f"{datetime.fromtimestamp(start_ns // 1_000_000_000, UTC):%Y-%m-%dT%H}"


def timings(network: Network | None, hour: Hour) -> tuple[Timed, ...]:
    """Return the timing of every stripe; without a network, of one receiver at every site."""
    if network is None:
        return (_timing_of_all(hour),)
    measured, unmeasured = measured_network(network, hour)
    found = []
    for stripe in network.stripes:
        path = measured.path(stripe.name)
        able = stripe.rules.attempts is not None or path.loss_ratio <= LOSS_LIMIT
        ring = stripe.rules.slot_ns or 0, network.witnesses(stripe.name), len(network.core_sites), unmeasured
        worst = path.delay_between, path.delay_ns, path.loss_between, path.loss_ratio
        timing = measured.timing(stripe.name) if able else None
        found.append(Timed(hour.start_ns, stripe.name, *ring, *worst, timing))
    return tuple(found)


def measured_network(network: Network, hour: Hour) -> tuple[Network, tuple[Pair, ...]]:
    """Return the network with the measured links and without the hold times of its file, and the unmeasured pairs."""
    links, unmeasured = _links(network, hour)
    without = network.with_holds(dict.fromkeys(stripe.name for stripe in network.stripes))
    return replace(without, links=links), unmeasured


def _links(network: Network, hour: Hour) -> tuple[Links, tuple[Pair, ...]]:
    """Return the measured pairs as links, else the file's own. Raises LakeError for a pair with neither."""
    own = network.links
    fallback = own.default if own is not None else None
    pairs = dict(own.pairs) if own is not None else {}
    pairs |= {
        pair: Link(way.min_ns, max(0, way.late_ns - way.min_ns), hour.loss_bound(way))
        for pair, way in hour.ways.items()
    }
    core = sorted(network.core_sites)
    wanted = set(combinations(core, 2))
    wanted |= {(min(f.site, r), max(f.site, r)) for f in network.floors for r in core if f.site != r}
    unmeasured = tuple(sorted(pair for pair in wanted if pair not in hour.ways))
    nowhere = [f"{a} and {b}" for a, b in unmeasured if (a, b) not in pairs and fallback is None]
    if nowhere:
        when = "" if not hour.start_ns else f" in the hour {hour_name(hour.start_ns)}"
        raise UnmeasuredError(
            f"no probe between {name_list(nowhere)}{when}, and the network file has no link there; "
            "measure it, or add a pair to [links]"
        )
    return Links(pairs, fallback), unmeasured


def _timing_of_all(hour: Hour) -> Timed:
    sites = hour.sites
    slow = max(hour.ways, key=lambda pair: hour.ways[pair].late_ns)
    lossy = max(hour.ways, key=lambda pair: hour.loss_bound(hour.ways[pair]))
    loss = hour.loss_bound(hour.ways[lossy])
    delay = hour.ways[slow].late_ns
    witnesses = len(sites) // 2 + 1
    timing = None
    if loss <= LOSS_LIMIT:
        path = Path(delay, loss, CLOCK_ERROR_NS, 0, PROCESS_NS)
        timing = derive(path, Shape("pipelined", SLOT_NS, witnesses, max(2, len(sites)), 2)).timing
    return Timed(
        hour.start_ns, "main", SLOT_NS, witnesses, len(sites), (), _between(slow), delay, _between(lossy), loss, timing
    )


def _between(pair: Pair) -> str:
    return f"nodes of {pair[0]}" if pair[0] == pair[1] else f"{pair[0]} and {pair[1]}"


def all_helpers(network: Network | None, hour: Hour, timed: Sequence[Timed]) -> dict[str, list[tuple[int, Helper]]]:
    """Return, per site of receivers, the sites with the shortest repair times."""
    if network is None:
        asking = candidates = hour.sites
    else:
        candidates = sorted({receiver.site for receiver in network.receivers})
        asking = sorted({*candidates, *(each.site for each in network.secondaries)})
    # Cost of a failed attempt; without a timing, the longest round trip.
    usual = 2 * max(way.late_ns for way in hour.ways.values())
    request_ns = max((each.timing.request_ns if each.timing is not None else usual for each in timed), default=usual)
    found = {site: helpers_of(hour, site, candidates, request_ns) for site in asking}
    return {site: helpers for site, helpers in found.items() if helpers}


def name_list(names: Sequence[str]) -> str:
    """List the first few names, and the number of others."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more
